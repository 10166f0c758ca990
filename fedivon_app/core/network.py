"""The network of the settings, on its device, built once a process."""

from __future__ import annotations

from functools import lru_cache

import torch

from fedivon_app.core.flat import Flat
from fedivon_app.core.models import build, build_custom, with_dropout
from fedivon_app.core.settings import ModelSettings


def pick_device(name: str) -> torch.device:
    """The torch device of this name; `auto` is CUDA where there is one, else the CPU."""
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"client.device is {name!r}, which torch does not know; try auto, cpu, cuda or cuda:0"
        ) from None
    if device.type == "cuda" and not available:
        raise ValueError(
            f"client.device is {name!r}, but torch finds no CUDA here; auto uses it where there is one"
        )
    return device


def new_network(
    model: ModelSettings, shape: tuple[int, ...], num_classes: int, device: torch.device
) -> Flat:
    """The network of the settings, with weights from torch's generator."""
    make = build_custom if model.factory else build
    module = make(model.factory or model.name, shape, num_classes, **model.options)
    if model.dropout is not None:
        module = with_dropout(module, model.dropout, model.dropout_logits)
    return Flat(module.to(device))


@lru_cache(maxsize=4)
def _network(
    model_json: str, shape: tuple[int, ...], num_classes: int, device: torch.device
) -> Flat:
    return new_network(ModelSettings.model_validate_json(model_json), shape, num_classes, device)


def network(
    model: ModelSettings, shape: tuple[int, ...], num_classes: int, device: torch.device
) -> Flat:
    """The same, built once a process; its weights are whatever was loaded last."""
    return _network(model.model_dump_json(), shape, num_classes, device)
