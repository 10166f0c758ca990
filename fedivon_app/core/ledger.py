"""What has been spent of the privacy of a site's data, by data and not by run.

There is a file for each data set, named by the digest of its training examples, to which a line is
added for every release, with the disk's word that it is there, before the release is made: a
process that dies in between has paid for what it did not send. Costs add up over all runs and
restarts. A line that was cut off belongs to a release that was never made.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedivon_app.core.accountant import NO_COST, epsilon_of, pure_cost, step_cost
from fedivon_app.core.errors import Refused, RunError
from fedivon_app.core.secure_random import SecureRandom

TINY = 1e-9  # by which a sum of costs may exceed a limit that it was planned for


@dataclass(frozen=True)
class Steps:
    """A round's noisy gradients: so many steps at a sampling rate, with a noise multiplier."""

    run: str
    round: int
    method: str
    noise: float
    rate: float
    steps: int
    clip_norm: float

    @property
    def cost(self) -> np.ndarray:
        """Return what they cost, over the accountant's orders."""
        return self.steps * step_cost(self.noise, self.rate)


@dataclass(frozen=True)
class Size:
    """The noisy number of examples, which is drawn once and told as often as it is asked for."""

    run: str
    value: int
    epsilon: float

    @property
    def cost(self) -> np.ndarray:
        """Return what it cost, over the accountant's orders."""
        return pure_cost(self.epsilon)


Release = Steps | Size
KINDS: dict[str, type[Release]] = {"steps": Steps, "size": Size}


@dataclass(frozen=True)
class Limit:
    """What may be spent of a data set's privacy in all, at a delta; None: anything."""

    epsilon: float | None = None
    delta: float = 1e-5


@dataclass(frozen=True)
class Account:
    """The releases of one data set, in a file, and how much may be spent."""

    path: Path
    limit: Limit = field(default_factory=Limit)

    def releases(self) -> list[Release]:
        """Return all that was released so far."""
        try:
            lines = self.path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        return [self._read(number, line) for number, line in enumerate(lines, 1)]

    def spent(self, delta: float | None = None, run: str | None = None) -> float:
        """Return the epsilon of all releases, or of those of one run."""
        own = [one for one in self.releases() if run is None or one.run == run]
        return self.spent_on(own, self.limit.delta if delta is None else delta)

    @staticmethod
    def spent_on(releases: list[Release], delta: float) -> float:
        """Return the epsilon of these releases."""
        return epsilon_of(_cost(releases), delta)

    def size(self, true: int, epsilon: float, run: str) -> int:
        """Return the noisy number of examples, which is drawn and paid for the first time."""
        with self._locked() as file:
            for one in self.releases():
                if isinstance(one, Size):
                    return one.value
            value = SecureRandom().noisy_count(true, epsilon)
            self._charge(file, Size(run=run, value=value, epsilon=epsilon))
        return value

    def charge(self, release: Steps, *, epsilon: float, delta: float) -> float:
        """Pay for a release, and return the epsilon of its run so far.

        A run may spend `epsilon` on the data. What was paid for their size counts for every run.
        """
        with self._locked() as file:
            own = [
                one for one in self.releases() if isinstance(one, Size) or one.run == release.run
            ]
            after = epsilon_of(_cost([*own, release]), delta)
            if after > epsilon + TINY:
                raise Refused(
                    f"round {release.round} would take this client beyond the privacy.epsilon of "
                    f"the run, {after:.4g} of {epsilon:g}: it was asked more often than planned"
                )
            self._charge(file, release)
        return after

    def _charge(self, file: IO[bytes], release: Release) -> None:
        """Add a line, unless the limit forbids it; it is on the disk when this returns."""
        limit = self.limit
        after = epsilon_of(_cost([*self.releases(), release]), limit.delta)
        if limit.epsilon is not None and after > limit.epsilon + TINY:
            raise Refused(
                f"the privacy of this site's data is spent: {self.spent():.4g} of epsilon "
                f"{limit.epsilon:g} at delta {limit.delta:g}, and this would make it {after:.4g}; "
                "`fedivon ledger` at the site shows on what"
            )
        kind = next(name for name, one in KINDS.items() if type(release) is one)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = {"time": now, "kind": kind, **asdict(release)}
        file.write(json.dumps(line).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        """Give the file to one process at a time, to be written to after its last whole line."""
        is_new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if is_new:
                _sync_folder(self.path.parent)
            whole = self.path.read_bytes().rfind(b"\n") + 1
            file.truncate(whole)
            yield file

    def _read(self, number: int, line: bytes) -> Release:
        try:
            values = json.loads(line)
            return _release(values)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RunError(
                f"the ledger {self.path} is damaged in line {number}: nothing more is released of "
                "these data until it is set right from a backup"
            ) from None


@dataclass(frozen=True)
class Ledger:
    """The accounts of a site's data sets, in a folder."""

    folder: Path
    limit: Limit = field(default_factory=Limit)

    def account(self, data: str) -> Account:
        """Return the account of the data of this digest."""
        return Account(self.folder / f"{data}.jsonl", self.limit)

    def accounts(self) -> dict[str, Account]:
        """Return all accounts by the digests of their data."""
        return {path.stem: self.account(path.stem) for path in sorted(self.folder.glob("*.jsonl"))}


def digest_of(inputs: np.ndarray, labels: np.ndarray) -> str:
    """Return the digest of examples, by which their ledger is found."""
    found = sha256()
    for array in (inputs, labels):
        whole = np.ascontiguousarray(array)
        found.update(f"{whole.dtype.str} {whole.shape};".encode())
        found.update(whole.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _release(values: Mapping[str, Any]) -> Release:
    kind = KINDS[values["kind"]]
    return kind(**{name: value for name, value in values.items() if name not in ("time", "kind")})


def _cost(releases: list[Release]) -> np.ndarray:
    return sum((one.cost for one in releases), NO_COST)


def _sync_folder(folder: Path) -> None:
    """Have a new name in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
