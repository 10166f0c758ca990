"""A sample and a step of IVON on the vectors of a group of parameters, in place, in few passes.

The equations are those of core/ivon.py, with d = h + wd = s/ess for the hessian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf, isinf
from typing import Protocol

import torch
from torch import Tensor

from fedivon_app.core.normals import Fill

SMALLEST = 1e-30
LARGEST = 1e30  # bounds of d: far outside what is meant, inside what float32 can square-root


@dataclass(slots=True, eq=False)
class Sampled:
    """What a sample reads and writes of a group of parameters.

    `drawn` becomes theta, by an epsilon that is `noise`; if it is `new` it is to be drawn before.
    `root` becomes 1/sqrt(d), or is left alone by who does not need it.
    """

    mean: Tensor
    scaled: Tensor
    root: Tensor
    noise: Tensor
    drawn: Tensor
    new: bool


@dataclass(slots=True, eq=False)
class Vectors:
    """What a step reads and writes of a group of parameters.

    `scaled` is d, and `root` is 1/sqrt(d) as it was when the sample was drawn; `move_mean`, which
    comes last, may overwrite it. `noise` is epsilon,
    to be multiplied by `sign` and the gradient, or epsilon g_hat where it is `multiplied` already.
    `free` is memory that nobody reads any more. `decay` is wd, a vector where there is a prior and
    else a number, and `pull` is wd - u.
    """

    mean: Tensor
    momentum: Tensor
    scaled: Tensor
    root: Tensor
    gradient: Tensor
    noise: Tensor
    free: Tensor
    sign: int
    multiplied: bool
    decay: float | Tensor
    pull: float | Tensor
    prior_mean: Tensor | None = None
    v: Tensor | None = None
    u: Tensor | None = None


@dataclass(slots=True)
class Numbers:
    """The hyper-parameters of a step; `correction` is 1 - b1^t, or 1 without debias.

    The rate is multiplied by hess_init + wd where `rescaled`.
    """

    ess: float
    beta1: float
    beta2: float
    learning_rate: float
    hess_init: float
    rescaled: bool
    correction: float
    clip_radius: float
    step_bound: float
    gradient_noise: float

    @property
    def widening(self) -> float:
        """Return what known noise in the gradients adds to h in a step, over 1 - b2."""
        return 0.5 * (1 - self.beta2) * self.ess * self.gradient_noise**2

    @property
    def largest_step(self) -> float:
        """Return how far a step may go, in units of 1/sqrt(d)."""
        return float(self.step_bound * self.ess**-0.5)


class Passes(Protocol):
    """What IVON does with whole vectors."""

    def sample(self, at: Sampled, width: float) -> None:
        """Let theta be m + width epsilon/sqrt(d)."""

    def move(self, at: Vectors, by: Numbers) -> None:
        """Take a step: h, the momentum and m."""

    def begin(self, precision: Tensor, ess: float, out: Tensor) -> bool:
        """Let `out` be d = s/ess, and tell whether it is above 0 everywhere."""

    def end(self, scaled: Tensor, ess: float, out: Tensor) -> None:
        """Let `out` be the precision s = ess d, of a d that is kept within its bounds."""


class TorchPasses:
    """By torch's operations, each of which is a pass; `fill` draws."""

    def __init__(self, fill: Fill):
        self._fill = fill

    def sample(self, at: Sampled, width: float) -> None:
        """Let theta be m + width epsilon/sqrt(d)."""
        if at.new:
            self._fill(at.noise)
        torch.rsqrt(at.scaled, out=at.root)
        torch.addcmul(at.mean, at.noise, at.root, value=width, out=at.drawn)

    def move(self, at: Vectors, by: Numbers) -> None:
        """Take a step: h, the momentum and m."""
        pull = at.pull - by.widening if by.widening else at.pull
        move_hessian(at, pull=pull, ess=by.ess, beta2=by.beta2)
        at.momentum.lerp_(at.gradient, 1 - by.beta1)
        learning_rate: float | Tensor = by.learning_rate
        if by.rescaled:
            learning_rate = learning_rate * (by.hess_init + at.decay)
        move_mean(
            at,
            learning_rate=learning_rate,
            correction=by.correction,
            clip_radius=by.clip_radius,
            largest_step=by.largest_step,
        )

    def begin(self, precision: Tensor, ess: float, out: Tensor) -> bool:
        """Let `out` be d = s/ess, and tell whether it is above 0 everywhere."""
        return bool(torch.div(precision, ess, out=out).min() > 0)

    def end(self, scaled: Tensor, ess: float, out: Tensor) -> None:
        """Let `out` be the precision s = ess d, of a d that is kept within its bounds."""
        torch.clamp(scaled, SMALLEST, LARGEST, out=out).mul_(ess)


