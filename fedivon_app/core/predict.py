"""Class probabilities of a posterior: at its mean, or by Monte Carlo over its weights.

Sample s is theta_s = mean + eps_s / sqrt(precision), where eps_s comes from a generator seeded by (seed, s) alone, so
that neither the number of samples nor the chunking changes it. A network with Monte Carlo dropout draws its masks in
sample s as well, from a generator seeded by (seed, s, place of the batch); at the mean they are off. The network runs
through `torch.func`: its own parameters, buffers and train/eval modes are afterwards as they were.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, vmap

from fedivon_app.core.flat import Array, Flat
from fedivon_app.core.metrics import uncertainty_of_moments
from fedivon_app.core.models import MonteCarloDropout
from fedivon_app.core.posterior import Posterior

MEBIBYTE = 2**20
MEMORY_MB = 512
# Larger activations are slower on a CPU: they leave the cache, and the allocator gives them back after every layer.
CPU_WORKING_SET = 32 * MEBIBYTE
DROPOUT_BATCH = 250  # inputs at once where masks are drawn: a constant, for the masks depend on it


@dataclass(frozen=True, eq=False)
class Moments:
    """Over weight samples, the mean of the class probabilities and of their squares, (N, C) float64 each."""

    mean: np.ndarray
    second: np.ndarray

    def uncertainty(self) -> dict[str, np.ndarray]:
        """entropy, aleatoric and epistemic of every input, (N,) each; see `metrics.uncertainty`."""
        return uncertainty_of_moments(self.mean, self.second)


def has_samples(flat: Flat, posterior: Posterior) -> bool:
    """Whether there is anything to draw: weights with a precision, or dropout that is on at prediction."""
    return posterior.precision is not None or bool(_dropouts(flat.module))


def predict_mean(
    flat: Flat,
    posterior: Posterior,
    inputs: torch.Tensor,
    *,
    buffers: Array | None = None,
    batch_size: int | None = None,
) -> np.ndarray:
    """softmax(f(inputs; mean)), (N, C) float32; `buffers` stand in for the module's own batch-norm statistics."""
    _check(flat, posterior, inputs)
    with _evaluating(flat.module):
        batch_size = batch_size or _chunk_sizes(flat, inputs, MEMORY_MB * MEBIBYTE)[1]
        weights = flat.checked(posterior.mean)[None]
        batches = (
            _probabilities(flat, weights, inputs[rows], buffers)
            for rows in _chunks(len(inputs), batch_size)
        )
        return np.concatenate([batch[0].cpu().numpy() for batch in batches])


def predict_point(
    flat: Flat,
    posterior: Posterior,
    inputs: torch.Tensor,
    num_samples: int,
    seed: int,
    *,
    buffers: Array | None = None,
) -> np.ndarray:
    """At the posterior's mean, (N, C) float32; a network with Monte Carlo dropout is averaged over its masks there.

    Batch norm's statistics are of the outputs with dropout, and without it such a network can be far off.
    """
    masks = num_samples if _dropouts(flat.module) else 0
    return predict(flat, Posterior(posterior.mean), inputs, masks, seed, buffers=buffers)


def predict_samples(
    flat: Flat, posterior: Posterior, inputs: torch.Tensor, num_samples: int, seed: int, **options
) -> np.ndarray:
    """softmax(f(inputs; theta_s)) for every sample, (M, N, C) float32; options and chunks as in `predict_moments`."""
    if not has_samples(flat, posterior):
        raise ValueError(
            "a posterior without precision is a point: it has no samples to predict with"
        )
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, not {num_samples}")
    results = np.empty(0)
    for samples, rows, probabilities in _sampled(
        flat, posterior, inputs, num_samples, seed, **options
    ):
        if results.size == 0:
            results = np.empty((num_samples, len(inputs), probabilities.shape[-1]), np.float32)
        results[samples, rows] = probabilities.cpu().numpy()
    return results


def predict(
    flat: Flat, posterior: Posterior, inputs: torch.Tensor, num_samples: int, seed: int, **options
) -> np.ndarray:
    """(1/S) sum_s softmax(f(inputs; theta_s)), (N, C) float32; options as in `predict_moments`."""
    return predict_moments(flat, posterior, inputs, num_samples, seed, **options).mean.astype(
        np.float32
    )


def predict_moments(
    flat: Flat,
    posterior: Posterior,
    inputs: torch.Tensor,
    num_samples: int,
    seed: int,
    *,
    memory_mb: float = MEMORY_MB,
    buffers: Array | None = None,
    samples_at_once: int | None = None,
) -> Moments:
    """The first two moments of softmax(f(inputs; theta_s)) over the samples; at the mean if there is no sample.

    Weights and activations at any time stay below `memory_mb` by estimate (one sample and one input at the least).
    Samples run together under `vmap`, as many as fit; but one by one on a CPU if the network has convolutions, whose
    batched form (grouped convolution) is two to five times slower there, and wherever dropout masks are drawn.
    `samples_at_once` decides it otherwise.
    """
    if num_samples < 0:
        raise ValueError(f"num_samples must be at least 0, not {num_samples}")
    if num_samples == 0 or not has_samples(flat, posterior):
        mean = predict_mean(flat, posterior, inputs, buffers=buffers).astype(np.float64)
        return Moments(mean, np.square(mean))
    mean = second = np.empty(0)
    for _, rows, probabilities in _sampled(
        flat, posterior, inputs, num_samples, seed, memory_mb, buffers, samples_at_once
    ):
        if mean.size == 0:
            mean, second = np.zeros((2, len(inputs), probabilities.shape[-1]))
        drawn = probabilities.double()
        mean[rows] += drawn.sum(0).cpu().numpy()
        second[rows] += drawn.square_().sum(0).cpu().numpy()
    return Moments(mean / num_samples, second / num_samples)


