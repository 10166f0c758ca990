"""A trained model: the network of a run with the posterior of one of its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from fedivon_app.core.codec import Payload
from fedivon_app.core.conformal import prediction_sets
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.flat import Flat
from fedivon_app.core.likelihood import likelihood_of
from fedivon_app.core.network import new_network, pick_device
from fedivon_app.core.noise_width import with_noise_width
from fedivon_app.core.predict import Moments, predict_moments
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.scaling import inputs as network_inputs
from fedivon_app.datasets.table_format import TableFormat
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.runs.folder import Run
from fedivon_app.runs.records import MODEL, read_json
from fedivon_app.server.setup import ServerData, server_data, with_facts

Which = Literal["last", "best"]  # of a run's checkpoints
NINETY = 1.6448536269514722  # deviations around the mean that hold 90 % of a Gaussian


@dataclass(frozen=True, eq=False)
class Trained:
    """The network and what to load into it.

    `shape` is that of one input, (H, W, C) or (D,), and `round` the one of the checkpoint.
    """

    settings: AnySettings
    flat: Flat
    payload: Payload
    round: int
    shape: tuple[int, ...]
    num_classes: int
    class_names: list[str] | None = None
    known: ServerData | None = None

    @property
    def table(self) -> TableFormat | None:
        """Return what the columns of a table mean to the model, if it takes tables."""
        return self.known.table if self.known else None

    @classmethod
    def open(cls, run: Run | str | Path, checkpoint: Which = "last") -> Trained:
        """Return the model of a run after its last checkpoint, or at its best held-out round."""
        run = run if isinstance(run, Run) else Run.open(run)
        saved = checkpoint_of(run, checkpoint)
        known = model_facts(run)
        settings = with_facts(run.settings, known)
        try:
            device = pick_device("auto")
            outputs = likelihood_of(settings).num_outputs(known.num_classes)
            flat = new_network(settings.model, known.shape, outputs, device)
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"{run.folder}: its model cannot be made again: {error}") from None
        size = len(saved.payload.posterior)
        if size != len(flat):
            raise SettingsError(
                f"{run.folder}: its checkpoint has {size} weights, but its model has {len(flat)}"
            )
        if fault := saved.payload.fault():
            raise SettingsError(f"{run.folder}: its checkpoint is of no use: {fault}")
        return cls(
            settings=settings,
            flat=flat,
            payload=with_noise_width(saved.payload, settings, before(run, saved.round)),
            round=saved.round,
            shape=known.shape,
            num_classes=known.num_classes,
            class_names=list(known.class_names) if known.class_names else None,
            known=known,
        )

    def predict(self, inputs: Tensor, samples: int, seed: int) -> Moments:
        """Return class probabilities over weight samples; at the mean where `samples` is 0."""
        return predict_moments(
            self.flat,
            self.payload.posterior,
            inputs,
            samples,
            seed,
            buffers=self.payload.buffers,
            likelihood=likelihood_of(self.settings),
            antithetic=self.settings.evaluation.antithetic,
        )

    def inputs(self, pixels: np.ndarray) -> Tensor:
        """Return rows in the format of a data source as the network takes them."""
        data = self.settings.data
        return network_inputs(pixels, data.scaling, data.standard).to(self.flat.vector.device)

    def class_name(self, number: int) -> str | int:
        """Return the name of a class, or its number where there are no names."""
        return self.class_names[number] if self.class_names else number

    def say(
        self, inputs: Tensor, samples: int, confidence: float, threshold: float | None = None
    ) -> list[dict[str, Any]]:
        """Return what the model says of each input.

        Of a number it says `value`, and `low` and `high`, between which it lies with a probability
        of 90 %. Of classes, `class` is None below the confidence, `top` the likeliest in any case.
        With a threshold of prediction sets there is also a `set`, of classes from the likeliest on.
        """
        moments = self.predict(inputs, samples, self.settings.seed)
        uncertainty = moments.uncertainty()
        if moments.likelihood.is_number:
            if confidence:
                raise SettingsError("the model predicts numbers: it abstains from none")
            return _numbers_said(moments)
        said = []
        for row, number in enumerate(moments.mean.argmax(1).tolist()):
            probability = float(moments.mean[row, number])
            top = self.class_name(number)
            abstained = probability < confidence
            answer: dict[str, Any] = {
                "class": None if abstained else top,
                "abstained": abstained,
                "top": top,
                "probability": probability,
            }
            answer |= {kind: float(of[row]) for kind, of in uncertainty.items()}
            if threshold is not None:
                answer["set"] = self._set(moments.mean[row], threshold)
            said.append(answer)
        return said

    def _set(self, probabilities: np.ndarray, threshold: float) -> list[str | int]:
        within = prediction_sets(probabilities, threshold)
        likeliest_first = np.argsort(-probabilities, kind="stable")
        return [self.class_name(number) for number in likeliest_first.tolist() if within[number]]


def _numbers_said(moments: Moments) -> list[dict[str, Any]]:
    uncertainty = moments.uncertainty()
    said = []
    for row, value in enumerate(moments.scored[:, 0].tolist()):
        half = NINETY * float(uncertainty["deviation"][row])
        answer = {"value": value, "low": value - half, "high": value + half}
        said.append(answer | {kind: float(of[row]) for kind, of in uncertainty.items()})
    return said


def before(run: Run, server_round: int) -> list[dict[str, Any]]:
    """Return the records of a run's rounds up to this one."""
    return [record for record in run.metrics() if record["round"] <= server_round]


def model_facts(run: Run) -> ServerData:
    """Return what the model of a run takes and gives.

    Runs from before there was a model.json tell the same by their settings.
    """
    path = run.folder / MODEL
    known = read_json(path)
    if known is None:
        return server_data(run.settings)
    try:
        return ServerData.of(known)
    except KeyError as error:
        raise SettingsError(f"{path} is damaged: it has no {error}") from None
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{path} is damaged: {error}") from None


def checkpoint_of(run: Run, which: Which) -> Checkpoint:
    """Return the checkpoint of a run that a model is made of."""
    if which == "best":
        if run.best() is None:
            raise SettingsError(
                f"{run.folder} has no best checkpoint: its run held out no examples (data.holdout)"
            )
        path = run.best_folder
    elif checkpoints := run.checkpoints():
        path = checkpoints[-1].path
    else:
        raise SettingsError(
            f"{run.folder} has no checkpoint to predict with: its run has not got that far"
        )
    return run.load(path)
