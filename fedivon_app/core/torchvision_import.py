"""torchvision's modules, also where its compiled operators do not match the torch here."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any


@functools.cache
def torchvision_module(name: str) -> ModuleType:
    """Return `torchvision.<name>`; an ImportError says why it cannot be had.

    torchvision registers shapes for its own `nms` and `qnms` on import and fails if they do not
    exist. Neither its data sets nor its networks use them, so declaring the two is enough.
    """
    try:
        return importlib.import_module(f"torchvision.{name}")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        declare_operators()
        return importlib.import_module(f"torchvision.{name}")


@functools.cache
def declare_operators() -> Any:
    """Declare torchvision's operators, and return the library that holds the declarations.

    They live as long as the library does, which the cache keeps.
    """
    import torch

    new_library: Any = torch.library.Library  # its methods have no types
    library = new_library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
