"""FedIvon."""

from typing import ClassVar

from pydantic import Field

from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.strategies.base import PosteriorMergeSettings, PosteriorStrategy, RuleName


class FedIvonMergeSettings(PosteriorMergeSettings):
    """FedIvon multiplies posteriors, weighted by size, unless told otherwise."""

    rule: RuleName = Field("product", description="aggregation rule, see strategies/aggregation.py")


class FedIvon(PosteriorStrategy[FedIvonMergeSettings]):
    """FedIvon's server (Pal et al. 2025, Algorithm 2): posteriors multiplied, weighted by size."""

    settings_type: ClassVar[type[MergeSettings]] = FedIvonMergeSettings
