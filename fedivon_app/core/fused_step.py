"""A sample and a step of IVON in one compiled loop each, in place of torch's many passes.

A loop reads and writes the numbers of a weight once. The equations are those of core/ivon_step.py,
and so are the results, but for rounding.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from fedivon_app.core.compiled import Loop
from fedivon_app.core.fused_normals import FusedNormals
from fedivon_app.core.ivon_step import LARGEST, SMALLEST, Numbers, Sampled, Vectors

f32 = np.float32
_HALF = f32(0.5)
_ONE = f32(1)


class FusedPasses:
    """By compiled loops, one for a sample and one for a step."""

    def __init__(self, seed: int):
        self._normals = FusedNormals(seed)

    def sample(self, at: Sampled, width: float) -> None:
        """Let theta be m + width epsilon/sqrt(d)."""
        if at.new:
            self._normals.sample(
                at.noise, mean=at.mean, scaled=at.scaled, width=width, out=at.drawn
            )
        else:
            _place(at.mean.numpy(), at.scaled.numpy(), at.noise.numpy(), width, at.drawn.numpy())

    def move(self, at: Vectors, by: Numbers) -> None:
        """Take a step: h, the momentum and m."""
        base = by.learning_rate * by.hess_init if by.rescaled else by.learning_rate
        _move(
            at.mean.numpy(),
            at.momentum.numpy(),
            at.scaled.numpy(),
            at.gradient.numpy(),
            at.noise.numpy(),
            0.0 if isinstance(at.decay, Tensor) else at.decay,
            at.decay.numpy() if isinstance(at.decay, Tensor) else None,
            None if at.prior_mean is None else at.prior_mean.numpy(),
            None if at.v is None else at.v.numpy(),
            None if at.u is None else at.u.numpy(),
            at.sign,
            at.multiplied,
            by.ess,
            by.beta1,
            by.beta2,
            by.widening,
            1 / by.correction,
            base,
            by.learning_rate if by.rescaled else 0.0,
            by.clip_radius,
            by.largest_step,
        )

    def begin(self, precision: Tensor, ess: float, out: Tensor) -> bool:
        """Let `out` be d = s/ess, and tell whether it is above 0 everywhere."""
        return _begin(precision.numpy(), ess, out.numpy())

    def end(self, scaled: Tensor, ess: float, out: Tensor) -> None:
        """Let `out` be the precision s = ess d, of a d that is kept within its bounds."""
        _end(scaled.numpy(), ess, out.numpy())


@Loop
def _begin(precision: np.ndarray, ess: float, out: np.ndarray) -> bool:
    divisor = f32(ess)
    wrong = 0
    for i in range(out.size):
        d = precision[i] / divisor
        out[i] = d
        wrong += not d > 0
    return wrong == 0


@Loop
def _end(scaled: np.ndarray, ess: float, out: np.ndarray) -> None:
    factor = f32(ess)
    for i in range(out.size):
        out[i] = min(max(scaled[i], f32(SMALLEST)), f32(LARGEST)) * factor


@Loop
def _place(
    mean: np.ndarray, scaled: np.ndarray, noise: np.ndarray, width: float, out: np.ndarray
) -> None:
    factor = f32(width)
    for i in range(out.size):
        out[i] = mean[i] + noise[i] * (factor / np.sqrt(scaled[i]))


@Loop
def _move(
    mean: np.ndarray,
    momentum: np.ndarray,
    scaled: np.ndarray,
    gradient: np.ndarray,
    noise: np.ndarray,
    decay: float,
    decays: np.ndarray | None,
    prior_mean: np.ndarray | None,
    v: np.ndarray | None,
    u: np.ndarray | None,
    sign: int,
    multiplied: bool,
    ess: float,
    beta1: float,
    beta2: float,
    widening: float,
    uncorrected: float,
    rate: float,
    rate_by_decay: float,
    clip_radius: float,
    largest_step: float,
) -> None:
    """Move h, then the momentum, then m; the rate is `rate` + `rate_by_decay` wd."""
    kept1 = f32(beta1)
    moved1 = f32(1 - beta1)
    middle = f32(beta2 * 0.5**0.5)
    factor = f32((1 - beta2) * (0.5 * ess) ** 0.5)
    unit = f32(ess**-0.5)
    lowered = f32(widening)
    raised = f32(uncorrected)
    radius = f32(clip_radius)
    farthest = f32(largest_step)
    signed = f32(sign)
    for i in range(mean.size):
        d = scaled[i]
        root = _ONE / np.sqrt(d)
        slope = gradient[i]
        m = mean[i]
        wd = f32(decay) if decays is None else decays[i]
        pull = wd - lowered
        if u is not None:
            pull -= u[i]
        growth = noise[i] * (_ONE if multiplied else signed * slope) + pull * unit * root
        half = middle + factor * growth * root
        d = d * (_HALF + half * half)
        scaled[i] = d
        g = kept1 * momentum[i] + moved1 * slope
        momentum[i] = g
        away = m if prior_mean is None else m - prior_mean[i]
        step = raised * g + wd * away
        if v is not None and u is not None:
            step += v[i] - u[i] * m
        step = step / d
        step = min(max(step, -radius), radius)
        step = step * (f32(rate) + f32(rate_by_decay) * wd)
        limit = farthest * root
        mean[i] = m - min(max(step, -limit), limit)
