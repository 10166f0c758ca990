"""Networks of torchvision and timm, by their names there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import nn

from fedivon_app.core.dry_run import Shape, checked_outputs
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.text import did_you_mean, one_line
from fedivon_app.core.torchvision_import import torchvision_module


def of_library(name: str, shape: Shape, num_classes: int, options: dict[str, object]) -> nn.Module:
    """Return a network of torchvision or timm, with random weights; nothing is downloaded.

    These take pictures of three channels: one is repeated.
    """
    library, _, own = name.partition("/")
    if library not in LIBRARIES:
        raise SettingsError(
            f"there is no model {name!r}: {did_you_mean(library, LIBRARIES)} "
            "(torchvision/NAME or timm/NAME)"
        )
    if len(shape) != 3 or shape[2] not in (1, 3):
        raise SettingsError(f"model {name!r} needs pictures with 1 or 3 channels, not {shape}")
    try:
        model = LIBRARIES[library](own, num_classes, options)
    except ImportError as error:
        raise SettingsError(f"model {name!r}: {library} cannot be imported ({error})") from None
    except Exception as error:  # of whatever kind the libraries have
        raise SettingsError(f"model {name!r} cannot be built: {one_line(error)}") from None
    if shape[2] == 1:
        model.register_forward_pre_hook(_three_channels)
    return checked_outputs(model, f"model {name!r}", shape, num_classes)


def _three_channels(module: nn.Module, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    return (args[0].expand(-1, 3, -1, -1),)


def _of_torchvision(name: str, num_classes: int, options: dict[str, object]) -> nn.Module:
    models = torchvision_module("models")
    if name not in models.list_models():
        raise SettingsError(
            f"torchvision has no {name!r}: {did_you_mean(name, models.list_models())}"
        )
    model: nn.Module = models.get_model(name, weights=None, num_classes=num_classes, **options)
    return model


def _of_timm(name: str, num_classes: int, options: dict[str, object]) -> nn.Module:
    torchvision_module("models")  # which timm imports
    timm: Any = import_module("timm")
    if name not in timm.list_models():
        raise SettingsError(f"timm has no {name!r}: {did_you_mean(name, timm.list_models())}")
    model: nn.Module = timm.create_model(name, pretrained=False, num_classes=num_classes, **options)
    return model


LIBRARIES = {"torchvision": _of_torchvision, "timm": _of_timm}
