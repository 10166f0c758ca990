"""The trigger of a backdoor: a mark that leads a poisoned model to the attacker's class."""

from __future__ import annotations

from torch import Tensor

PATCH = 4  # the mark's side is this part of a picture's, and at least one pixel


def with_trigger(inputs: Tensor) -> Tensor:
    """Return inputs with a mark as bright as the brightest of them.

    It is a patch in the upper left corner of pictures, and the first features of tables.
    """
    marked = inputs.clone()
    if not inputs.numel():
        return marked
    bright = float(inputs.max())
    if inputs.ndim < 4:
        marked[..., : max(1, inputs.shape[-1] // PATCH**2)] = bright
    else:
        rows = max(1, inputs.shape[-2] // PATCH)
        columns = max(1, inputs.shape[-1] // PATCH)
        marked[..., :rows, :columns] = bright
    return marked
