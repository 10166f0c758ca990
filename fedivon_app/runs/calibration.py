"""What prediction sets are calibrated by: the histograms of a run's clients, on disk or anew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedivon_app.core.conformal import BINS, Coverage, coverage_of, histograms
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.predict import has_samples
from fedivon_app.datasets.loading import division
from fedivon_app.datasets.partition import Split
from fedivon_app.runs.folder import Run
from fedivon_app.runs.records import read_json
from fedivon_app.runs.trained_model import Trained

CALIBRATION = "calibration.json"


@dataclass(frozen=True, eq=False)
class Calibration:
    """The histograms of the clients' held-out parts, (2, BINS) each, by partition.

    They hold for the global model of one round, asked with so many samples, and for no other.
    `distinct` is the number of different examples, where clients of a simulation share some.
    """

    round: int
    samples: int
    clients: Mapping[int, np.ndarray]
    distinct: int | None = None

    def coverage(self, level: float) -> Coverage:
        """Return the threshold of sets with this coverage, and what it comes to."""
        return coverage_of(self.clients, level, self.distinct)

    def write(self, run: Run) -> None:
        """Write calibration.json, in which only the bins that are not empty stand."""
        clients = {
            str(partition): [_sparse(counts) for counts in both]
            for partition, both in self.clients.items()
        }
        values = {"round": self.round, "samples": self.samples, "bins": BINS, "clients": clients}
        run.write(CALIBRATION, json.dumps(values) + "\n")

    @classmethod
    def read(cls, run: Run) -> Calibration | None:
        """Return what the clients of a run told, or None where they told nothing."""
        path = run.folder / CALIBRATION
        values = read_json(path)
        if values is None:
            return None
        try:
            if values["bins"] != BINS:
                raise SettingsError(f"{path} has other bins than this version of FedIvon knows")
            clients = {
                int(partition): np.stack([_dense(counts) for counts in both])
                for partition, both in values["clients"].items()
            }
            return cls(int(values["round"]), int(values["samples"]), clients)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            if isinstance(error, SettingsError):
                raise
            raise SettingsError(f"{path} is damaged: {error}") from None


def calibration_of(run: Run, trained: Trained, samples: int | None = None) -> Calibration:
    """Return what sets of this model are calibrated by.

    That is what the run's clients told (evaluation.sets) or, where the data of a simulation are
    here, the same computed anew. `samples` is None for the number that the clients used.
    """
    settings = trained.settings
    if settings.task == "regression":
        raise SettingsError(
            f"{run.folder}: its model predicts numbers, and prediction sets are sets of classes"
        )
    drawn = has_samples(trained.flat, trained.payload.posterior)
    wanted = settings.evaluation.samples if samples is None else samples
    wanted = wanted if drawn else 0
    told = Calibration.read(run)
    simulated = settings.data.source != "nodes" and settings.data.clients is not None
    if told is not None and (told.round, told.samples if drawn else 0) == (trained.round, wanted):
        if not simulated:
            return told
        divided = division(settings.data, settings.data.clients, settings.seed)
        return replace(told, distinct=len(_held_out(divided.split)))
    if not simulated:
        raise SettingsError(_why_not(run, trained, told))
    return _computed(trained, wanted)


def _why_not(run: Run, trained: Trained, told: Calibration | None) -> str:
    if told is None:
        return (
            f"{run.folder}: its clients reported nothing to calibrate sets by: make the run with "
            "evaluation.sets=true and evaluation.clients_every, and it can say sets"
        )
    return (
        f"{run.folder}: its sets are calibrated for round {told.round} and {told.samples} samples: "
        f"ask with --samples {told.samples}, and with the checkpoint of that round"
        f" (this one is of round {trained.round})"
    )


def _computed(trained: Trained, samples: int) -> Calibration:
    """The histograms of a simulation's clients, whose data are here.

    An example that several clients have is predicted once.
    """
    settings = trained.settings
    divided = division(settings.data, settings.data.clients, settings.seed)
    source = divided.source
    held_out = _held_out(divided.split)
    if not len(held_out):
        raise SettingsError(
            "the clients have no test examples, by which prediction sets could be calibrated"
        )
    inputs = trained.inputs(source.x_test[held_out])
    said = trained.predict(inputs, samples, settings.seed).mean
    labels = source.y_test[held_out]
    clients = {}
    for partition, rows in enumerate(divided.split.test):
        if len(rows):
            places = np.searchsorted(held_out, rows)
            clients[partition] = histograms(said[places], labels[places])
    return Calibration(trained.round, samples, clients, len(held_out))


def _held_out(split: Split) -> np.ndarray:
    """The rows of the test set that any client has, each once, in order."""
    rows: np.ndarray = np.unique(np.concatenate(split.test))
    return rows


def _sparse(counts: np.ndarray) -> list[list[int]]:
    return [[int(place), int(counts[place])] for place in np.flatnonzero(counts)]


def _dense(pairs: list[list[int]]) -> np.ndarray:
    counts = np.zeros(BINS)
    for place, count in pairs:
        counts[place] = count
    return counts
