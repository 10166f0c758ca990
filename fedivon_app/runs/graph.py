"""A trained model as one module that needs nothing of this project: for export to other programs.

    probabilities = (1/K) sum_s softmax(f(x; theta_s))
    epistemic     = (1/K) sum_s sum_c (p_sc - p_c)^2

A model of numbers gives their value, which is the mean of the predicted Gaussian, its deviation,
and the two parts of its variance: the noise, and the spread of the samples' means.

Sample s is the one that predictions draw (core/predict.py), so the module says what `fedivon
predict` says with as many samples. Every sample is a network of its own, and its tensors keep their
names: `sample0.head.weight`; without samples there is one network, `mean`.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.flat import Flat
from fedivon_app.core.likelihood import CLASSES, Likelihood, Number, likelihood_of
from fedivon_app.core.network import new_network
from fedivon_app.core.predict import has_samples, sampled_weights
from fedivon_app.core.standardise import Standard
from fedivon_app.runs.trained_model import Trained


class Averaged(nn.Module):
    """What is made of the predictions of several networks, (S, N, C).

    `names` are those of the outputs; the first `at_the_mean` of them are all that one network has.
    """

    names: tuple[str, ...]
    at_the_mean: int


class AveragedClasses(Averaged):
    """Mean probabilities, (N, C), and the epistemic part, (N,)."""

    names = ("probabilities", "epistemic")
    at_the_mean = 1

    def forward(self, drawn: Tensor) -> tuple[Tensor, ...]:
        """Return both."""
        mean = drawn.mean(0)
        return mean, (drawn - mean).square().mean(0).sum(-1)


class AveragedNumbers(Averaged):
    """A number's mean and deviation, and the parts of its variance, in its own unit, (N,) each.

    They have 64 bits, in which a large mean does not swallow a small deviation.
    """

    names = ("value", "deviation", "aleatoric", "epistemic")
    at_the_mean = 2

    def __init__(self, likelihood: Number):
        super().__init__()
        self.offset = likelihood.mean
        self.unit = likelihood.deviation

    def forward(self, drawn: Tensor) -> tuple[Tensor, ...]:
        """Return all four; see `Number` in core/likelihood.py."""
        mu, variance = drawn.double().unbind(-1)
        aleatoric = self.unit**2 * variance.mean(0)
        epistemic = self.unit**2 * (mu - mu.mean(0)).square().mean(0)
        deviation = (aleatoric + epistemic).sqrt()
        return self.offset + self.unit * mu.mean(0), deviation, aleatoric, epistemic


class Scaled(nn.Module):
    """Pictures of bytes, (N, H, W, C), as a network takes them; see datasets/scaling.py."""

    def __init__(self, scaling: str):
        super().__init__()
        self.divisor = {"raw": 1.0, "unit": 255.0, "signed": 127.5}[scaling]
        self.offset = 1.0 if scaling == "signed" else 0.0

    def forward(self, pictures: Tensor) -> Tensor:
        """Return floats, (N, C, H, W)."""
        return pictures.float().movedim(-1, 1) / self.divisor - self.offset


class Standardised(nn.Module):
    """Rows of a table, (N, D), or pictures, (N, C, H, W), as a network takes them.

    See core/standardise.py; `dimensions` is 1 for rows and 3 for pictures.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, standard: Standard, dimensions: int):
        super().__init__()
        for name, values in (("mean", standard.mean), ("deviation", standard.deviation)):
            vector = torch.tensor(values, dtype=torch.float64)
            self.register_buffer(name, vector.reshape(-1, *[1] * (dimensions - 1)))

    def forward(self, x: Tensor) -> Tensor:
        """Return inputs in units of deviation from the mean, which stands for missing values."""
        centred = (x.double() - self.mean) / self.deviation
        return torch.where(centred.isnan(), 0.0, centred).float()


