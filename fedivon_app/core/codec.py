"""How a posterior becomes named arrays on the wire, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedivon_app.core.dense import Dense
from fedivon_app.core.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Payload:
    """What travels: a posterior, batch-norm statistics where the model has them, and what a method adds by name."""

    posterior: Posterior | Dense
    buffers: np.ndarray | None = None
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)

    def fault(self) -> str | None:
        """Why this must not be merged, or None."""
        for name, array in (("buffers", self.buffers), *self.extras.items()):
            if array is not None and not np.isfinite(array).all():
                return f"{name} has values that are not finite"
        return self.posterior.fault()


class Codec(Protocol):
    """`reference` is the payload that the client was sent, known on both sides; None where there is none yet."""

    def encode(
        self, payload: Payload, reference: Payload | None = None
    ) -> dict[str, np.ndarray]: ...

    def decode(
        self, arrays: Mapping[str, np.ndarray], reference: Payload | None = None
    ) -> Payload: ...


class Raw:
    """Plain float32: `mean`, `precision`, `buffers`, then a method's extras, in this order, where they exist.

    A full-covariance posterior goes as float64, its precision as a matrix.
    """

    def encode(self, payload: Payload, reference: Payload | None = None) -> dict[str, np.ndarray]:
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
        if reference is not None:
            expected = self.encode(reference)
            if list(arrays) != list(expected):
                raise ValueError(
                    f"has the arrays {', '.join(arrays) or 'none'}, not {', '.join(expected)}"
                )
            for name, array in arrays.items():
                if array.shape != expected[name].shape:
                    raise ValueError(f"{name} has shape {array.shape}, not {expected[name].shape}")
                if array.dtype.kind != "f":
                    raise ValueError(f"{name} holds {array.dtype}, not {expected[name].dtype}")
        rest = dict(arrays)
        mean = rest.pop("mean")
        precision = rest.pop("precision", None)
        kind = Dense if precision is not None and precision.ndim == 2 else Posterior
        posterior = kind(mean, precision)
        return Payload(posterior, rest.pop("buffers", None), rest)
