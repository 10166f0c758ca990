"""When a run has diverged: whose numbers are not finite, or grow without bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedivon_app.core.errors import Fault, FaultKind
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.base import Reply


def extremes(posterior: Posterior) -> dict[str, float]:
    """Return the largest |mean| and the range of the precision."""
    found = {"largest_mean": float(np.abs(posterior.mean).max())}
    if posterior.precision is not None:
        smallest, largest = posterior.precision_range()
        found |= {"largest_precision": largest, "smallest_precision": smallest}
    return found


def why_diverged(
    merged: Posterior, first: Mapping[str, float], limit: float, replies: Sequence[Reply]
) -> str | None:
    """Return why the merged posterior is no good, and which client is most extreme in it.

    None if all is well. `first` are the extremes of the posterior before round 1; none may move
    from there by more than a factor `limit`.
    """
    if fault := merged.fault():
        return f"the merged posterior's {fault}{_most_extreme(_extreme_of(fault), replies)}"
    for name, value in extremes(merged).items():
        start = first.get(name)
        if not start:
            continue
        growth = start / value if name == "smallest_precision" else value / start
        if growth > limit:
            return (
                f"the {name.replace('_', ' ')} is {value:.3g}, more than a factor {limit:g} "
                f"(server.max_growth) away from {start:.3g} before round 1"
                f"{_most_extreme(name, replies)}"
            )
    return None


def _extreme_of(fault: Fault) -> str:
    """Return which extreme of the clients tells most about a fault of the merged posterior."""
    if fault.where != "precision":
        return "largest_mean"
    return "smallest_precision" if fault.kind is FaultKind.NOT_POSITIVE else "largest_precision"


def _most_extreme(name: str, replies: Sequence[Reply]) -> str:
    """Return whose reply is most extreme; nothing where only their sum is known."""
    if not replies:
        return ""
    values = {reply.partition: extremes(reply.posterior)[name] for reply in replies}
    choose = min if name == "smallest_precision" else max
    partition = choose(values, key=lambda partition: values[partition])
    what = name.split("_")[0]
    return f"; the {what} of a client is {values[partition]:.3g}, of partition {partition}"
