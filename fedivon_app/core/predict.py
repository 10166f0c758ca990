"""Class probabilities of a posterior: at its mean, or by Monte Carlo over its weights.

Sample s is theta_s = mean + eps_s / sqrt(precision), where eps_s comes from a generator seeded by (seed, s) alone, so
that neither the number of samples nor the chunking changes it. Samples are run together by `torch.func.vmap`, inputs
in chunks; both sizes follow from a bound on memory. The module is used through `functional_call`: its parameters,
buffers and train/eval modes are afterwards as they were.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, vmap

from fedivon_app.core.flat import Array, Flat

MEBIBYTE = 2**20
CPU_WORKING_SET = 16 * MEBIBYTE  # larger tensors are returned to the system and faulted in again at every layer


def predict_mean(flat: Flat, posterior, inputs: torch.Tensor, *, buffers: Array | None = None, batch_size: int = 1000):
    """softmax(f(inputs; mean)), an (N, C) float32 array; `buffers` replaces the module's own batch-norm statistics."""
    _check_inputs(inputs)
    weights = flat.checked(posterior.mean)[None]
    chunks = _Chunks(samples=1, inputs=batch_size)
    with _evaluating(flat.module):
        run = _runner(flat, buffers)
        return np.concatenate([run(weights, inputs[place])[0].cpu().numpy() for place in chunks.of_inputs(len(inputs))])


def predict_samples(
    flat: Flat,
    posterior,
    inputs: torch.Tensor,
    num_samples: int,
    seed: int,
    *,
    memory_mb: float = 512,
    buffers: Array | None = None,
    samples_at_once: int | None = None,
) -> np.ndarray:
    """softmax(f(inputs; theta_s)) for every sample, an (M, N, C) float32 array."""
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, not {num_samples}")
    if posterior.precision is None:
        raise ValueError("a posterior without precision is a point and has no samples to predict with")
    _check_inputs(inputs)
    result = None
    for samples, place, probabilities in _run(
        flat, posterior, inputs, num_samples, seed, memory_mb, buffers, samples_at_once
    ):
        if result is None:
            result = np.empty((num_samples, len(inputs), probabilities.shape[-1]), dtype=np.float32)
        result[samples, place] = probabilities.cpu().numpy()
    return result
