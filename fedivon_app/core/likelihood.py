"""What a network's outputs mean: the loss they are trained by, and what is predicted from them.

A class is predicted by logits, one a class. A number is predicted by two outputs, the mean and the
noise of a Gaussian: z ~ N(mu, v) with v = softplus(rho), for the standardised number z. Two outputs
of the last layer are a head like any other, so that every network and every method takes them, and
the noise may differ from row to row; one noise for all would be a weight outside of all layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from fedivon_app.core.metrics import uncertainty_of_moments
from fedivon_app.core.settings import AnySettings

SMALLEST_NOISE = 1e-6  # a variance, of a number in units of its deviation


class Likelihood(Protocol):
    """How outputs, labels and predictions belong together."""

    @property
    def is_number(self) -> bool:
        """Tell whether a number is predicted, and not a class."""

    def num_outputs(self, num_classes: int) -> int:
        """Return how many outputs a network needs."""

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a minibatch."""

    def predicted(self, outputs: Tensor) -> Tensor:
        """Return what is averaged over weight samples, from outputs (..., C)."""

    def scored(self, mean: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return what scores are of, from the moments of what is predicted over weight samples."""

    def uncertainty(self, mean: np.ndarray, second: np.ndarray) -> dict[str, np.ndarray]:
        """Return kinds of uncertainty from the same, (N,) each."""


@dataclass(frozen=True)
class Classes:
    """One of several classes, by the softmax of logits.

    With weights w the loss is the mean of -w_y log p_y.
    """

    weights: tuple[float, ...] | None = None
    is_number = False

    def num_outputs(self, num_classes: int) -> int:
        """Return one logit a class."""
        return num_classes

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        if self.weights is None:
            return cross_entropy(outputs, labels)
        weights = torch.tensor(self.weights, device=outputs.device)
        return (cross_entropy(outputs, labels, reduction="none") * weights[labels]).mean()

    def predicted(self, outputs: Tensor) -> Tensor:
        """Return class probabilities."""
        return outputs.softmax(-1)

    def scored(self, mean: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the mean probabilities."""
        return mean

    def uncertainty(self, mean: np.ndarray, second: np.ndarray) -> dict[str, np.ndarray]:
        """Return entropy, aleatoric and epistemic uncertainty."""
        return uncertainty_of_moments(mean, second)


@dataclass(frozen=True)
class Number:
    """A number y, standardised to z = (y - mean) / deviation, under a Gaussian N(mu, v).

    The loss is -log N(z; mu, v). What is predicted is (mu, v), and what is scored the mean and the
    variance of y.
    """

    mean: float = 0.0
    deviation: float = 1.0
    is_number = True

    def num_outputs(self, num_classes: int) -> int:
        """Return two: mu and rho."""
        return 2

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean of log(2 pi v)/2 + (z - mu)^2 / (2 v)."""
        z = (labels - self.mean) / self.deviation
        variance = softplus(outputs[..., 1]) + SMALLEST_NOISE
        squared = (z - outputs[..., 0]).square() / variance
        return 0.5 * (squared + torch.log(2 * torch.pi * variance)).mean()

    def predicted(self, outputs: Tensor) -> Tensor:
        """Return mu and v, (..., 2)."""
        return torch.stack([outputs[..., 0], softplus(outputs[..., 1]) + SMALLEST_NOISE], -1)

    def scored(self, mean: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return mean and variance of y; the variance is that of the mixture, E[v] + Var[mu]."""
        deviation = self.uncertainty(mean, second)["deviation"]
        return np.stack([self.mean + self.deviation * mean[:, 0], deviation**2], axis=1)

    def uncertainty(self, mean: np.ndarray, second: np.ndarray) -> dict[str, np.ndarray]:
        """Return the deviation of y, and its variance in two parts.

        Aleatoric is the mean noise E[v], epistemic the spread of the means, Var[mu]; the deviation
        is the root of their sum.
        """
        unit = self.deviation**2
        aleatoric = unit * mean[:, 1]
        epistemic = unit * np.maximum(second[:, 0] - np.square(mean[:, 0]), 0)
        return {
            "deviation": np.sqrt(aleatoric + epistemic),
            "aleatoric": aleatoric,
            "epistemic": epistemic,
        }


CLASSES = Classes()


def likelihood_of(settings: AnySettings) -> Likelihood:
    """Return what the outputs of the settings' network mean."""
    weights = settings.client.class_weights
    if settings.task == "classification":
        if isinstance(weights, str):  # which are worked out before round 1
            return CLASSES
        return Classes(weights) if weights else CLASSES
    standard = settings.data.standard
    if standard is None:
        return Number()
    return Number(standard.target_mean, standard.target_deviation)
