"""Local learning: a server that holds no model which anybody could use as it is."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.strategies.base import Merged, PosteriorStrategy, Round, Total
from fedivon_app.strategies.summing import Own, Summand


class LocalMergeSettings(MergeSettings):
    """Nothing is merged."""

    rule: Literal["none"] = "none"
    weighting: Literal["equal"] = "equal"


class Local(PosteriorStrategy[LocalMergeSettings]):
    """The server of clients that learn for themselves.

    It gives the first weights, and keeps what it has.
    """

    settings_type: ClassVar[type[MergeSettings]] = LocalMergeSettings

    @property
    def has_global_model(self) -> bool:
        return False

    def contribution(self, own: Own, sent: Payload) -> dict[str, np.ndarray]:
        return {}

    def summands(self, sent: Payload) -> dict[str, Summand]:
        return {}

    def total(self, round: Round) -> Total:
        return Total({}, round.weights)

    def conclude(self, total: Total, round: Round) -> Merged:
        return Merged(round.previous.posterior)