def _sampled(
    flat: Flat,
    posterior: Posterior,
    inputs: torch.Tensor,
    num_samples: int,
    seed: int,
    memory_mb: float = MEMORY_MB,
    buffers: Array | None = None,
    samples_at_once: int | None = None,
) -> Iterator[tuple[slice, slice, torch.Tensor]]:
    """Which samples, which inputs, and their (samples, inputs, C) probabilities, chunk after chunk."""
    _check(flat, posterior, inputs)
    if seed < 0 or (samples_at_once is not None and samples_at_once < 1):
        raise ValueError(
            f"seed must be at least 0 and samples_at_once at least 1, not {seed} and {samples_at_once}"
        )
    dropouts = _dropouts(flat.module)
    with _evaluating(flat.module):
        fitting, batch_size = _chunk_sizes(flat, inputs, memory_mb * MEBIBYTE)
        if dropouts:
            fitting = 1
            batch_size = DROPOUT_BATCH
            samples_at_once = None
        for dropout in dropouts:
            dropout.train()
        for samples in _chunks(num_samples, samples_at_once or fitting):
            drawn = [
                posterior.sample(np.random.default_rng([seed, s]))
                for s in range(samples.start, samples.stop)
            ]
            weights = torch.from_numpy(np.stack(drawn)).to(flat.vector.device)
            for rows in _chunks(len(inputs), batch_size):
                with _seeded([seed, samples.start, rows.start]) if dropouts else nullcontext():
                    probabilities = _probabilities(flat, weights, inputs[rows], buffers)
                yield samples, rows, probabilities


def _probabilities(
    flat: Flat, weights: torch.Tensor, inputs: torch.Tensor, buffers: Array | None
) -> torch.Tensor:
    """softmax(f(inputs; theta_k)) for every row of `weights`: (K, P) -> (K, N, C)."""
    inputs = inputs.to(
        flat.vector.device, copy=True
    )  # a network may write to its inputs; these are used again
    statistics = {} if buffers is None else flat.named_buffers(buffers)

    def forward(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        return functional_call(flat.module, (parameters, statistics), (inputs,)).softmax(-1)

    if len(weights) == 1:
        return forward(flat.named_parameters(weights[0]))[None]
    return vmap(forward)(flat.named_parameters(weights))


def _chunk_sizes(flat: Flat, inputs: torch.Tensor, memory: float) -> tuple[int, int]:
    """How many samples and how many inputs run at once."""
    on_cpu = flat.vector.device.type == "cpu"
    per_sample = 2 * flat.vector.nbytes
    per_input = _activation_bytes(flat, inputs[:1])
    room = max(memory - per_sample, 0)
    batch_size = int((min(room, CPU_WORKING_SET) if on_cpu else room) // per_input)
    batch_size = min(max(batch_size, 1), len(inputs))
    has_convolutions = any(parameter.ndim > 2 for parameter in flat.module.parameters())
    samples = (
        1 if on_cpu and has_convolutions else int(memory // (per_sample + batch_size * per_input))
    )
    return max(samples, 1), batch_size


def _activation_bytes(flat: Flat, example: torch.Tensor) -> int:
    """What a forward pass holds at a time: four tensors (in, out, a residual, scratch) of the largest layer's size.

    The layers' sizes are those of the tensors that they would keep for a backward pass, weights aside.
    """
    own = flat.vector.untyped_storage().data_ptr()
    sizes = [example.nbytes]

    def measure(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() != own:
            sizes.append(tensor.nbytes)
        return tensor

    with (
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(measure, lambda tensor: tensor),
    ):
        flat.module(example.to(flat.vector.device, copy=True))
    return 4 * max(sizes)


def _dropouts(module: nn.Module) -> list[nn.Module]:
    return [part for part in module.modules() if isinstance(part, MonteCarloDropout)]


@contextmanager
def _seeded(key: list[int]) -> Iterator[None]:
    """torch's generators seeded by the key, and afterwards as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))
        yield


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """No gradients, eval mode; afterwards every submodule is in the mode that it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def _chunks(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def _check(flat: Flat, posterior: Posterior, inputs: torch.Tensor) -> None:
    if len(inputs) == 0:
        raise ValueError("there are no inputs to predict")
    if len(posterior.mean) != len(flat):
        raise ValueError(
            f"a posterior over {len(posterior.mean)} weights does not fit a model with {len(flat)}"
        )
    if fault := posterior.fault():
        raise ValueError(f"cannot predict with this posterior: its {fault}")
