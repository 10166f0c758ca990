"""How posteriors travel, in both directions."""

from __future__ import annotations

from math import log2
from typing import Literal

from pydantic import Field, field_validator

from fedivon_app.core.section import Section


class WireSettings(Section):
    """How posteriors travel, in both directions."""

    codec: Literal["raw", "compact"] = Field(
        "raw", description="float32 as it is, or steps as coarse as the posterior's sigma allows"
    )
    mean_step: float = Field(1.0, ge=1e-6, le=1e6, description="compact: a mean's step, in sigmas")
    largest_step: float = Field(
        0.5,
        ge=1e-6,
        le=1e6,
        description="compact: a mean's step at most, as a share of its tensor's usual weights",
    )
    precision_step: float = Field(
        0.25,
        ge=1 / 64,
        le=1,
        description="compact: a precision's step in octaves, a power of two",
    )
    point_step: float = Field(
        2.0,
        ge=1e-6,
        le=1e6,
        description="compact: a point's step in a reply, as a share of its tensor's usual change",
    )
    whole_point_step: float = Field(
        1 / 64,
        ge=1e-6,
        le=1e6,
        description="compact: the step of a point that the server sends, as a share of its "
        "tensor's usual weights",
    )
    remembered: int = Field(
        32,
        ge=1,
        description="compact: how many of the posteriors that it has sent the server keeps; a "
        "client that holds one of them is sent only what has changed",
    )

    @field_validator("precision_step")
    @classmethod
    def _power_of_two(cls, value: float) -> float:
        if log2(value) % 1:
            raise ValueError(f"{value} is no power of two, such as 0.25 or 0.125")
        return value
