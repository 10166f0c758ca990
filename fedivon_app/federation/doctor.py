"""Whether a site can take part, and what to do where it cannot: behind `fedivon doctor`.

Every check says what it found in one line; what is wrong comes with what would be right. Nothing is
sent to the SuperLink but requests for /health and for a path that sites should not reach.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPSConnection
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedivon_app.core.errors import DataError
from fedivon_app.core.files import default_state_root
from fedivon_app.core.text import one_line
from fedivon_app.federation.findings import Finding, failure, ok, warning
from fedivon_app.federation.policy_check import policy_findings
from fedivon_app.plurals import counted

if TYPE_CHECKING:
    from fedivon_app.core.settings import AnySettings
    from fedivon_app.datasets.base import Source

GIGABYTE = 2**30
# Seconds by which a node's clock may differ: Flower refuses what is signed outside of them.
AHEAD = 5
BEHIND = 300
KEYS_AGAIN = "ask whoever admits sites for the folder that `fedivon keys` made, and copy all of it"


@dataclass(frozen=True)
class Wanted:
    """What an experiment wants of a site's data: the shape of an input, and classes at most."""

    experiment: str
    shape: tuple[int, ...]
    num_classes: int
    settings: AnySettings | None = None


def examine(
    data: Path | None = None,
    keys: Path | None = None,
    superlink: str | None = None,
    state: Path | None = None,
    wanted: Wanted | None = None,
    node: Mapping[str, Any] | None = None,
) -> Iterator[Finding]:
    """Make all checks that what is given allows; a check that fails by itself is a finding too.

    `wanted` is what the data are to fit, `node` the config in which a site says what it allows.
    """
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "environment": _environment,
        "state": lambda: _state(state or default_state_root()),
    }
    if node:
        checks["policy"] = lambda: policy_findings(node)
    if data:
        checks["data"] = lambda: _data(data, wanted)
    if keys:
        checks["keys"] = lambda: _keys(keys)
    if superlink:
        checks["SuperLink"] = lambda: _superlink(superlink, keys)
    for about, check in checks.items():
        try:
            yield from check()
        except Exception as error:
            found = one_line(f"{type(error).__name__}: {error}")
            yield failure(about, found, "see docs/deployment.md")


def _environment() -> Iterator[Finding]:
    here = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info[:2] == (3, 11)
    yield ok("Python", here) if fits else failure("Python", here, "install Python 3.11")
    for name, wanted in _pinned().items():
        remedy = f"install FedIvon again: it is tested with {name} {wanted}"
        try:
            there = version(name).partition("+")[0]  # a CUDA build says so behind a plus
        except PackageNotFoundError:
            yield failure(name, "missing", remedy)
            continue
        if there != wanted:
            yield warning(name, there, remedy)
    import torch

    device = f"CPU, {os.cpu_count()} cores"
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
    yield ok("torch", f"{torch.__version__} on {device}")
    if os.environ.get("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION") != "1":
        yield warning(
            "Flower",
            "it would install the app's packages anew for every run",
            "set FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 where the SuperNode starts",
        )


def _pinned() -> dict[str, str]:
    """The packages that FedIvon names with one version."""
    try:
        named = requires("fedivon") or []
    except PackageNotFoundError:
        return {}
    pairs = (word.split(";")[0].partition("==") for word in named if "extra ==" not in word)
    return {name.partition("[")[0].strip(): pinned.strip() for name, _, pinned in pairs if pinned}


