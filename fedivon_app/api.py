"""FedIvon from Python: runs as values.

import fedivon_app as fedivon

run = fedivon.run("demo", strategy="fedivon", rounds=20, client={"ess": 2000})
said = run.predict(pictures)
said.probabilities, said.entropy, said.epistemic
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedivon_app.core.conformal import prediction_sets
from fedivon_app.core.dotted import flat as dotted
from fedivon_app.core.errors import RunError
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.npz import checked_inputs
from fedivon_app.datasets.resize import fit
from fedivon_app.federation.run_queue import Engine, Launch, Where, launch
from fedivon_app.runs import folder as folders
from fedivon_app.runs.calibration import calibration_of
from fedivon_app.runs.check import check
from fedivon_app.runs.place import place_of_runs
from fedivon_app.runs.plan import plan_runs
from fedivon_app.runs.predictions import rows_of
from fedivon_app.runs.trained_model import Trained, Which

SAMPLES = 64  # by which a posterior predicts unless told otherwise


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says of N inputs.

    `probabilities` are (N, C), averaged over weight samples; the others are (N,): the normalised
    entropy of the probabilities, and the parts of the uncertainty that are the data's own
    (aleatoric) and that more data would remove (epistemic). `sets` are (N, C) booleans, the classes
    of each input's prediction set, where a coverage was asked for.
    """

    probabilities: np.ndarray
    entropy: np.ndarray
    aleatoric: np.ndarray
    epistemic: np.ndarray
    sets: np.ndarray | None = None

    @property
    def labels(self) -> np.ndarray:
        """Return the number of the likeliest class of each input."""
        likeliest: np.ndarray = self.probabilities.argmax(1)
        return likeliest


@dataclass(frozen=True, eq=False)
class NumberPrediction:
    """What a model says of N inputs where a number is predicted; all are (N,).

    `mean` and `deviation` are of the number. Its variance has two parts: the noise of the data
    (aleatoric), and what more data would remove (epistemic).
    """

    mean: np.ndarray
    deviation: np.ndarray
    aleatoric: np.ndarray
    epistemic: np.ndarray


@dataclass(frozen=True, eq=False)
class NamedGaussian:
    """The posterior of one tensor of the network, in its shape; a point has no precision."""

    mean: Tensor
    precision: Tensor | None


