"""Posteriors in units of their own sigma: `wire.codec: compact`.

What a posterior does not know need not be sent. A mean goes as its change from the reference, the
payload that both sides hold, in steps of `mean_step` of the reference's sigma; a precision as its
ratio to the reference's, beside the ratio that is usual in its tensor, in steps of
`precision_step` octaves. Without a reference both go whole: a
mean in units of its own sigma, a precision as its ratio to the tensor's median. A point has no
sigma: its steps are a share of the root mean square of a tensor's change, or of its weights where
they go whole. Rounding is at random, and keeps the expectation of means and of precisions.

What a server sends to many clients, of whom some hold something and others nothing, is laid on the
steps of a whole payload once (`broadcast`). It goes whole, or by how far it moved on these steps:
either way it is decoded to the same bits.

Extras in the shape of the weights go as points do, from the reference or from zero, whichever is
nearer; batch-norm statistics go in float16, other extras in float32. Full covariances are left to
the raw codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from math import log2

import numpy as np

from fedivon_app.core.codec import Codec, Coded, Payload, Raw
from fedivon_app.core.dense import Dense
from fedivon_app.core.envelope import (
    Envelope,
    Kind,
    check_of,
    malformed,
    named_arrays,
    open_plain,
    plain,
)
from fedivon_app.core.errors import BadReply
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.rounding import Rounding
from fedivon_app.core.vectors import Means, Precisions, Settled, Vectors, rms
from fedivon_app.core.wire_settings import WireSettings

_MOST_PER_OCTAVE = 64
_MOST_ARRAYS = 16  # of a message for which there is no reference


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What all clients of a round are to hold, in the arrays of each way to tell it.

    `payload` is what they will decode, to the bit; `digest` is its digest, by which they can tell
    that it is. `whole` are the arrays for who holds nothing.
    """

    payload: Payload
    digest: str
    whole: dict[str, np.ndarray]
    _codec: Compact
    _settled: Mapping[str, Settled]

    def change(self, held: Payload) -> dict[str, np.ndarray]:
        """Return the arrays for who holds this payload; those that have no steps stay whole."""
        known = _by_name(held)
        check = check_of(held)
        arrays = dict(self.whole)
        for name, settled in self._settled.items():
            if name in known and known[name].shape == settled.values.shape:
                whole = Envelope.open(name, self.whole[name])
                body = self._codec.vectors.encode(settled, known[name])
                moved = replace(whole, kind=Kind.MOVE, body=body, reference=check)
                arrays[name] = moved.seal(name)
        return arrays


