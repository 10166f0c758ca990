"""How sure a trained model is, and whether it is right to be: RUN/uncertainty.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from fedivon_app.core.errors import DataError, SettingsError
from fedivon_app.core.metrics import Tally, auroc, reliability, retention_curve
from fedivon_app.core.number_scores import LEVELS, NumberTally
from fedivon_app.core.predict import Moments
from fedivon_app.core.ranking_scores import RANKINGS, by_class
from fedivon_app.core.scores import SCORES, Score, chosen_scores, values_of
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.resize import fit
from fedivon_app.datasets.sources import load
from fedivon_app.plurals import counted
from fedivon_app.runs.folder import Run
from fedivon_app.runs.records import UNCERTAINTY
from fedivon_app.runs.trained_model import Trained, Which
from fedivon_app.server.evaluation import ways
from fedivon_app.server.setup import server_data

FRACTIONS = np.arange(1, 21) / 20
NUM_BINS = 40
SURE = 0.9  # the probability from which on a model counts as sure of a class
MEASURES = {  # by what is predicted, in which way
    "classification": {
        "mean": ("entropy", "aleatoric"),
        "mc": ("entropy", "aleatoric", "epistemic"),
    },
    "regression": {
        "mean": ("deviation", "aleatoric"),
        "mc": ("deviation", "aleatoric", "epistemic"),
    },
}
STREAM = 0x6F6F64  # of the seed: which examples are compared with the out-of-distribution ones


@dataclass(frozen=True, eq=False)
class Outside:
    """Data that the model was not trained for, and the rows of the test set to compare with."""

    source: str
    inputs: Tensor
    rows: np.ndarray


def assess(
    run: Run,
    ood: str | None = None,
    ood_path: str | None = None,
    samples: int | None = None,
    checkpoint: Which = "last",
    predicted: Mapping[str, Moments] | None = None,
    show: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return, and write to the run's folder, how sure its model is and whether it is right to be.

    That is scores, reliability, retention, histograms and, with `ood` data, their detection; None
    stands for what the run's settings have. At the mean ("mean") there is no epistemic part.
    `predicted` are the model's predictions on the test set, by way, where somebody has them;
    `show` is told each step.
    """
    settings = run.settings
    parts = server_data(settings).parts
    if "test" not in parts:
        raise SettingsError(
            f"{run.folder}: the server of this run has no test set, and so nothing to be judged by"
        )
    trained = Trained.open(run, checkpoint)
    test = parts["test"]
    images = trained.inputs(test.x)
    truth = np.asarray(test.y)
    outside = None
    if source := ood or settings.evaluation.ood:
        path = ood_path or settings.evaluation.ood_path
        outside = _outside(run, trained, source=source, path=path, length=len(truth))
    count_samples = settings.evaluation.final_samples if samples is None else samples
    scores = chosen_scores(settings.evaluation.scores, settings.task)
    measures = MEASURES[settings.task]
    judged = {}
    for way, count in ways(trained.flat, trained.payload, count_samples).items():
        by = f"with {counted(count, 'sample')}" if count else "at the mean"
        show(f"{counted(len(truth), 'test example')} {by}")
        inside = (predicted or {}).get(way) or trained.predict(images, count, settings.seed)
        judged[way] = {"samples": count} | judge(inside, truth, measures[way], scores)
        if outside is not None:
            show(f"{counted(len(outside.inputs), 'example')} of {outside.source} {by}")
            far = trained.predict(outside.inputs, count, settings.seed)
            judged[way] |= _detection(judged[way], inside, far, outside, measures[way])
    result = {
        "round": trained.round,
        "checkpoint": checkpoint,
        "num_examples": len(truth),
        **({"class_names": trained.class_names} if trained.class_names else {}),
        "ways": judged,
    }
    run.write(UNCERTAINTY, json.dumps(result, indent=1) + "\n")
    return result


def _outside(run: Run, trained: Trained, *, source: str, path: str | None, length: int) -> Outside:
    settings = run.settings
    rows = _rows(length, settings.evaluation.ood_size, settings.seed)
    pixels = out_of_distribution(settings, trained.shape, source, path, count=len(rows))
    return Outside(source, trained.inputs(pixels), rows)


