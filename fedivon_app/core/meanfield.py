"""Mean-field Gaussians that an optimizer moves.

They are q(theta) = N(m, sigma^2) on flat vectors, with sigma = softplus(rho). Against another
Gaussian the divergence and its gradients have a closed form; against a network's loss they come by
reparametrisation (Blundell et al. 2015): a draw theta = m + sigma eps is written into the network's
flat vector, and with g the loss's gradient there

    d/dm = g,      d/drho = g eps sigmoid(rho).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from fedivon_app.core.flat import Flat, Part
from fedivon_app.core.posterior import Posterior

Moment = Tensor | float  # of all weights: one for each, or the same for all


def inverse_softplus(sigma: Tensor) -> Tensor:
    """Return rho = log(e^sigma - 1), for which softplus(rho) = sigma."""
    return sigma + torch.log(-torch.expm1(-sigma))


def divergence(mean: Tensor, sigma: Tensor, prior_mean: Moment, prior_precision: Moment) -> Tensor:
    """Return KL(N(m, sigma^2) || N(m_p, 1/s_p)), summed over the coordinates."""
    ratio = sigma.square() * prior_precision
    return 0.5 * (ratio - 1 - ratio.log() + (mean - prior_mean).square() * prior_precision).sum()


def divergence_slopes(
    mean: Tensor, sigma: Tensor, prior_mean: Moment, prior_precision: Moment
) -> tuple[Tensor, Tensor]:
    """Return the gradient of `divergence`: d/dm = s_p (m - m_p), d/dsigma = s_p sigma - 1/sigma."""
    return (mean - prior_mean) * prior_precision, sigma * prior_precision - 1 / sigma


def gradient_of(parameter: nn.Parameter) -> Tensor:
    """Return the gradient of a parameter that has one."""
    if parameter.grad is None:
        raise RuntimeError("this parameter has no gradient: begin a step with zero_gradient()")
    return parameter.grad


class Gaussian:
    """A Gaussian N(m, softplus(rho)^2) as two flat parameters, `mean` and `rho`.

    Begin every step of their optimizer with `zero_gradient`. Deviations that are loaded are bounded
    below by `smallest_sigma`: softplus has no gradient at much smaller ones.
    """

    def __init__(self, mean: Tensor, sigma: Tensor, smallest_sigma: float = 1e-5):
        self.mean = nn.Parameter(mean.detach().clone())
        self.rho = nn.Parameter(inverse_softplus(sigma.detach().clamp(min=smallest_sigma)))
        self.zero_gradient()

    @classmethod
    def of(cls, posterior: Posterior, smallest_sigma: float = 1e-5) -> Gaussian:
        """Return the Gaussian of a posterior as it travels."""
        mean = torch.tensor(posterior.mean)
        precision = torch.tensor(posterior.known_precision)
        return cls(mean, precision.rsqrt(), smallest_sigma)

    def __len__(self) -> int:
        return len(self.mean)

    def parameters(self) -> list[nn.Parameter]:
        """Return what an optimizer takes: the mean and rho."""
        return [self.mean, self.rho]

    @torch.no_grad()
    def zero_gradient(self) -> None:
        """Set the gradients to zero, and take sigma and its slope from rho as it is now."""
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
        """Add the gradient of weight KL(self || N(m_p, 1/s_p))."""
        by_mean, by_sigma = divergence_slopes(
            mean=self.mean, sigma=self.sigma, prior_mean=prior_mean, prior_precision=prior_precision
        )
        gradient_of(self.mean).add_(by_mean, alpha=weight)
        gradient_of(self.rho).addcmul_(by_sigma, self.slope, value=weight)

    @torch.no_grad()
    def add_fit(self, mean: Moment, variance: Moment, weight: float = 1.0) -> None:
        """Add the gradient of weight KL(N(mean, variance) || self), the other way round.

        It is d/dm = (m - mean) / sigma^2, d/dsigma = 1/sigma - (variance + (m - mean)^2) / sigma^3.
        """
        precision = self.sigma.square().reciprocal_()
        difference = self.mean - mean
        spread = difference.square().add_(variance).mul_(precision)
        by_rho = (1 - spread).div_(self.sigma).mul_(self.slope)
        gradient_of(self.rho).add_(by_rho, alpha=weight)
        gradient_of(self.mean).addcmul_(difference, precision, value=weight)

    @torch.no_grad()
    def add_penalties(self, mean_penalty: float, sigma_penalty: float) -> None:
        """Add the gradient of mean_penalty |m|^2 + sigma_penalty |sigma|^2."""
        assert self.mean.grad is not None
        assert self.rho.grad is not None
        self.mean.grad.add_(self.mean.detach(), alpha=2 * mean_penalty)
        self.rho.grad.addcmul_(self.sigma, self.slope, value=2 * sigma_penalty)

    @torch.no_grad()
    def posterior(self) -> Posterior:
        """Return the posterior as it travels: mean and 1/sigma^2, in new arrays."""
        precision = softplus(self.rho).double().pow_(-2)
        return Posterior(self.mean.detach().cpu().numpy().copy(), precision.cpu().numpy())


class MeanField(Gaussian):
    """A Gaussian over a part of a network's flat vector, from a posterior over all of it.

    `noise` scales eps; it is 1 for everybody but those who want to repeat a result that was had
    with less.
    """

    def __init__(
        self,
        flat: Flat,
        posterior: Posterior,
        part: Part = slice(None),
        smallest_sigma: float = 1e-5,
        noise: float = 1.0,
    ):
        self.flat = flat
        self.part = part
        self.noise = noise
        mean = flat.checked(posterior.mean)
        precision = flat.checked(posterior.known_precision)
        super().__init__(mean[part], precision[part].rsqrt(), smallest_sigma)
        self._epsilon = torch.zeros_like(self.mean)
        self._theta = torch.zeros_like(self.mean)

    @torch.no_grad()
    def draw(self) -> None:
        """Write a draw theta = m + sigma eps into the network's weights."""
        self._epsilon.normal_(std=self.noise)
        self.flat.vector[self.part] = torch.addcmul(
            self.mean, self.sigma, self._epsilon, out=self._theta
        )
        self._epsilon.mul_(self.slope)  # from here on dtheta/drho

    @torch.no_grad()
    def draws(self, count: int) -> Tensor:
        """Return the next draws, a row each; the network's weights stay as they are."""
        epsilons = self.mean.new_empty(count, len(self))
        for epsilon in epsilons:
            epsilon.normal_(std=self.noise)
        return torch.addcmul(self.mean, self.sigma, epsilons)

    @torch.no_grad()
    def gather(self, weight: float = 1.0) -> None:
        """Add weight times the gradient that `backward` left at the last draw."""
        gradient = self.flat.gradient[self.part]
        gradient_of(self.mean).add_(gradient, alpha=weight)
        gradient_of(self.rho).addcmul_(gradient, self._epsilon, value=weight)

    def within(self, whole: Posterior) -> Posterior:
        """Return a posterior over all of the vector, with this Gaussian in its part."""
        mean = whole.mean.copy()
        precision = whole.known_precision.copy()
        own = self.posterior()
        mean[self.part] = own.mean
        precision[self.part] = own.precision
        return Posterior(mean, precision)
