"""Which of several methods won, by how much, and whether it is more than chance.

Runs of two methods with the same seed have the same data and the same split, so they are compared
in pairs: d_s is the difference of their scores under seed s. Over n seeds the mean of d has the
interval mean ± t_(n-1) stdev(d) / sqrt(n), at 95 %; where the best is held against m others, each
interval is at 1 - 0.05/m (Bonferroni). That the best is ahead is more than chance if no interval
reaches zero. One seed tells nothing, for then there is no stdev.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count, islice
from math import inf, sqrt
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit  # Student's t; scipy.stats takes a second to import

from fedivon_app.core.client_scores import PLACES
from fedivon_app.core.scores import NUMBER_SCORES, SCORES, Score

LEVEL = 0.95
JUDGED_BY = (SCORES["accuracy"], NUMBER_SCORES["rmse"], SCORES["nll"], SCORES["ece"])
MEANING = {
    "accuracy": "accuracy (the share of right answers)",
    "rmse": "RMSE (the usual size of an error; lower is better)",
    "nll": "NLL (lower is better: what was true was given more probability)",
    "ece": "ECE (lower is better: how sure a model is comes nearer to how often it is right)",
}
Values = Mapping[str, Mapping[int, float]]  # by method and seed


@dataclass(frozen=True)
class Verdict:
    """The best method by one score, held against the next best.

    `values` are the mean scores of the two. `ahead` is the mean of the paired differences, positive
    in favour of the best; `low` and `high` are its interval, None under one seed. `certain` tells
    that no interval, to any of the others, reaches zero.
    """

    score: Score
    best: str
    next_best: str
    values: tuple[float, float]
    seeds: int
    ahead: float
    low: float | None
    high: float | None
    certain: bool

    @property
    def text(self) -> str:
        """Return the verdict in a sentence or two."""
        by = f"By {MEANING[self.score.name]}"
        if self.ahead == 0:
            return f"{by}, {self.best} and {self.next_best} are level."
        percent = " %" if self.score.percent else ""
        own, others = (self._number(value) + percent for value in self.values)
        return (
            f"{by}, {self.best} is ahead of {self.next_best}: {own} and {others}, {self.judgement}"
        )

    @property
    def judgement(self) -> str:
        """Return how large the lead is, and whether it may be chance, beginning at "a lead"."""
        lead = f"a lead of {self._in_units(self.ahead)}"
        if self.low is None or self.high is None:
            return f"{lead} under one seed."
        most = 1.0 if self.score.percent else inf  # few seeds may give more than there can be
        low = self._number(max(self.low, -most))
        high = self._in_units(min(self.high, most))
        chance = "is more than chance" if self.certain else "may be chance"
        return (
            f"{lead}. Judging by {self.seeds} seeds it lies between {low} and {high} "
            f"(95 % interval), so it {chance}."
        )

    def _number(self, value: float) -> str:
        return self.score.text(value)

    def _in_units(self, value: float) -> str:
        return f"{self._number(value)} points" if self.score.percent else self._number(value)


def verdict(values: Values, score: Score) -> Verdict | None:
    """Return which method is best by a score; None where there are not two to compare.

    Only seeds that all methods have are counted.
    """
    common = sorted(set.intersection(*(set(seeds) for seeds in values.values()))) if values else []
    if len(values) < 2 or not common:
        return None
    sign = 1 if score.higher_is_better else -1

    def _mean_of(method: str) -> float:
        return fmean(values[method][seed] for seed in common)

    order = sorted(values, key=lambda method: -sign * _mean_of(method))
    best, *others = order
    intervals = []
    for other in others:
        differences = [sign * (values[best][seed] - values[other][seed]) for seed in common]
        intervals.append(_interval(differences, 1 - (1 - LEVEL) / len(others)))
    nearest = intervals[0]
    return Verdict(
        score=score,
        best=best,
        next_best=others[0],
        values=(_mean_of(best), _mean_of(others[0])),
        seeds=len(common),
        ahead=nearest.mean,
        low=nearest.low,
        high=nearest.high,
        certain=all(one.low is not None and one.low > 0 for one in intervals),
    )


@dataclass(frozen=True)
class _Interval:
    mean: float
    low: float | None
    high: float | None


def _interval(differences: list[float], level: float) -> _Interval:
    mean = fmean(differences)
    number = len(differences)
    if number < 2:
        return _Interval(mean, None, None)
    reach = float(stdtrit(number - 1, (1 + level) / 2)) * stdev(differences) / sqrt(number)
    return _Interval(mean, mean - reach, mean + reach)


def closing_lines(summaries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what can be said of runs of one experiment that differ in method and seed.

    Nothing is said of a single method, nor of runs that share no scores. `summaries` are those of
    summary.json.
    """
    by_method: dict[str, dict[int, Mapping[str, float]]] = {}
    listed = list(summaries)
    if len({one["experiment"] for one in listed}) != 1:
        return []
    central = all(_central(one) for one in listed)
    for one in listed:
        scores = _central(one) if central else _at_clients(one)
        if scores:
            by_method.setdefault(one["strategy"], {})[one["seed"]] = scores
    used = {one["seed"] for one in listed}
    return verdict_lines(by_method, f"--seed {' '.join(map(str, more_seeds(used)))}")


def more_seeds(used: Collection[int]) -> list[int]:
    """Return the seeds that were used and the next ones: five at least, and three new ones.

    They are counted on from the lowest one that was used: a lower one may have been left out
    because values were chosen with it.
    """
    others = (seed for seed in count(min(used)) if seed not in used)
    return sorted([*used, *islice(others, max(3, 5 - len(used)))])


def verdict_lines(
    by_method: Mapping[str, Mapping[int, Mapping[str, float]]], asking: str
) -> list[str]:
    """Return the verdicts on scores by method and seed, and what would make them firmer.

    `asking` is the option of the command that asks for more seeds.
    """
    found = []
    for score in JUDGED_BY:
        values = {
            method: {seed: one[score.name] for seed, one in seeds.items() if score.name in one}
            for method, seeds in by_method.items()
        }
        if one := verdict(values, score):
            found.append(one)
    if not found:
        return []
    lines = [one.text for one in found]
    if found[0].seeds == 1:
        lines.append(f"One seed cannot tell whether that is more than chance: add {asking}.")
    elif not all(one.certain for one in found):
        lines.append(f"More seeds narrow the intervals: {asking}.")
    return lines


def _central(summary: Mapping[str, Any]) -> Mapping[str, float]:
    return _by_samples((summary.get("final") or {}).get("test"))


def _at_clients(summary: Mapping[str, Any]) -> Mapping[str, float]:
    """The scores on the clients' test parts: of personal models where there are any."""
    personal = _by_samples((summary.get("personal") or {}).get(PLACES["pm"]))
    return personal or _by_samples((summary.get("final") or {}).get(PLACES["gm"]))


def _by_samples(ways: Mapping[str, Any] | None) -> Mapping[str, float]:
    known = ways or {}
    scores: Mapping[str, float] = known.get("mc") or known.get("mean") or {}
    return scores
