"""Per-example gradients from what layers see and hear back: their squares, lengths and sums.

The gradient of one example's loss at the weights of a linear layer is delta a^T, with a the layer's
input and delta the gradient at its output; so that sum_n w_n (delta_n a_n^T)^2 is one product of
matrices, (w delta^2)^T a^2, and no example's own gradient is ever written down. Its length is
|delta| |a|, and the sum of w_n delta_n a_n^T is (w delta)^T a. Where inputs are
sequences or pictures, a layer's gradient is a sum over places, which is made for each example and
is small for a convolution.

Networks of linear layers and convolutions alone can be treated so, each layer used once. All others
are left to `torch.func`, see core/laplace.py and core/clipped.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

Layer = nn.Linear | nn.Conv2d

_AT_ONCE = 2**17  # numbers that a layer sees, which then stay in the cache and ask for no new pages


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
    heard = _heard_by(layer, seen, delta)
    totals[layer.weight] += _weighted(weights, heard @ seen.mT).view_as(layer.weight)
    if layer.bias is not None:
        totals[layer.bias] += _weighted(weights, heard.sum(3)).view_as(layer.bias)


@dataclass(frozen=True, eq=False)
class LayerGradients:
    """The gradients of a layer's parameters, example by example.

    Those of the weights are the products of the rows of `left` and `right` where the layer sees
    vectors (`right` is not None), else `left` itself; those of the bias are `bias`.
    """

    layer: Layer
    left: Tensor
    right: Tensor | None
    bias: Tensor | None

    @classmethod
    def of(cls, tap: Tap, delta: Tensor) -> LayerGradients:
        """Return what follows from the gradient at the layer's output."""
        layer = tap.layer
        has_bias = layer.bias is not None
        if delta.ndim == 2:
            return cls(layer, left=delta, right=tap.seen, bias=delta if has_bias else None)
        assert tap.input is not None
        places = delta[0].numel() // len(layer.weight)
        few = max(1, _AT_ONCE // (layer.weight[0].numel() * places))
        left = delta.new_empty(len(delta), layer.weight.numel())
        bias = delta.new_empty(len(delta), len(layer.weight)) if has_bias else None
        for rows in (slice(first, first + few) for first in range(0, len(delta), few)):
            seen = _seen_by(layer, tap.input[rows])
            heard = _heard_by(layer, seen, delta[rows])
            left[rows] = (heard @ seen.mT).flatten(1)
            if bias is not None:
                bias[rows] = heard.sum(3).flatten(1)
        return cls(layer, left=left, right=None, bias=bias)

    def squared_norms(self) -> Tensor:
        """Return the squared length of each example's gradient, in float64."""
        if self.right is None:
            squares = _squared(self.left)
        else:  # the lengths are multiplied, so that none may be lost for being small
            squares = _squared(self.left.double()) * _squared(self.right.double())
        return squares if self.bias is None else squares + _squared(self.bias)

    def without(self, examples: Tensor) -> LayerGradients:
        """Return the same with zeros for these examples."""

        def cleared(rows: Tensor) -> Tensor:
            return rows.masked_fill(examples[:, None], 0.0)

        return LayerGradients(
            layer=self.layer,
            left=cleared(self.left),
            right=None if self.right is None else cleared(self.right),
            bias=None if self.bias is None else cleared(self.bias),
        )

    def weighted_sums(self, weights: Tensor) -> Totals:
        """Return sum_n weights_n (gradient of example n) of each parameter."""
        if self.right is None:
            total = weights @ self.left
        else:
            total = (self.left * weights[:, None]).T @ self.right
        sums: Totals = {self.layer.weight: total.view_as(self.layer.weight)}
        if self.layer.bias is not None and self.bias is not None:
            sums[self.layer.bias] = (weights @ self.bias).view_as(self.layer.bias)
        return sums


def _squared(rows: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return lengths.double().square()


def _heard_by(layer: Layer, seen: Tensor, delta: Tensor) -> Tensor:
    """Return the gradient at a layer's output as (example, group, channel, place)."""
    if isinstance(layer, nn.Linear):
        delta = delta.flatten(1, -2).transpose(1, 2)
    return delta.reshape(len(seen), seen.shape[1], -1, seen.shape[3])


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
    patches = _patches(layer, inputs)
    return patches.view(len(inputs), layer.groups, -1, patches.shape[-1])


def _patches(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    """Return what a convolution sees at each place, as (example, channel and offset, place).

    It is `torch.nn.functional.unfold`, by one copy of a view, which takes a fraction of its time.
    """
    padding = _padding_of(layer)
    assert padding is not None
    rows, columns = padding
    whole = pad(inputs.contiguous(), (columns, columns, rows, rows))
    examples, channels, height, width = whole.shape
    sizes = [
        (size - d * (kernel - 1) - 1) // stride + 1
        for size, kernel, d, stride in zip(
            (height, width), layer.kernel_size, layer.dilation, layer.stride, strict=True
        )
    ]
    per_example, per_channel, *along = whole.stride()
    offsets = [d * step for d, step in zip(layer.dilation, along, strict=True)]
    places = [stride * step for stride, step in zip(layer.stride, along, strict=True)]
    view = whole.as_strided(
        (examples, channels, *layer.kernel_size, *sizes),
        (per_example, per_channel, *offsets, *places),
    )
    return view.reshape(examples, -1, sizes[0] * sizes[1])


def _weighted(weights: Tensor, gradient: Tensor) -> Tensor:
    return weights @ gradient.flatten(1).square()
