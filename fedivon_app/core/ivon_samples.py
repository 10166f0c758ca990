"""The weight samples of a step of IVON: their random numbers, and what they add up to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Draw:
    """An epsilon of theta = m + sign epsilon/sqrt(s), which is to be drawn if it is `new`."""

    noise: Tensor
    sign: int
    new: bool


@dataclass(frozen=True, eq=False)
class Average:
    """What the samples of a step come to: g_hat and epsilon g_hat.

    Of a single sample `noise` is epsilon alone, to be multiplied by `sign` and the gradient in a
    pass that is made anyway; over several it is `multiplied` already.
    """

    gradient: Tensor
    noise: Tensor
    sign: int
    multiplied: bool


class Samples:
    """The samples of training since the last step, of which there are `expected` before the next.

    `mirrored` lets every second one have the epsilon of the one before it, with the other sign.
    """

    def __init__(self, like: Tensor, expected: int, mirrored: bool):
        self.expected = expected
        self.mirrored = mirrored
        self.count = 0
        self._noise = torch.empty_like(like)
        self._sign = -1  # of the last sample
        self._gradient_sum: Tensor | None = None  # if they are several
        self._noise_sum: Tensor | None = None  # of epsilon g_hat, likewise

    def next(self) -> Draw:
        """Return the epsilon of the next sample, or where to draw it."""
        self._sign = -self._sign if self.mirrored else 1
        return Draw(self._noise, self._sign, new=self._sign > 0)

    def aside(self) -> Draw:
        """Return where to draw an epsilon that does not take the place of one kept for a step."""
        return Draw(torch.empty_like(self._noise), sign=1, new=True)

    def keep(self, gradient: Tensor) -> None:
        """Count the gradient at the sample that was drawn last."""
        self.count += 1
        if self.expected == 1 and self.count == 1:
            return
        if self.count == 1:
            self._gradient_sum = gradient.clone()
            self._noise_sum = (self._noise * gradient).mul_(self._sign)
        elif self._gradient_sum is None or self._noise_sum is None:
            raise RuntimeError(
                f"{self.count} samples were drawn before one step; "
                f"say so with IVON(..., mc_samples={self.count})"
            )
        else:
            self._gradient_sum.add_(gradient)
            self._noise_sum.addcmul_(self._noise, gradient, value=self._sign)

    def take(self, gradient: Tensor) -> Average:
        """Return the average over the samples, and begin anew; `gradient` is the last one's."""
        if self.count == 0:
            raise RuntimeError(
                "step() needs a gradient: "
                "run backward() inside `with optimizer.sampled_params(train=True)`"
            )
        average = Average(gradient, noise=self._noise, sign=self._sign, multiplied=False)
        if self._gradient_sum is not None and self._noise_sum is not None:
            average = Average(
                gradient=self._gradient_sum.div_(self.count),
                noise=self._noise_sum.div_(self.count),
                sign=1,
                multiplied=True,
            )
        self.count = 0
        self._gradient_sum = None
        self._noise_sum = None
        return average

    def forget(self) -> None:
        """Let the next sample be a new one, not the mirror of one that was drawn before."""
        self._sign = -1
