"""Runs one after another through one federation: behind `fedivon run`, `resume` and `sweep`."""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.text import duration
from fedivon_app.federation.inline_federation import InlineFederation
from fedivon_app.federation.local_federation import Federation
from fedivon_app.federation.run_maker import RunEnd, RunMaker
from fedivon_app.federation.superlink import SuperLink
from fedivon_app.progress import Line, RunLines
from fedivon_app.runs.folder import named_folder, reserved_folder
from fedivon_app.runs.plan import Action, Step, left
from fedivon_app.runs.status import RunInterrupted, RunStatus
from fedivon_app.runs.version import commit

Engine = Literal["flower", "inline"]
Ended = Callable[[int, Path | None], None]


@dataclass(frozen=True)
class Launch:
    """A run to be launched: its settings, and Flower's run config for it.

    A run config with a `resume` goes on with that run, of which so many rounds are `done`; all
    others begin a new one.
    """

    settings: AnySettings
    config: Mapping[str, str]
    done: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a run went: its folder, if it got as far as having one, and what it came to."""

    folder: Path | None
    end: RunEnd
    seconds: float


@dataclass(frozen=True)
class Where:
    """What runs go to: a simulation that is started for them, or a SuperLink that is there.

    A simulation is Flower's own, or the inline one. `cores` are those that it may use, None for all
    that there are; `gpus` is the share of a GPU that each of its clients has. `ray` is the address
    of a Ray cluster for Flower's. `signature` is that of the code, for sites that ask for one.
    """

    cpus: float = 1
    verbose: bool = False
    superlink: str | None = None
    ca: Path | None = None
    engine: Engine = "flower"
    cores: int | None = None
    signature: str = ""
    ray: str | None = None
    gpus: float = 0

    def federation(self) -> AbstractContextManager[RunMaker]:
        """Return the federation, to be entered by `with`."""
        if self.superlink:
            return SuperLink(self.superlink, self.ca, verbose=self.verbose)
        if self.engine == "inline":
            return InlineFederation(cores=self.cores, verbose=self.verbose)
        return Federation(verbose=self.verbose, cores=self.cores, ray=self.ray, gpus=self.gpus)

    @property
    def waits_for(self) -> str:
        """What a run waits for at first, in words."""
        if self.superlink:
            return f"waiting for the SuperLink at {self.superlink}"
        if self.engine == "inline":
            return "starting its processes"
        if self.ray:
            return f"starting Flower's federation on the Ray cluster at {self.ray}"
        return "starting Flower's federation, which takes ten to thirty seconds"

    @property
    def settings(self) -> list[str]:
        """The overrides that go with it.

        Simulated clients keep what they keep in the run's folder, sites in a place of their own.
        """
        return [] if self.superlink else ["run.client_state=run"]


def launch(
    runs: Sequence[Launch], where: Where, show: Callable[[str], None] = print
) -> Generator[Outcome, None, None]:
    """Make the runs in turn, each when its outcome is asked for.

    `show` is given the lines of their progress. The folder of a new run is chosen here and told to
    the run, so that it is known whatever becomes of it.
    """
    if not runs:
        return
    code = {"commit": commit()}
    if where.signature:
        code["signature"] = where.signature
    with where.federation() as federation:
        for one in runs:
            began = time.monotonic()
            with _folder_of(one, where) as folder:
                new = {} if "resume" in one.config else {"folder": str(folder)}
                try:
                    end = federation.run(
                        config={**one.config, **new, **code},
                        nodes=one.settings.data.clients,
                        cpus=where.cpus,
                        show=show,
                    )
                except KeyboardInterrupt:
                    raise RunInterrupted(folder.expanduser()) from None
            there = where.superlink or folder.is_dir()
            yield Outcome(
                folder=folder.expanduser() if there else None,
                end=end,
                seconds=time.monotonic() - began,
            )


@contextmanager
def _folder_of(one: Launch, where: Where) -> Iterator[Path]:
    """The folder that a run has, or is to have.

    In a simulation it is made here, so that nobody else takes its name, and removed if it stays
    empty; at a SuperLink that is there it is the server's, and only named.
    """
    if "resume" in one.config:
        yield Path(one.config["resume"])
    elif where.superlink:
        yield named_folder(one.settings)
    else:
        folder = reserved_folder(one.settings)
        try:
            yield folder
        finally:
            with suppress(OSError):
                folder.rmdir()


def sweep(steps: Sequence[Step], where: Where, ended: Ended | None = None) -> None:
    """Make the runs that are left.

    A line above each says which it is, and how long the rest may take. `ended` is told the place of
    each run among the steps, and its folder, when it has ended.
    """
    places = [place for place, step in enumerate(steps) if step.action is not Action.KEEP]
    kept = [step.found for step in steps if step.action is Action.KEEP and step.found is not None]
    durations = [found.seconds for found in kept if found.status is RunStatus.COMPLETED]
    began = time.monotonic()
    measured: list[float] = []
    runs = [
        Launch(settings=steps[place].plan.settings, config=steps[place].config) for place in places
    ]
    with ExitStack() as stack:
        line = stack.enter_context(Line())
        progress = RunLines(line, verbose=where.verbose, brief=True)
        outcomes = stack.enter_context(closing(launch(runs, where, progress)))
        for number, place in enumerate(places):
            step = steps[place]
            which = f"{place + 1}/{len(steps)} {step.plan.label}"
            rest = left(measured or durations, len(places) - number)
            times = [f"{duration(time.monotonic() - began)} so far"] if number else []
            times += [f"about {duration(rest)} left"] if rest is not None else []
            going_on = ", going on" if step.action is Action.RESUME else ""
            told = f" ({', '.join(times)})" if times else ""
            line.say(f"{which}{going_on} ...{told}")
            progress.begin(f"{number + 1} of {len(places)}", where.waits_for)
            outcome = next(outcomes)
            progress.end()
            if outcome.end.failed:
                tell_failure(which, outcome.end, where.verbose)
            else:
                measured.append(outcome.seconds)
            if ended is not None:
                ended(place, outcome.folder)


def tell_failure(which: str, end: RunEnd, verbose: bool) -> None:
    """Say in one line on stderr why a run failed."""
    hint = "" if verbose else " (--verbose shows Flower's own log)"
    reason = end.text.partition("\n")[0]
    print(f"fedivon: {which} failed: {reason}{hint}", file=sys.stderr, flush=True)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make the folder, and keep a second command that makes runs out of it."""
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
                f"another fedivon command is making runs in {folder}: wait until it has ended, "
                "or make these elsewhere with --runs DIR or, for a sweep or a search, --name"
            ) from None
        yield
