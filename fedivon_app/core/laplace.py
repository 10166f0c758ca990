"""The diagonal of a network's curvature at its weights, by squares of per-example gradients.

For the cross-entropy of a softmax the generalised Gauss-Newton matrix, `ggn`, is the Fisher
information: its diagonal is sum_n sum_c p_nc g_nc^2, with p the model's probabilities and g_nc the
gradient of -log p_nc. `fisher` draws one label of each example from p instead of summing over all
(the same in expectation); `empirical` takes the labels themselves.

Where a network consists of linear layers and convolutions, the squares come from what its layers
see, see core/per_example.py; elsewhere from `torch.func`, example by example.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fedivon_app.core.flat import Flat
from fedivon_app.core.per_example import Layer, Totals, add_squares, layers_of, tapped

Curvature = Literal["ggn", "fisher", "empirical"]


_AT_ONCE = 32  # examples whose gradients are held at a time


@dataclass(frozen=True)
class Target:
    """A label for each example, and how much the square of its gradient counts."""

    labels: Tensor
    weights: Tensor


def curvature_diagonal(
    flat: Flat, inputs: Tensor, labels: Tensor, kind: Curvature = "ggn", batch_size: int = 128
) -> Tensor:
    """Return the diagonal's mean over the examples, as a flat vector.

    The network is in eval mode meanwhile, and as it was afterwards.
    """
    module = flat.module
    training = module.training
    layers = layers_of(module)
    total = torch.zeros_like(flat.vector)
    module.eval()
    try:
        for rows in torch.split(torch.arange(len(labels), device=labels.device), batch_size):
            batch = inputs[rows]
            targets = _targets(flat, batch, labels[rows], kind)
            found = None if layers is None else _by_layers(flat, layers, batch, targets)
            total += _by_examples(flat, batch, targets) if found is None else found
    finally:
        module.train(training)
    return total / len(labels)


def _by_layers(
    flat: Flat, layers: list[Layer], inputs: Tensor, targets: Sequence[Target]
) -> Tensor | None:
    """Return the sum of the squares from what the layers see; None for a network not fit for it."""
    parameters = list(flat.module.parameters())
    totals: Totals = {p: torch.zeros_like(p) for p in parameters}
    with torch.enable_grad(), tapped(layers) as taps:
        logits = flat.module(inputs)
    outputs = [tap.output for tap in taps if tap.is_clean and tap.output is not None]
    if len(outputs) < len(taps):
        return None
    for target in targets:
        loss = cross_entropy(logits, target.labels, reduction="sum")
        deltas = torch.autograd.grad(loss, outputs, retain_graph=True)
        for tap, delta in zip(taps, deltas, strict=True):
            add_squares(tap, delta, target.weights, totals)
    return torch.cat([totals[p].flatten() for p in parameters])


def _by_examples(flat: Flat, inputs: Tensor, targets: Sequence[Target]) -> Tensor:
    """Return the sum of the squares from the gradient of each example, for any network."""
    module = flat.module
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    buffers = dict(module.named_buffers())

    def loss(values: dict[str, Tensor], example: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(module, (values, buffers), (example[None],))
        return cross_entropy(logits, label[None])

    per_example = vmap(grad(loss), in_dims=(None, 0, 0), chunk_size=_AT_ONCE)
    total = torch.zeros_like(flat.vector)
    for target in targets:
        gradients = per_example(parameters, inputs, target.labels)
        squares = [target.weights @ g.flatten(1).square() for g in gradients.values()]
        total += torch.cat(squares)
    return total


@torch.no_grad()
def _targets(flat: Flat, inputs: Tensor, labels: Tensor, kind: Curvature) -> list[Target]:
    """Return the labels whose squared gradients are summed."""
    ones = torch.ones(len(labels), device=labels.device)
    if kind == "empirical":
        return [Target(labels, ones)]
    probabilities = flat.module(inputs).softmax(1)
    if kind == "fisher":
        return [Target(probabilities.multinomial(1).flatten(), ones)]
    return [
        Target(torch.full_like(labels, c), probabilities[:, c])
        for c in range(probabilities.shape[1])
    ]
