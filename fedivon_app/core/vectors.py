"""A vector over all weights, tensor by tensor, as coded steps.

Its bytes are: what was drawn to round it (core/rounding.py); a bit for each tensor that goes
exactly as it is, because its numbers are not finite or have no steps; the tensors' scales, on which
their steps depend; the exact numbers; and the steps as symbols (core/symbols.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from fedivon_app.core import symbols
from fedivon_app.core.activity import Matrix, matrices_of
from fedivon_app.core.envelope import malformed
from fedivon_app.core.quantise import Grid, Linear, Ratio, unit_of
from fedivon_app.core.rounding import Rounding, open_rounding, rounding_size

_LOOKED_AT = 1024  # weights of a tensor by which its median is found

Spread = Callable[[np.ndarray], np.ndarray]  # what tensors have, for each of their weights


@dataclass(frozen=True, eq=False)
class Means:
    """Where the steps of weights lie.

    They begin at `base`, or at zero where there is none, and are `step` of each weight's `sigma`,
    but at most `most` of the root mean square of its tensor's weights: there are sigmas that are
    larger than all weights, as those of a prior. Without sigmas they are `step` of the root mean
    square of what a tensor's steps make up. That of whole weights is taken as a power of two, so
    that a tensor's steps stay where they are while its weights change a little.
    """

    step: float
    base: np.ndarray | None = None
    sigma: np.ndarray | None = None
    most: float = 1.0

    def scales(self, values: np.ndarray, places: Sequence[slice]) -> np.ndarray:
        """Return the scales of the tensors: their largest steps, where weights have sigmas."""
        if self.sigma is None and self.base is not None:
            return rms_of(values - self.base, places)
        usual = rms_of(values, places)
        if self.sigma is None:
            return _power_of_two(usual)
        before = usual if self.base is None else rms_of(self.base, places)
        return self.most * _power_of_two(np.fmax(usual, before))

    def grid(self, scales: np.ndarray, spread: Spread) -> Grid:
        """Return where the steps lie, with the scales of the tensors."""
        base = np.float32(0) if self.base is None else self.base
        if self.sigma is None:
            return Linear(base, spread(unit_of(self.step, scales)))
        unit = unit_of(self.step, self.sigma)
        return Linear(base, np.minimum(unit, spread(unit_of(1.0, scales)), out=unit))


@dataclass(frozen=True, eq=False)
class Precisions:
    """Where the steps of precisions lie: so many in an octave, from what is usual in a tensor.

    That is its median or, where there is a `base`, the base times the median ratio to it: weights
    without curvature, which are most, all forget what was known of them at one rate. They need no
    steps then, and no rounding.
    """

    per_octave: int
    base: np.ndarray | None = None

    def scales(self, values: np.ndarray, places: Sequence[slice]) -> np.ndarray:
        """Return the scales of the tensors: their medians, or those of the ratios, by a sample."""
        samples = [slice(p.start, p.stop, 1 + (p.stop - p.start) // _LOOKED_AT) for p in places]
        if self.base is not None:
            return np.array([np.median(values[one] / self.base[one]) for one in samples])
        octaves = np.log2([np.median(values[one]) for one in samples])
        # On one grid for all tensors and rounds: a median that moves leaves the steps in place.
        found: np.ndarray = np.exp2(np.rint(octaves * self.per_octave) / self.per_octave)
        return found

    def grid(self, scales: np.ndarray, spread: Spread) -> Grid:
        """Return where the steps lie, with the scales of the tensors."""
        usual = spread(scales)
        with np.errstate(all="ignore"):
            return Ratio(usual if self.base is None else self.base * usual, self.per_octave)


@dataclass(frozen=True, eq=False)
class Settled:
    """A vector that has come to lie on its steps.

    `values` is what a receiver will have; `kept` are the numbers of those tensors that go exactly.
    """

    values: np.ndarray
    grid: Grid
    steps: np.ndarray
    scales: np.ndarray
    exact: np.ndarray
    kept: bytes
    rounding: Rounding | None
    drawn: np.ndarray | None


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
        ends = accumulate(self.sizes, initial=0)
        return [slice(first, after) for first, after in pairwise(ends) if after > first]

    @cached_property
    def matrices(self) -> list[Matrix]:
        """Return the rows and columns in which the weights of the tensors lie."""
        return matrices_of(self.sizes)

    def settle(
        self, values: np.ndarray, how: Means | Precisions, rounding: Rounding | None
    ) -> Settled:
        """Return the vector on its steps next to the values, or nearest to them."""
        drawn = None if rounding is None else rounding.drawn(len(values))
        scales = self._scales(values, how)
        grid = how.grid(scales, self._spread)
        steps, beyond = grid.steps(values, drawn)
        restored = grid.restore(steps)
        least = 0 if isinstance(how, Precisions) else -np.inf
        exact = np.zeros(len(self.places), bool)
        kept = b""
        if beyond is not None or not _within(restored, least):
            wrong = ~(np.isfinite(restored) & (restored > least))
            if beyond is not None:
                wrong |= beyond
            exact = np.array([wrong[place].any() for place in self.places], bool)
            inside = self._spread(exact)
            kept = values[inside].astype("<f4").tobytes()
            restored[inside] = values[inside]
            steps[inside] = 0
        return Settled(
            values=restored,
            grid=grid,
            steps=steps,
            scales=scales,
            exact=exact,
            kept=kept,
            rounding=rounding,
            drawn=drawn,
        )

    def encode(self, settled: Settled, held: np.ndarray | None = None) -> bytes:
        """Return a vector's bytes, by the steps to where it lies.

        They go from zero or, if it is known what the receiver holds, from the steps next to that:
        it comes to lie at the same place in both cases.
        """
        steps = settled.steps
        rounding = settled.rounding
        drawn = settled.drawn
        if held is not None:
            steps = steps - self._next_to(held, settled.grid, settled.exact)
            rounding = drawn = None
        body = [
            b"\0" if rounding is None else rounding.seal(),
            np.packbits(settled.exact).tobytes(),
            settled.scales.astype("<f4").tobytes(),
            settled.kept,
            symbols.encode(steps, self.matrices, drawn),
        ]
        return b"".join(body)

    def decode(
        self,
        name: str,
        body: bytes | memoryview,
        how: Means | Precisions,
        held: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the vector of these bytes; those that no encoder made are a BadReply."""
        cursor = _Cursor(name, memoryview(body))
        rounding = open_rounding(cursor.take(rounding_size(cursor.take(1)[0])))
        count = len(self.places)
        flags = np.frombuffer(cursor.take(-(-count // 8)), np.uint8)
        exact = np.unpackbits(flags, count=count).astype(bool)
        scales = np.frombuffer(cursor.take(4 * count), "<f4").astype(np.float32)
        if not (np.isfinite(scales) & (scales >= 0)).all():
            raise malformed(f"{name} has scales that are negative or not finite")
        number = sum(p.stop - p.start for p, one in zip(self.places, exact, strict=True) if one)
        kept = np.frombuffer(cursor.take(4 * number), "<f4")
        grid = how.grid(scales, self._spread)
        try:
            drawn = None if rounding is None else rounding.drawn(self.size)
            steps = symbols.decode(cursor.rest, self.matrices, drawn)
            if held is not None:
                steps = steps + self._next_to(held, grid, exact)
            values = grid.restore(steps)
        except ValueError as error:
            raise malformed(f"{name} cannot be decoded: {error}") from None
        if number:
            values[self._spread(exact)] = kept
        return values

    def _scales(self, values: np.ndarray, how: Means | Precisions) -> np.ndarray:
        """Return the tensors' scales; 0 for one that has none."""
        with np.errstate(all="ignore"):
            found = how.scales(values, self.places).astype(np.float32)
        found[~(np.isfinite(found) & (found > 0))] = 0
        return found

    def _next_to(self, held: np.ndarray, grid: Grid, exact: np.ndarray) -> np.ndarray:
        """Return the steps next to what is held, which are 0 where tensors go exactly."""
        steps, beyond = grid.steps(held, None)
        if beyond is not None:
            steps[beyond] = 0
        if exact.any():
            steps[self._spread(exact)] = 0
        return steps

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


def _within(values: np.ndarray, least: float) -> bool:
    """Tell whether all values are finite and more than this."""
    low = values.min(initial=np.inf)
    return not len(values) or bool(least < low and values.max() < np.inf)


def _power_of_two(values: np.ndarray) -> np.ndarray:
    """Return the power of two next to each number; 0 of what is not positive."""
    return np.where(values > 0, np.exp2(np.rint(np.log2(values))), 0.0)


def rms(values: np.ndarray) -> float:
    """Return the root of the mean square, which is 0 of nothing."""
    return float(rms_of(values, [slice(0, len(values))])[0]) if len(values) else 0.0


def rms_of(values: np.ndarray, places: Sequence[slice]) -> np.ndarray:
    """Return the root of the mean square in each place; they follow each other."""
    if not places:
        return np.empty(0)
    squares = values.astype(np.float64)
    squares *= squares
    sums = np.add.reduceat(squares, [place.start for place in places])
    found: np.ndarray = np.sqrt(sums / [place.stop - place.start for place in places])
    return found
