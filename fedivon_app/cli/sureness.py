"""A sentence on how sure models are of what they were never trained for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from fedivon_app.plurals import listed
from fedivon_app.runs.records import UNCERTAINTY, read_json, read_settings


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
    ways = (read_json(folder / UNCERTAINTY) or {}).get("ways") or {}
    found: Mapping[str, Any] = (ways.get("mc") or ways.get("mean") or {}).get("ood") or {}
    return found
