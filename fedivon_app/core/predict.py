"""Class probabilities of a posterior: at its mean, or by Monte Carlo over its weights.

Sample s is theta_s = mean + eps_s / sqrt(precision), where eps_s comes from a generator seeded by
(seed, s) alone, so that neither the number of samples nor the chunking changes it. Antithetic
samples come in pairs, mean + eps and mean - eps: what is odd in eps cancels in their average, which
so has the error of several times as many independent ones. A network with
Monte Carlo dropout draws its masks in sample s as well, from a generator seeded by (seed, s, place
of the batch); at the mean they are off. The network runs through `torch.func`: its own parameters,
buffers and train/eval modes are afterwards as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedivon_app.core.chunks import MEBIBYTE, chunk_sizes, chunks
from fedivon_app.core.flat import Array, Flat
from fedivon_app.core.likelihood import CLASSES, Likelihood
from fedivon_app.core.network_layers import MonteCarloDropout
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.scores import Score, number_tally_of, tally_of
from fedivon_app.core.streams import streams_kept
from fedivon_app.core.tally import Pooled
from fedivon_app.core.transfer import sent

MEMORY_MB = 512
DROPOUT_BATCH = 250  # inputs at once where masks are drawn: a constant, for the masks depend on it


@dataclass(frozen=True, eq=False)
class Moments:
    """The means over weight samples of what is predicted, and of its squares.

    That is class probabilities, or mean and variance of a number. Both are (N, C) and float64.
    """

    mean: np.ndarray
    second: np.ndarray
    likelihood: Likelihood = CLASSES

    def uncertainty(self) -> dict[str, np.ndarray]:
        """Return the kinds of uncertainty of every input, (N,) each.

        Of classes they are those of `metrics.uncertainty`, entropy, aleatoric and epistemic.
        """
        return self.likelihood.uncertainty(self.mean, self.second)

    def as_float32(self) -> Moments:
        """Return the same with probabilities as float32, which is how clients score them."""
        if self.likelihood.is_number:
            return self
        return replace(self, mean=self.mean.astype(np.float32))

    @property
    def scored(self) -> np.ndarray:
        """Return what scores are of: class probabilities, or mean and variance of a number."""
        return self.likelihood.scored(self.mean, self.second)

    def tally(self, labels: np.ndarray, scores: Mapping[str, Score]) -> Pooled:
        """Return the tally of the predictions against what is true."""
        if self.likelihood.is_number:
            return number_tally_of(self.scored, labels, scores)
        return tally_of(self.scored, labels, scores)


def has_samples(flat: Flat, posterior: Posterior) -> bool:
    """Tell whether there is anything to draw.

    That is weights with a precision, or dropout that is on at prediction.
    """
    return posterior.precision is not None or bool(_dropouts(flat.module))


def sampled_weights(
    posterior: Posterior, seed: int, number: int, *, antithetic: bool = False
) -> np.ndarray:
    """Return the weights theta_s of the sample of this number."""
    if not antithetic:
        return posterior.sample(np.random.default_rng([seed, number]))
    drawn = posterior.sample(np.random.default_rng([seed, number // 2]))
    return 2 * posterior.mean - drawn if number % 2 else drawn


def predict_mean(
    flat: Flat,
    posterior: Posterior,
    inputs: Tensor,
    *,
    buffers: Array | None = None,
    batch_size: int | None = None,
    likelihood: Likelihood = CLASSES,
) -> np.ndarray:
    """Return softmax(f(inputs; mean)), (N, C) float32.

    `buffers` stand in for the module's own batch-norm statistics.
    """
    _check(flat, posterior, inputs)
    with _evaluating(flat.module):
        batch_size = batch_size or chunk_sizes(flat, inputs, MEMORY_MB * MEBIBYTE)[1]
        weights = flat.checked(posterior.mean)[None]
        batches = (
            _probabilities(flat, weights, inputs[rows], buffers=buffers, likelihood=likelihood)
            for rows in chunks(len(inputs), batch_size)
        )
        return np.concatenate([batch[0].cpu().numpy() for batch in batches])


def point_moments(
    flat: Flat,
    posterior: Posterior,
    inputs: Tensor,
    num_samples: int,
    seed: int,
    *,
    buffers: Array | None = None,
    likelihood: Likelihood = CLASSES,
) -> Moments:
    """Return the moments at the posterior's mean.

    A network with Monte Carlo dropout is averaged over its masks there: batch norm's statistics are
    of the outputs with dropout, and without it such a network can be far off.
    """
    masks = num_samples if _dropouts(flat.module) else 0
    point = Posterior(posterior.mean)
    return predict_moments(
        flat,
        point,
        inputs,
        num_samples=masks,
        seed=seed,
        buffers=buffers,
        likelihood=likelihood,
    )


def predict_point(
    flat: Flat, posterior: Posterior, inputs: Tensor, num_samples: int, seed: int, **options: Any
) -> np.ndarray:
    """Return the probabilities at the posterior's mean, (N, C) float32; see `point_moments`."""
    moments = point_moments(flat, posterior, inputs, num_samples, seed, **options)
    return moments.mean.astype(np.float32)


