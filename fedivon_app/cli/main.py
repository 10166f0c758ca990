"""`fedivon`: what `flwr` itself does not do."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from fedivon_app.cli import early
from fedivon_app.cli.commands import command_in, command_of
from fedivon_app.cli.parser import parse
from fedivon_app.core.errors import FedIvonError, FlowerError, UserError
from fedivon_app.runs.status import RunInterrupted

INTERRUPTED = 130  # as a shell reports a process that Ctrl-C ended
READER_GONE = 141  # and one that wrote to a pipe which nobody reads
RESUMABLE = ("run", "resume")  # commands of which every run can be gone on with by itself


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit status.

    The status is 2 where what was asked for cannot be, or Flower does not do it, and 1 where
    something that was begun failed. Such errors are told in lines of their own, with no traceback,
    and so is what the disk refuses.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    exit_on_signals()
    early.begin(words)
    try:
        options = parse(words)
        return command_of(options.command).run(options)
    except FedIvonError as error:
        for line in str(error).splitlines():
            print(f"fedivon: {line}", file=sys.stderr)
        return 2 if isinstance(error, UserError | FlowerError) else 1
    except BrokenPipeError:  # whoever read the output has gone, as in `fedivon list | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the flush at the exit
        return READER_GONE
    except OSError as error:
        if error.filename is None:
            raise
        blocked = isinstance(error, FileExistsError | NotADirectoryError)
        why = "a file is in the way of a folder" if blocked else error.strerror
        print(f"fedivon: {_asked_for(str(error.filename))}: {why}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        again = shlex.join(["fedivon", *_words_again(words, stop)])
        print(f"\nfedivon: interrupted; go on with: {again}", file=sys.stderr)
        return INTERRUPTED


def _asked_for(name: str) -> str:
    """Return the file that somebody named, where it is the one written aside for it that failed."""
    folder, slash, last = name.rpartition("/")
    hidden = last.startswith(".") and last.endswith(".partial")
    return folder + slash + (last[1:].removesuffix(".partial") if hidden else last)


def _words_again(words: list[str], stop: KeyboardInterrupt) -> list[str]:
    """The command that goes on: with the run that was stopped, or all over again.

    A sweep and its like find what they have done; a run without a folder has done nothing yet.
    """
    command = command_in(words)
    if command not in RESUMABLE or not isinstance(stop, RunInterrupted):
        return words
    options = parse(words)
    if not (options.superlink or stop.folder.is_dir()):
        return words
    given = {"--superlink": options.superlink, "--ca": options.ca}
    rest = [str(word) for name, value in given.items() if value for word in (name, value)]
    return ["resume", str(stop.folder), *rest]


def exit_on_signals() -> None:
    """Exit in order when the process is told to end, so that Flower's processes end too."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
