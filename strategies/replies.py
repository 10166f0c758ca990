"""Replies as they come over the wire: which are good, which are dropped and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from math import isfinite, prod
from mmap import ACCESS_READ, MADV_DONTNEED, mmap
from tempfile import TemporaryFile
from typing import IO, Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic

from fedivon_app.core.codec import Codec, Payload, Raw
from fedivon_app.core.errors import BadReply, Fault, FaultKind
from fedivon_app.strategies.base import Reply

_LONGEST_HEADER = 1 << 16  # bytes before an array's values
Kind = TypeVar("Kind", ArrayRecord, ConfigRecord, MetricRecord)


@dataclass(frozen=True)
class Replies:
    """A round's replies.

    `good` are in partition order, `dropped` says why others were left out, `num_bytes` counts those
    of all, and `silent` has what clients said that trained without being asked for a report.
    """

    good: list[Reply]
    dropped: dict[int, Fault]
    num_bytes: int
    silent: dict[int, dict[str, Any]] = field(default_factory=dict)

    def all_dropped_for(self, kind: FaultKind) -> bool:
        """Tell whether there is no good reply, and every other one has a fault of this kind."""
        kinds = {fault.kind for fault in self.dropped.values()}
        return not self.good and kinds == {kind}


@dataclass(frozen=True)
class _Place:
    """Where an array lies in the shelf's file."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass
