"""FedAvg: federated averaging."""

from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field

from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.strategies.base import PosteriorStrategy
from fedivon_app.strategies.weighting import checked_for_points


class PointMergeSettings(MergeSettings):
    """Points have no precision, and so there is only what needs none."""

    rule: Literal["nwa"] = "nwa"
    weighting: Annotated[str, AfterValidator(checked_for_points)] = Field(
        "size", description="weighting rule, see strategies/weighting.py"
    )


P = TypeVar("P", bound=PointMergeSettings)


class PointStrategy(PosteriorStrategy[P]):
    """What servers share that average points, weighted by data size (rule `nwa`)."""

    settings_type: ClassVar[type[MergeSettings]] = PointMergeSettings


class FedAvg(PointStrategy[PointMergeSettings]):
    """FedAvg's server (McMahan et al. 2017): points, averaged, weighted by data size."""
