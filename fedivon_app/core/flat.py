"""The flat view of a module: its parameters are views of one vector, its gradients of another.

A posterior is a pair of flat vectors; loading one into a module, or reading one out of it, is then
a single copy. The order is that of `module.parameters()`, the same as that of
`torch.nn.utils.parameters_to_vector`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.frozen import frozen_names
from fedivon_app.core.transfer import sent

Array = np.ndarray | torch.Tensor
Part = slice | np.ndarray  # of a flat vector; a boolean mask where it is not in one piece


class Flat:
    """A module whose parameters and gradients are views of `vector` and `gradient`.

    Both are 1-D and float32. A parameter that is used in several places counts once, under its
    first name. Move the module to its device first: `module.to(...)`, or a second Flat of the same
    module, takes the parameters away from this one's vector, and whatever reads or writes the
    vector here raises a RuntimeError from then on.
    """

    def __init__(self, module: nn.Module):
        parameters = dict(module.named_parameters())
        if not parameters:
            raise SettingsError(
                f"{type(module).__name__} has no parameters to put into a flat vector"
            )
        for name, parameter in parameters.items():
            if parameter.dtype != torch.float32:
                raise SettingsError(
                    f"parameter {name!r} is {parameter.dtype}; "
                    "a flat vector holds torch.float32 only"
                )
        self.module = module
        self.slices = _slices(parameters)
        self.vector = torch.cat(
            [parameter.detach().reshape(-1) for parameter in parameters.values()]
        )
        self.gradient = torch.zeros_like(self.vector)
        self._shapes = {name: parameter.shape for name, parameter in parameters.items()}
        values = self.named_parameters(self.vector)
        gradients = self.named_parameters(self.gradient)
        self._views = [(parameters[name], values[name], gradients[name]) for name in parameters]
        for parameter, value, gradient in self._views:
            parameter.data = value
            parameter.grad = gradient
        frozen = frozen_names(module)
        buffers = {
            name: buffer
            for name, buffer in module.named_buffers()
            if buffer.is_floating_point() and name not in frozen
        }
        self._buffer_slices = _slices(buffers)
        self._buffer_shapes = {name: buffer.shape for name, buffer in buffers.items()}

    def __len__(self) -> int:
        return len(self.vector)

    def zero_gradient(self) -> None:
        """Set the gradient to zero, in place.

        Where somebody replaced a parameter's gradient (`zero_grad` sets None), it becomes the view
        again.
        """
        self._check_views()
        self.gradient.zero_()
        for parameter, _, gradient in self._views:
            if parameter.grad is not gradient:
                parameter.grad = gradient

    def as_parameter(self) -> nn.Parameter:
        """Return all parameters as one, for an optimizer.

        It shares the vector's memory, and its gradient is the flat one.
        """
        whole = nn.Parameter(self.vector)
        whole.grad = self.gradient
        return whole

    def load(self, mean: Array) -> None:
        """Copy a vector of the same length into the parameters."""
        self._check_views()
        self.vector.copy_(self.checked(mean))

    def mean(self) -> np.ndarray:
        """Return a float32 copy of the parameters."""
        self._check_views()
        return self.vector.cpu().numpy().copy()

    @property
    def buffers(self) -> np.ndarray | None:
        """Return a float32 copy of all floating-point buffers, or None where there are none.

        These are the statistics of batch norm.
        """
        if not self._buffer_slices:
            return None
        flat = [
            self.module.get_buffer(name).detach().reshape(-1).float()
            for name in self._buffer_slices
        ]
        return torch.cat(flat).cpu().numpy()

    def load_buffers(self, buffers: Array | None) -> None:
        """Copy what `buffers` gave back into the module; None is right where the model has none."""
        for name, values in self.named_buffers(buffers).items():
            self.module.get_buffer(name).copy_(values)

    def part(self, name: str, head: str = "head") -> Part:
        """Return where the parameters of the `head` or the `base` lie; see `part_of`."""
        return part_of(self.slices, len(self), name=name, head=head)

    def named_parameters(self, vectors: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return views in the parameters' shapes, of a (P,) vector or of a (K, P) matrix's rows."""
        leading = vectors.shape[:-1]
        return {
            name: vectors[..., place].view(leading + self._shapes[name])
            for name, place in self.slices.items()
        }

    def named_buffers(self, buffers: Array | None) -> dict[str, torch.Tensor]:
        """Return a vector as `buffers` gives it, in the buffers' names and shapes."""
        expected = sum(place.stop - place.start for place in self._buffer_slices.values())
        vector = self._tensor(np.empty(0) if buffers is None else buffers, expected, "buffers")
        return {
            name: vector[place].view(self._buffer_shapes[name])
            for name, place in self._buffer_slices.items()
        }

    def checked(self, vector: Array) -> torch.Tensor:
        """Return the vector as a float32 tensor on the model's device; its length must be right."""
        return self._tensor(vector, len(self), "parameters")

    def _tensor(self, vector: Array, expected: int, kind: str) -> torch.Tensor:
        shape = tuple(vector.shape)
        if shape != (expected,):
            raise ValueError(
                f"a vector of shape {shape} does not fit a model with {expected} {kind}"
            )
        if isinstance(vector, np.ndarray):
            vector = torch.from_numpy(np.require(vector, np.float32, ["C", "W"]))
        return sent(vector.detach().to(self.vector.dtype), self.vector.device)

    def _check_views(self) -> None:
        if any(parameter.data_ptr() != value.data_ptr() for parameter, value, _ in self._views):
            raise RuntimeError(
                "the module's parameters are no longer views of this flat vector: "
                "make a new Flat of it"
            )


