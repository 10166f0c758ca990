"""Mean-field Gaussian networks, by Bayes by backprop (Blundell et al. 2015) and Flipout.

The network has q(theta) = N(m, sigma^2) over all parameters of a module, sigma = softplus(rho).
With N the number of training examples, the loss of a minibatch is

    mean NLL at theta = m + sigma eps  +  KL(q || prior) / N.

One draw of eps serves a minibatch. In linear and convolution layers Flipout (Wen et al. 2018) gives
every example n signs of its own, r_n for the outputs and s_n for the inputs of a layer, so that the
perturbations of different examples are uncorrelated:

    y_n = W x_n + b + r_n * (dW (x_n * s_n) + db),   dW = sigma_W eps_W,   db = sigma_b eps_b.

All other parameters (batch norm's scale and shift) are m + sigma eps for the whole minibatch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import linear, softplus

from fedivon_app.core.flat import Flat, views_like
from fedivon_app.core.meanfield import (
    Moment,
    divergence,
    divergence_slopes,
    gradient_of,
    inverse_softplus,
)
from fedivon_app.core.posterior import Posterior

Layer = nn.Linear | nn.Conv2d  # those that Flipout works on
Hook = Callable[[nn.Module, tuple[Tensor], Tensor], Tensor]


class VariationalNetwork:
    """A module as a Gaussian network: its own parameters are the means, `rho` holds the deviations.

    `smallest_sigma` bounds the deviations that are loaded: merges can shrink them by a factor in
    every round, and softplus would soon have no gradient left.
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
        """Return what an optimizer takes: the flat mean, which the module shares, and rho."""
        return [self.mean, self.rho]

    def zero_gradient(self) -> None:
        """Set the gradients of the mean and of rho to zero."""
        self.flat.zero_gradient()
        self.rho.grad = torch.zeros_like(self.rho)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the module's output for one draw of the weights."""
        noise = softplus(self.rho) * torch.randn_like(self.rho)
        own = dict(self.flat.module.named_parameters())
        parts = views_like(noise, list(own.values()))
        noises = {id(p): part for p, part in zip(own.values(), parts, strict=True)}
        with ExitStack() as hooks:
            for layer in self._layers():
                weight = noises.pop(id(layer.weight))
                bias = noises.pop(id(layer.bias), None)
                hooks.enter_context(layer.register_forward_hook(_flipout(weight, bias)))
            moved = {name: p + noises[id(p)] for name, p in own.items() if id(p) in noises}
            output: Tensor = functional_call(self.flat.module, moved, (inputs,))
        return output

    def _layers(self) -> list[Layer]:
        """Return the layers that Flipout works on; several that share a weight are left alone."""
        if not self.flipout:
            return []
        layers = [
            module
            for module in self.flat.module.modules()
            if isinstance(module, Layer) and "weight" in module._parameters  # and not frozen
        ]
        shared = Counter(id(layer.weight) for layer in layers)
        return [layer for layer in layers if shared[id(layer.weight)] == 1]

    @torch.no_grad()
    def add_divergence(
        self, prior_mean: Moment, prior_precision: Moment, num_examples: int
    ) -> Tensor:
        """Add the gradient of KL(q || N(m_p, 1/s_p)) / N in closed form, and return its value."""
        sigma = softplus(self.rho)
        by_mean, by_sigma = divergence_slopes(
            mean=self.mean, sigma=sigma, prior_mean=prior_mean, prior_precision=prior_precision
        )
        gradient_of(self.mean).add_(by_mean, alpha=1 / num_examples)
        gradient_of(self.rho).add_(by_sigma * torch.sigmoid(self.rho), alpha=1 / num_examples)
        value = divergence(
            mean=self.mean, sigma=sigma, prior_mean=prior_mean, prior_precision=prior_precision
        )
        return value / num_examples

    @torch.no_grad()
    def posterior(self) -> Posterior:
        """Return the Gaussian learned so far, as new arrays."""
        return Posterior(self.flat.mean(), softplus(self.rho).double().pow(-2).cpu().numpy())


def _flipout(weight: Tensor, bias: Tensor | None) -> Hook:
    """Return a forward hook that adds r * (dW (x * s) + db) to a layer's output."""

    def perturb(layer: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
        (inputs,) = args
        noise: Tensor
        if isinstance(layer, nn.Linear):
            noise = linear(inputs * _signs(inputs, -1), weight, bias)
            return output + noise * _signs(output, -1)
        assert isinstance(layer, nn.Conv2d)
        noise = layer._conv_forward(inputs * _signs(inputs, 1), weight, bias)
        return output + noise * _signs(output, 1)

    return perturb


def _signs(like: Tensor, channels: int) -> Tensor:
    """Return -1 or 1, independent for each example and channel.

    They are the same over all places of a picture or sequence.
    """
    shape = [1] * like.ndim
    shape[0] = like.shape[0]
    shape[channels] = like.shape[channels]
    bits = torch.randint(0, 2, shape, device=like.device, dtype=torch.int8)
    return bits.to(like.dtype).mul_(2).sub_(1)
