"""A second torch device, `second`, whose memory is the CPU's: device mistakes show without a GPU.

It is torch's `PrivateUse1` backend, written in Python. A tensor on it is memory of the CPU that
DLPack has handed over under another device's name, so that parameters, views, storages and autograd
are torch's own. Operators are given the same memory under the CPU's name, and compute there. What
CUDA would refuse is refused:

- an operator on tensors of both devices, but for a number without dimensions;
- `.numpy()` of a tensor on the device;
- a generator of the CPU for random numbers on the device.

What CUDA would wait for is counted in `waits`: numbers read from the device (`item`, `bool`,
`float`), copies to the CPU, copies from memory that is not pinned, and operators whose results are
as large as the numbers on the device say.

Import this in a process of its own: a device, once registered, cannot be removed.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.dlpack import from_dlpack, to_dlpack

NAME = "second"
_CPU = 1  # kDLCPU, and
_EXTENSION = 12  # kDLExtDev, which torch takes for PrivateUse1

aten = torch.ops.aten
waits: Counter[str] = Counter()  # what the host waited for, by kind and line of the project
_pinned: set[int] = set()  # addresses of memory that somebody has pinned


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _Head(ctypes.Structure):
    """The first fields of DLPack's DLTensor, with which a managed one begins."""

    _fields_ = (("data", ctypes.c_void_p), ("device", _Device))


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _renamed(tensor: Tensor, device: int) -> Tensor:
    """Return the same memory as a tensor of the device with this number in DLPack."""
    capsule = to_dlpack(tensor.detach())
    _Head.from_address(_pointer_of(capsule, b"dltensor")).device.type = device
    renamed: Tensor = from_dlpack(capsule)
    return renamed


def is_here(value: object) -> bool:
    """Tell whether this is a tensor on the second device."""
    return isinstance(value, Tensor) and value.device.type == NAME


def _on_host(value: Any) -> Any:
    if is_here(value):
        return _renamed(value, _CPU)
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _on_device(value: Any) -> Any:
    return _renamed(value, _EXTENSION) if isinstance(value, Tensor) else value


# Random numbers: the device has a stream of its own, as a GPU has.


class _Module:
    """What torch asks of `torch.second`."""

    def __init__(self) -> None:
        self.generator = torch.Generator()
        self.shares_stream = False  # of the host, for digits that can be compared

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        self.generator.manual_seed(seed)

    def get_rng_state(self, device: Any = None) -> Tensor:
        return self.generator.get_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        self.generator.set_state(state)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Let torch's default generator be the device's inside the block."""
        if self.shares_stream:
            yield
            return
        host = torch.default_generator.get_state()
        torch.default_generator.set_state(self.generator.get_state())
        try:
            yield
        finally:
            self.generator.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(host)


module = _Module()


# What the host waits for.


def _wait(kind: str) -> None:
    """Count that the host waits here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_globals.get("__name__", "").partition(".")[0] != "fedivon_app"
    ):
        frame = frame.f_back
    where = frame.f_globals.get("__name__", "").removeprefix("fedivon_app.")
    waits[f"{kind} in {where}:{frame.f_lineno}"] += 1


def _result_is_sized_by_numbers(function: Any, args: tuple[Any, ...]) -> bool:
    if torch.Tag.dynamic_output_shape not in function.tags:
        return False
    if function is not aten.index.Tensor:
        return True
    return any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1])


# Operators.