def judge(
    moments: Moments,
    labels: np.ndarray,
    measures: Sequence[str],
    scores: Mapping[str, Score] = SCORES,
) -> dict[str, Any]:
    """Return how well predictions are founded.

    That is scores, reliability bins, accuracy by the share retained, and histograms of each measure
    of uncertainty. Of numbers it is the coverage of intervals in place of bins.
    """
    tally = moments.tally(labels, scores)
    uncertainty = moments.uncertainty()
    if isinstance(tally, NumberTally):
        return {
            "scores": values_of(tally, scores),
            "coverage": {"levels": list(LEVELS), "covered": tally.coverage.tolist()},
            "histograms": {name: _histogram(uncertainty[name]) for name in measures},
        }
    assert isinstance(tally, Tally)
    correct = moments.mean.argmax(1) == labels
    curves = {
        name: retention_curve(correct, uncertainty[name], FRACTIONS).tolist() for name in measures
    }
    return {
        "scores": values_of(tally, scores),
        "reliability": {
            name: [None if np.isnan(v) else float(v) for v in values]
            for name, values in reliability(tally).items()
        },
        "retention": {"fractions": FRACTIONS.tolist(), **curves},
        "histograms": {name: _histogram(uncertainty[name]) for name in measures},
        **_by_class(tally),
    }


def _by_class(tally: Tally) -> dict[str, Any]:
    """Return the scores of each class that the run's settings ask for, such as auroc."""
    found = {}
    for name, sums in tally.sums.items():
        if name in RANKINGS:
            values = by_class(sums, RANKINGS[name]).tolist()
            found[name] = [None if np.isnan(value) else value for value in values]
    return {"by_class": found} if found else {}


def _detection(
    judged: Mapping[str, Any],
    inside: Moments,
    far: Moments,
    outside: Outside,
    measures: Sequence[str],
) -> dict[str, Any]:
    """Return the AUROC of each measure as a detector of the outside data, and both histograms.

    `sure` are the shares of examples, inside and outside, of which the model is sure.
    """
    near_by = inside.uncertainty()
    far_by = far.uncertainty()
    areas = {}
    histograms = dict(judged["histograms"])
    for measure in measures:
        kept = near_by[measure][outside.rows]
        areas[measure] = auroc(kept, far_by[measure])
        histograms[measure] = _histogram(kept, far_by[measure])
    found = {
        "source": outside.source,
        "num_in": len(outside.rows),
        "num_out": len(far.mean),
        "auroc": areas,
        "sure": {
            "from": SURE,
            "in": _sure(inside.mean[outside.rows]),
            "out": _sure(far.mean),
        },
    }
    return {"histograms": histograms, "ood": found}


def _sure(probabilities: np.ndarray) -> float:
    """Return the share of examples for which the likeliest class has a probability of SURE."""
    return float(np.mean(probabilities.max(1) >= SURE))


def _histogram(inside: np.ndarray, outside: np.ndarray | None = None) -> dict[str, list[float]]:
    """Return shares of examples over equal bins from 0 to the largest value."""
    top = max(float(values.max()) for values in (inside, outside) if values is not None)
    edges = np.linspace(0, top or 1.0, NUM_BINS + 1)
    shares = {"in": inside} | ({} if outside is None else {"out": outside})
    return {"edges": edges.tolist()} | {
        name: (np.histogram(values, edges)[0] / len(values)).tolist()
        for name, values in shares.items()
    }


def out_of_distribution(
    settings: AnySettings, shape: tuple[int, ...], source: str, path: str | None, count: int
) -> np.ndarray:
    """Return at most `count` test examples of another source, as inputs of this shape."""
    data = settings.data
    if source == data.source and path in (None, data.path):
        raise DataError(
            f"evaluation.ood is {source!r}, the very data that the model was trained for: "
            "name another"
        )
    x = load(source, data.root, path=path, num_clients=data.clients, seed=settings.seed).x_test
    rows = _rows(len(x), count, settings.seed)
    return fit(f"the ood source {source}", np.asarray(x[rows]), shape)


def _rows(length: int, count: int, seed: int) -> np.ndarray:
    """Return `count` of `length` rows, or all, in order."""
    return np.sort(np.random.default_rng([seed, STREAM]).permutation(length)[:count])
