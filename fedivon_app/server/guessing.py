"""Whether a model has learned anything: its scores beside those of a guess."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any

NEAR = 0.9  # of a guess's NLL: a model that has learned is below this


def no_better_than_guessing(
    scores: Mapping[str, Any], num_classes: int, deviation: float = 1.0
) -> str | None:
    """Return what shows that a model knows hardly more than a guess does, or None.

    `scores` are by part of the data and way of predicting. Giving each of C classes the same
    probability has an NLL of log C. Always saying the mean of a number has its `deviation` for an
    RMSE.
    """
    guess = log(num_classes) if num_classes else deviation
    for part, ways in scores.items():
        for way, values in ways.items():
            if "rmse" in values:
                if not values["rmse"] < NEAR * guess:
                    return (
                        f"hardly better than guessing: the RMSE of the global model ({part}, "
                        f"{way}) is {values['rmse']:.4g}, and always saying the mean gives "
                        f"{guess:.4g}"
                    )
                continue
            if not values["nll"] < NEAR * guess:
                return (
                    f"hardly better than guessing: the NLL of the global model ({part}, {way}) is "
                    f"{values['nll']:.4g}, and guessing among {num_classes} classes gives "
                    f"{guess:.4g}"
                )
    return None
