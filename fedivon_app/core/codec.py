"""How a posterior becomes named arrays on the wire, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedivon_app.core.dense import Dense
from fedivon_app.core.errors import BadReply, Fault, FaultKind
from fedivon_app.core.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Payload:
    """What travels: a posterior, batch-norm statistics, and what a method adds by name."""

    posterior: Posterior
    buffers: np.ndarray | None = None
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)

    def fault(self) -> Fault | None:
        """Return why this must not be merged, or None."""
        for name, array in (("buffers", self.buffers), *self.extras.items()):
            if array is not None and not np.isfinite(array).all():
                text = f"{name} has values that are not finite"
                return Fault(FaultKind.NOT_FINITE, text, where=name)
        return self.posterior.fault()


@dataclass(frozen=True, eq=False)
class Coded:
    """A message: its arrays, and the payload that whoever decodes them will have."""

    arrays: dict[str, np.ndarray]
    decoded: Payload


class Codec(Protocol):
    """The two directions of the wire.

    `reference` is the payload that the client was sent, which both sides know; it is None where
    there is none yet. What does not fit the reference is a BadReply.
    """

    def seeded(self, *entropy: int) -> Codec:
        """Return the codec of one message, whose rounding depends on these numbers."""

    def coded(self, payload: Payload, reference: Payload | None = None) -> Coded: ...

    def decode(
        self, arrays: Mapping[str, np.ndarray], reference: Payload | None = None
    ) -> Payload: ...


class Raw:
    """Plain float32: `mean`, `precision`, `buffers`, then a method's extras, where they exist.

    A full-covariance posterior goes as float64, its precision as a matrix.
    """

    def seeded(self, *entropy: int) -> Raw:
        """Return the same codec, for it does not round."""
        return self

    def coded(self, payload: Payload, reference: Payload | None = None) -> Coded:
        """Return the payload's arrays by name; what is decoded is what was given."""
        return Coded(self.encode(payload), payload)

    def encode(self, payload: Payload, reference: Payload | None = None) -> dict[str, np.ndarray]:
        """Return the payload's arrays by name, in the order of the wire."""
        posterior = payload.posterior
        named = {
            "mean": posterior.mean,
            "precision": posterior.precision,
            "buffers": payload.buffers,
            **payload.extras,
        }
        exact = ("mean", "precision") if isinstance(posterior, Dense) else ()
        return {
            name: np.asarray(array, np.float64 if name in exact else np.float32)
            for name, array in named.items()
            if array is not None
        }

    def decode(self, arrays: Mapping[str, np.ndarray], reference: Payload | None = None) -> Payload:
        """Return the payload that these arrays are; with a reference, they must be like its own."""
        if reference is not None:
            self._check(arrays, self.encode(reference))
        rest = dict(arrays)
        mean = rest.pop("mean")
        precision = rest.pop("precision", None)
        buffers = rest.pop("buffers", None)
        if precision is not None and precision.ndim == 2:
            return Payload(Dense(mean, precision), buffers, rest)
        return Payload(Posterior(mean, precision), buffers, rest)

    @staticmethod
    def _check(arrays: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
        if list(arrays) != list(expected):
            told = ", ".join(arrays) or "none"
            raise _malformed(f"has the arrays {told}, not {', '.join(expected)}")
        for name, array in arrays.items():
            if array.shape != expected[name].shape:
                raise _malformed(f"{name} has shape {array.shape}, not {expected[name].shape}")
            if array.dtype.kind != "f":
                raise _malformed(f"{name} holds {array.dtype}, not {expected[name].dtype}")


def _malformed(text: str) -> BadReply:
    return BadReply(Fault(FaultKind.MALFORMED, text))
