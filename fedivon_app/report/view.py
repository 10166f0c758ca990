"""What the chapters of a page are written from: its groups of runs, and how their models predict.

A run's page has a line for each way of predicting, a comparison's one for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedivon_app.core.scores import Score
from fedivon_app.report.figure_files import Pictures
from fedivon_app.report.grouping import Group
from fedivon_app.report.results import WAYS, RunResults, scores_held
from fedivon_app.report.style import Key

Count = Callable[[RunResults, str], int]  # how much a run has of something, by way of predicting


@dataclass(frozen=True, eq=False)
class Predictor:
    """What one line of a figure stands for.

    It is of runs that differ in the seed alone, and predict in one way.
    """

    label: str
    style: int
    way: str
    results: list[RunResults]

    @property
    def key(self) -> Key:
        """Return what a legend says of it."""
        return Key(self.label, self.style)


@dataclass(frozen=True, eq=False)
class PageView:
    """What a page is about: groups of runs, and a sentence on what they are named by.

    `compares` tells a comparison, even one of a single run, from the page of a run. Figures are
    given to `pictures`, which returns what the page shows of them.
    """

    groups: Sequence[Group]
    pictures: Pictures
    named_by: str = ""
    compares: bool = True

    @property
    def alone(self) -> bool:
        """Tell whether the page is about one run."""
        return len(self.groups) == 1 and len(self.groups[0].members) == 1

    @property
    def results(self) -> list[RunResults]:
        """Return the runs of all groups, without those that are left out of means."""
        return [one for group in self.groups for one in group.results]

    @cached_property
    def scores(self) -> dict[str, Score]:
        """Return the scores that the page shows, by name: those that any of its runs holds."""
        return scores_held(self.results)

    @cached_property
    def assessed(self) -> list[Predictor]:
        """Return those whose uncertainty was assessed."""
        return self.predictors(lambda results, way: bool(results.assessment(way)))

    def predictors(self, count: Count) -> list[Predictor]:
        """Return those that have some of what is counted.

        Of one group it is every way of predicting that has something; of several it is for each the
        way that has most, Monte Carlo first.
        """
        if len(self.groups) == 1:
            (group,) = self.groups
            ways = [way for way in WAYS if any(count(one, way) for one in group.results)]
            found = [
                _predictor(group, way, Key(WAYS[way], style), count)
                for style, way in enumerate(ways)
            ]
        else:
            found = [
                _predictor(group, _fullest_way(group, count), group.key, count)
                for group in self.groups
            ]
        return [one for one in found if one.results]

    def ways_note(self, predictors: Sequence[Predictor]) -> str:
        """Return a sentence on the ways of predicting that the lines of several groups are of."""
        if len(self.groups) == 1:
            return ""
        means = [one.label for one in predictors if one.way == "mean"]
        if len(means) == len(predictors):
            return "Predictions at the mean. "
        return f"Predictions by Monte Carlo{'; at the mean: ' if means else ''}{'; '.join(means)}. "


def _predictor(group: Group, way: str, key: Key, count: Count) -> Predictor:
    results = [one for one in group.results if count(one, way)]
    return Predictor(label=key.label, style=key.style, way=way, results=results)


def _fullest_way(group: Group, count: Count) -> str:
    return max(WAYS, key=lambda way: sum(count(one, way) for one in group.results))


def keys_of(predictors: Sequence[Predictor]) -> list[Key]:
    """Return what a legend says of these lines."""
    return [one.key for one in predictors]


def bands_note(predictors: Sequence[Predictor]) -> str:
    """Return a sentence on the bands around lines, where there are any."""
    several = any(len(one.results) > 1 for one in predictors)
    return "Bands: one standard deviation over seeds." if several else ""
