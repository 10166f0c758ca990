"""The scores of a model: their names, which way is better, and how clients' values are pooled.

One line in SCORES adds a score for everybody: tables, plots, pages, the choice of the best
checkpoint (`evaluation.select_by`) and the pooling over clients follow from it. A score of the
user's own is named by its import path in `evaluation.scores`, such as `mypackage.scores:MARGIN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fedivon_app.core.errors import UserError
from fedivon_app.core.metrics import Tally
from fedivon_app.core.registry import Registry


@dataclass(frozen=True)
class Score:
    """A number that says how good predictions are, computed from sums over examples.

    `value` computes it from a tally. Tallies of several clients add up, so a score over all
    clients is that of all their examples together, never an average of the clients' scores. A
    score that needs more than a tally has gives `sums`, which turns (N, C) probabilities and (N,)
    labels into a vector of sums over the examples; `value` finds it in `tally.sums[name]`.
    """

    name: str
    label: str
    higher_is_better: bool
    value: Callable[[Tally], float]
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


def chosen_scores(own: Iterable[str] = ()) -> dict[str, Score]:
    """Return all scores of the project, and the user's own by their import paths."""
    chosen = dict(SCORES)
    for path in own:
        score = SCORES.find(path)
        if score.name in chosen and chosen[score.name] is not score:
            raise UserError(f"score {path!r}: there is another score of the name {score.name!r}")
        chosen[score.name] = score
    return chosen


def known_scores(own: Iterable[str]) -> dict[str, Score]:
    """Return the same for somebody who only reads results.

    An own score that cannot be imported here is shown by its name.
    """
    chosen = dict(SCORES)
    for path in own:
        try:
            score = SCORES.find(path)
        except UserError:
            name = path.rpartition(":")[2].lower()
            score = Score(name, name, True, value=lambda tally: float("nan"))
        chosen.setdefault(score.name, score)
    return chosen


def tally_of(
    probabilities: np.ndarray, labels: np.ndarray, scores: Mapping[str, Score] = SCORES
) -> Tally:
    """Return the tally of (N, C) probabilities against (N,) labels, with these scores' sums."""
    sums = {}
    for name, score in scores.items():
        if score.sums is not None:
            sums[name] = np.atleast_1d(np.asarray(score.sums(probabilities, labels), np.float64))
    return Tally.of(probabilities, labels, sums)


def values_of(tally: Tally, scores: Mapping[str, Score] = SCORES) -> dict[str, float]:
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
