"""Trackers: who else is told the numbers of a run's rounds, such as TensorBoard.

A tracker is a class with three short methods, chosen by name in `run.trackers`, or by import path
where it is the user's own. It hears what metrics.jsonl holds and nothing else, and it works on the
server alone. One that fails is told of in the log and left out from then on: a run is none the
worse for who watches it.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

from fedivon_app.core.dotted import flat
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.registry import Registry
from fedivon_app.runs.folder import Run

log = logging.getLogger("fedivon")

LONGEST = 500  # characters of a setting that every service takes


class Tracker(ABC):
    """One who is told of the rounds of a run.

    `package` is what it imports, and `extra` the extra of this project that installs it.
    """

    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""

    @abstractmethod
    def __init__(self, run: Run, done: int):
        """Begin to track a run, of which so many rounds were made before."""

    @abstractmethod
    def round(self, number: int, values: Mapping[str, float]) -> None:
        """Take the numbers of a round, by names such as `gm/test/mc/nll`."""

    @abstractmethod
    def end(self, status: str) -> None:
        """Close what is open; `status` says how the run ended."""


class TensorBoard(Tracker):
    """Writes event files to RUN/tensorboard: `tensorboard --logdir runs` shows all runs."""

    package = "tensorboard"
    extra = "tensorboard"

    def __init__(self, run: Run, done: int):
        from torch.utils import tensorboard

        writer: Any = tensorboard.SummaryWriter  # its functions have no types
        purged = done + 1 if done else None
        self._writer = writer(run.folder / "tensorboard", purge_step=purged)
        text = "\n".join(f"    {name}: {value}" for name, value in _settings(run).items())
        self._writer.add_text("settings", text, done)

    def round(self, number: int, values: Mapping[str, float]) -> None:
        """Write the numbers."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)
        self._writer.flush()

    def end(self, status: str) -> None:
        """Close the file."""
        self._writer.close()


class MLflow(Tracker):
    """Logs to the server of $MLFLOW_TRACKING_URI, or to `mlruns` beside the run's folder."""

    package = "mlflow"
    extra = "mlflow"
    named = "mlflow-run.txt"  # in the run's folder: the id under which it is known there

    def __init__(self, run: Run, done: int):
        import mlflow

        self._mlflow = mlflow
        place = os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            place = (run.folder.parent / "mlruns").as_uri()
        mlflow.set_tracking_uri(place)
        mlflow.set_experiment(run.settings.experiment)
        known = run.folder / self.named
        begun = known.read_text().strip() if done and known.is_file() else None
        active = mlflow.start_run(run_id=begun, run_name=None if begun else run.folder.name)
        run.write(self.named, active.info.run_id + "\n")
        if begun is None:
            mlflow.log_params(_settings(run))

    def round(self, number: int, values: Mapping[str, float]) -> None:
        """Log the numbers."""
        self._mlflow.log_metrics(dict(values), step=number)

    def end(self, status: str) -> None:
        """End the run there as it ended here."""
        self._mlflow.end_run("FAILED" if status == "failed" else "FINISHED")


class WeightsAndBiases(Tracker):
    """Logs to RUN/wandb, offline unless $WANDB_MODE says otherwise; `wandb sync` uploads it."""

    package = "wandb"
    extra = "wandb"

    def __init__(self, run: Run, done: int):
        import wandb

        self._teardown: Any = wandb.teardown
        mode: Any = os.environ.get("WANDB_MODE", "offline")  # whose words wandb checks itself
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedivon"),
            name=run.folder.name,
            id=run.folder.name,
            resume="allow",
            dir=str(run.folder),
            config=_settings(run),
            mode=mode,
            settings=wandb.Settings(silent=True, console="off", disable_git=True),
        )

    def round(self, number: int, values: Mapping[str, float]) -> None:
        """Log the numbers."""
        self._run.log(dict(values), step=number)

    def end(self, status: str) -> None:
        """Close the run, and wait until the service has written all of it."""
        self._run.finish(exit_code=1 if status == "failed" else 0)
        self._teardown()


TRACKERS: Registry[type[Tracker]] = Registry(
    "tracker",
    {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WeightsAndBiases},
    kind=Tracker,
    classes=True,
)


def check_trackers(names: Iterable[str]) -> None:
    """Raise a SettingsError for a tracker that does not exist, or whose package is not here."""
    for name in names:
        kind = TRACKERS.find(name)
        if kind.package and find_spec(kind.package) is None:
            raise SettingsError(
                f"run.trackers: {name} needs the package {kind.package}: "
                f"pip install 'fedivon[{kind.extra}]'"
            )


class Trackers:
    """All trackers of a run, to be used by `with`."""

    def __init__(self, run: Run, done: int = 0):
        self.run = run
        self._status = "failed"
        self._active: dict[str, Tracker] = {}
        names = run.settings.run.trackers
        check_trackers(names)
        for name in names:
            try:
                self._active[name] = TRACKERS.find(name)(run, done)
            except Exception as error:
                self._leave_out(name, error)

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, *error: object) -> None:
        self._tell_all(lambda tracker: tracker.end(self._status))

    def round(self, record: Mapping[str, Any]) -> None:
        """Tell the numbers of a round."""
        values = numbers_of(record)
        self._tell_all(lambda tracker: tracker.round(record["round"], values))

    def ended(self, status: str) -> None:
        """Take note of how the run ended; without this it has failed."""
        self._status = status

    def _tell_all(self, tell: Any) -> None:
        for name, tracker in list(self._active.items()):
            try:
                tell(tracker)
            except Exception as error:
                self._leave_out(name, error)

    def _leave_out(self, name: str, error: Exception) -> None:
        self._active.pop(name, None)
        why = str(error).partition("\n")[0] or type(error).__name__
        log.warning("the tracker %s fails, and the run goes on without it: %s", name, why)


def numbers_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a round's record by name; what clients say one by one is left out."""
    found = {}
    for name, value in flat(record).items():
        single = isinstance(value, Real) and not isinstance(value, bool)
        if single and name != "round" and not name.startswith("precision."):
            found[name.replace(".", "/")] = float(value)
    found["dropped"] = float(len(record.get("dropped") or ()))
    found["clients"] = float(len(record.get("clients") or ()))
    return found


def _settings(run: Run) -> dict[str, str]:
    values = flat(run.settings.model_dump(mode="json"))
    return {name: str(value)[:LONGEST] for name, value in values.items()} | {
        "folder": str(Path(run.folder))
    }