def part_of(slices: Mapping[str, slice], size: int, name: str, head: str) -> Part:
    """Return where the part `name`, "head" or "base", lies in a flat vector of this size.

    `slices` says where each parameter lies. The head is what lies under the submodule `head`, which
    may be called otherwise, such as "classifier" or "layers.4"; the base is the rest. The answer is
    a slice, or a boolean mask if the part is not in one piece; both index numpy arrays and tensors.
    """
    if name not in ("base", "head"):
        raise ValueError(f"a model has the parts 'base' and 'head', not {name!r}")
    inside = np.zeros(size, dtype=bool)
    for parameter, place in slices.items():
        inside[place] = parameter == head or parameter.startswith(f"{head}.")
    if not inside.any():
        children = dict.fromkeys(parameter.partition(".")[0] for parameter in slices)
        raise SettingsError(
            f"the model has no parameters under {head!r} for its head; "
            f"its submodules are: {', '.join(children)}"
        )
    mask = inside if name == "head" else ~inside
    if not mask.any():
        return slice(0, 0)
    first = int(mask.argmax())
    end = size - int(mask[::-1].argmax())
    return slice(first, end) if mask[first:end].all() else mask


def flat_view(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return one flat vector over the tensors.

    It is the vector of which they are consecutive views already, or else a new one.
    """
    first = tensors[0]
    memory = first.untyped_storage()
    begin = first.storage_offset()
    end = begin
    for tensor in tensors:
        same = tensor.untyped_storage().data_ptr() == memory.data_ptr()
        if not (same and tensor.is_contiguous() and tensor.storage_offset() == end):
            return torch.cat([part.detach().reshape(-1) for part in tensors])
        end += tensor.numel()
    return first.new_empty(0).set_(memory, begin, (end - begin,), (1,))


def views_like(vector: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return consecutive views of a flat vector that have the shapes of these tensors."""
    parts = torch.split(vector, [tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]


def _slices(tensors: Mapping[str, torch.Tensor]) -> dict[str, slice]:
    slices = {}
    start = 0
    for name, tensor in tensors.items():
        slices[name] = slice(start, start + tensor.numel())
        start += tensor.numel()
    return slices
