"""The flat view of a module: one vector that its parameters are views of, and another for their gradients.

A posterior is a pair of flat vectors; loading one into a module, or reading one out of it, is then a single copy.
The order is that of `module.parameters()`, the same as `torch.nn.utils.parameters_to_vector`.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

Array = np.ndarray | torch.Tensor


class Flat:
    """A module whose parameters and gradients are views of `vector` and `gradient`, both 1-D float32.

    A parameter that is used in several places counts once, under its first name. Move the module to its device first:
    `module.to(...)`, or a second Flat of the same module, takes the parameters away from this one's vector, and what
    reads or writes the vector here raises a RuntimeError from then on.
    """

    def __init__(self, module: nn.Module):
        parameters = dict(module.named_parameters())
        if not parameters:
            raise ValueError(f"{type(module).__name__} has no parameters to put into a flat vector")
        for name, parameter in parameters.items():
            if parameter.dtype != torch.float32:
                raise ValueError(
                    f"parameter {name!r} is {parameter.dtype}; a flat vector holds torch.float32 only"
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
        buffers = {
            name: buffer for name, buffer in module.named_buffers() if buffer.is_floating_point()
        }
        self._buffer_slices = _slices(buffers)
        self._buffer_shapes = {name: buffer.shape for name, buffer in buffers.items()}

    def __len__(self) -> int:
        return len(self.vector)

    def zero_gradient(self) -> None:
        """Zero in place; a gradient that somebody replaced (`zero_grad` sets None) becomes the view again."""
        self._check_views()
        self.gradient.zero_()
        for parameter, _, gradient in self._views:
            if parameter.grad is not gradient:
                parameter.grad = gradient

    def as_parameter(self) -> nn.Parameter:
        """All parameters as one, for an optimizer: it shares the vector, and its gradient is the flat one."""
        whole = nn.Parameter(self.vector)
        whole.grad = self.gradient
        return whole

    def load(self, mean: Array) -> None:
        """Copy a vector of the same length into the parameters."""
        self._check_views()
        self.vector.copy_(self.checked(mean))

    def mean(self) -> np.ndarray:
        """A float32 copy of the parameters."""
        self._check_views()
        return self.vector.cpu().numpy().copy()

    @property
    def buffers(self) -> np.ndarray | None:
        """A float32 copy of all floating-point buffers (batch-norm statistics), or None where there are none."""
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

    def part(self, name: str, head: str = "head") -> slice | np.ndarray:
        """Where the head's or the base's parameters are: a slice, or a boolean mask if they are not in one piece.

        The head is what lies under the submodule `head`; another prefix, such as "classifier" or "layers.4", can be
        named for models that call it so. The base is the rest. Both kinds index numpy arrays and tensors.
        """
        if name not in ("base", "head"):
            raise ValueError(f"a model has the parts 'base' and 'head', not {name!r}")
        inside = np.zeros(len(self), dtype=bool)
        for parameter, place in self.slices.items():
            inside[place] = parameter == head or parameter.startswith(f"{head}.")
        if not inside.any():
            children = ", ".join(child for child, _ in self.module.named_children())
            raise ValueError(
                f"the model has no parameters under {head!r} for its head; its submodules are: {children}"
            )
        mask = inside if name == "head" else ~inside
        first, last = (
            (int(mask.argmax()), len(mask) - int(mask[::-1].argmax())) if mask.any() else (0, 0)
        )
        return slice(first, last) if mask[first:last].all() else mask

    def named_parameters(self, vectors: torch.Tensor) -> dict[str, torch.Tensor]:
        """Views of a (P,) vector, or of each row of a (K, P) matrix, in the parameters' shapes."""
        leading = vectors.shape[:-1]
        return {
            name: vectors[..., place].view(leading + self._shapes[name])
            for name, place in self.slices.items()
        }

    def named_buffers(self, buffers: Array | None) -> dict[str, torch.Tensor]:
        """A vector as `buffers` gives it, in the buffers' names and shapes."""
        expected = sum(place.stop - place.start for place in self._buffer_slices.values())
        vector = self._tensor(np.empty(0) if buffers is None else buffers, expected, "buffers")
        return {
            name: vector[place].view(self._buffer_shapes[name])
            for name, place in self._buffer_slices.items()
        }

    def checked(self, vector: Array) -> torch.Tensor:
        """The vector as a float32 tensor on the model's device, if it has the model's length."""
        return self._tensor(vector, len(self), "parameters")

    def _tensor(self, vector: Array, expected: int, kind: str) -> torch.Tensor:
        if tuple(vector.shape) != (expected,):
            raise ValueError(
                f"a vector of shape {tuple(vector.shape)} does not fit a model with {expected} {kind}"
            )
        if isinstance(vector, np.ndarray):
            vector = torch.from_numpy(np.require(vector, np.float32, ["C", "W"]))
        return vector.detach().to(self.vector)

    def _check_views(self) -> None:
        if any(parameter.data_ptr() != value.data_ptr() for parameter, value, _ in self._views):
            raise RuntimeError(
                "the module's parameters are no longer views of this flat vector: make a new Flat of it"
            )


def _slices(tensors: Mapping[str, torch.Tensor]) -> dict[str, slice]:
    slices = {}
    start = 0
    for name, tensor in tensors.items():
        slices[name] = slice(start, start + tensor.numel())
        start += tensor.numel()
    return slices
