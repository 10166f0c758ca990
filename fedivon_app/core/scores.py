"""The scores of a model: their names, which way is better, and how clients' values are pooled.

One line in SCORES adds a score for everybody: tables, plots, pages, the choice of the best
checkpoint (`evaluation.select_by`) and the pooling over clients follow from it. Those in
MORE_SCORES are for who names them in `evaluation.scores`; a score of the user's own is named there
by its import path, such as `mypackage.scores:MARGIN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedivon_app.core.errors import UserError
from fedivon_app.core.metrics import Tally
from fedivon_app.core.number_scores import NumberTally
from fedivon_app.core.ranking_scores import RANKINGS, bin_counts, overall
from fedivon_app.core.registry import Registry, is_import_path
from fedivon_app.core.tally import Pooled


@dataclass(frozen=True)
class Score:
    """A number that says how good predictions are, computed from sums over examples.

    `value` computes it from a tally. Tallies of several clients add up, so a score over all
    clients is that of all their examples together, never an average of the clients' scores. A
    score that needs more than a tally has gives `sums`, which turns (N, C) probabilities and (N,)
    labels into a vector of sums over the examples; `value` finds it in `tally.sums[name]`. Of
    predicted numbers, `sums` is given (N, 2) means and variances and the (N,) numbers.
    """

    name: str
    label: str
    higher_is_better: bool
    value: Callable[[Any], float]
    sums: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    digits: int = 4
    percent: bool = False

    def text(self, value: float) -> str:
        """Return the value as tables show it."""
        return f"{100 * value if self.percent else value:.{self.digits}f}"

    @property
    def heading(self) -> str:
        """Return the label with its unit."""
        return f"{self.label} %" if self.percent else self.label

    def better(self, value: float, other: float) -> bool:
        """Tell whether `value` is better than `other`."""
        return value > other if self.higher_is_better else value < other


SCORES: Registry[Score] = Registry(
    "score",
    {
        "accuracy": Score(
            "accuracy", "Accuracy", True, value=lambda t: t.accuracy, digits=2, percent=True
        ),
        "nll": Score("nll", "NLL", False, value=lambda t: t.nll),
        "ece": Score("ece", "ECE", False, value=lambda t: t.ece),
        "brier": Score("brier", "Brier", False, value=lambda t: t.brier),
    },
    kind=Score,
)


def _ranking(name: str, label: str) -> Score:
    def value(tally: Tally) -> float:
        return overall(tally.sums[name], RANKINGS[name])

    return Score(name, label, True, value=value, sums=bin_counts)


MORE_SCORES: Registry[Score] = Registry(
    "score",
    {
        "auroc": _ranking("auroc", "AUROC"),
        "auprc": _ranking("auprc", "AUPRC"),
        **{
            f"sensitivity_at_{percent}": _ranking(
                f"sensitivity_at_{percent}", f"Sensitivity at {percent} % specificity"
            )
            for percent in (80, 90, 95, 99)
        },
    },
    kind=Score,
)  # of classes, for who names them in evaluation.scores

NUMBER_SCORES: Registry[Score] = Registry(
    "score",
    {
        "rmse": Score("rmse", "RMSE", False, value=lambda t: t.rmse),
        "nll": SCORES["nll"],
        "crps": Score("crps", "CRPS", False, value=lambda t: t.crps),
        "coverage_error": Score(
            "coverage_error", "Coverage error", False, value=lambda t: t.coverage_error
        ),
    },
    kind=Score,
)


def scores_of(task: str) -> Registry[Score]:
    """Return the scores that every model of a task has."""
    return NUMBER_SCORES if task == "regression" else SCORES


def headline(values: Mapping[str, Any]) -> Score:
    """Return the score that is shown where there is room for one: accuracy, or RMSE of numbers."""
    return NUMBER_SCORES["rmse"] if "rmse" in values else SCORES["accuracy"]


def chosen_scores(own: Iterable[str] = (), task: str = "classification") -> dict[str, Score]:
    """Return all scores of the project, and the user's own by their import paths."""
    chosen = dict(scores_of(task))
    for path in own:
        score = _found(path)
        if task == "regression" and path in MORE_SCORES:
            raise UserError(f"the score {path} is of classes, and task is regression")
        if score.name in chosen and chosen[score.name] is not score:
            raise UserError(f"score {path!r}: there is another score of the name {score.name!r}")
        chosen[score.name] = score
    return chosen


def _found(path: str) -> Score:
    """Return the score of this name or import path."""
    if is_import_path(path):
        return SCORES.find(path)
    return Registry("score", {**SCORES, **MORE_SCORES}, kind=Score).find(path)


def known_scores(own: Iterable[str]) -> dict[str, Score]:
    """Return the same for somebody who only reads results.

    An own score that cannot be imported here is shown by its name.
    """
    chosen = dict(SCORES)
    for path in own:
        try:
            score = _found(path)
        except UserError:
            name = path.rpartition(":")[2].lower()
            score = Score(name, name, True, value=lambda tally: float("nan"))
        chosen.setdefault(score.name, score)
    return chosen


def tally_of(
    probabilities: np.ndarray, labels: np.ndarray, scores: Mapping[str, Score] = SCORES
) -> Tally:
    """Return the tally of (N, C) probabilities against (N,) labels, with these scores' sums."""
    return Tally.of(probabilities, labels, _sums(probabilities, labels, scores))


def number_tally_of(
    moments: np.ndarray, numbers: np.ndarray, scores: Mapping[str, Score] = NUMBER_SCORES
) -> NumberTally:
    """Return the tally of (N, 2) means and variances against (N,) numbers, likewise."""
    predicted = np.asarray(moments, np.float64)
    sums = _sums(predicted, numbers, scores)
    return NumberTally.of(predicted[:, 0], predicted[:, 1], numbers, sums)


def _sums(
    predicted: np.ndarray, labels: np.ndarray, scores: Mapping[str, Score]
) -> dict[str, np.ndarray]:
    return {
        name: np.atleast_1d(np.asarray(score.sums(predicted, labels), np.float64))
        for name, score in scores.items()
        if score.sums is not None
    }


def tally_from(values: Mapping[str, Any]) -> Pooled:
    """Return the tally that a dictionary holds, of classes or of numbers."""
    kind = NumberTally if "crps_sum" in values else Tally
    return kind.from_dict(values)


def values_of(tally: Pooled, scores: Mapping[str, Score] = SCORES) -> dict[str, float]:
    """Return the scores of a tally by name; those whose sums it does not hold are left out."""
    if tally.count == 0:
        raise ValueError("no scores: the tally holds no examples")
    values = {}
    for name, score in scores.items():
        if score.sums is None or name in tally.sums:
            try:
                values[name] = float(score.value(tally))
            except Exception as error:  # a score may be anybody's
                raise ValueError(f"the score {name} cannot be computed: {error}") from error
    return values
