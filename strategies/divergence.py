"""When a run has diverged: numbers that are not finite, or that grow without bound, and whose they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.replies import Reply


def extremes(posterior: Posterior) -> dict[str, float]:
    """The largest |mean| and the range of the precision."""
    found = {"largest_mean": float(np.abs(posterior.mean).max())}
    if posterior.precision is not None:
        smallest, largest = posterior.precision_range()
        found |= {"largest_precision": largest, "smallest_precision": smallest}
    return found


def divergence(
    merged: Posterior, first: Mapping[str, float], limit: float, replies: Sequence[Reply]
) -> str | None:
    """Why the merged posterior is no good, and which client is most extreme in it; None if all is well.

    `first` are the extremes of the posterior before round 1; none may move from there by more than a factor `limit`.
    """
    if fault := merged.fault():
        name = "smallest_precision" if "not positive" in fault else "largest_precision"
        name = "largest_mean" if fault.startswith("mean") or merged.precision is None else name
        return f"the merged posterior's {fault}; {_most_extreme(name, replies)}"
    now = extremes(merged)
    for name, value in now.items():
        start = first.get(name)
        growth = (
            0 if not start else start / value if name == "smallest_precision" else value / start
        )
        if growth > limit:
            return (
                f"the {name.replace('_', ' ')} is {value:.3g}, more than a factor {limit:g} (server.max_growth) away "
                f"from {start:.3g} before round 1; {_most_extreme(name, replies)}"
            )
    return None


def _most_extreme(name: str, replies: Sequence[Reply]) -> str:
    values = {reply.partition: extremes(reply.posterior)[name] for reply in replies}
    choose = min if name == "smallest_precision" else max
    partition = choose(values, key=values.get)
    return (
        f"the {name.split('_')[0]} of a client is {values[partition]:.3g}, of partition {partition}"
    )
