"""A vector over all weights, tensor by tensor, as coded steps.

Its bytes are: a bit for each tensor that goes exactly as it is, because its numbers are not finite
or have no steps; the tensors' scales, where steps depend on them; the exact numbers; and the steps
as symbols (core/symbols.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedivon_app.core import symbols
from fedivon_app.core.envelope import malformed
from fedivon_app.core.quantise import Grid, Linear, Ratio, Rng, unit_of

_LOOKED_AT = 1024  # weights of a tensor by which its median is found


@dataclass(frozen=True, eq=False)
class Means:
    """Where the steps of weights lie.

    They begin at `base`, or at zero where there is none, and are `step` of each weight's `sigma`.
    Without sigmas they are that share of the root mean square of what a tensor's steps make up.
    """

    step: float
    base: np.ndarray | None = None
    sigma: np.ndarray | None = None

    @property
    def needs_scales(self) -> bool:
        """Tell whether a tensor's steps depend on a scale."""
        return self.sigma is None

    def scale(self, values: np.ndarray, place: slice) -> float:
        """Return the scale of the tensor in this place."""
        part = values[place]
        return rms(part if self.base is None else part - self.base[place])

    def grid(self, scales: np.ndarray | None) -> Grid:
        """Return where the steps lie, with the scale of each weight's tensor."""
        unit = self.sigma if scales is None else scales
        assert unit is not None
        return Linear(np.float32(0) if self.base is None else self.base, unit_of(self.step, unit))


@dataclass(frozen=True, eq=False)
class Precisions:
    """Where the steps of precisions lie: so many in an octave, from `base` or a tensor's median."""

    per_octave: int
    base: np.ndarray | None = None

    @property
    def needs_scales(self) -> bool:
        """Tell whether a tensor's steps depend on a scale."""
        return self.base is None

    def scale(self, values: np.ndarray, place: slice) -> float:
        """Return the scale of the tensor in this place."""
        every = 1 + (place.stop - place.start) // _LOOKED_AT
        return float(np.median(values[place][::every]))

    def grid(self, scales: np.ndarray | None) -> Grid:
        """Return where the steps lie, with the scale of each weight's tensor."""
        base = self.base if scales is None else scales
        assert base is not None
        return Ratio(base, self.per_octave)


@dataclass(frozen=True)
class Vectors:
    """Codes vectors over weights that lie in tensors of these sizes."""

    sizes: Sequence[int]

    @cached_property
    def size(self) -> int:
        """Return the number of all weights."""
        return sum(self.sizes)

    @cached_property
    def places(self) -> list[slice]:
        """Return where the tensors lie that have any weights."""
        return symbols.places_of(self.sizes)

    def encode(
        self, values: np.ndarray, how: Means | Precisions, rng: Rng
    ) -> tuple[bytes, np.ndarray]:
        """Return a vector's bytes, and the vector that they will be decoded to."""
        scales = self._scales(values, how) if how.needs_scales else None
        grid = how.grid(None if scales is None else self._spread(scales))
        steps, beyond = grid.steps(values, rng)
        restored = grid.restore(steps)
        right = np.isfinite(restored)
        if isinstance(how, Precisions):
            right &= restored > 0
        if beyond is not None:
            right &= ~beyond
        exact = np.array([not right[place].all() for place in self.places], bool)
        kept = b""
        if exact.any():
            inside = self._spread(exact)
            kept = values[inside].astype("<f4").tobytes()
            restored[inside] = values[inside]
            steps[inside] = 0
        body = [
            np.packbits(exact).tobytes(),
            b"" if scales is None else scales.astype("<f4").tobytes(),
            kept,
            symbols.encode(steps, self.sizes),
        ]
        return b"".join(body), restored

    def decode(self, name: str, body: bytes | memoryview, how: Means | Precisions) -> np.ndarray:
        """Return the vector of these bytes; those that no encoder made are a BadReply."""
        cursor = _Cursor(name, memoryview(body))
        count = len(self.places)
        flags = np.frombuffer(cursor.take(-(-count // 8)), np.uint8)
        exact = np.unpackbits(flags, count=count).astype(bool)
        scales = None
        if how.needs_scales:
            found = np.frombuffer(cursor.take(4 * count), "<f4").astype(np.float32)
            if not (np.isfinite(found) & (found >= 0)).all():
                raise malformed(f"{name} has scales that are negative or not finite")
            scales = self._spread(found)
        number = sum(p.stop - p.start for p, one in zip(self.places, exact, strict=True) if one)
        kept = np.frombuffer(cursor.take(4 * number), "<f4")
        try:
            values = how.grid(scales).restore(symbols.decode(cursor.rest, self.sizes))
        except ValueError as error:
            raise malformed(f"{name} cannot be decoded: {error}") from None
        if number:
            values[self._spread(exact)] = kept
        return values

    def _scales(self, values: np.ndarray, how: Means | Precisions) -> np.ndarray:
        """Return the tensors' scales; 0 for one that has none."""
        with np.errstate(all="ignore"):
            found = np.array([how.scale(values, place) for place in self.places], np.float32)
        found[~(np.isfinite(found) & (found > 0))] = 0
        return found

    def _spread(self, of_tensors: np.ndarray) -> np.ndarray:
        """Return for each weight what its tensor has."""
        return np.repeat(of_tensors, [place.stop - place.start for place in self.places])


@dataclass
class _Cursor:
    """Bytes that are taken from the front; a lack of them is a BadReply."""

    name: str
    rest: memoryview

    def take(self, count: int) -> memoryview:
        """Return so many bytes."""
        if count > len(self.rest):
            raise malformed(f"{self.name} ends early: {len(self.rest)} bytes, not {count} or more")
        taken = self.rest[:count]
        self.rest = self.rest[count:]
        return taken


def rms(values: np.ndarray) -> float:
    """Return the root of the mean square, which is 0 of nothing."""
    if not values.size:
        return 0.0
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