class NamedPosterior(Mapping[str, NamedGaussian]):
    """The posterior of a network by the names of its tensors."""

    def __init__(self, trained: Trained):
        self._trained = trained
        posterior = trained.payload.posterior
        precision = posterior.precision
        self._means = self._named(posterior.mean)
        self._precisions = None if precision is None else self._named(precision)

    def __getitem__(self, name: str) -> NamedGaussian:
        precisions = self._precisions
        return NamedGaussian(self._means[name], None if precisions is None else precisions[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._means)

    def __len__(self) -> int:
        return len(self._means)

    def sample(self, seed: int = 0) -> dict[str, Tensor]:
        """Return a draw of all weights by name; the mean, where the posterior is a point."""
        posterior = self._trained.payload.posterior
        if posterior.precision is None:
            return dict(self._means)
        return self._named(posterior.sample(np.random.default_rng(seed)))

    def _named(self, vector: np.ndarray) -> dict[str, Tensor]:
        return self._trained.flat.named_parameters(torch.tensor(vector, dtype=torch.float32))


class Run:
    """A run that was made, and its model after the last round or at the best held-out one."""

    def __init__(self, record: folders.Run, checkpoint: Which = "last"):
        self._record = record
        self.checkpoint = checkpoint

    @classmethod
    def open(cls, folder: str | Path, checkpoint: Which = "last") -> Run:
        """Open the folder of a run; a SettingsError says why it cannot be opened."""
        return cls(folders.Run.open(folder), checkpoint)

    def __repr__(self) -> str:
        settings = self.settings
        return f"Run({settings.experiment}, {settings.strategy}, seed {settings.seed})"

    @property
    def folder(self) -> Path:
        """Return the run's folder."""
        return self._record.folder

    @property
    def settings(self) -> AnySettings:
        """Return the settings that the run used."""
        return self._record.settings

    @property
    def metrics(self) -> Any:
        """Return what was measured in each round, under dotted names.

        It is a DataFrame with a row for each round where pandas is installed, and otherwise a list
        of dictionaries.
        """
        rows = [dotted(record) for record in self._record.metrics()]
        if find_spec("pandas") is None:
            return rows
        import pandas

        return pandas.DataFrame(rows)

    @property
    def scores(self) -> dict[str, float]:
        """Return the last scores of the global model: by samples on the test part, if it can be."""
        for record in reversed(list(self._record.metrics())):
            parts = record.get("gm") or {}
            for part in ("test", "holdout"):
                if ways := parts.get(part):
                    return dict(ways.get("mc") or ways["mean"])
        return {}

    @cached_property
    def _trained(self) -> Trained:
        return Trained.open(self._record, self.checkpoint)

    @property
    def class_names(self) -> list[str] | None:
        """Return the names of the classes by their numbers, or None if they have none."""
        names = self._trained.class_names
        return None if names is None else list(names)

    def model(self) -> nn.Module:
        """Return the network at the mean of the posterior, ready to predict."""
        trained = Trained.open(self._record, self.checkpoint)
        trained.flat.load(trained.payload.posterior.mean)
        trained.flat.load_buffers(trained.payload.buffers)
        return trained.flat.module.eval()

    @cached_property
    def posterior(self) -> NamedPosterior:
        """Return the posterior, tensor by tensor."""
        return NamedPosterior(self._trained)

    def predict(
        self,
        x: np.ndarray | Tensor | str | Path,
        samples: int | None = None,
        seed: int = 0,
        coverage: float | None = None,
    ) -> Prediction | NumberPrediction:
        """Return what the model says of inputs.

        A path names a table with the columns that the model was trained on. Arrays are taken as
        data sources give them: rows of numbers, or pictures (N, H, W) or (N, H, W, C) with pixels
        from 0 to 255, which are resized if need be and scaled as in training. Tensors are taken as
        the network takes them. With `samples` 0, and where the posterior is a point, it predicts at
        the mean; None stands for 64. With a `coverage` there are sets that hold the right class
        with that probability, by the samples and the seed with which the run's clients calibrated
        them.
        """
        trained = self._trained
        threshold = None
        drawn = SAMPLES if samples is None else samples
        if coverage is not None:
            calibrated = calibration_of(self._record, trained, samples)
            threshold = calibrated.coverage(coverage).threshold
            drawn = calibrated.samples
            seed = trained.settings.seed
        if isinstance(x, str | Path):
            inputs = rows_of(trained, Path(x))
        elif isinstance(x, Tensor):
            inputs = x.to(trained.flat.vector.device)
        else:
            inputs = trained.inputs(fit("x", checked_inputs("x", "it", x), trained.shape))
        moments = trained.predict(inputs, drawn, seed)
        parts = moments.uncertainty()
        if moments.likelihood.is_number:
            return NumberPrediction(mean=moments.scored[:, 0], **parts)
        return Prediction(
            probabilities=moments.mean,
            entropy=parts["entropy"],
            aleatoric=parts["aleatoric"],
            epistemic=parts["epistemic"],
            sets=None if threshold is None else prediction_sets(moments.mean, threshold),
        )


def run(
    experiment: str,
    strategy: str | None = None,
    *,
    runs: str | Path | None = None,
    engine: Engine = "inline",
    cpus: float = 1,
    show: Callable[[str], None] | None = None,
    **settings: Any,
) -> Run:
    """Run an experiment of conf/experiment, and return the run.

    Settings are given by name, sections as dictionaries: `rounds=20, client={"ess": 2000}`. The
    run's folder is made in `runs`, by default `./runs`; `show` is given the lines of its progress.
    A run that fails raises a RunError, settings that are wrong a SettingsError, before anything
    starts.
    """
    where = Where(cpus=cpus, engine=engine)
    words = [f"{name}={_written(value)}" for name, value in dotted(settings).items()]
    overrides = [*where.settings, *words, f"run.folder={place_of_runs(runs, words)}"]
    axes = {"strategy": [strategy]} if strategy else {}
    plans = plan_runs(experiment, axes, overrides)
    check(plans)
    launches = [Launch(settings=plan.settings, config=plan.config) for plan in plans]
    (outcome,) = launch(launches, where, show or _nothing)
    if outcome.end.failed or outcome.folder is None:
        place = f"; its folder is {outcome.folder}" if outcome.folder else ""
        raise RunError(f"{outcome.end.text}{place}")
    return Run.open(outcome.folder)


def _nothing(line: str) -> None:
    """Show nothing."""


def _written(value: Any) -> str:
    """Return a value as the overrides of settings have it, which are read as YAML."""
    return json.dumps(value)
