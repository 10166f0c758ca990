"""Trying a network with zeros, before anything is trained with it."""

from __future__ import annotations

import torch
from torch import nn

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.text import one_line

Shape = tuple[int, ...]


def checked_outputs(model: nn.Module, what: str, shape: Shape, num_classes: int) -> nn.Module:
    """Return the model if it gives what it should; a network of tokens is asked with these."""
    batch = (2, *channels_first(shape))
    try:
        logits: object = dry_run(model, shape, batch_size=2)
    except Exception as error:
        try:
            logits = dry_run(model, shape, batch_size=2, dtype=torch.int64)
        except Exception:
            raise SettingsError(
                f"{what} fails on a batch of shape {batch}: {one_line(error)}"
            ) from error
    found = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
    if found != (2, num_classes):
        raise SettingsError(f"{what} gives {found} for 2 inputs, not {(2, num_classes)} logits")
    return model


def dry_run(
    module: nn.Module, shape: Shape, batch_size: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return the module's output for zeros.

    It is in eval mode meanwhile, so that batch-norm statistics and generators stay untouched.
    """
    training = module.training
    module.eval()
    device = next((parameter.device for parameter in module.parameters()), None)
    try:
        with torch.no_grad():
            zeros = torch.zeros((batch_size, *channels_first(shape)), device=device, dtype=dtype)
            output: torch.Tensor = module(zeros)
            return output
    finally:
        module.train(training)


def channels_first(shape: Shape) -> Shape:
    """Return the shape of one input in torch's order."""
    return shape if len(shape) == 1 else (shape[2], shape[0], shape[1])
