"""Mean-field Gaussians that an optimizer moves: q(theta) = N(m, sigma^2) on flat vectors, sigma = softplus(rho).

Against another Gaussian the divergence and its gradients have a closed form; against a network's loss they come by
reparametrisation (Blundell et al. 2015): a draw theta = m + sigma eps is written into the network's flat vector, and
with g the loss's gradient there

    d/dm = g,      d/drho = g eps sigmoid(rho).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from fedivon_app.core.flat import Flat
from fedivon_app.core.posterior import Posterior

Moment = Tensor | float


def inverse_softplus(sigma: Tensor) -> Tensor:
    """rho with softplus(rho) = sigma: log(e^sigma - 1)."""
    return sigma + torch.log(-torch.expm1(-sigma))


def divergence(mean: Tensor, sigma: Tensor, prior_mean: Moment, prior_precision: Moment) -> Tensor:
    """KL(N(m, sigma^2) || N(m_p, 1/s_p)), summed over the coordinates."""
    ratio = sigma.square() * prior_precision
    return 0.5 * (ratio - 1 - ratio.log() + (mean - prior_mean).square() * prior_precision).sum()


def divergence_slopes(
    mean: Tensor, sigma: Tensor, prior_mean: Moment, prior_precision: Moment
) -> tuple[Tensor, Tensor]:
    """The gradient of `divergence`: d/dm = s_p (m - m_p), d/dsigma = s_p sigma - 1/sigma."""
    return (mean - prior_mean) * prior_precision, sigma * prior_precision - 1 / sigma


class Gaussian:
    """N(m, softplus(rho)^2) as two flat parameters; begin every step of their optimizer with `zero_gradient`.

    Deviations that are loaded are bounded below by `smallest_sigma`: softplus has no gradient at much smaller ones.
    """

    def __init__(self, mean: Tensor, sigma: Tensor, smallest_sigma: float = 1e-5):
        self.mean = nn.Parameter(mean.detach().clone())
        self.rho = nn.Parameter(inverse_softplus(sigma.detach().clamp(min=smallest_sigma)))
        self.zero_gradient()

    @classmethod
    def of(cls, posterior: Posterior, smallest_sigma: float = 1e-5) -> Gaussian:
        """At a posterior as it travels."""
        mean = torch.tensor(posterior.mean)
        precision = torch.tensor(posterior.precision)
        return cls(mean, precision.rsqrt(), smallest_sigma)

    def __len__(self) -> int:
        return len(self.mean)

    def parameters(self) -> list[nn.Parameter]:
        return [self.mean, self.rho]

    @torch.no_grad()
    def zero_gradient(self) -> None:
        """No gradient yet; sigma and its slope are those of rho as it is now."""
        for parameter in self.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.zero_()
        self.sigma = softplus(self.rho)
        self.slope = torch.sigmoid(self.rho)

    @torch.no_grad()
    def add_divergence(
        self, prior_mean: Moment, prior_precision: Moment, weight: float = 1.0
    ) -> None:
        """Adds the gradient of weight KL(self || N(m_p, 1/s_p))."""
        by_mean, by_sigma = divergence_slopes(self.mean, self.sigma, prior_mean, prior_precision)
        self.mean.grad.add_(by_mean, alpha=weight)
        self.rho.grad.addcmul_(by_sigma, self.slope, value=weight)

    @torch.no_grad()
    def add_fit(self, mean: Moment, variance: Moment, weight: float = 1.0) -> None:
        """Adds the gradient of weight KL(N(mean, variance) || self), the other way round:

        d/dm = (m - mean) / sigma^2, d/dsigma = 1/sigma - (variance + (m - mean)^2) / sigma^3.
        """
        precision = self.sigma.square().reciprocal_()
        difference = self.mean - mean
        spread = difference.square().add_(variance).mul_(precision)
        self.rho.grad.add_((1 - spread).div_(self.sigma).mul_(self.slope), alpha=weight)
        self.mean.grad.addcmul_(difference, precision, value=weight)

    @torch.no_grad()
    def posterior(self) -> Posterior:
        """As it travels: mean and 1/sigma^2, in new arrays."""
        precision = softplus(self.rho).double().pow_(-2)
        return Posterior(self.mean.detach().cpu().numpy().copy(), precision.cpu().numpy())


class MeanField(Gaussian):
    """A Gaussian over a part of a network's flat vector, from a posterior over all of it.

    `noise` scales eps; it is 1 for everybody but who wants to repeat a result that was had with less.
    """

    def __init__(
        self,
        flat: Flat,
        posterior: Posterior,
        part: slice | np.ndarray = slice(None),
        smallest_sigma: float = 1e-5,
        noise: float = 1.0,
    ):
        self.flat = flat
        self.part = part
        self.noise = noise
        mean = flat.checked(posterior.mean)
        precision = flat.checked(posterior.precision)
        super().__init__(mean[part], precision[part].rsqrt(), smallest_sigma)
        self._epsilon = torch.zeros_like(self.mean)
        self._theta = torch.zeros_like(self.mean)

    @torch.no_grad()
    def draw(self) -> None:
        """theta = m + sigma eps, into the network's weights."""
        self._epsilon.normal_(std=self.noise)
        self.flat.vector[self.part] = torch.addcmul(
            self.mean, self.sigma, self._epsilon, out=self._theta
        )
        self._epsilon.mul_(self.slope)  # from here on dtheta/drho

    @torch.no_grad()
    def draws(self, count: int) -> Tensor:
        """The next draws, a row each; the network's weights stay."""
        epsilons = self.mean.new_empty(count, len(self))
        for epsilon in epsilons:
            epsilon.normal_(std=self.noise)
        return torch.addcmul(self.mean, self.sigma, epsilons)

    @torch.no_grad()
    def gather(self, weight: float = 1.0) -> None:
        """Adds weight times the gradient that `backward` left at the last draw."""
        gradient = self.flat.gradient[self.part]
        self.mean.grad.add_(gradient, alpha=weight)
        self.rho.grad.addcmul_(gradient, self._epsilon, value=weight)

    def within(self, whole: Posterior) -> Posterior:
        """A posterior over all of the vector, with this Gaussian in its part."""
        mean = whole.mean.copy()
        precision = whole.precision.copy()
        own = self.posterior()
        mean[self.part] = own.mean
        precision[self.part] = own.precision
        return Posterior(mean, precision)
