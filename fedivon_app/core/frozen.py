"""Networks of which only a part is learned: the rest is no parameter, and never travels.

What is frozen becomes a buffer of its layer, under the same name, so that the flat vector, and the
posterior over it, are of what is learned alone. All have to hold the same frozen weights: they come
from a file that everybody has, or from a seed.
"""

from __future__ import annotations

import hashlib
from fnmatch import fnmatchcase
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.modules.batchnorm import _BatchNorm

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.text import did_you_mean, one_line

FROZEN = "fedivon_frozen"  # the attribute with the names of a layer's own frozen tensors


class LowRank(nn.Module):
    """A frozen linear layer with what is learned beside it: W x + b + B A x (Hu et al. 2022).

    A is (rank, inputs), and B, (outputs, rank), begins at zero.
    """

    def __init__(self, layer: nn.Linear, rank: int):
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the layer's outputs, and what was learned."""
        frozen: Tensor = self.layer(inputs)
        return frozen + linear(linear(inputs, self.down), self.up)


def head_of(module: nn.Module) -> str:
    """Return the name of a network's last linear layer."""
    names: list[str] = [n for n, part in module.named_modules() if isinstance(part, nn.Linear)]
    if not names:
        raise SettingsError("model.trainable: the network has no linear layer to be its head")
    return names[-1]


def partly_frozen(module: nn.Module, trainable: str, rank: int) -> nn.Module:
    """Freeze all but a part of a network, in place, and return it.

    `trainable` is `head`, `lora`, or names of parameters with `*` for anything, with commas
    between them.
    """
    head = head_of(module)
    patterns = [f"{head}.*", head]
    if trainable == "lora":
        _add_low_rank(module, head, rank)
        learned = [name for name in _names(module) if _is_low_rank(module, name)]
        learned += [name for name in _names(module) if name.startswith(f"{head}.")]
    else:
        if trainable != "head":
            patterns = [pattern.strip() for pattern in trainable.split(",")]
        learned = [n for n in _names(module) if any(fnmatchcase(n, p) for p in patterns)]
    if not learned:
        raise SettingsError(
            f"model.trainable is {trainable!r}, and no parameter is called so: "
            f"{did_you_mean(trainable, _names(module))}"
        )
    _freeze(module, set(learned))
    return module


def frozen_names(module: nn.Module) -> frozenset[str]:
    """Return the names of the tensors of a network that are frozen."""
    return frozenset(
        f"{prefix}.{own}".lstrip(".")
        for prefix, part in module.named_modules()
        for own in getattr(part, FROZEN, ())
    )


def frozen_digest(module: nn.Module) -> str:
    """Return a digest of what is frozen, by which two networks are told apart; empty if nothing."""
    names = sorted(frozen_names(module))
    if not names:
        return ""
    digest = hashlib.sha256()
    state = dict(module.named_buffers())
    for name in names:
        digest.update(name.encode())
        digest.update(state[name].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def load_weights(module: nn.Module, path: str) -> None:
    """Load weights from a file into a network, by name.

    The file is one of safetensors, or of torch.save. The head may be missing in it, or be that of
    another number of classes: it is learned anew.
    """
    held = _read(Path(path).expanduser())
    head = head_of(module)
    state = module.state_dict()
    for name, tensor in state.items():
        of_head = name.startswith(f"{head}.")
        if name not in held:
            if of_head or name.endswith("num_batches_tracked"):
                continue
            raise SettingsError(
                f"model.weights: {path} has no {name!r}: {did_you_mean(name, held)}"
            )
        if held[name].shape != tensor.shape:
            if of_head:
                continue
            raise SettingsError(
                f"model.weights: {name!r} of {path} has shape {tuple(held[name].shape)}, and the "
                f"network's has {tuple(tensor.shape)}"
            )
        state[name] = held[name].to(tensor.dtype)
    module.load_state_dict(state)


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise SettingsError(f"model.weights: there is no file {path}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        held: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of whatever kind the two readers have
        raise SettingsError(
            f"model.weights: {path} holds no weights as safetensors or torch.save writes them: "
            f"{one_line(error)[:120]}"
        ) from None
    if not isinstance(held, dict) or not all(isinstance(t, Tensor) for t in held.values()):
        raise SettingsError(f"model.weights: {path} holds no tensors by name (a state dict)")
    return held


def _names(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_parameters()]


def _is_low_rank(module: nn.Module, name: str) -> bool:
    owner, _, own = name.rpartition(".")
    return isinstance(module.get_submodule(owner), LowRank) and own in ("down", "up")


def _add_low_rank(module: nn.Module, head: str, rank: int) -> None:
    """Put what is learned beside every linear layer but the head."""
    layers = [
        name for name, part in module.named_modules() if type(part) is nn.Linear and name != head
    ]
    if not layers:
        raise SettingsError(
            "model.trainable lora: the network has no linear layer besides its head; "
            "head or a pattern would do"
        )
    for name in layers:
        parent, _, child = name.rpartition(".")
        layer = module.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        setattr(module.get_submodule(parent), child, LowRank(layer, rank))


def _freeze(module: nn.Module, learned: set[str]) -> None:
    """Make buffers of all parameters but those learned, and keep frozen batch norm as it is."""
    for prefix, part in list(module.named_modules()):
        names = {own: f"{prefix}.{own}".lstrip(".") for own in list(part._parameters)}
        still = [own for own, name in names.items() if name not in learned]
        frozen = [own for own in still if part._parameters[own] is not None]
        for own in still:
            tensor = part._parameters.pop(own)
            part.register_buffer(own, None if tensor is None else tensor.detach())
        if isinstance(part, _BatchNorm) and len(still) == len(names):
            part.train = MethodType(_stay, part)  # type: ignore[method-assign]
            part.eval()
            frozen += [own for own, tensor in part._buffers.items() if own not in names]
        setattr(part, FROZEN, tuple(dict.fromkeys(frozen)))


def _stay(part: nn.Module, mode: bool = True) -> nn.Module:
    """Stay in eval mode whatever the rest of the network does: its statistics are frozen."""
    return nn.Module.train(part, False)
