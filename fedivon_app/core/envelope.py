"""One array's bytes on the wire: a short head, which says what follows, a checksum, and the rest.

The checksum covers the array's name, the head and the rest. A change names what it changes: the
check of the payload that both sides hold.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from math import isfinite, prod
from zlib import crc32

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.core.errors import BadReply, Fault, FaultKind

VERSION = 4
_HEAD = struct.Struct("<BBfI")  # version, kind, step, check of the reference
_SUM = struct.Struct("<I")
_START = _HEAD.size + _SUM.size
_DTYPES = ("<f2", "<f4")


class Kind(IntEnum):
    """What the bytes of an array are."""

    PLAIN = 0  # numbers as they are
    WHOLE = 1  # steps from zero, or from a number for each tensor
    CHANGE = 2  # steps from what the other side holds
    MOVE = 3  # steps as of WHOLE, less those of what the other side holds


@dataclass(frozen=True)
class Envelope:
    """An array's bytes, with what their head says.

    That is the size of a step, in the units of the array, and the check of what a change changes.
    """

    kind: Kind
    body: bytes | memoryview
    step: float = 0.0
    reference: int = 0

    def seal(self, name: str) -> np.ndarray:
        """Return the array of bytes that travels under this name."""
        head = _HEAD.pack(VERSION, self.kind, self.step, self.reference)
        total = _SUM.pack(_checksum(name, head, self.body))
        return np.frombuffer(b"".join([head, total, self.body]), np.uint8)

    @classmethod
    def open(cls, name: str, array: np.ndarray) -> Envelope:
        """Return what is in such an array; bytes that were changed on their way are a BadReply."""
        if array.dtype != np.uint8 or array.ndim != 1:
            raise malformed(f"{name} holds {array.dtype} of shape {array.shape}, not coded bytes")
        data = np.ascontiguousarray(array).data
        if len(data) < _START:
            raise malformed(f"{name} has {len(data)} bytes, of which the head alone takes {_START}")
        head = data[: _HEAD.size]
        (total,) = _SUM.unpack(data[_HEAD.size : _START])
        body = data[_START:]
        if total != _checksum(name, head, body):
            raise malformed(f"{name} was damaged on its way: its checksum is wrong")
        version, kind, step, reference = _HEAD.unpack(head)
        if version != VERSION:
            raise malformed(f"{name} is coded in version {version}, not {VERSION}")
        if kind not in list(Kind):
            raise malformed(f"{name} is of the kind {kind}, which there is not")
        if not isfinite(step) or step < 0 or (step == 0 and kind != Kind.PLAIN):
            raise malformed(f"{name} has a step of {step}, not of a positive number")
        return cls(Kind(kind), body, step=step, reference=reference)


def plain(array: np.ndarray, half: bool) -> Envelope:
    """Return numbers as they are: in float16 if that is asked for and holds them, else float32."""
    values: np.ndarray = np.asarray(array, np.float32)
    which = 1
    if half:
        with np.errstate(over="ignore"):
            short = values.astype(np.float16)
        if np.isfinite(short).all():
            values = short
            which = 0
    shape = struct.pack(f"<BB{values.ndim}I", which, values.ndim, *values.shape)
    body = shape + values.astype(_DTYPES[which]).tobytes()
    return Envelope(Kind.PLAIN, body)


def open_plain(name: str, envelope: Envelope) -> np.ndarray:
    """Return the float32 array that such bytes are."""
    body = memoryview(envelope.body)
    dimensions = body[1] if len(body) > 1 else 0
    start = 2 + 4 * dimensions
    if len(body) < start or body[0] >= len(_DTYPES) or dimensions > 8:
        raise malformed(f"{name} does not say of what shape and kind its numbers are")
    shape = struct.unpack(f"<{dimensions}I", body[2:start])
    dtype = np.dtype(_DTYPES[body[0]])
    if len(body) - start != prod(shape) * dtype.itemsize:
        raise malformed(f"{name} has {len(body) - start} bytes, not those of shape {shape}")
    return np.frombuffer(body[start:], dtype).reshape(shape).astype(np.float32)


def check_of(payload: Payload) -> int:
    """Return a check of all numbers of a payload, by which a change knows what it changes."""
    check = 0
    for name, array in named_arrays(payload):
        check = crc32(np.ascontiguousarray(array).data, crc32(name.encode(), check))
    return check


def named_arrays(payload: Payload) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a payload that has no full covariance, in the order of the wire."""
    posterior = payload.posterior
    named = {
        "mean": posterior.mean,
        "precision": posterior.precision,
        "buffers": payload.buffers,
        **payload.extras,
    }
    for name, array in named.items():
        if array is not None:
            yield name, np.asarray(array, np.float32)


def malformed(text: str) -> BadReply:
    """Return the error for bytes that are not what they should be."""
    return BadReply(Fault(FaultKind.MALFORMED, text))


def _checksum(name: str, head: bytes | memoryview, body: bytes | memoryview) -> int:
    return crc32(body, crc32(head, crc32(name.encode())))
