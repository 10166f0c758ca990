"""Signatures by which a site knows a bundle that somebody it trusts has read.

A signature is a line of text, for one bundle, one run and a number of days: it names the SHA-256 of
the bundle, when it ends, and a number that is drawn once. Keys are Ed25519, in OpenSSH's formats.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.files import write_bytes
from fedivon_app.core.text import one_line

CONTEXT = b"fedivon bundle 1\n"  # stands before what is signed, so that it is good for nothing else


@dataclass(frozen=True)
class Statement:
    """What is signed: that this bundle may run once, until this time; `number` is drawn once."""

    bundle: str
    until: str
    number: str

    @property
    def is_over(self) -> bool:
        """Tell whether its time has passed."""
        return datetime.fromisoformat(self.until) < datetime.now(UTC)

    def encoded(self) -> bytes:
        """Return the bytes that are signed."""
        return CONTEXT + json.dumps(asdict(self), sort_keys=True).encode()


class BadSignature(ValueError):
    """A text is no signature, or of nobody who is trusted."""


def make_key(path: Path, name: str) -> Path:
    """Make a pair, PATH and PATH.pub, and return the latter's path; there must be none yet."""
    public = path.with_name(f"{path.name}.pub")
    if there := [one for one in (path, public) if one.exists()]:
        raise SettingsError(f"{there[0]} is there already: a key is not overwritten")
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_bytes(path, secret, secret=True)
    text = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return write_bytes(public, text + f" {name}\n".encode())


def sign(bundle: str, key_path: Path, days: float) -> str:
    """Return a signature of a bundle, by its hash."""
    try:
        key = load_ssh_private_key(key_path.read_bytes(), None)
    except OSError as error:
        raise SettingsError(f"{key_path} cannot be read as a key: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SettingsError(f"{key_path} cannot be read as a key: {one_line(error)}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SettingsError(
            f"{key_path} is not an Ed25519 key: `fedivon sign --new-key {key_path}` makes one"
        )
    until = (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
    statement = Statement(bundle=bundle, until=until, number=secrets.token_hex(16))
    body = statement.encoded()
    parts = (body.removeprefix(CONTEXT), key.sign(body))
    return ".".join(base64.urlsafe_b64encode(part).decode() for part in parts)


def public_key(text: str) -> Ed25519PublicKey:
    """Return the key of a line as it stands in a .pub file."""
    try:
        key = load_ssh_public_key(text.strip().encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SettingsError(f"{text!r} is not a public key: {one_line(error)}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise SettingsError(
            f"{text!r} is not an Ed25519 key, as `fedivon sign --new-key` makes them"
        )
    return key


def opened(signature: str, signers: list[Ed25519PublicKey]) -> Statement:
    """Return what one of these signers has signed; BadSignature if none of them has."""
    try:
        body, proof = (
            base64.b64decode(part, altchars=b"-_", validate=True) for part in signature.split(".")
        )
        statement = Statement(**json.loads(body))
        datetime.fromisoformat(statement.until)
    except (ValueError, TypeError, binascii.Error):
        raise BadSignature("what came as its signature is none") from None
    for signer in signers:
        try:
            signer.verify(proof, CONTEXT + body)
        except InvalidSignature:
            continue
        return statement
    raise BadSignature("its signature is of nobody whom this site trusts")