def _state(root: Path) -> Iterator[Finding]:
    place = next(path for path in (root, *root.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        yield failure(
            "state",
            f"{place} cannot be written to: {error.strerror}",
            "give the SuperNode's user the right to write there, "
            "or set FEDIVON_STATE to another folder",
        )
        return
    free = shutil.disk_usage(place).free / GIGABYTE
    found = f"{root} can be written to, {free:.1f} GB free"
    if free > 1:
        yield ok("state", found)
    else:
        remedy = "free some space: clients keep duals and personal models there"
        yield warning("state", found, remedy)


def _data(path: Path, wanted: Wanted | None) -> Iterator[Finding]:
    try:
        source = _source(path, wanted)
    except (DataError, OSError) as error:
        yield failure("data", str(error), "docs/data.md says what has to be in the file")
        return
    train = counted(len(source.y_train), "example")
    counts = f"{train} to train with, {len(source.y_test):,} to test with"
    classes = counted(source.num_classes, "class", "classes") if source.num_classes else "numbers"
    yield ok("data", f"{path}: {counts}, shape {source.shape}, {classes}")
    if source.table is not None and (gaps := int(np.isnan(source.x_train).any(axis=1).sum())):
        yield ok("data", f"{counted(gaps, 'training row')} with a missing value")
    if wanted is not None:
        yield from _fits(source, wanted)
    if not len(source.y_test):
        remedy = "add x_test and y_test to see how good the models are here"
        yield warning("data", "no test examples", remedy)
    missing = sorted(set(range(source.num_classes)) - set(source.y_train.tolist()))
    if missing:
        classes = counted(len(missing), "class", "classes")
        first = source.class_names[missing[0]] if source.class_names else missing[0]
        found = f"no training examples of {classes}, such as {first}"
        yield ok("data", found)


def _source(path: Path, wanted: Wanted | None) -> Source:
    """Read a site's file as the node would."""
    from fedivon_app.datasets.loading import own_source
    from fedivon_app.datasets.npz import npz
    from fedivon_app.datasets.table_file import is_table

    if not is_table(path):
        regression = wanted and wanted.settings and wanted.settings.task == "regression"
        return npz(path=path, task="regression" if regression else "classification")
    if wanted is None or wanted.settings is None:
        raise DataError(
            f"{path}: what the columns of a table mean is in the settings: name the experiment, "
            "with what --set has to say."
        )
    return own_source(wanted.settings, path)


def _fits(source: Source, wanted: Wanted) -> Iterator[Finding]:
    """Whether a site's data fit an experiment, by the rules of the roll call."""
    name = wanted.experiment
    good = source.shape == wanted.shape
    if not good:
        yield failure(
            "data",
            f"inputs have shape {source.shape}, and {name} takes {wanted.shape}",
            "write the file in that shape, or agree with the server on another data.shape",
        )
    if source.num_classes > wanted.num_classes:
        good = False
        yield failure(
            "data",
            f"there are {source.num_classes} classes, and {name} has {wanted.num_classes}",
            "labels count from 0: correct them, or agree on another data.num_classes",
        )
    if good:
        yield ok("data", f"they fit {name}: shape {wanted.shape}, {wanted.num_classes} classes")


def _keys(place: Path) -> Iterator[Finding]:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        load_ssh_private_key,
        load_ssh_public_key,
    )

    key = place / "node.key"
    pub = place / "node.pub"
    ca = place / "ca.crt"
    gone = [str(path) for path in (key, pub, ca) if not path.is_file()]
    if gone:
        yield failure("keys", f"there is no {', '.join(gone)}", KEYS_AGAIN)
        return
    try:
        private = load_ssh_private_key(key.read_bytes(), None)
        public = load_ssh_public_key(pub.read_bytes())
    except ValueError as error:
        yield failure("keys", f"a key in {place} cannot be read: {error}", KEYS_AGAIN)
        return
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != public:
        yield failure("keys", f"{key} and {pub} are not an elliptic pair", KEYS_AGAIN)
        return
    mode = stat.S_IMODE(key.stat().st_mode)
    if mode & 0o077:
        yield warning("keys", f"{key} can be read by others (mode {mode:o})", f"chmod 600 {key}")
    yield ok("keys", f"{place}: a pair on {private.curve.name}")
    yield from _certificate(ca)


def _certificate(path: Path) -> Iterator[Finding]:
    from cryptography import x509

    try:
        end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except ValueError as error:
        found = f"{path} is not a certificate: {error}"
        yield failure("authority", found, "copy the authority's ca.crt again")
        return
    found = f"{path} is good until {end:%Y-%m-%d}"
    if end < datetime.now(UTC):
        remedy = "the authority has to be made anew, and its ca.crt copied to every site"
        yield failure("authority", found, remedy)
    else:
        yield ok("authority", found)


def _superlink(address: str, keys: Path | None) -> Iterator[Finding]:
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        yield failure("SuperLink", f"{address!r} is not an address", "give it as HOST:PORT")
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        yield failure(
            "SuperLink",
            f"nobody answers at {address}: {error}",
            "see that the server runs, that name and port are right, "
            "and that no firewall is in between",
        )
        return
    connection = _connection(host, int(port), keys)
    if keys is None:
        found = "no keys are given, so this is without TLS"
        yield warning("SuperLink", found, "name them with --keys")
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        answer.read()
    except ssl.SSLCertVerificationError as error:
        yield failure(
            "SuperLink",
            f"its certificate is not trusted: {error.verify_message}",
            "dial a name that the server's certificate has (`fedivon keys --host`), "
            "with the ca.crt of its authority",
        )
        return
    except OSError as error:
        yield failure(
            "SuperLink",
            f"no answer that can be read: {error}",
            "one side speaks TLS and the other does not: "
            "with TLS give --keys, and dial the port of the proxy",
        )
        return
    if answer.status != 200:
        found = f"/health says {answer.status}"
        yield failure("SuperLink", found, "look at the server's own log")
        return
    yield ok("SuperLink", f"{address} is there and well")
    yield from _clock(answer.getheader("Date"))
    yield from _control(connection)


def _connection(host: str, port: int, keys: Path | None) -> HTTPConnection:
    if keys is None:
        return HTTPConnection(host, port, timeout=10)
    trust = ssl.create_default_context(cafile=keys / "ca.crt")
    return HTTPSConnection(host, port, timeout=10, context=trust)


def _clock(date: str | None) -> Iterator[Finding]:
    if date is None:
        return
    ahead = time.time() - parsedate_to_datetime(date).timestamp()
    found = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    if -BEHIND < ahead < AHEAD + 1:  # the date has whole seconds
        yield ok("clock", found)
    else:
        remedy = "set both clocks by NTP: Flower refuses what is signed at another time"
        yield failure("clock", found, remedy)


def _control(connection: HTTPConnection) -> Iterator[Finding]:
    """Whoever reaches Flower's Control API may register keys and submit runs."""
    connection.request("POST", "/v1/control/list-runs", b"")
    answer = connection.getresponse()
    answer.read()
    if answer.status != 403:
        yield warning(
            "control",
            "anyone who reaches this port can register keys and submit runs",
            "let sites reach the proxy's port alone (deploy/nginx.conf), not the SuperLink's own",
        )
