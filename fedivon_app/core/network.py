"""The network of the settings, on its device, and what a strategy must know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import nn

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.flat import Flat, Part, part_of
from fedivon_app.core.frozen import load_weights, partly_frozen
from fedivon_app.core.model_settings import ModelSettings
from fedivon_app.core.models import build, build_custom, with_dropout

FROZEN_SEED = 0x66726F  # of weights that are drawn and stay so


@dataclass(frozen=True)
class Architecture:
    """What a strategy knows of a network: its inputs, its classes, and where its tensors lie.

    `slices` are the places of the tensors in the flat vector, by their names, and `frozen` is the
    digest of what is not in it.
    """

    shape: tuple[int, ...] = ()
    num_classes: int | None = None
    slices: Mapping[str, slice] = field(default_factory=dict)
    frozen: str = ""

    @property
    def blocks(self) -> list[slice]:
        """Return the places of the tensors; one block for all where they are not known."""
        return list(self.slices.values()) or [slice(None)]

    def head(self, name: str) -> Part:
        """Return where the parameters of the submodule of this name lie in the flat vector."""
        size = max((place.stop for place in self.slices.values()), default=0)
        return part_of(self.slices, size, "head", name)


def pick_device(name: str) -> torch.device:
    """Return the torch device of this name; `auto` is CUDA where there is one, else the CPU."""
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SettingsError(
            f"client.device is {name!r}, which torch does not know; try auto, cpu, cuda or cuda:0"
        ) from None
    if device.type == "cuda" and not available:
        raise SettingsError(
            f"client.device is {name!r}, but torch finds no CUDA here; "
            "auto uses it where there is one"
        )
    return device


def new_network(
    model: ModelSettings, shape: tuple[int, ...], num_classes: int, device: torch.device
) -> Flat:
    """Return the network of the settings, with weights from torch's generator."""
    module = _built(model, shape, num_classes)
    if model.trainable is not None:
        if model.weights is None:  # what nobody learns has to be the same for all
            drawn = module.state_dict()
            with torch.random.fork_rng():
                torch.manual_seed(FROZEN_SEED)
                module = _built(model, shape, num_classes)
        partly_frozen(module, model.trainable, model.lora_rank)
        if model.weights is None:
            learned = {name for name, _ in module.named_parameters()}
            kept = {name: tensor for name, tensor in drawn.items() if name in learned}
            module.load_state_dict(kept, strict=False)
    if model.dropout is not None:
        module = with_dropout(module, model.dropout, model.dropout_logits)
    return Flat(module.to(device))


def _built(model: ModelSettings, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return the module of the settings, with the weights of the file that they name."""
    make = build_custom if model.factory else build
    module = make(model.factory or model.name, shape, num_classes, **model.options)
    if model.weights is not None:
        load_weights(module, model.weights)
    return module


@lru_cache(maxsize=4)
def _network(
    model_json: str, shape: tuple[int, ...], num_classes: int, device: torch.device
) -> Flat:
    return new_network(ModelSettings.model_validate_json(model_json), shape, num_classes, device)


def network(
    model: ModelSettings, shape: tuple[int, ...], num_classes: int, device: torch.device
) -> Flat:
    """Return the same network, built once a process; its weights are what was loaded last."""
    return _network(model.model_dump_json(), shape, num_classes, device)
