"""Squares of per-example gradients, summed over examples, from what layers see and hear back.

The gradient of one example's loss at the weights of a linear layer is delta a^T, with a the layer's
input and delta the gradient at its output; so that sum_n w_n (delta_n a_n^T)^2 is one product of
matrices, (w delta^2)^T a^2, and no example's own gradient is ever written down. Where inputs are
sequences or pictures, a layer's gradient is a sum over places, which is made for each example and
is small for a convolution.

Networks of linear layers and convolutions alone can be treated so, each layer used once. All others
are left to `torch.func`, see core/laplace.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor, nn
from torch.nn.functional import unfold

Layer = nn.Linear | nn.Conv2d


@dataclass(eq=False)
class Tap:
    """What went into a layer and what came out of it in a forward pass."""

    layer: Layer
    calls: int = 0
    input: Tensor | None = None
    output: Tensor | None = None
    version: int = field(default=0, repr=False)

    def note(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Take note of a call, as a forward hook."""
        self.calls += 1
        self.input = inputs[0].detach()
        self.output = output
        self.version = output._version

    @cached_property
    def seen(self) -> Tensor:
        """Return what the layer's weights were multiplied with, see `_seen_by`."""
        assert self.input is not None
        return _seen_by(self.layer, self.input)

    @property
    def is_clean(self) -> bool:
        """Tell whether the layer was used once, and its output was not changed in place."""
        return self.calls == 1 and self.output is not None and self.output._version == self.version


def layers_of(module: nn.Module) -> list[Layer] | None:
    """Return the layers that hold the network's parameters, or None if some are held by others."""
    layers: list[Layer] = []
    held: list[nn.Parameter] = []
    for one in module.modules():
        own = list(one.parameters(recurse=False))
        if not own:
            continue
        if any(tensor is not None for tensor in one._buffers.values()):
            return None  # a part of the layer is frozen
        if type(one) is nn.Linear or (type(one) is nn.Conv2d and _padding_of(one) is not None):
            layers.append(one)
        else:
            return None
        held += own
    return layers if len(held) == len({id(p) for p in held}) else None


@contextmanager
def tapped(layers: list[Layer]) -> Iterator[list[Tap]]:
    """Yield a tap for each layer, which notes what passes inside the block."""
    taps = [Tap(layer) for layer in layers]
    with ExitStack() as stack:
        for tap in taps:
            handle = tap.layer.register_forward_hook(tap.note)
            stack.callback(handle.remove)
        yield taps


Totals = dict[Tensor, Tensor]  # by parameter


def add_squares(tap: Tap, delta: Tensor, weights: Tensor, totals: Totals) -> None:
    """Add sum_n weights_n (gradient of example n)^2 of a layer's parameters to their totals.

    `delta` is the gradient at the layer's output, example by example.
    """
    layer = tap.layer
    seen = tap.seen
    if seen.ndim == 2:
        scaled = delta.square() * weights[:, None]
        totals[layer.weight] += scaled.T @ seen.square()
        if layer.bias is not None:
            totals[layer.bias] += scaled.sum(0)
        return
    if isinstance(layer, nn.Linear):
        delta = delta.flatten(1, -2).transpose(1, 2)
    heard = delta.reshape(len(seen), seen.shape[1], -1, seen.shape[3])
    totals[layer.weight] += _weighted(weights, heard @ seen.mT).view_as(layer.weight)
    if layer.bias is not None:
        totals[layer.bias] += _weighted(weights, heard.sum(3)).view_as(layer.bias)


def _padding_of(layer: nn.Conv2d) -> tuple[int, ...] | None:
    """Return how many zeros a convolution has on both sides; None if it is not padded so."""
    if layer.padding_mode != "zeros":
        return None
    if not isinstance(layer.padding, str):
        return layer.padding
    if layer.padding == "valid":
        return (0, 0)
    both = [d * (size - 1) for d, size in zip(layer.dilation, layer.kernel_size, strict=True)]
    return tuple(zeros // 2 for zeros in both) if all(z % 2 == 0 for z in both) else None


def _seen_by(layer: Layer, inputs: Tensor) -> Tensor:
    """Return what a layer's weights are multiplied with.

    For a linear layer on vectors it is (example, channel), else (example, group, channel, place).
    """
    if isinstance(layer, nn.Linear):
        return inputs if inputs.ndim == 2 else inputs.flatten(1, -2).mT[:, None]
    padding = _padding_of(layer)
    assert padding is not None
    patches = unfold(
        inputs,
        kernel_size=layer.kernel_size,
        dilation=layer.dilation,
        padding=padding,
        stride=layer.stride,
    )
    return patches.view(len(inputs), layer.groups, -1, patches.shape[2])


def _weighted(weights: Tensor, gradient: Tensor) -> Tensor:
    return weights @ gradient.flatten(1).square()
