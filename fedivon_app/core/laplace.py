"""The diagonal of a network's curvature at its weights, by squares of per-example gradients.

For the cross-entropy of a softmax the generalised Gauss-Newton matrix, `ggn`, is the Fisher
information: its diagonal is sum_n sum_c p_nc g_nc^2, with p the model's probabilities and g_nc the
gradient of -log p_nc. `fisher` draws one label of each example from p instead of summing over all
(the same in expectation); `empirical` takes the labels themselves. For a number, N(mu, v) with
v = softplus(rho), it is sum_n (d mu)^2 / v + (d v)^2 / (2 v^2), the Fisher information again.

Where a network consists of linear layers and convolutions, the squares come from what its layers
see, see core/per_example.py; elsewhere from `torch.func`, example by example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, softplus

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.flat import Flat
from fedivon_app.core.likelihood import CLASSES, SMALLEST_NOISE, Classes, Likelihood
from fedivon_app.core.per_example import Layer, Totals, add_squares, layers_of, tapped

Curvature = Literal["ggn", "fisher", "empirical"]
Value = Callable[..., Tensor]  # of outputs and labels: the sum of what is differentiated


_AT_ONCE = 32  # examples whose gradients are held at a time


@dataclass(frozen=True)
class Target:
    """A label for each example, and how much the square of its gradient counts.

    It is the gradient of -log p at the label of a class, and of the output of this number where a
    number is predicted.
    """

    labels: Tensor
    weights: Tensor


def curvature_diagonal(
    flat: Flat,
    inputs: Tensor,
    labels: Tensor,
    kind: Curvature = "ggn",
    batch_size: int = 128,
    likelihood: Likelihood = CLASSES,
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
            if likelihood.is_number:
                targets = _number_targets(flat, batch, kind)
            else:
                targets = _targets(flat, batch, labels[rows], kind)
                targets = _weighted(targets, labels[rows], likelihood)
            value = _output if likelihood.is_number else cross_entropy
            found = None if layers is None else _by_layers(flat, layers, batch, targets, value)
            total += _by_examples(flat, batch, targets, value) if found is None else found
    finally:
        module.train(training)
    return total / len(labels)


def _by_layers(
    flat: Flat, layers: list[Layer], inputs: Tensor, targets: Sequence[Target], value: Value
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
        loss = value(logits, target.labels, reduction="sum")
        deltas = torch.autograd.grad(loss, outputs, retain_graph=True)
        for tap, delta in zip(taps, deltas, strict=True):
            add_squares(tap, delta, target.weights, totals)
    return torch.cat([totals[p].flatten() for p in parameters])


def _by_examples(flat: Flat, inputs: Tensor, targets: Sequence[Target], value: Value) -> Tensor:
    """Return the sum of the squares from the gradient of each example, for any network."""
    module = flat.module
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    buffers = dict(module.named_buffers())

    def loss(values: dict[str, Tensor], example: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(module, (values, buffers), (example[None],))
        return value(logits, label[None], reduction="sum")

    per_example = vmap(grad(loss), in_dims=(None, 0, 0), chunk_size=_AT_ONCE)
    total = torch.zeros_like(flat.vector)
    for target in targets:
        gradients = per_example(parameters, inputs, target.labels)
        squares = [target.weights @ g.flatten(1).square() for g in gradients.values()]
        total += torch.cat(squares)
    return total


def _output(outputs: Tensor, numbers: Tensor, reduction: str) -> Tensor:
    """Return the sum of the outputs of these numbers, one of each example."""
    return outputs.gather(1, numbers[:, None]).sum()


@torch.no_grad()
def _number_targets(flat: Flat, inputs: Tensor, kind: Curvature) -> list[Target]:
    """Return both outputs of each example with their Fisher information, 1/v and v'^2/(2 v^2)."""
    if kind == "empirical":
        raise SettingsError("client.curvature empirical is for classes, and task is regression")
    outputs = flat.module(inputs)
    rho = outputs[:, 1]
    variance = softplus(rho) + SMALLEST_NOISE
    slope = rho.sigmoid()
    first = torch.zeros(len(outputs), dtype=torch.int64, device=outputs.device)
    return [
        Target(first, 1 / variance),
        Target(first + 1, slope.square() / (2 * variance.square())),
    ]


def _weighted(targets: list[Target], labels: Tensor, likelihood: Likelihood) -> list[Target]:
    """Return the targets with the weights that the examples' classes have in the loss."""
    if not isinstance(likelihood, Classes) or likelihood.weights is None:
        return targets
    weights = torch.tensor(likelihood.weights, device=labels.device)[labels]
    return [Target(target.labels, target.weights * weights) for target in targets]


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
