"""Federated averaging."""

from typing import Literal

from pydantic import Field

from fedivon_app.strategies.base import MergeSettings, PosteriorStrategy
from fedivon_app.strategies.weighting import FOR_POINTS


class PointMergeSettings(MergeSettings):
    """Points have no precision, and so only what needs none."""

    rule: Literal["nwa"] = "nwa"
    weighting: Literal[*FOR_POINTS] = Field(
        "size", description="weighting rule, see strategies/weighting.py"
    )


class FedAvg(PosteriorStrategy):
    """FedAvg's server (McMahan et al. 2017): points, averaged, weighted by data size (rule `nwa`)."""

    Settings = PointMergeSettings
