"""Sentences on what a model's certainty is worth: what it can answer, and what it is sure of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from fedivon_app.core.scores import Score
from fedivon_app.plurals import listed
from fedivon_app.runs.records import UNCERTAINTY, read_json, read_settings
from fedivon_app.runs.winner import verdict

RIGHT = 0.95  # of the answers that are given


def _most(curve: Mapping[str, Sequence[float]]) -> float:
    """Return the largest share of examples of which nearly all answers are right."""
    kept = zip(curve["fractions"], curve["entropy"], strict=True)
    return max((fraction for fraction, right in kept if right >= RIGHT), default=0.0)


ANSWERED = Score("answered", "Answered", True, value=_most, digits=0, percent=True)


def answerable(folders: Iterable[Path]) -> str:
    """Return how many test examples each method can answer if nearly all answers are to be right.

    Those that it is least certain of, by the entropy of its predictions, go unanswered. Nothing is
    said of a single method, or where all can answer everything. Only seeds count that all have.
    """
    shares: dict[str, dict[int, float]] = {}
    for folder in folders:
        curve = _asked(folder).get("retention") or {}
        if "entropy" in curve:
            settings = read_settings(folder)
            own = shares.setdefault(settings["strategy"], {})
            own[settings["seed"]] = ANSWERED.value(curve)
    found = verdict(shares, ANSWERED)
    if found is None or all(min(own.values()) == 1 for own in shares.values()):
        return ""
    lead = "." if found.ahead == 0 else f", {found.judgement}"
    return (
        f"If {100 * RIGHT:.0f} % of the answers have to be right, and the examples that a model is "
        f"least certain of are left to a person, {found.best} can answer "
        f"{ANSWERED.text(found.values[0])} % of the test data, and {found.next_best} "
        f"{ANSWERED.text(found.values[1])} %{lead}"
    )


def sure_of_the_unknown(folders: Iterable[Path]) -> str:
    """Return of which share of other data the models of these runs are sure, a line for each data.

    A model predicts in its best way: with weight samples where it has a posterior. Runs of one
    method are taken together. Nothing is said of data that only one method was shown.
    """
    shares: dict[tuple[str, int, float], dict[str, list[float]]] = {}
    for folder in folders:
        found = _shown(folder)
        if sure := found.get("sure"):
            shown = (found["source"], found["num_out"], sure["from"])
            strategy = read_settings(folder)["strategy"]
            shares.setdefault(shown, {}).setdefault(strategy, []).append(sure["out"])
    lines = []
    for (source, number, bound), by_strategy in shares.items():
        if len(by_strategy) > 1:
            told = [f"{name} for {fmean(own):.1%}" for name, own in by_strategy.items()]
            lines.append(
                f"{source}: {number:,} examples of classes that no client has. A model that gives "
                f"one of its own classes {bound:.0%} or more is wrong to be so sure: "
                f"{listed(told)} of them."
            )
    return "\n".join(lines)


def _shown(folder: Path) -> Mapping[str, Any]:
    """Return how a run's model took data that it was not trained for; nothing if it saw none."""
    found: Mapping[str, Any] = _asked(folder).get("ood") or {}
    return found


def _asked(folder: Path) -> Mapping[str, Any]:
    """Return what was measured of a run's predictions in their best way."""
    ways = (read_json(folder / UNCERTAINTY) or {}).get("ways") or {}
    found: Mapping[str, Any] = ways.get("mc") or ways.get("mean") or {}
    return found