class Shelf:
    """Arrays in a file without a name, so that memory need not hold all of a round's replies.

    It lies where temporary files go. What is looked at is mapped into memory. The next look lets go
    of those pages: who still has them reads them again.
    """

    _file: IO[bytes] = field(default_factory=TemporaryFile)
    _map: mmap | None = None

    def put(self, arrays: Mapping[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
        """Store the arrays, and return what gives them back, read-only."""
        places = {}
        for name, array in arrays.items():
            places[name] = _Place(self._file.tell(), array.dtype, array.shape)
            self._file.write(np.ascontiguousarray(array).data)
        self._file.flush()
        self._map = None
        return partial(self._look, places)

    def _look(self, places: Mapping[str, _Place]) -> dict[str, np.ndarray]:
        mapped = self._map or mmap(self._file.fileno(), 0, access=ACCESS_READ)
        self._map = mapped
        mapped.madvise(MADV_DONTNEED)
        found = {}
        for name, place in places.items():
            count = prod(place.shape)
            values = np.frombuffer(mapped, dtype=place.dtype, count=count, offset=place.offset)
            found[name] = values.reshape(place.shape)
        return found


def sort_out(
    messages: Iterable[Message],
    partition_of: Mapping[int, int],
    *,
    codec: Codec,
    sent: Payload,
    sizes: Mapping[int, int] | None = None,
    reporting: Container[int] | None = None,
    with_loss: bool = True,
) -> Replies:
    """Return a round's replies, sorted into good and dropped ones.

    `partition_of` has the nodes that were asked, by node id; who did not answer is among the
    dropped. `reporting` are the partitions that were asked for a posterior, None for all; the
    others only say that they trained. `sizes` are the numbers of examples that clients told in the
    roll call, by partition: these count, and who tells more in a reply is dropped. `with_loss` says
    that clients tell their loss, which those of a private run do not.
    """
    good: list[Reply] = []
    dropped: dict[int, Fault] = {}
    silent: dict[int, dict[str, Any]] = {}
    total = 0
    shelf = Shelf()
    for message in messages:
        partition = partition_of.get(message.metadata.src_node_id)
        if partition is None:  # Flower's word about a node that is gone comes from nobody
            continue
        if message.has_error():
            dropped[partition] = Fault(FaultKind.CLIENT_ERROR, reason(message))
        elif reporting is not None and partition not in reporting:
            silent[partition] = dict(message.content.get("metrics", MetricRecord()))
        else:
            total += num_bytes(message.content.get("posterior"))
            try:
                reply = _read(
                    partition, message, codec=codec, sent=sent, shelf=shelf, with_loss=with_loss
                )
                good.append(_with_size(reply, sizes))
            except BadReply as error:
                dropped[partition] = error.fault
    answered = {reply.partition for reply in good} | set(dropped) | set(silent)
    for partition in partition_of.values():
        if partition not in answered:
            dropped[partition] = Fault(FaultKind.NO_REPLY, "no reply in time")
    return Replies(
        good=sorted(good, key=lambda reply: reply.partition),
        dropped=dict(sorted(dropped.items())),
        num_bytes=total,
        silent=silent,
    )


def _read(
    partition: int,
    message: Message,
    *,
    codec: Codec,
    sent: Payload,
    shelf: Shelf,
    with_loss: bool = True,
) -> Reply:
    """Return the reply, put on the shelf; what is wrong with it is a BadReply."""
    record = record_of(message, "posterior", ArrayRecord)
    metrics = record_of(message, "metrics", MetricRecord)
    payload = codec.decode(to_numpy(record), sent)
    num_examples = number_of(metrics, "num-examples")
    if with_loss:
        number_of(metrics, "loss")
    if num_examples < 1 or num_examples % 1:
        raise malformed(f"num-examples is {num_examples}, not a whole number of at least 1")
    if fault := payload.fault():
        raise BadReply(fault)
    stored = shelf.put(Raw().encode(payload))
    return Reply(
        partition=partition,
        num_examples=int(num_examples),
        num_bytes=num_bytes(record),
        source=lambda: Raw().decode(stored()),
        metrics={name: value for name, value in metrics.items() if name != "num-examples"},
    )


def _with_size(reply: Reply, sizes: Mapping[int, int] | None) -> Reply:
    """Return the reply with the size of the roll call; one that claims more is a BadReply."""
    if sizes is None or reply.partition not in sizes:
        return reply
    known = sizes[reply.partition]
    if reply.num_examples > known:
        text = f"num-examples is {reply.num_examples}, but in the roll call it was {known}"
        raise BadReply(Fault(FaultKind.OUT_OF_BOUNDS, text, where="num-examples"))
    return replace(reply, num_examples=known)


def malformed(text: str) -> BadReply:
    """Return the error for a reply of which a part is missing, or is no such thing."""
    return BadReply(Fault(FaultKind.MALFORMED, text))


def record_of(message: Message, name: str, kind: type[Kind]) -> Kind:
    """Return the record of this name and kind in a message; its lack is a BadReply."""
    record = message.content.get(name)
    if not isinstance(record, kind):
        raise malformed(f"the reply lacks {name!r} of the kind {kind.__name__}")
    return record


def number_of(metrics: MetricRecord, name: str) -> float:
    """Return a finite number that a reply tells under this name; its lack is a BadReply."""
    value = metrics.get(name)
    if value is None:
        raise malformed(f"the reply lacks {name!r}")
    if not isinstance(value, int | float):
        raise malformed(f"{name} is {value}, not a number")
    if not isfinite(value):
        text = f"{name} is {value}, not finite"
        raise BadReply(Fault(FaultKind.NOT_FINITE, text, where=name))
    return value


def to_numpy(record: ArrayRecord) -> dict[str, np.ndarray]:
    """Return the arrays as they lie in the message, read-only, without a copy."""
    return {name: _view(name, array) for name, array in record.items()}


def _view(name: str, array: Array) -> np.ndarray:
    """Return one array; Flower sends arrays as .npy files."""
    stream = BytesIO(array.data[:_LONGEST_HEADER])
    readers = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}
    try:
        shape, fortran, dtype = readers[read_magic(stream)](stream)
        values = np.frombuffer(array.data, dtype, offset=stream.tell())
        return values.reshape(shape, order="F" if fortran else "C")
    except (KeyError, ValueError) as error:
        raise malformed(f"{name} is no array: {error}") from None


def to_record(arrays: Mapping[str, np.ndarray]) -> ArrayRecord:
    """Return the arrays as Flower sends them."""
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def num_bytes(record: object) -> int:
    """Return the bytes of the arrays in a record; nothing else is counted."""
    if not isinstance(record, ArrayRecord):
        return 0
    return sum(len(array.data) for array in record.values())


def reason(message: Message) -> str:
    """Return the last line of a client's error: the exception's own text.

    SuperNodes send it as <class 'X'>:<'text'>, and simulated clients as Exception Y occurred.
    Message: text'>.
    """
    lines = [line.strip() for line in str(message.error.reason or "").splitlines() if line.strip()]
    if not lines:
        return f"error code {message.error.code}"
    if wrapped := re.fullmatch(r"<class '([\w.]+)'>:<(['\"])(.*)\2>", lines[-1]):
        return f"{wrapped[1]}: {wrapped[3]}"
    simulated = re.fullmatch(r"Exception \w+ occurred\. Message: (.*?)(?:['\"]>)?", lines[-1])
    return simulated[1] if simulated else lines[-1]
