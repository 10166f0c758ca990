"""Replies as they come over the wire: which are good, which are dropped and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from math import isfinite, prod
from mmap import ACCESS_READ, MADV_DONTNEED, mmap
from tempfile import TemporaryFile
from typing import IO, Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic

from fedivon_app.core.codec import Codec, Payload
from fedivon_app.core.posterior import Posterior

_LONGEST_HEADER = 1 << 16  # bytes before an array's values
Kind = TypeVar("Kind", ArrayRecord, ConfigRecord, MetricRecord)


@dataclass(frozen=True)
class Reply:
    """A good reply of one client."""

    partition: int
    num_examples: int
    num_bytes: int
    source: (
        Payload | Callable[[], Payload]
    )  # what was sent, or what reads it from a shelf, whenever it is asked for
    metrics: dict[str, Any]

    @property
    def payload(self) -> Payload:
        return self.source() if callable(self.source) else self.source

    @property
    def posterior(self) -> Posterior:
        return self.payload.posterior


@dataclass(frozen=True)
class Replies:
    """A round's replies: the good ones in partition order, why others were dropped, how many of these were errors, the
    bytes of all, and who trained without being asked for a report."""

    good: list[Reply]
    dropped: dict[int, str]
    num_errors: int
    num_bytes: int
    silent: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Shelf:
    """Arrays in a file without a name, where temporary files go, so that memory need not hold all of a round's replies.

    What is looked at is mapped into memory. The next look lets go of those pages: who still has them reads them again.
    """

    _file: IO[bytes] = field(default_factory=TemporaryFile)
    _map: mmap | None = None

    def put(self, arrays: Mapping[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
        """Stores the arrays; what it returns gives them back, read-only."""
        places = {}
        for name, array in arrays.items():
            places[name] = self._file.tell(), array.dtype, array.shape
            self._file.write(np.ascontiguousarray(array))
        self._file.flush()
        self._map = None
        return partial(self._look, places)

    def _look(
        self, places: dict[str, tuple[int, np.dtype, tuple[int, ...]]]
    ) -> dict[str, np.ndarray]:
        self._map = self._map or mmap(self._file.fileno(), 0, access=ACCESS_READ)
        self._map.madvise(MADV_DONTNEED)
        return {
            name: np.frombuffer(self._map, dtype, prod(shape), offset).reshape(shape)
            for name, (offset, dtype, shape) in places.items()
        }


def sort_out(
    messages: Iterable[Message],
    partition_of: dict[int, int],
    codec: Codec,
    sent: Payload,
    reporting: Container[int] | None = None,
) -> Replies:
    """`partition_of` has the nodes that were asked, by node id; who did not answer is among the dropped.

    `reporting` are the partitions that were asked for a posterior, None for all; the others only say that they trained.
    """
    good = []
    dropped = {}
    silent = {}
    errors = 0
    total = 0
    shelf = Shelf()
    for message in messages:
        partition = partition_of.get(message.metadata.src_node_id)
        if (
            partition is None
        ):  # Flower's own word about a node that is gone comes from nobody; its silence counts
            continue
        if message.has_error():
            dropped[partition] = reason(message)
            errors += 1
            continue
        if reporting is not None and partition not in reporting:
            silent[partition] = dict(message.content.get("metrics", MetricRecord()))
            continue
        total += num_bytes(message.content.get("posterior"))
        outcome = _read(partition, message, codec, sent, shelf)
        if isinstance(outcome, Reply):
            good.append(outcome)
        else:
            dropped[partition] = outcome
    answered = {reply.partition for reply in good} | set(dropped) | set(silent)
    dropped |= {
        partition: "no reply in time"
        for partition in partition_of.values()
        if partition not in answered
    }
    in_order = sorted(good, key=lambda reply: reply.partition), dict(sorted(dropped.items()))
    return Replies(*in_order, errors, total, silent)


def _read(
    partition: int, message: Message, codec: Codec, sent: Payload, shelf: Shelf
) -> Reply | str:
    """The reply, put on the shelf, or what is wrong with it."""
    try:
        record = record_of(message, "posterior", ArrayRecord)
        metrics = record_of(message, "metrics", MetricRecord)
        arrays = to_numpy(record)
        payload = codec.decode(arrays, sent)
        num_examples, _ = (_number(metrics, name) for name in ("num-examples", "loss"))
    except ValueError as error:
        return str(error)
    if num_examples < 1 or num_examples % 1:
        return f"num-examples is {num_examples}, not a whole number of at least 1"
    if fault := payload.fault():
        return fault
    stored = shelf.put(arrays)
    told = {name: value for name, value in metrics.items() if name != "num-examples"}
    return Reply(
        partition, int(num_examples), num_bytes(record), lambda: codec.decode(stored(), sent), told
    )


def record_of(message: Message, name: str, kind: type[Kind]) -> Kind:
    """The record of this name and kind in a message."""
    record = message.content.get(name)
    if not isinstance(record, kind):
        raise ValueError(f"the reply lacks {name!r} of the kind {kind.__name__}")
    return record


def _number(metrics: MetricRecord, name: str) -> float:
    value = metrics.get(name)
    if not isinstance(value, int | float):
        raise ValueError(
            f"the reply lacks {name!r}" if value is None else f"{name} is {value}, not a number"
        )
    if not isfinite(value):
        raise ValueError(f"{name} is {value}, not finite")
    return value


def to_numpy(record: ArrayRecord) -> dict[str, np.ndarray]:
    """The arrays as they lie in the message, read-only, without a copy."""
    return {name: _view(name, array) for name, array in record.items()}


def _view(name: str, array: Array) -> np.ndarray:
    """Flower sends arrays as .npy files."""
    stream = BytesIO(array.data[:_LONGEST_HEADER])
    try:
        read = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}[read_magic(stream)]
        shape, fortran, dtype = read(stream)
        values = np.frombuffer(array.data, dtype, offset=stream.tell())
        return values.reshape(shape, order="F" if fortran else "C")
    except (KeyError, ValueError) as error:
        raise ValueError(f"{name} is no array: {error}") from None


def to_record(arrays: dict[str, np.ndarray]) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def num_bytes(record: Any) -> int:
    """Of the arrays in a record; nothing else is counted."""
    return (
        sum(len(array.data) for array in record.values()) if isinstance(record, ArrayRecord) else 0
    )


def reason(message: Message) -> str:
    """The last line of a client's error: the exception's own text, which SuperNodes send as <class 'X'>:<'text'> and
    simulated clients as Exception Y occurred. Message: text'>."""
    lines = [line.strip() for line in str(message.error.reason or "").splitlines() if line.strip()]
    if not lines:
        return f"error code {message.error.code}"
    if wrapped := re.fullmatch(r"<class '([\w.]+)'>:<(['\"])(.*)\2>", lines[-1]):
        return f"{wrapped[1]}: {wrapped[3]}"
    simulated = re.fullmatch(r"Exception \w+ occurred\. Message: (.*?)(?:['\"]>)?", lines[-1])
    return simulated[1] if simulated else lines[-1]