def _compute(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute an operator on the same memory under the CPU's name."""
    values, _ = tree_flatten((args, kwargs))
    for value in values:
        if isinstance(value, Tensor) and not is_here(value) and value.ndim:
            raise RuntimeError(
                f"{function}: expected all tensors to be on one device, found {NAME} and "
                f"{value.device}"
            )
        if isinstance(value, torch.Generator):
            raise RuntimeError(f"{function}: expected a generator of {NAME}, found one of the cpu")
    if _result_is_sized_by_numbers(function, args):
        _wait(function.name())
    host_args, host_kwargs = tree_map(_on_host, (args, kwargs))
    host_args = list(host_args)
    written = _written(function._schema, args, kwargs)
    grown = {}
    for place, given in written.items():
        if is_here(given) and given.numel() == 0:  # torch grows what is empty
            grown[place] = torch.empty_like(_on_host(given))
            if isinstance(place, int):
                host_args[place] = grown[place]
            else:
                host_kwargs[place] = grown[place]
    if torch.Tag.nondeterministic_seeded in function.tags:
        with module.stream():
            result = function(*host_args, **host_kwargs)
    else:
        result = function(*host_args, **host_kwargs)
    for place, new in grown.items():
        if new.numel():
            _set(written[place], _on_device(new))
    return _returned(function._schema, result, list(written.values()))


def _written(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int | str, Any]:
    """Return the arguments that an operator writes to, by place or name."""
    found: dict[int | str, Any] = {}
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        if place < len(args):
            found[place] = args[place]
        elif argument.name in kwargs:
            found[argument.name] = kwargs[argument.name]
    return found


def _returned(schema: Any, result: Any, written: list[Any]) -> Any:
    """Return an operator's results: what it wrote to is itself, all else is new."""
    if not schema.returns:
        return None
    several = len(schema.returns) > 1
    own = iter(written)
    found = []
    for kind, one in zip(schema.returns, result if several else [result], strict=True):
        is_own = kind.alias_info is not None and kind.alias_info.is_write
        found.append(next(own) if is_own else tree_map(_on_device, one))
    return tuple(found) if several else found[0]


def _set(target: Tensor, source: Tensor) -> None:
    """Let one tensor on the device have another's memory."""
    memory = source.untyped_storage()
    place = (source.storage_offset(), source.shape, source.stride())
    _by_its_metadata(aten.set_.source_Storage_storage_offset)(target, memory, *place)


def _by_its_metadata(function: Any) -> Callable[..., Any]:
    """Return the CPU's kernel of an operator that looks at no number: a view, of any device."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return lambda *args, **kwargs: function.redispatch(keys, *args, **kwargs)


def _empty(size: Any, dtype: Any = None, memory_format: Any = None, **unused: Any) -> Tensor:
    form = memory_format or torch.contiguous_format
    return _on_device(torch.empty(size, dtype=dtype, memory_format=form))


def _empty_strided(size: Any, stride: Any, dtype: Any = None, **unused: Any) -> Tensor:
    return _on_device(torch.empty_strided(size, stride, dtype=dtype))


def _copy(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    if not is_here(target):
        _wait("a copy to the CPU")
    elif not is_here(source):
        pinned = source.untyped_storage().data_ptr() in _pinned
        if not (pinned and non_blocking):
            _wait("a copy from memory that is not pinned")
    _on_host(target).copy_(_on_host(source))
    return target


def _number(tensor: Tensor) -> Any:
    _wait("a number")
    return _on_host(tensor).item()


def _convolution(*args: Any) -> Any:
    return _compute(aten.convolution.default, *args)


def _convolution_backward(*args: Any) -> Any:
    gradient, inputs, weight, *rest = args
    return _compute(
        aten.convolution_backward.default, gradient, inputs, weight, [len(weight)], *rest
    )


def _pin(tensor: Tensor, device: Any = None) -> Tensor:
    """Stand in for `Tensor.pin_memory`, for which a backend in Python has no allocator."""
    copy = tensor.clone()
    _pinned.add(copy.untyped_storage().data_ptr())
    return copy


KERNELS = {
    "_copy_from": _copy,
    "_local_scalar_dense": _number,
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "convolution_overrideable": _convolution,
    "convolution_backward_overrideable": _convolution_backward,
    "as_strided": _by_its_metadata(aten.as_strided.default),
    "view": _by_its_metadata(aten.view.default),
    "unfold": _by_its_metadata(aten.unfold.default),
    "_reshape_alias": _by_its_metadata(aten._reshape_alias.default),
    "set_.source_Storage_storage_offset": _by_its_metadata(aten.set_.source_Storage_storage_offset),
}

backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=module)
_operators = torch.library.Library("aten", "IMPL")
for _name, _kernel in KERNELS.items():
    _operators.impl(_name, _kernel, "PrivateUse1")
_all_others = torch.library.Library("_", "IMPL")
_all_others.fallback(_compute, "PrivateUse1")
torch.Tensor.pin_memory = _pin
