"""Rivals that take turns in one process, and their times."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

Run = Callable[[], object]


def contest(rivals: Mapping[str, Run], turns: int) -> dict[str, float]:
    """Return the median milliseconds of CPU time of each rival.

    They take turns, after one that does not count.
    """
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(turns + 1):
        for name, run in rivals.items():
            began = time.process_time()
            run()
            if turn:
                times[name].append(1e3 * (time.process_time() - began))
    return {name: float(np.median(values)) for name, values in times.items()}


def show(title: str, result: Mapping[str, float]) -> None:
    """Print the times of rivals, and that of the first as a share of each other's."""
    first = next(iter(result.values()))
    cells = [f"{name} {value:.3g} ms" for name, value in result.items()]
    ratios = [f"{first / value:.2f} of {name}" for name, value in list(result.items())[1:]]
    print(f"{title:<52} {', '.join(cells)}: {', '.join(ratios)}", flush=True)