class Ensemble(nn.Module):
    """Networks of one architecture, whose predictions are averaged.

    `scaled` makes of the inputs what the networks take; the likelihood says what their outputs
    mean.
    """

    def __init__(
        self,
        networks: dict[str, nn.Module],
        likelihood: Likelihood = CLASSES,
        scaled: nn.Module | None = None,
    ):
        super().__init__()
        self.scaled = scaled
        self.averaged: Averaged = (
            AveragedNumbers(likelihood) if isinstance(likelihood, Number) else AveragedClasses()
        )
        self._predicted = likelihood.predicted
        self._names = list(networks)
        for name, network in networks.items():
            self.add_module(name, network)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the names of what `forward` returns."""
        names = self.averaged.names
        return names if len(self._names) > 1 else names[: self.averaged.at_the_mean]

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return what the networks say of the inputs together, as `outputs` names it."""
        inputs = x if self.scaled is None else self.scaled(x)
        drawn = [self._predicted(self.get_submodule(name)(inputs)) for name in self._names]
        averaged: tuple[Tensor, ...] = self.averaged(torch.stack(drawn))
        return averaged[: len(self.outputs)] if len(self.outputs) > 1 else averaged[0]


def ensemble(trained: Trained, samples: int = 0, *, bytes_in: bool = False) -> Ensemble:
    """Return the model at its mean or, with `samples` 2 or more, as so many draws of its weights.

    With `bytes_in` it takes pictures of bytes, (N, H, W, C), which it scales as in training; rows
    of numbers it standardises if that was done in training. Otherwise it takes what the network
    takes, (N, C, H, W).
    """
    flat = trained.flat
    posterior = trained.payload.posterior
    if bytes_in and len(trained.shape) != 3:
        raise SettingsError("the model takes rows of numbers: only pictures can be given as bytes")
    if samples == 1:
        raise SettingsError("one sample says nothing of the uncertainty: give 2 or more, or 0")
    if samples and posterior.precision is None:
        why = (
            "its samples are masks of dropout, which an exported graph does not draw"
            if has_samples(flat, posterior)
            else f"{trained.settings.strategy} learns a point, which has no samples"
        )
        raise SettingsError(f"this model can be exported at its mean only: {why}")
    drawn = {"mean": posterior.mean}
    if samples:
        seed = trained.settings.seed
        pairs = trained.settings.evaluation.antithetic
        drawn = {
            f"sample{s}": sampled_weights(posterior, seed, s, antithetic=pairs)
            for s in range(samples)
        }
    networks = {name: _network(trained, weights) for name, weights in drawn.items()}
    scaled = _scaled(trained, bytes_in=bytes_in)
    return Ensemble(networks, likelihood_of(trained.settings), scaled).eval()


def _scaled(trained: Trained, *, bytes_in: bool) -> nn.Module | None:
    """What is done with inputs before the network, where the graph does it by itself."""
    data = trained.settings.data
    standard = data.standard
    known = standard is not None and bool(standard.mean)
    steps: list[nn.Module] = [Scaled(data.scaling)] if bytes_in else []
    if standard is not None and known and (bytes_in or standardises(trained)):
        steps.append(Standardised(standard, len(trained.shape)))
    return nn.Sequential(*steps) if steps else None


def standardises(trained: Trained) -> bool:
    """Tell whether the module standardises the rows of numbers that it takes."""
    standard = trained.settings.data.standard
    return standard is not None and bool(standard.mean) and len(trained.shape) == 1


def _network(trained: Trained, weights: np.ndarray) -> nn.Module:
    cpu = torch.device("cpu")
    outputs = likelihood_of(trained.settings).num_outputs(trained.num_classes)
    flat = new_network(trained.settings.model, trained.shape, outputs, cpu)
    flat.load(weights)
    flat.load_buffers(trained.payload.buffers)
    return _apart(flat)


def _apart(flat: Flat) -> nn.Module:
    """The module with tensors of their own, for exporters do not like views of one vector."""
    for parameter in flat.module.parameters():
        parameter.grad = None
        parameter.data = parameter.data.clone()
        parameter.requires_grad_(False)
    return deepcopy(flat.module).eval()


def example_inputs(trained: Trained, count: int, *, bytes_in: bool = False) -> Tensor:
    """Return so many inputs at random, in the shape and format that the module takes."""
    generator = torch.Generator().manual_seed(0)
    if bytes_in:
        return torch.randint(
            0, 256, (count, *trained.shape), dtype=torch.uint8, generator=generator
        )
    standard = trained.settings.data.standard
    if standard is not None and standardises(trained):
        usual = torch.randn((count, *trained.shape), generator=generator)
        return (usual * torch.tensor(standard.deviation) + torch.tensor(standard.mean)).float()
    *sides, channels = trained.shape
    return torch.rand((count, channels, *sides), generator=generator)