@dataclass(frozen=True)
class Compact:
    """The codec for weights that lie in tensors of these sizes, one after the other.

    `entropy` are the numbers that rounding depends on: each message has its own, by `seeded`. None
    is for rounding to the nearest step.
    """

    settings: WireSettings
    sizes: tuple[int, ...]
    entropy: tuple[int, ...] | None = (0,)

    @classmethod
    def of(cls, settings: WireSettings, blocks: Iterable[slice]) -> Compact:
        """Return the codec for tensors in these places, as Flat and Architecture have them."""
        sizes = []
        end = 0
        for block in blocks:
            if block.start != end or block.stop < end:
                raise ValueError(f"tensors follow each other, but {block} does not begin at {end}")
            sizes.append(block.stop - block.start)
            end = block.stop
        return cls(settings, tuple(sizes))

    def seeded(self, *entropy: int) -> Compact:
        """Return the codec of one message, by the run's seed, the round, the partition."""
        return replace(self, entropy=entropy)

    def nearest(self) -> Compact:
        """Return the codec that rounds to the nearest step.

        It is for a sender who adds what rounding left over to the next message: what is left over
        then never adds up, and what changes less than half a step costs nothing.
        """
        return replace(self, entropy=None)

    def encode(self, payload: Payload, reference: Payload | None = None) -> dict[str, np.ndarray]:
        """Return the payload's arrays by name, in the order of the wire."""
        return self.coded(payload, reference).arrays

    def coded(self, payload: Payload, reference: Payload | None = None) -> Coded:
        """Return the payload's arrays, with the payload that they will be decoded to.

        A reference that has other arrays than the payload counts as none.
        """
        if isinstance(payload.posterior, Dense):
            arrays = Raw().encode(payload)
            return Coded(arrays, Raw().decode(arrays))
        return self._laid(payload, reference).coded

    def broadcast(self, payload: Payload) -> Broadcast:
        """Return the payload on the nearest steps, ready to be sent to who holds what."""
        if isinstance(payload.posterior, Dense):
            arrays = Raw().encode(payload)
            exact = Raw().decode(arrays)
            return Broadcast(exact, digest(exact), arrays, self, {})
        laid = self.nearest()._laid(payload, None)
        decoded = laid.coded.decoded
        return Broadcast(decoded, digest(decoded), laid.coded.arrays, self, laid.settled)

    def _laid(self, payload: Payload, reference: Payload | None) -> _Laid:
        given = dict(named_arrays(payload))
        if given["mean"].shape != self._shape:
            raise ValueError(f"{len(given['mean'])} weights do not fit tensors of {self._shape[0]}")
        known = None if reference is None else _by_name(reference)
        if known is not None and _shapes(known) != _shapes(given):
            known = None
        check = 0 if reference is None or known is None else check_of(reference)
        rounding = None if self.entropy is None else Rounding(self.entropy)
        sealed = {}
        steps = {}
        found: dict[str, np.ndarray] = {}
        for name in _precision_first(given):
            values = given[name]
            if name == "buffers" or values.shape != self._shape:
                envelope = plain(values, half=name == "buffers")
                found[name] = open_plain(name, envelope)
            else:
                how = self._how(name, known, found)
                if known is not None and name not in ("mean", "precision"):
                    how = _nearer(how, values)
                settled = self.vectors.settle(values, how, rounding)
                rounding = None if rounding is None else rounding.after(self.vectors.size)
                steps[name] = settled
                found[name] = settled.values
                envelope = Envelope(
                    kind=Kind.WHOLE if how.base is None else Kind.CHANGE,
                    body=self.vectors.encode(settled),
                    step=1 / how.per_octave if isinstance(how, Precisions) else how.step,
                    reference=0 if how.base is None else check,
                )
            sealed[name] = envelope.seal(name)
        arrays = {name: sealed[name] for name in given}
        return _Laid(Coded(arrays, _payload(given, found)), steps)

    def decode(self, arrays: Mapping[str, np.ndarray], reference: Payload | None = None) -> Payload:
        """Return the payload; bytes that are none, or do not fit the reference, are a BadReply."""
        if _is_dense(arrays, reference):
            return _raw(arrays, reference)
        known = None if reference is None else _by_name(reference)
        told = ", ".join(arrays) or "none"
        if known is not None and list(arrays) != list(known):
            raise malformed(f"has the arrays {told}, not {', '.join(known)}")
        if "mean" not in arrays or len(arrays) > _MOST_ARRAYS:
            raise malformed(f"has the arrays {told[:200]}, not a mean and a few others")
        check = None if reference is None else check_of(reference)
        found: dict[str, np.ndarray] = {}
        for name in _precision_first(arrays):
            envelope = Envelope.open(name, arrays[name])
            shape = self._shape if name in ("mean", "precision") else None
            if known is not None:
                shape = known[name].shape
            if envelope.kind is Kind.PLAIN:
                found[name] = open_plain(name, envelope)
            elif name == "buffers" or shape not in (None, self._shape):
                raise malformed(f"{name} is coded as weights are, and is none")
            elif envelope.kind is not Kind.WHOLE and envelope.reference != check:
                raise malformed(f"{name} is a change to something else than what is held here")
            else:
                how = self._how(name, known if envelope.kind is Kind.CHANGE else None, found)
                how = _with_step(how, envelope.step)
                held = known[name] if known and envelope.kind is Kind.MOVE else None
                found[name] = self.vectors.decode(name, envelope.body, how, held)
            if shape is not None and found[name].shape != shape:
                raise malformed(f"{name} has shape {found[name].shape}, not {shape}")
        payload = _payload(arrays, found)
        if fault := payload.fault():
            raise BadReply(fault)
        return payload

    @cached_property
    def vectors(self) -> Vectors:
        """Return what codes vectors over the weights."""
        return Vectors(self.sizes)

    @property
    def _shape(self) -> tuple[int]:
        return (self.vectors.size,)

    def _how(
        self,
        name: str,
        known: Mapping[str, np.ndarray] | None,
        found: Mapping[str, np.ndarray],
    ) -> Means | Precisions:
        """Return where the steps of an array lie, from what is known or, if nothing is, whole.

        `found` has the precision that was decoded, if there is one.
        """
        base = None if known is None else known[name]
        if name == "precision":
            return Precisions(round(1 / self.settings.precision_step), base)
        precision = (found if known is None else known).get("precision")
        if name == "mean" and precision is not None:
            with np.errstate(all="ignore"):
                sigma = np.float32(1) / np.sqrt(precision)
            return Means(self.settings.mean_step, base, sigma, self.settings.largest_step)
        whole = known is None
        return Means(self.settings.whole_point_step if whole else self.settings.point_step, base)


