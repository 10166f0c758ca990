"""Who makes IVON's samples and steps: torch's operations, or compiled loops."""

from __future__ import annotations

import torch

from fedivon_app.core.ivon_step import Passes, TorchPasses
from fedivon_app.core.normals import Noise, check_noise, new_seed, normals


def passes(noise: Noise, device: torch.device) -> Passes:
    """Return the compiled loops for fused noise on a CPU, and else torch's operations."""
    check_noise(noise, device)
    if noise == "fused" and device.type == "cpu":
        from fedivon_app.core.fused_step import FusedPasses  # late, for it needs numba

        return FusedPasses(new_seed())
    return TorchPasses(normals(noise, device))