def move_hessian(at: Vectors, *, pull: float | Tensor, ess: float, beta2: float) -> None:
    """Let d become d (1 + y^2)/2, y = 1 + (1 - b2)(h_hat - h)/d.

    With h_hat = sqrt(ess d) epsilon g_hat - u and h = d - wd, y/sqrt(2) is
    c + k (epsilon g_hat + (wd - u)/sqrt(ess d)) / sqrt(d). `pull` is wd - u, less the widening.
    """
    rate = 1 - beta2
    growth = at.noise
    factor = rate * (0.5 * ess) ** 0.5
    scalar = None if isinstance(pull, Tensor) else pull
    if scalar and not at.multiplied:
        unit = scalar * ess**-0.5  # for one pass in place of two
        growth = torch.addcmul(at.root, growth, at.gradient, value=at.sign / unit, out=at.free)
        factor *= unit
    else:
        if not at.multiplied:
            zero = _constant(at.mean.device, 0)
            growth = torch.addcmul(zero, growth, at.gradient, value=at.sign, out=at.free)
        if isinstance(pull, Tensor):
            growth.addcmul_(at.root, pull, value=ess**-0.5)
        else:
            growth.add_(at.root, alpha=pull * ess**-0.5)
    middle = _constant(at.mean.device, (1 - rate) * 0.5**0.5)
    torch.addcmul(middle, growth, at.root, value=factor, out=growth)
    at.scaled.mul_(torch.addcmul(_constant(at.mean.device, 0.5), growth, growth, out=growth))


def move_mean(
    at: Vectors,
    *,
    learning_rate: float | Tensor,
    correction: float,
    clip_radius: float = inf,
    largest_step: float = inf,
) -> None:
    """Let m become m - lr (g/correction + wd (m - m_p) + v - u m) / d.

    A coordinate of what the rate is multiplied by is clipped to `clip_radius`, and its whole step
    to `largest_step` in units of 1/sqrt(d).
    """
    bare = at.prior_mean is None and at.v is None and isinf(clip_radius) and isinf(largest_step)
    if bare and not isinstance(at.decay, Tensor) and not isinstance(learning_rate, Tensor):
        step = torch.add(at.momentum, at.mean, alpha=at.decay * correction, out=at.free)
        at.mean.addcdiv_(step, at.scaled, value=-learning_rate / correction)
        return
    if at.prior_mean is None:
        step = torch.mul(at.mean, at.decay, out=at.free)
    else:
        step = torch.sub(at.mean, at.prior_mean, out=at.free).mul_(at.decay)
    step.add_(at.momentum, alpha=1 / correction)
    if at.v is not None and at.u is not None:
        step.add_(at.v).addcmul_(at.u, at.mean, value=-1)
    step.div_(at.scaled)
    if not isinf(clip_radius):
        step.clamp_(-clip_radius, clip_radius)
    step.mul_(learning_rate)
    if not isinf(largest_step):
        limit = at.root.mul_(largest_step)
        torch.minimum(step, limit, out=step)
        torch.maximum(step, limit.neg_(), out=step)
    at.mean.sub_(step)


@lru_cache(maxsize=64)
def _constant(device: torch.device, value: float) -> Tensor:
    # Filled by a kernel, for a copy from here would be waited for.
    return torch.full((), value, dtype=torch.float32, device=device)
