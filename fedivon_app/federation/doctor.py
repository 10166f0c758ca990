"""`fedivon doctor`: whether a site can take part, and what to do where it cannot.

Every check says what it found in one line; what is wrong comes with what would be right. Nothing is sent to the
SuperLink but requests for /health and for a path that sites should not reach.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPSConnection
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

from fedivon_app.clients.state import default_root

Verdict = Literal["ok", "warning", "failure"]
GIGABYTE = 2**30
AHEAD = 5
BEHIND = (
    300  # seconds by which a node's clock may differ: Flower refuses what is signed outside of them
)


@dataclass(frozen=True)
class Finding:
    """What one check found, and where it is not well, what to do."""

    about: str
    verdict: Verdict
    found: str
    remedy: str = ""


def examine(
    data: Path | None = None,
    keys: Path | None = None,
    superlink: str | None = None,
    state: Path | None = None,
) -> Iterator[Finding]:
    """All checks that what is given allows; a check that fails by itself is a finding too."""
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("environment", _environment),
        ("state", lambda: _state(state or default_root())),
    ]
    if data:
        checks.append(("data", lambda: _data(data)))
    if keys:
        checks.append(("keys", lambda: _keys(keys)))
    if superlink:
        checks.append(("SuperLink", lambda: _superlink(superlink, keys)))
    for about, check in checks:
        try:
            yield from check()
        except Exception as error:
            yield Finding(
                about,
                "failure",
                " ".join(f"{type(error).__name__}: {error}".split()),
                "see docs/deployment.md",
            )


def _environment() -> Iterator[Finding]:
    here = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info[:2] == (3, 11)
    yield Finding(
        "Python", "ok" if fits else "failure", here, "" if fits else "install Python 3.11"
    )
    for name, wanted in _pinned().items():
        try:
            there = version(name).partition("+")[0]  # a CUDA build says so behind a plus
        except PackageNotFoundError:
            there = "missing"
        if there != wanted:
            remedy = f"install FedIvon again: it is tested with {name} {wanted}"
            yield Finding(name, "failure" if there == "missing" else "warning", there, remedy)
    import torch

    device = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f"CPU, {os.cpu_count()} cores"
    )
    yield Finding("torch", "ok", f"{torch.__version__} on {device}")
    if os.environ.get("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION") != "1":
        remedy = "set FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 where the SuperNode starts"
        yield Finding(
            "Flower", "warning", "it would install the app's packages anew for every run", remedy
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
        remedy = "give the SuperNode's user the right to write there, or set FEDIVON_STATE to another folder"
        yield Finding("state", "failure", f"{place} cannot be written to: {error.strerror}", remedy)
        return
    free = shutil.disk_usage(place).free / GIGABYTE
    fine = free > 1
    remedy = "" if fine else "free some space: clients keep duals and personal models there"
    yield Finding(
        "state",
        "ok" if fine else "warning",
        f"{root} can be written to, {free:.1f} GB free",
        remedy,
    )


def _data(path: Path) -> Iterator[Finding]:
    from fedivon_app.datasets.npz import npz
    from fedivon_app.datasets.sources import DataError

    try:
        source = npz(path=path)
    except (DataError, OSError) as error:
        yield Finding(
            "data", "failure", str(error), "the README says what the arrays of the file are"
        )
        return
    counts = f"{len(source.y_train)} examples to train with, {len(source.y_test)} to test with"
    yield Finding(
        "data", "ok", f"{path}: {counts}, shape {source.shape}, {source.num_classes} classes"
    )
    if not len(source.y_test):
        yield Finding(
            "data",
            "warning",
            "no test examples",
            "add x_test and y_test to see how good the models are here",
        )
    if missing := sorted(set(range(source.num_classes)) - set(source.y_train.tolist())):
        yield Finding(
            "data", "ok", f"no training examples of {len(missing)} classes, such as {missing[0]}"
        )


def _keys(place: Path) -> Iterator[Finding]:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        load_ssh_private_key,
        load_ssh_public_key,
    )

    again = "ask whoever admits sites for the folder that `fedivon keys` made, and copy all of it"
    paths = {name: place / name for name in ("node.key", "node.pub", "ca.crt")}
    if gone := [str(path) for path in paths.values() if not path.is_file()]:
        yield Finding("keys", "failure", f"there is no {', '.join(gone)}", again)
        return
    try:
        private = load_ssh_private_key(paths["node.key"].read_bytes(), None)
        public = load_ssh_public_key(paths["node.pub"].read_bytes())
    except ValueError as error:
        yield Finding("keys", "failure", f"a key in {place} cannot be read: {error}", again)
        return
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != public:
        yield Finding(
            "keys",
            "failure",
            f"{paths['node.key']} and {paths['node.pub']} are no elliptic pair",
            again,
        )
        return
    mode = stat.S_IMODE(paths["node.key"].stat().st_mode)
    if mode & 0o077:
        found = f"{paths['node.key']} can be read by others (mode {mode:o})"
        yield Finding("keys", "warning", found, f"chmod 600 {paths['node.key']}")
    yield Finding("keys", "ok", f"{place}: a pair on {public.curve.name}")
    yield from _certificate(paths["ca.crt"])


def _certificate(path: Path) -> Iterator[Finding]:
    from cryptography import x509

    try:
        end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except ValueError as error:
        yield Finding(
            "authority",
            "failure",
            f"{path} is no certificate: {error}",
            "copy the authority's ca.crt again",
        )
        return
    over = end < datetime.now(UTC)
    remedy = (
        "the authority has to be made anew, and its ca.crt copied to every site" if over else ""
    )
    yield Finding(
        "authority", "failure" if over else "ok", f"{path} is good until {end:%Y-%m-%d}", remedy
    )


def _superlink(address: str, keys: Path | None) -> Iterator[Finding]:
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        yield Finding("SuperLink", "failure", f"{address!r} is no address", "give it as HOST:PORT")
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        remedy = "see that the server runs, that name and port are right, and that no firewall is in between"
        yield Finding("SuperLink", "failure", f"nobody answers at {address}: {error}", remedy)
        return
    if keys is None:
        connection = HTTPConnection(host, int(port), timeout=10)
        yield Finding(
            "SuperLink",
            "warning",
            "no keys are given, so this is without TLS",
            "name them with --keys",
        )
    else:
        connection = HTTPSConnection(
            host, int(port), timeout=10, context=ssl.create_default_context(cafile=keys / "ca.crt")
        )
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        answer.read()
    except ssl.SSLCertVerificationError as error:
        remedy = "dial a name that the server's certificate has (`fedivon keys --host`), with the ca.crt of its authority"
        yield Finding(
            "SuperLink",
            "failure",
            f"its certificate is not trusted: {error.verify_message}",
            remedy,
        )
        return
    except OSError as error:
        remedy = "one side speaks TLS and the other does not: with TLS give --keys, and dial the port of the proxy"
        yield Finding("SuperLink", "failure", f"no answer that can be read: {error}", remedy)
        return
    if answer.status != 200:
        yield Finding(
            "SuperLink", "failure", f"/health says {answer.status}", "look at the server's own log"
        )
        return
    yield Finding("SuperLink", "ok", f"{address} is there and well")
    yield from _clock(answer.getheader("Date"))
    yield from _control(connection)


def _clock(date: str | None) -> Iterator[Finding]:
    if date is None:
        return
    ahead = time.time() - parsedate_to_datetime(date).timestamp()
    wrong = not -BEHIND < ahead < AHEAD + 1  # the date has whole seconds
    remedy = (
        "set both clocks by NTP: Flower refuses what is signed at another time" if wrong else ""
    )
    words = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    yield Finding("clock", "failure" if wrong else "ok", words, remedy)


def _control(connection: HTTPConnection) -> Iterator[Finding]:
    """Whoever reaches Flower's Control API may register keys and submit runs."""
    connection.request("POST", "/v1/control/list-runs", b"")
    answer = connection.getresponse()
    answer.read()
    if answer.status != 403:
        remedy = (
            "let sites reach the proxy's port alone (deploy/nginx.conf), not the SuperLink's own"
        )
        yield Finding("control", "warning", "who is here can register keys and submit runs", remedy)
