"""Flipout networks, as Fischer et al. merge them."""

from typing import ClassVar

from pydantic import Field

from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.strategies.base import PosteriorMergeSettings, PosteriorStrategy, RuleName


class FlipoutMergeSettings(PosteriorMergeSettings):
    """Any rule with any weighting; the sum of variables by size is the paper's first."""

    rule: RuleName = Field("ws", description="aggregation rule, see strategies/aggregation.py")


class Flipout(PosteriorStrategy[FlipoutMergeSettings]):
    """Fischer et al.'s server (2024, Algorithm 1): Gaussian networks merged by any rule."""

    settings_type: ClassVar[type[MergeSettings]] = FlipoutMergeSettings
