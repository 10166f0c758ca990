"""How sure a trained model is, and whether it is right to be: RUN/uncertainty.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedivon_app.core.metrics import Tally, auroc, reliability, retention_curve
from fedivon_app.core.predict import Moments
from fedivon_app.core.settings import SettingsError
from fedivon_app.datasets.loading import tensors
from fedivon_app.datasets.resize import fit
from fedivon_app.datasets.sources import DataError, load
from fedivon_app.runs.folder import Run
from fedivon_app.runs.trained_model import Trained
from fedivon_app.server.evaluation import ways
from fedivon_app.server.setup import server_data

FRACTIONS = np.arange(1, 21) / 20
NUM_BINS = 40
MEASURES = {"mean": ("entropy", "aleatoric"), "mc": ("entropy", "aleatoric", "epistemic")}
STREAM = 0x6F6F64  # of the seed: which examples are compared with the out-of-distribution ones


def assess(
    run: Run,
    ood: str | None = None,
    ood_path: str | None = None,
    samples: int | None = None,
    checkpoint: str = "last",
    predicted: Mapping[str, Moments] | None = None,
) -> dict[str, Any]:
    """Scores, reliability, retention, histograms and, with `ood` data, their detection; None as in the run's settings.

    At the mean ("mean") there is no epistemic part. The result is written to the run's folder. `predicted` are the
    model's predictions on the test set, by way, where somebody has them already.
    """
    settings = run.settings
    found = server_data(settings).parts
    if "test" not in found:
        raise SettingsError(
            f"{run.folder}: the server of this run has no test set, and so nothing to be judged by"
        )
    trained = Trained.open(run, checkpoint)
    x, y = found["test"]
    images, labels = tensors(x, y, settings.data.scaling, trained.flat.vector.device)
    truth = labels.cpu().numpy()
    outside = None
    if ood := ood or settings.evaluation.ood:
        rows = _rows(len(truth), settings.evaluation.ood_size, settings.seed)
        pixels = out_of_distribution(
            run, trained, ood, ood_path or settings.evaluation.ood_path, len(rows)
        )
        outside = ood, rows, trained.inputs(pixels)
    samples = settings.evaluation.final_samples if samples is None else samples
    judged = {}
    for way, count in ways(trained.flat, trained.payload, samples).items():
        inside = (predicted or {}).get(way) or trained.predict(images, count, settings.seed)
        judged[way] = {"samples": count} | judge(inside, truth, MEASURES[way])
        if outside is not None:
            name, rows, others = outside
            far = trained.predict(others, count, settings.seed)
            _add_detection(judged[way], inside, far, rows, name, MEASURES[way])
    server_round = run.best()["round"] if checkpoint == "best" else run.checkpoints()[-1][0]
    result = {
        "round": server_round,
        "checkpoint": checkpoint,
        "num_examples": len(truth),
        "ways": judged,
    }
    run.write("uncertainty.json", json.dumps(result, indent=1) + "\n")
    return result


def judge(moments: Moments, labels: np.ndarray, measures: tuple[str, ...]) -> dict[str, Any]:
    """Scores, reliability bins, accuracy by the share retained, and histograms of each measure of uncertainty."""
    tally = Tally.of(moments.mean, labels)
    uncertainty = moments.uncertainty()
    correct = moments.mean.argmax(1) == labels
    bins = reliability(tally)
    curves = {
        name: retention_curve(correct, uncertainty[name], FRACTIONS).tolist() for name in measures
    }
    return {
        "scores": tally.scores(),
        "reliability": {
            name: [None if np.isnan(v) else float(v) for v in values]
            for name, values in bins.items()
        },
        "retention": {"fractions": FRACTIONS.tolist(), **curves},
        "histograms": {name: _histogram(uncertainty[name]) for name in measures},
    }


def _add_detection(
    judged: dict[str, Any],
    inside: Moments,
    outside: Moments,
    rows: np.ndarray,
    name: str,
    measures: tuple[str, ...],
) -> None:
    """AUROC of each measure as a detector of the outside data, and both histograms."""
    near = inside.uncertainty()
    far = outside.uncertainty()
    areas = {}
    for measure in measures:
        kept = near[measure][rows]
        areas[measure] = auroc(kept, far[measure])
        judged["histograms"][measure] = _histogram(kept, far[measure])
    judged["ood"] = {
        "source": name,
        "num_in": len(rows),
        "num_out": len(far["entropy"]),
        "auroc": areas,
    }


def _histogram(inside: np.ndarray, outside: np.ndarray | None = None) -> dict[str, list[float]]:
    """Shares of examples over equal bins from 0 to the largest value."""
    top = max(float(values.max()) for values in (inside, outside) if values is not None)
    edges = np.linspace(0, top or 1.0, NUM_BINS + 1)
    shares = {"in": inside} | ({} if outside is None else {"out": outside})
    return {"edges": edges.tolist()} | {
        name: (np.histogram(values, edges)[0] / len(values)).tolist()
        for name, values in shares.items()
    }


def out_of_distribution(
    run: Run, trained: Trained, source: str, path: str | None, count: int
) -> np.ndarray:
    """At most `count` test examples of another source, in the model's size and channels."""
    data = run.settings.data
    if source == data.source and path in (None, data.path):
        raise DataError(
            f"evaluation.ood is {source!r}, the very data that the model was trained for: name another"
        )
    x = load(source, data.root, path=path, num_clients=data.clients, seed=run.settings.seed).x_test
    rows = _rows(len(x), count, run.settings.seed)
    return fit(f"the ood source {source}", np.asarray(x[rows]), trained.shape)


def _rows(length: int, count: int, seed: int) -> np.ndarray:
    """`count` of `length` rows, or all, in order."""
    return np.sort(np.random.default_rng([seed, STREAM]).permutation(length)[:count])
