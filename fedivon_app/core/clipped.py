"""The sum of per-example gradients, none of them longer than a bound.

Where a network consists of linear layers and convolutions, each used once, the length of an
example's gradient follows from what the layers see and hear back (core/per_example.py): one pass
forward, one back, and a weighted product a layer. Others are left to `torch.func`, example by
example.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fedivon_app.core.flat import Flat
from fedivon_app.core.per_example import Layer, LayerGradients, Totals, layers_of, tapped

_AT_ONCE = 32  # examples whose gradients are held at a time
_BELOW = 1 - 1e-5  # of the bound: what lengths lose to rounding is not to exceed it


def clipped_sum(
    flat: Flat, inputs: Tensor, labels: Tensor, bound: float, *, by_layers: bool = True
) -> Tensor:
    """Return sum_n g_n min(1, bound / |g_n|) as a flat vector, with g_n of the cross-entropy.

    An example whose gradient is not finite counts as zero. `by_layers` is for networks that are
    known to treat each example by itself; one that may mix them is given single examples.
    """
    if not len(labels):
        return torch.zeros_like(flat.vector)
    layers = layers_of(flat.module) if by_layers else None
    found = None if layers is None else _by_layers(flat.module, layers, inputs, labels, bound)
    return _by_examples(flat, inputs, labels, bound) if found is None else found


def _by_layers(
    module: nn.Module, layers: list[Layer], inputs: Tensor, labels: Tensor, bound: float
) -> Tensor | None:
    """Return the sum from what the layers see; None for a network that is not fit for it."""
    with torch.enable_grad(), tapped(layers) as taps:
        loss = cross_entropy(module(inputs), labels, reduction="sum")
    outputs = [tap.output for tap in taps if tap.is_clean and tap.output is not None]
    if len(outputs) < len(taps):
        return None
    deltas = torch.autograd.grad(loss, outputs, materialize_grads=True)
    with torch.no_grad():
        each = [LayerGradients.of(tap, delta) for tap, delta in zip(taps, deltas, strict=True)]
        squares = torch.stack([one.squared_norms() for one in each]).sum(0)
        shares, finite = _shares(squares, bound), squares.isfinite()
        sums: Totals = {}
        for one in each:
            sums |= (one if bool(finite.all()) else one.without(~finite)).weighted_sums(shares)
        return torch.cat([sums[parameter].flatten() for parameter in module.parameters()])


def _by_examples(flat: Flat, inputs: Tensor, labels: Tensor, bound: float) -> Tensor:
    """Return the sum from the gradient of each example, for any network."""
    module = flat.module
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    buffers = dict(module.named_buffers())

    def loss(values: dict[str, Tensor], example: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(module, (values, buffers), (example[None],))
        return cross_entropy(logits, label[None])

    per_example = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    total = torch.zeros_like(flat.vector)
    for rows in torch.arange(len(labels), device=labels.device).split(_AT_ONCE):
        gradients = per_example(parameters, inputs[rows], labels[rows])
        each = torch.cat([gradients[name].flatten(1) for name in parameters], dim=1)
        squares = torch.linalg.vector_norm(each, dim=1).double().square()
        each[~squares.isfinite()] = 0
        total += _shares(squares, bound) @ each
    return total


def _shares(squares: Tensor, bound: float) -> Tensor:
    """Return by how much gradients of these squared lengths are multiplied; 0 if not finite."""
    shares = (_BELOW * bound / squares.sqrt()).clamp(max=1.0)
    return shares.nan_to_num(0.0).float()
