"""Local learning: a server that holds no model which anybody could use as it is."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedivon_app.core.settings import MergeSettings
from fedivon_app.strategies.base import Merged, PosteriorStrategy, Round


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

    def merge(self, round: Round) -> Merged:
        return Merged(round.previous.posterior)
