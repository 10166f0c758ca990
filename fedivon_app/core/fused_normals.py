"""Standard normal numbers in one compiled loop, with what is made of them.

The bits come from 512 generators that take turns, each Doty-Humphrey's sfc32 with a state of its
own, which Steele's splitmix64 gives it. A number has 32 of them: 31 give q, evenly spread over
(0, 1), the last one a sign. The number is the z > 0 which N(0, 1) exceeds, on either side, with
probability q. With w = -log(q (2 - q)) it is z = (1 - q) f(w), and f is so smooth that a ratio of
two polynomials gives z to 1e-5. No branch is taken, so that a processor makes 8 or 16 numbers at
once.
The largest is 6.2.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from fedivon_app.core.compiled import Loop, inner

_GENERATORS = 512  # whose state stays in the nearest cache

u64 = np.uint64
u32 = np.uint32
i32 = np.int32
f32 = np.float32

# f(w), for w from 0 to 22, and log2(1 + x), for x from 0 to 1, from the lowest power up.
_N0, _N1, _N2 = f32(1.2533455522), f32(0.7606347767), f32(0.1924244002)
_N3, _N4, _N5 = f32(0.0309475845), f32(0.0036613477), f32(2.4399252851e-05)
_D1, _D2, _D3, _D4 = f32(0.3453182617), f32(0.0495741970), f32(0.0103808056), f32(0.0003364547)
_L1, _L2, _L3 = f32(1.44254494), f32(-0.71814524), f32(0.45754910)
_L4, _L5, _L6 = f32(-0.27790516), f32(0.12179775), f32(-0.02584140)
_MINUS_LOG2 = f32(-np.log(2))
_GOLDEN, _MIX1, _MIX2 = u64(0x9E3779B97F4A7C15), u64(0xBF58476D1CE4E5B9), u64(0x94D049BB133111EB)
_STEP = f32(2.0**-31)
_HALF_STEP = f32(2.0**-32)
_ONE = f32(1)
_TWO = f32(2)


@inner
def _log2(value: np.float32) -> np.float32:
    """Return the logarithm of a number above 0, by its exponent and a polynomial of the rest."""
    bits = f32(value).view(i32)
    exponent = f32(i32((bits >> i32(23)) - i32(127)))
    x = i32((bits & i32(0x7FFFFF)) | i32(0x3F800000)).view(f32) - _ONE
    rest = x * (_L1 + x * (_L2 + x * (_L3 + x * (_L4 + x * (_L5 + x * _L6)))))
    return exponent + rest


@inner
def _normal(bits: np.uint32) -> np.float32:
    """Return the number of these bits."""
    q = f32(i32(bits >> u32(1))) * _STEP + _HALF_STEP
    w = _MINUS_LOG2 * _log2(q * (_TWO - q))
    above = _N0 + w * (_N1 + w * (_N2 + w * (_N3 + w * (_N4 + w * _N5))))
    below = _ONE + w * (_D1 + w * (_D2 + w * (_D3 + w * _D4)))
    size = (_ONE - q) * (above / below)
    return u32(u32(bits << u32(31)) | f32(size).view(u32)).view(f32)


@Loop
def _begin(seed: int, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    at = u64(seed)
    for part in (a, b, c):
        for j in range(0, part.size, 2):
            at = u64(at + _GOLDEN)
            z = u64((at ^ (at >> u64(30))) * _MIX1)
            z = u64((z ^ (z >> u64(27))) * _MIX2)
            z = u64(z ^ (z >> u64(31)))
            part[j] = u32(z & u64(0xFFFFFFFF))
            part[j + 1] = u32(z >> u64(32))


@inner
def _next(a: np.ndarray, b: np.ndarray, c: np.ndarray, turn: np.uint32, j: int) -> np.uint32:
    """Return 32 bits of the j-th generator in its turn, and move its state."""
    bits = u32(a[j] + b[j] + turn)
    a[j] = b[j] ^ (b[j] >> u32(9))
    b[j] = u32(c[j] + u32(c[j] << u32(3)))
    c[j] = u32(u32(u32(c[j] << u32(21)) | u32(c[j] >> u32(11))) + bits)
    return bits


@Loop
def _fill(a: np.ndarray, b: np.ndarray, c: np.ndarray, turns: np.ndarray, out: np.ndarray) -> None:
    turn = turns[0]
    for start in range(0, out.size, _GENERATORS):
        turn = u32(turn + u32(1))
        part = out[start : start + _GENERATORS]
        for j in range(part.size):
            part[j] = _normal(_next(a, b, c, turn, j))
    turns[0] = turn


@Loop
def _sample(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    turns: np.ndarray,
    noise: np.ndarray,
    mean: np.ndarray,
    scaled: np.ndarray,
    width: float,
    out: np.ndarray,
) -> None:
    turn = turns[0]
    factor = f32(width)
    for start in range(0, noise.size, _GENERATORS):
        turn = u32(turn + u32(1))
        part = noise[start : start + _GENERATORS]
        at_mean = mean[start : start + _GENERATORS]
        at_scaled = scaled[start : start + _GENERATORS]
        at_out = out[start : start + _GENERATORS]
        for j in range(part.size):
            epsilon = _normal(_next(a, b, c, turn, j))
            part[j] = epsilon
            at_out[j] = at_mean[j] + epsilon * (factor / np.sqrt(at_scaled[j]))
    turns[0] = turn


class FusedNormals:
    """Draws normal numbers, by themselves or with the weights that they make."""

    def __init__(self, seed: int):
        a, b, c = (np.empty(_GENERATORS, u32) for _ in range(3))
        _begin(seed, a, b, c)
        turns = np.zeros(1, u32)  # that were taken
        self._state = (a, b, c, turns)

    def fill(self, out: Tensor) -> None:
        """Let a flat vector hold new numbers."""
        a, b, c, turns = self._state
        _fill(a, b, c, turns, out.numpy())

    def sample(
        self, noise: Tensor, *, mean: Tensor, scaled: Tensor, width: float, out: Tensor
    ) -> None:
        """Let `noise` hold new numbers, and `out` mean + width noise/sqrt(scaled)."""
        a, b, c, turns = self._state
        _sample(
            a,
            b,
            c,
            turns,
            noise.numpy(),
            mean.numpy(),
            scaled.numpy(),
            width,
            out.numpy(),
        )
