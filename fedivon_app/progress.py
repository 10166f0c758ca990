"""What a person sees of work that takes long: in a terminal a line that changes, else plain lines.

The line of a run has a bar, which run of how many it is, the time left, and the last scores; before
its first round it says what the run waits for. All else that the run says stays above it.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from fedivon_app.core.text import duration

if TYPE_CHECKING:
    from rich.console import Console

ROUND = re.compile(r"round (\d+)/(\d+)(?=\s|$)")
LOSS = re.compile(r"train loss (\S+)")
SCORED = re.compile(r"(?:mean|mc): (\S.*?)(?=  |$)")
CLIENTS = re.compile(r"\d+ clients with ")
WORTH_TELLING = 60  # seconds that a run will take
WAITS = "waiting for the clients"
FIRST = "in its first round"
REPORTS = "writing its report"


def is_live() -> bool:
    """Tell whether stdout is a terminal in which a line can change."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class Line:
    """One line of a terminal that changes; elsewhere there is none. Use it by `with`."""

    def __init__(self, live: bool | None = None, console: Console | None = None):
        self.live = is_live() if live is None else live
        self._console = console
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self.live:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

            self._console = self._console or Console(highlight=False)
            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[told]}", markup=False),
                console=self._console,
                transient=True,
            )
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()
        if self._progress is not None:
            self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line that stays, above the one that changes."""
        if self._progress is not None:
            self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, flush=True)

    def change(self, what: str, told: str = "", done: int = 0, of: int | None = None) -> None:
        """Show something else: `done` of so many, or with None something of unknown length."""
        if self._progress is None:
            return
        if self._task is None:
            self._task = self._progress.add_task(what, total=of, told=told)
        self._progress.update(self._task, description=what, total=of, completed=done, told=told)

    def clear(self) -> None:
        """Show nothing until the next change."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


class RunLines:
    """The lines of one run after another, each given by calling this.

    Where there is no terminal, or all is to be seen (`verbose`), every line is printed as it comes;
    with `brief` only the last one of a run.
    """

    def __init__(
        self,
        line: Line,
        *,
        verbose: bool = False,
        brief: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.line = line
        self.verbose = verbose
        self.brief = brief and not verbose
        self._clock = clock
        self._forget("")

    def begin(self, name: str, waits: str = WAITS) -> None:
        """Begin with another run, of this name, that waits for something at first."""
        self._forget(name)
        self.line.change(name, f"{waits} ...")

    def _forget(self, name: str) -> None:
        self._name = name
        self._last = ""
        self._scores = ""
        self._began: tuple[int, float] | None = None  # the first round that was seen, and when
        self._told_time = False
        self._ended = False

    def __call__(self, text: str) -> None:
        """Take the next line of the run."""
        found = None if self.verbose else ROUND.match(text)
        if found is None:
            if self.verbose or not self.brief:
                self.line.say(text)
            if self._began is None:
                waits = FIRST if CLIENTS.match(text) else WAITS
                self.line.change(self._name, f"{waits} ...")
            elif self._ended:
                self.line.change(self._name, f"{REPORTS} ...", done=1, of=1)
            return
        self._round(text, done=int(found[1]), rounds=int(found[2]))

    def _round(self, text: str, done: int, rounds: int) -> None:
        left = self._left(done, rounds)
        self._last = text
        self._ended = done == rounds
        scored = SCORED.findall(text)
        self._scores = scored[-1] if scored else self._scores
        loss = LOSS.search(text)
        told = [
            f"{done}/{rounds}",
            *([] if left is None else [f"{duration(left)} left"]),
            *([f"loss {loss[1]}"] if loss else []),
            *([self._scores] if self._scores else []),
        ]
        self.line.change(self._name, "  ".join(told), done=done, of=rounds)
        if self.line.live:
            if done == rounds and not self.brief:  # it stands above what the run says at its end
                self.line.say(text)
                self._last = ""
            return
        if not self.brief:
            self.line.say(text)
        if left is not None and not self._told_time:
            self._told_time = True
            if left > WORTH_TELLING:
                self.line.say(f"  about {duration(left)} left for this run, by its first rounds")

    def _left(self, done: int, rounds: int) -> float | None:
        """Seconds until the end, by the rounds after the first that was seen."""
        now = self._clock()
        if self._began is None or done <= self._began[0]:
            self._began = (done, now)
            return None
        first, began = self._began
        return (now - began) / (done - first) * (rounds - done)

    def end(self) -> None:
        """Leave the run's last round behind, where the lines before it were not printed."""
        self.line.clear()
        if self._last and (self.brief or self.line.live) and not self.verbose:
            self.line.say(f"  {self._last}" if self.brief else self._last)
        self._last = ""
