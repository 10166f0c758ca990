"""Our Adam and SGD beside torch's, and what they import."""

import subprocess
import sys

import pytest
import torch

from fedivon_app.core import optimizers

SETTINGS = {
    "Adam": {"lr": 0.1, "weight_decay": 0.01, "fused": True},
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "fused": True},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_numbers_are_torchs(name):
    found = []
    for kind in (getattr(optimizers, name), getattr(torch.optim, name)):
        weights = torch.nn.Parameter(torch.linspace(-1, 1, 7))
        optimizer = kind([weights], **SETTINGS[name])
        for _ in range(5):
            optimizer.zero_grad()
            (weights**4).sum().backward()
            optimizer.step()
        found.append(weights.detach().clone())
    assert torch.equal(*found)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_compiler_is_not_imported(name):
    program = f"""
import sys, torch
from fedivon_app.core.optimizers import {name}
weights = torch.nn.Parameter(torch.ones(3))
optimizer = {name}([weights], **{SETTINGS[name]})
weights.sum().backward()
optimizer.step()
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