def predict_samples(
    flat: Flat, posterior: Posterior, inputs: Tensor, num_samples: int, seed: int, **options: Any
) -> np.ndarray:
    """Return softmax(f(inputs; theta_s)) for every sample, (M, N, C) float32.

    Options and chunks are as in `predict_moments`.
    """
    if not has_samples(flat, posterior):
        raise ValueError(
            "a posterior without precision is a point: it has no samples to predict with"
        )
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, not {num_samples}")
    results = np.empty(0)
    draws = _Draws(num_samples, seed, **options)
    for chunk in _sampled(flat, posterior, inputs, draws=draws):
        if results.size == 0:
            classes = chunk.probabilities.shape[-1]
            results = np.empty((num_samples, len(inputs), classes), np.float32)
        results[chunk.samples, chunk.rows] = chunk.probabilities.cpu().numpy()
    return results


def predict(
    flat: Flat, posterior: Posterior, inputs: Tensor, num_samples: int, seed: int, **options: Any
) -> np.ndarray:
    """Return (1/S) sum_s softmax(f(inputs; theta_s)), (N, C) float32.

    Options are as in `predict_moments`.
    """
    moments = predict_moments(
        flat, posterior, inputs, num_samples=num_samples, seed=seed, **options
    )
    return moments.mean.astype(np.float32)


def predict_moments(
    flat: Flat,
    posterior: Posterior,
    inputs: Tensor,
    num_samples: int,
    seed: int,
    *,
    memory_mb: float = MEMORY_MB,
    buffers: Array | None = None,
    samples_at_once: int | None = None,
    likelihood: Likelihood = CLASSES,
    antithetic: bool = False,
) -> Moments:
    """Return the first two moments of softmax(f(inputs; theta_s)) over the samples.

    Another likelihood predicts something else from f. If there is no sample, they are those at the
    mean. `buffers` stand in for the module's own
    batch-norm statistics. Weights and activations at any time stay below `memory_mb` by estimate
    (one sample and one input at the least). Samples run together under `vmap`, as many as fit; but
    one by one on a CPU if the network has convolutions, whose batched form (grouped convolution) is
    two to five times slower there, and wherever dropout masks are drawn. `samples_at_once` decides
    it otherwise. With `antithetic` every second sample mirrors the one before it at the mean.
    """
    if num_samples < 0:
        raise ValueError(f"num_samples must be at least 0, not {num_samples}")
    if num_samples == 0 or not has_samples(flat, posterior):
        point = predict_mean(flat, posterior, inputs, buffers=buffers, likelihood=likelihood)
        mean = point.astype(np.float64)
        return Moments(mean, np.square(mean), likelihood)
    draws = _Draws(
        num_samples=num_samples,
        seed=seed,
        memory_mb=memory_mb,
        buffers=buffers,
        samples_at_once=samples_at_once,
        likelihood=likelihood,
        antithetic=antithetic,
    )
    mean = second = np.empty(0)
    for chunk in _sampled(flat, posterior, inputs, draws=draws):
        if mean.size == 0:
            mean, second = np.zeros((2, len(inputs), chunk.probabilities.shape[-1]))
        drawn = chunk.probabilities.double()
        mean[chunk.rows] += drawn.sum(0).cpu().numpy()
        second[chunk.rows] += drawn.square_().sum(0).cpu().numpy()
    return Moments(mean / num_samples, second / num_samples, likelihood)


