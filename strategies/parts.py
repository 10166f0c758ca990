"""Where the parts of a model lie in the flat vector, for servers that treat them differently."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from fedivon_app.core.flat import Flat
from fedivon_app.core.models import build, build_custom
from fedivon_app.core.settings import ModelSettings


def head_of(
    model: ModelSettings, shape: tuple[int, ...], num_classes: int, head: str
) -> slice | np.ndarray:
    """The coordinates of the submodule `head`, in a network built for this and thrown away."""
    with torch.random.fork_rng(devices=[]):
        make = build_custom if model.factory else build
        return Flat(make(model.factory or model.name, shape, num_classes, **model.options)).part(
            "head", head
        )


class KnowsHead:
    """A strategy with `settings` and, in `network`, its model's input shape and classes."""

    @cached_property
    def head(self) -> slice | np.ndarray:
        """The head's coordinates, found once."""
        return head_of(self.settings.model, *self.network, self.settings.client.head)
