"""The diagonal of a network's curvature at its weights, by per-example gradients (`torch.func`).

For the cross-entropy of a softmax the generalised Gauss-Newton matrix, `ggn`, is the Fisher
information: its diagonal is sum_n sum_c p_nc g_nc^2, with p the model's probabilities and g_nc the
gradient of -log p_nc. `fisher` draws one label of each example from p instead of summing over all
(the same in expectation); `empirical` takes the labels themselves.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fedivon_app.core.flat import Flat

Curvature = Literal["ggn", "fisher", "empirical"]


def curvature_diagonal(
    flat: Flat, inputs: Tensor, labels: Tensor, kind: Curvature = "ggn", batch_size: int = 32
) -> Tensor:
    """Return the diagonal's mean over the examples, as a flat vector.

    The network is in eval mode meanwhile, and as it was afterwards.
    """
    module = flat.module
    training = module.training
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    buffers = dict(module.named_buffers())

    def loss(values: dict[str, Tensor], example: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(module, (values, buffers), (example[None],))
        return cross_entropy(logits, label[None])

    per_example = vmap(grad(loss), in_dims=(None, 0, 0))
    total = torch.zeros_like(flat.vector)
    module.eval()
    try:
        for rows in torch.split(torch.arange(len(labels), device=labels.device), batch_size):
            batch = inputs[rows]
            for targets, weights in _targets(flat, batch, labels[rows], kind):
                gradients = per_example(parameters, batch, targets)
                squares = [weights @ g.flatten(1).square() for g in gradients.values()]
                total += torch.cat(squares)
    finally:
        module.train(training)
    return total / len(labels)


@torch.no_grad()
def _targets(
    flat: Flat, inputs: Tensor, labels: Tensor, kind: Curvature
) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of labels, whose squared gradients are summed, and of the examples' weights."""
    ones = torch.ones(len(labels), device=labels.device)
    if kind == "empirical":
        return [(labels, ones)]
    probabilities = flat.module(inputs).softmax(1)
    if kind == "fisher":
        return [(probabilities.multinomial(1).flatten(), ones)]
    return [
        (torch.full_like(labels, c), probabilities[:, c]) for c in range(probabilities.shape[1])
    ]
