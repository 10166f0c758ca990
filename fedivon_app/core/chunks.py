"""How much of a large computation runs at once, so that memory and caches hold it."""

from __future__ import annotations

import torch
from torch import Tensor

from fedivon_app.core.flat import Flat

MEBIBYTE = 2**20
# Larger activations are slower on a CPU: they leave the cache, and the allocator gives them back
# after every layer.
CPU_WORKING_SET = 32 * MEBIBYTE


def chunks(length: int, size: int) -> list[slice]:
    """Return the pieces of at most this size that so many things fall into."""
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def chunk_sizes(flat: Flat, inputs: Tensor, memory: float) -> tuple[int, int]:
    """Return how many weight samples and how many inputs run at once in so many bytes."""
    on_cpu = flat.vector.device.type == "cpu"
    per_sample = 2 * flat.vector.nbytes
    per_input = _activation_bytes(flat, inputs[:1])
    room = max(memory - per_sample, 0)
    batch_size = int((min(room, CPU_WORKING_SET) if on_cpu else room) // per_input)
    batch_size = min(max(batch_size, 1), len(inputs))
    has_convolutions = any(parameter.ndim > 2 for parameter in flat.module.parameters())
    if on_cpu and has_convolutions:
        return 1, batch_size
    samples = int(memory // (per_sample + batch_size * per_input))
    return max(samples, 1), batch_size


def _activation_bytes(flat: Flat, example: Tensor) -> int:
    """Return how many bytes a forward pass holds at a time.

    These are four tensors (in, out, a residual, scratch) of the largest layer's size. The layers'
    sizes are those of the tensors that they would keep for a backward pass, weights aside.
    """
    own = flat.vector.untyped_storage().data_ptr()
    sizes = [example.nbytes]

    def measure(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() != own:
            sizes.append(tensor.nbytes)
        return tensor

    with (
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(measure, lambda tensor: tensor),
    ):
        flat.module(example.to(flat.vector.device, copy=True))
    return 4 * max(sizes)
