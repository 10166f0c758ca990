"""Which bundles a site runs: those in a file of its own, by their hashes or by who signed them."""

from __future__ import annotations

import fcntl
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedivon_app.core.errors import SettingsError
from fedivon_app.federation.signatures import BadSignature, opened, public_key
from fedivon_app.node.supernode import TRUST_PATH

KEYS = ("bundles", "signers")


@dataclass(frozen=True)
class Trust:
    """Bundles by their SHA-256, and the keys of those whose signatures count."""

    bundles: frozenset[str] = frozenset()
    signers: tuple[Ed25519PublicKey, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Trust:
        """Read the file of a site."""
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SettingsError(f"the site's file {path} cannot be read: {error}") from None
        if unknown := sorted(set(values) - set(KEYS)):
            raise SettingsError(f"{path} has {unknown[0]!r}; it may have {' and '.join(KEYS)}")
        lists = {key: _texts(path, key, values.get(key, [])) for key in KEYS}
        for bundle in lists["bundles"]:
            if not re.fullmatch("[0-9a-f]{64}", bundle):
                raise SettingsError(
                    f"{path}: {bundle!r} is not a SHA-256 of a bundle, as `fedivon sign` prints it"
                )
        return cls(
            bundles=frozenset(lists["bundles"]),
            signers=tuple(public_key(text) for text in lists["signers"]),
        )

    def refusal(self, bundle: bytes, signature: str, run: int, used: UsedSignatures) -> str:
        """Return why a bundle is not run, or nothing.

        A bundle that is listed may run whenever it comes; one that is signed in the one run in
        which the signature was first seen.
        """
        digest = sha256(bundle).hexdigest()
        if digest in self.bundles:
            return ""
        short = f"this site does not run the bundle {digest}"
        if not signature:
            return f"{short}: it is not on the site's list, and it is not signed"
        try:
            statement = opened(signature, list(self.signers))
        except BadSignature as error:
            return f"{short}: it is not on the site's list, and {error}"
        if statement.bundle != digest:
            return f"{short}: it was altered, for its signature is of {statement.bundle}"
        if statement.is_over:
            return f"{short}: its signature was good until {statement.until}"
        if (first := used.first_run(statement.number, run)) != run:
            return f"{short}: its signature was used before, by run {first}, and is good for one"
        return ""


@dataclass(frozen=True)
class UsedSignatures:
    """A file of the numbers of signatures, each with the run in which it was first seen."""

    path: Path

    def first_run(self, number: str, run: int) -> int:
        """Return the run in which a signature was first seen; it is this one if there was none."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            whole = text.rfind(b"\n") + 1
            for line in text[:whole].splitlines():
                seen = json.loads(line)
                if seen["number"] == number:
                    return int(seen["run"])
            file.truncate(whole)
            file.write(json.dumps({"number": number, "run": run}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return run


def trust_of(node: Mapping[str, Any]) -> Trust | None:
    """Return what the file says that a node config names; None where it names none."""
    path = node.get(TRUST_PATH)
    return None if path is None else Trust.read(Path(str(path)).expanduser())


def _texts(path: Path, key: str, values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise SettingsError(f"{path}: {key} is {values!r}; it is a list of texts")
    return values
