"""Mean-field Gaussian networks, trained by Bayes by backprop (Blundell et al. 2015) with Flipout (Wen et al. 2018).

q(theta) = N(m, sigma^2) over all parameters of a module, sigma = softplus(rho); the loss of a minibatch is

    mean NLL at theta = m + sigma eps  +  KL(q || prior) / N,       N the number of training examples.

One draw of eps serves a minibatch. In linear and convolution layers Flipout gives every example n signs of its own, r_n
for the outputs and s_n for the inputs of a layer, so that the perturbations of different examples are uncorrelated:

    y_n = W x_n + b + r_n * (dW (x_n * s_n) + db),                  dW = sigma_W eps_W, db = sigma_b eps_b.

All other parameters (batch norm's scale and shift) are m + sigma eps for the whole minibatch.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import linear, softplus

from fedivon_app.core.flat import Flat
from fedivon_app.core.meanfield import divergence, divergence_slopes, inverse_softplus
from fedivon_app.core.posterior import Posterior

LAYERS = (nn.Linear, nn.Conv2d)


class VariationalNetwork:
    """A module as a Gaussian network: its own parameters are the means, `rho` holds the deviations.

    `smallest_sigma` bounds the deviations that are loaded: merges can shrink them by a factor in every round, and
    softplus would soon have no gradient left.
    """

    def __init__(
        self,
        flat: Flat,
        sigma: np.ndarray | float,
        flipout: bool = True,
        smallest_sigma: float = 1e-5,
    ):
        self.flat = flat
        self.flipout = flipout
        bounded = torch.as_tensor(
            np.maximum(sigma, smallest_sigma), dtype=torch.float32, device=flat.vector.device
        )
        self.mean = flat.as_parameter()
        self.rho = nn.Parameter(inverse_softplus(bounded.expand(len(flat)).clone()))
        self.zero_gradient()

    def parameters(self) -> list[nn.Parameter]:
        """What an optimizer takes: the flat mean, which the module's parameters are views of, and rho."""
        return [self.mean, self.rho]

    def zero_gradient(self) -> None:
        self.flat.zero_gradient()
        self.rho.grad = torch.zeros_like(self.rho)

    def __call__(self, inputs: Tensor) -> Tensor:
        """The module's output for one draw of the weights."""
        noise = softplus(self.rho) * torch.randn_like(self.rho)
        own = dict(self.flat.module.named_parameters())
        parts = noise.split([parameter.numel() for parameter in own.values()])
        noises = {id(p): part.view_as(p) for p, part in zip(own.values(), parts, strict=True)}
        with ExitStack() as hooks:
            for layer in self._layers():
                taken = [
                    noises.pop(id(parameter), None) for parameter in (layer.weight, layer.bias)
                ]
                hooks.enter_context(layer.register_forward_hook(_flipout(*taken)))
            moved = {name: p + noises[id(p)] for name, p in own.items() if id(p) in noises}
            return functional_call(self.flat.module, moved, (inputs,))

    def _layers(self) -> list[nn.Module]:
        """The layers that Flipout works on; a weight that several layers share is left to the plain form."""
        if not self.flipout:
            return []
        layers = [module for module in self.flat.module.modules() if isinstance(module, LAYERS)]
        shared = Counter(id(layer.weight) for layer in layers)
        return [layer for layer in layers if shared[id(layer.weight)] == 1]

    @torch.no_grad()
    def add_divergence(
        self, prior_mean: Tensor | float, prior_precision: Tensor | float, num_examples: int
    ) -> Tensor:
        """Adds the gradient of KL(q || N(m_p, 1/s_p)) / N in closed form, and returns its value."""
        prior = (prior_mean, prior_precision)
        sigma = softplus(self.rho)
        by_mean, by_sigma = divergence_slopes(self.mean, sigma, *prior)
        self.mean.grad.add_(by_mean, alpha=1 / num_examples)
        self.rho.grad.add_(by_sigma * torch.sigmoid(self.rho), alpha=1 / num_examples)
        return divergence(self.mean, sigma, *prior) / num_examples

    @torch.no_grad()
    def posterior(self) -> Posterior:
        """The Gaussian learned so far, as new arrays."""
        return Posterior(self.flat.mean(), softplus(self.rho).double().pow(-2).cpu().numpy())


def _flipout(weight: Tensor, bias: Tensor | None):
    """A forward hook that adds r * (dW (x * s) + db) to a layer's output."""

    def perturb(layer: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
        (inputs,) = args
        if isinstance(layer, nn.Linear):
            noise = linear(inputs * _signs(inputs, -1), weight, bias)
            return output + noise * _signs(output, -1)
        noise = layer._conv_forward(inputs * _signs(inputs, 1), weight, bias)
        return output + noise * _signs(output, 1)

    return perturb


def _signs(like: Tensor, channels: int) -> Tensor:
    """-1 or 1, independent for each example and channel, the same over all places of a picture or sequence."""
    shape = [1] * like.ndim
    shape[0] = like.shape[0]
    shape[channels] = like.shape[channels]
    return (
        torch.randint(0, 2, shape, device=like.device, dtype=torch.int8)
        .to(like.dtype)
        .mul_(2)
        .sub_(1)
    )
