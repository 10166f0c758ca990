"""Numbers by round as lines: their mean and standard deviation over the runs behind a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedivon_app.core.text import Unit
from fedivon_app.report.plots import Line
from fedivon_app.report.view import Predictor

Tracks = Sequence[Mapping[int, float]]  # of each run, a number by round


def line_by_round(predictor: Predictor, tracks: Tracks) -> Line:
    """Return the line against rounds, at those that all runs have."""
    rounds = _common_rounds(tracks)
    return _line(predictor, np.array(rounds, float), tracks)


def line_by_bytes(predictor: Predictor, tracks: Tracks, unit: Unit) -> Line:
    """Return the line against the mean of the bytes that were sent up to each round."""
    rounds = _common_rounds(tracks)
    sent = [[run.bytes_by_round[r] for r in rounds] for run in predictor.results]
    return _line(predictor, np.mean(sent, axis=0) / unit.size, tracks)


def _common_rounds(tracks: Tracks) -> list[int]:
    return sorted(set.intersection(*map(set, tracks)))


def _line(predictor: Predictor, x: np.ndarray, tracks: Tracks) -> Line:
    rounds = _common_rounds(tracks)
    return Line.mean(predictor.key, x, [[track[r] for r in rounds] for track in tracks])
