"""A small network on the digits, trained by IVON or its reference."""

import torch
from sklearn.datasets import load_digits
from torch import nn

DIGITS = load_digits()
INPUTS = torch.tensor(DIGITS.data[:256] / 16, dtype=torch.float32)
LABELS = torch.tensor(DIGITS.target[:256])


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 30), nn.Tanh(), nn.Linear(30, 10))


def train(optimizer_class, steps: int, split_groups: bool = False, mc_samples: int = 1, **options):
    model = small_network()
    parameters = model.parameters()
    if split_groups:
        parameters = [
            {"params": model[0].parameters()},
            {"params": model[2].parameters(), "lr": 0.02, "ess": 300.0},
        ]
    options = {"lr": 0.1, "ess": 500.0, "beta2": 0.99, "mc_samples": mc_samples} | options
    optimizer = optimizer_class(parameters, **options)
    torch.manual_seed(1)
    for step in range(steps):
        rows = slice(32 * (step % 8), 32 * (step % 8) + 32)
        for _ in range(mc_samples):
            with optimizer.sampled_params(train=True):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(INPUTS[rows]), LABELS[rows]).backward()
        optimizer.step()
    return model, optimizer