@dataclass(frozen=True, eq=False)
class _Draws:
    """Which samples are drawn, and how; see `predict_moments`."""

    num_samples: int
    seed: int
    memory_mb: float = MEMORY_MB
    buffers: Array | None = None
    samples_at_once: int | None = None
    likelihood: Likelihood = CLASSES
    antithetic: bool = False

    def __post_init__(self) -> None:
        if self.seed < 0 or (self.samples_at_once is not None and self.samples_at_once < 1):
            raise ValueError(
                "seed must be at least 0 and samples_at_once at least 1, "
                f"not {self.seed} and {self.samples_at_once}"
            )


@dataclass(frozen=True, eq=False)
class _Chunk:
    """The (samples, rows, C) probabilities of some samples for some inputs."""

    samples: slice
    rows: slice
    probabilities: Tensor


def _sampled(flat: Flat, posterior: Posterior, inputs: Tensor, draws: _Draws) -> Iterator[_Chunk]:
    """Give the probabilities of all samples for all inputs, chunk after chunk."""
    _check(flat, posterior, inputs)
    dropouts = _dropouts(flat.module)
    with _evaluating(flat.module):
        fitting, batch_size = chunk_sizes(flat, inputs, draws.memory_mb * MEBIBYTE)
        at_once = draws.samples_at_once or fitting
        if dropouts:
            at_once = 1
            batch_size = DROPOUT_BATCH
        for dropout in dropouts:
            dropout.train()
        all_weights = _weights(posterior, draws)
        for samples in chunks(draws.num_samples, at_once):
            drawn = list(islice(all_weights, samples.stop - samples.start))
            weights = sent(torch.from_numpy(np.stack(drawn)), flat.vector.device)
            for rows in chunks(len(inputs), batch_size):
                key = [draws.seed, samples.start, rows.start]
                with _seeded(key, weights.device) if dropouts else nullcontext():
                    batch = inputs[rows]
                    probabilities = _probabilities(
                        flat,
                        weights,
                        batch,
                        buffers=draws.buffers,
                        likelihood=draws.likelihood,
                    )
                yield _Chunk(samples, rows, probabilities)


def _weights(posterior: Posterior, draws: _Draws) -> Iterator[np.ndarray]:
    """Give the weights of every sample, as `sampled_weights` does, but draw a pair once."""
    weights = posterior.mean
    for number in range(draws.num_samples):
        if draws.antithetic and number % 2:
            weights = 2 * posterior.mean - weights
        else:
            weights = sampled_weights(posterior, draws.seed, number, antithetic=draws.antithetic)
        yield weights


def _probabilities(
    flat: Flat,
    weights: Tensor,
    inputs: Tensor,
    buffers: Array | None,
    likelihood: Likelihood = CLASSES,
) -> Tensor:
    """Return softmax(f(inputs; theta_k)) for every row of `weights`: (K, P) -> (K, N, C)."""
    # A copy, for a network may write to its inputs, and these are used again.
    inputs = inputs.to(flat.vector.device, copy=True)
    statistics = {} if buffers is None else flat.named_buffers(buffers)

    def forward(parameters: dict[str, Tensor]) -> Tensor:
        logits: Tensor = functional_call(flat.module, (parameters, statistics), (inputs,))
        return likelihood.predicted(logits)

    if len(weights) == 1:
        return forward(flat.named_parameters(weights[0]))[None]
    probabilities: Tensor = vmap(forward)(flat.named_parameters(weights))
    return probabilities


def _dropouts(module: nn.Module) -> list[nn.Module]:
    return [part for part in module.modules() if isinstance(part, MonteCarloDropout)]


@contextmanager
def _seeded(key: list[int], device: torch.device) -> Iterator[None]:
    """Seed torch's generators by the key; afterwards they are as they were."""
    with streams_kept(device):
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))
        yield


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Be without gradients, in eval mode; afterwards every submodule is in the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def _check(flat: Flat, posterior: Posterior, inputs: Tensor) -> None:
    if len(inputs) == 0:
        raise ValueError("there are no inputs to predict")
    if len(posterior.mean) != len(flat):
        raise ValueError(
            f"a posterior over {len(posterior.mean)} weights does not fit a model with {len(flat)}"
        )
    if fault := posterior.fault():
        raise ValueError(f"cannot predict with this posterior: its {fault}")
