"""Runs one after another through one Flower federation: behind `fedivon run`, `resume` and `sweep`."""

from __future__ import annotations

import fcntl
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedivon_app.core.settings import Settings, SettingsError
from fedivon_app.federation.local_federation import Federation
from fedivon_app.federation.superlink import SuperLink
from fedivon_app.runs.plan import Step, duration, left

FOLDER = "; run folder "  # stands before the run's folder in the server's lines
FLOWERS = "Simulation failed with exception: "  # words before the run's own
Launch = tuple[Settings, dict[str, Any]]  # a run's settings and Flower's run config for it


@dataclass(frozen=True)
class Outcome:
    """How a run went: its folder, if it got as far as having one, and what made it fail."""

    folder: Path | None
    failure: str | None
    seconds: float


@dataclass(frozen=True)
class Where:
    """What runs go to: a federation with simulated nodes that is started for them, or a SuperLink that is there."""

    cpus: float = 1
    verbose: bool = False
    superlink: str | None = None
    ca: Path | None = None

    def federation(self) -> SuperLink:
        if self.superlink:
            return SuperLink(self.superlink, self.ca, verbose=self.verbose)
        return Federation(verbose=self.verbose)

    @property
    def settings(self) -> list[str]:
        """Simulated clients keep what they keep in the run's folder, sites in a place of their own."""
        return [] if self.superlink else ["run.client_state=run"]


def launch(
    runs: Sequence[Launch], where: Where, show: Callable[[str], None] = print
) -> Iterator[Outcome]:
    """Runs them in turn, each when its outcome is asked for; `show` gets the lines of their progress."""
    if not runs:
        return
    with where.federation() as federation:
        for settings, config in runs:
            folders: list[str] = []

            def follow(line: str, folders: list[str] = folders) -> None:
                folders += line.split(FOLDER)[1:]
                show(line)

            began = time.monotonic()
            failure = federation.run(config, settings.data.clients, where.cpus, follow)
            yield Outcome(Path(folders[-1]) if folders else None, failure, time.monotonic() - began)


def sweep(steps: Sequence[Step], where: Where) -> None:
    """Makes the runs that are left, each under a line that says which it is and how long the rest may take."""
    places = [place for place, step in enumerate(steps) if step.action != "keep"]
    durations = [
        step.found.seconds
        for step in steps
        if step.action == "keep" and step.found.status == "completed"
    ]
    progress = Progress(where.verbose)
    began = time.monotonic()
    measured = []
    runs = [(steps[place].plan.settings, steps[place].config) for place in places]
    with closing(launch(runs, where, progress)) as outcomes:
        for number, place in enumerate(places):
            step = steps[place]
            which = f"{place + 1}/{len(steps)} {step.plan.label}"
            rest = left(measured or durations, len(places) - number)
            times = [f"{duration(time.monotonic() - began)} so far"] if number else []
            times += [f"about {duration(rest)} left"] if rest is not None else []
            going_on = ", going on" if step.action == "resume" else ""
            print(
                f"{which}{going_on} ..." + (f" ({', '.join(times)})" if times else ""), flush=True
            )
            outcome = next(outcomes)
            progress.end()
            if outcome.failure is None:
                measured.append(outcome.seconds)
            else:
                tell_failure(which, outcome.failure, where.verbose)


def tell_failure(which: str, failure: str, verbose: bool) -> None:
    """One line to stderr."""
    hint = "" if verbose else " (--verbose shows Flower's own log)"
    reason = failure.removeprefix(FLOWERS).partition("\n")[0]
    print(f"fedivon: {which} failed: {reason}{hint}", file=sys.stderr, flush=True)


class Progress:
    """The lines of a run as one line that changes in a terminal, and of which the last stays; all where `verbose`."""

    def __init__(self, verbose: bool):
        self.verbose = verbose
        self.live = sys.stdout.isatty()
        self.last = ""

    def __call__(self, line: str) -> None:
        if self.verbose:
            print(line, flush=True)
        elif line.startswith("round "):
            self.last = line
            if self.live:
                width = shutil.get_terminal_size().columns - 1
                print(f"\r\x1b[2K{f'  {line}'[:width]}", end="", flush=True)

    def end(self) -> None:
        if self.live and not self.verbose:
            print("\r\x1b[2K", end="")
        if self.last:
            print(f"  {self.last}", flush=True)
        self.last = ""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Makes the folder, and keeps a second sweep out of it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / ".lock", "w")  # noqa: SIM115 - it is closed below, after the block
    except OSError as error:
        raise SettingsError(f"cannot write to {folder}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                f"another `fedivon sweep` is at work in {folder}; --name makes a second one"
            ) from None
        yield
