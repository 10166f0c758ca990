"""The way down: what the server sends to whom, and what it remembers of that.

Raw, each client is sent the server's payload G as it is. Compact, what is sent is B(G), which is G
on the nearest steps of the codec: a function of G alone, whoever it goes to. It is told

- whole, to a client that is not known to hold anything;
- by how far it moved on these steps, to one that holds an earlier B which the server still has.

Both are decoded to the same bits, which the message names by their digest. So all clients of a
round start from one payload, their replies have one reference, and neither a node that comes back
nor a run that is resumed changes a number: they cost a whole message. A client is known to hold a B
when it answered the message that brought it, and no longer when it fails to answer one.

Clients train from B, and what is merged is a step away from B. What rounding left over, G - B, goes
into the server's next payload: G' = merged + (G - B) for means and extras, merged * (G / B) for
precisions. What is left over never adds up, and steps too small for one round are not lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedivon_app.core.codec import Codec, Payload
from fedivon_app.core.compact import Broadcast, Compact
from fedivon_app.core.dense import Dense
from fedivon_app.core.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Parcel:
    """The coded arrays for one client; digests of what they say, and of what they change.

    Without arrays it is sent the payload as it is.
    """

    arrays: dict[str, np.ndarray] | None = None
    sent: str | None = None
    held: str | None = None


class Downlink(Protocol):
    """How the server's payload comes to the clients."""

    def received(self, payload: Payload) -> Payload:
        """Return what clients have that were sent this payload."""

    def parcel(self, payload: Payload, node_id: int) -> Parcel:
        """Return what one client is sent."""

    def note(self, payload: Payload, answered: Mapping[int, bool]) -> None:
        """Take note of the nodes that were sent this payload, and of which of them answered."""

    def carried(self, payload: Payload, merged: Payload) -> Payload:
        """Return the next payload, given what the replies to this one were merged to."""


def downlink_of(codec: Codec, remembered: int) -> Downlink:
    """Return the way down that belongs to a codec."""
    return CompactDownlink(codec, remembered) if isinstance(codec, Compact) else RawDownlink()


class RawDownlink:
    """All are sent the payload as it is."""

    def received(self, payload: Payload) -> Payload:
        """Return the payload itself."""
        return payload

    def parcel(self, payload: Payload, node_id: int) -> Parcel:
        """Return nothing but that."""
        return Parcel()

    def note(self, payload: Payload, answered: Mapping[int, bool]) -> None:
        """Take no note, for nothing depends on what a client holds."""

    def carried(self, payload: Payload, merged: Payload) -> Payload:
        """Return what was merged."""
        return merged


class CompactDownlink:
    """Each is sent what it lacks.

    `remembered` is how many payloads the server keeps that it sent, the newest included. What it
    keeps is in memory alone: after a resume all clients are sent a whole payload.
    """

    def __init__(self, codec: Compact, remembered: int):
        self.codec = codec
        self.remembered = remembered
        self._exact: Payload | None = None
        self._broadcast: Broadcast | None = None
        self._parcels: dict[str | None, Parcel] = {}  # of the broadcast, by what is held
        self._recent: dict[str, Payload] = {}  # by digest, oldest first
        self._held: dict[int, str] = {}  # by node

    def received(self, payload: Payload) -> Payload:
        """Return the payload on its steps."""
        return self._broadcast_of(payload).payload

    def parcel(self, payload: Payload, node_id: int) -> Parcel:
        """Return the change to what the node holds, or the whole where that is not longer."""
        broadcast = self._broadcast_of(payload)
        held = self._held.get(node_id)
        if held not in self._recent:
            held = None
        if held not in self._parcels:
            self._parcels[held] = self._made(broadcast, held)
        return self._parcels[held]

    def note(self, payload: Payload, answered: Mapping[int, bool]) -> None:
        """Note what nodes hold; of one that did not answer nothing is known."""
        digest = self._broadcast_of(payload).digest
        for node_id, well in answered.items():
            if well:
                self._held[node_id] = digest
            else:
                self._held.pop(node_id, None)

    def carried(self, payload: Payload, merged: Payload) -> Payload:
        """Return what was merged, with what rounding left over of the payload."""
        sent = self.received(payload)
        return Payload(
            posterior=_with_rest(merged.posterior, payload.posterior, sent.posterior),
            buffers=merged.buffers,
            extras={
                name: array + (payload.extras[name] - sent.extras[name])
                if name in sent.extras
                else array
                for name, array in merged.extras.items()
            },
        )

    def _broadcast_of(self, payload: Payload) -> Broadcast:
        if self._broadcast is None or payload is not self._exact:
            self._broadcast = self.codec.broadcast(payload)
            self._exact = payload
            self._parcels = {}
            self._recent.pop(self._broadcast.digest, None)
            self._recent[self._broadcast.digest] = self._broadcast.payload
            for old in list(self._recent)[: -self.remembered]:
                del self._recent[old]
        return self._broadcast

    def _made(self, broadcast: Broadcast, held: str | None) -> Parcel:
        whole = Parcel(broadcast.whole, sent=broadcast.digest)
        if held is None:
            return whole
        arrays = broadcast.change(self._recent[held])
        change = Parcel(arrays, sent=broadcast.digest, held=held)
        return change if _num_bytes(arrays) < _num_bytes(broadcast.whole) else whole


def _num_bytes(arrays: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays.values())


def _with_rest(merged: Posterior, exact: Posterior, sent: Posterior) -> Posterior:
    """Return what was merged, with what rounding left over between `exact` and `sent`."""
    if isinstance(merged, Dense):
        return merged  # it travels exactly
    mean = merged.mean + (exact.mean - sent.mean)
    if merged.precision is None:
        return Posterior(mean)
    ratio: np.ndarray = exact.known_precision / sent.known_precision
    return Posterior(mean, merged.precision * ratio)