@dataclass(frozen=True, eq=False)
class _Laid:
    """A message, and the vectors of it that lie on steps."""

    coded: Coded
    settled: Mapping[str, Settled]


def codec_of(settings: WireSettings, blocks: Iterable[slice]) -> Codec:
    """Return the codec of the settings, for tensors in these places."""
    return Raw() if settings.codec == "raw" else Compact.of(settings, blocks)


def digest(payload: Payload) -> str:
    """Return a digest of all numbers of a payload, by which two sides can tell it is the same."""
    total = sha256()
    for name, array in Raw().encode(payload).items():
        total.update(f"{name} {array.shape} ".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()[:32]


def _by_name(payload: Payload) -> dict[str, np.ndarray]:
    return dict(named_arrays(payload))


def _shapes(arrays: Mapping[str, np.ndarray]) -> list[tuple[str, Sequence[int]]]:
    return [(name, array.shape) for name, array in arrays.items()]


def _precision_first(names: Iterable[str]) -> list[str]:
    """Return the names in the order of decoding: a precision says what the unit of a mean is."""
    return sorted(names, key=lambda name: name != "precision")


def _nearer(how: Means | Precisions, values: np.ndarray) -> Means | Precisions:
    """Return the steps of a change, or as many from zero if the values are nearer to that."""
    if how.base is None:
        return how
    with np.errstate(all="ignore"):
        change = rms(values - how.base)
    return how if change <= rms(values) else replace(how, base=None)


def _with_step(how: Means | Precisions, step: float) -> Means | Precisions:
    """Return the same with the step that a message tells."""
    if isinstance(how, Means):
        return replace(how, step=step)
    if not 1 / _MOST_PER_OCTAVE <= step <= 1 or log2(step) % 1:
        raise malformed(f"precision has a step of {step} octaves, not a power of two up to 1")
    return replace(how, per_octave=round(1 / step))


def _is_dense(arrays: Mapping[str, np.ndarray], reference: Payload | None) -> bool:
    if reference is not None:
        return isinstance(reference.posterior, Dense)
    return "precision" in arrays and arrays["precision"].ndim == 2


def _raw(arrays: Mapping[str, np.ndarray], reference: Payload | None) -> Payload:
    try:
        return Raw().decode(arrays, reference)
    except BadReply:
        raise
    except (KeyError, ValueError) as error:
        raise malformed(f"is no full-covariance posterior: {error}") from None


def _payload(names: Iterable[str], found: Mapping[str, np.ndarray]) -> Payload:
    arrays = {name: found[name] for name in names}
    posterior = Posterior(arrays.pop("mean"), arrays.pop("precision", None))
    return Payload(posterior, arrays.pop("buffers", None), arrays)
