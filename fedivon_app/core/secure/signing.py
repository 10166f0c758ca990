"""The sites' lasting keys, by which a site knows that the keys of a sum are those of other sites.

Without them the server could invent sites, or put itself between two of them. They are the pairs of
Flower's node authentication (ECDSA on a NIST curve, in OpenSSH's format). A signature is worth what
its key is: one whose private half the server has made, or seen, does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.secure.messages import RoundKeys, Session
from fedivon_app.core.text import one_line

Signer = ec.EllipticCurvePrivateKey
Verifier = ec.EllipticCurvePublicKey
_HOW = ec.ECDSA(hashes.SHA384())


def read_signer(path: Path) -> Signer:
    """Return a site's private key from its file."""
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SettingsError(
            f"the site's key {path} cannot be read: {one_line(error)}; it is the private half of "
            "the node's pair, in OpenSSH's format and without a passphrase"
        ) from None
    if not isinstance(key, Signer):
        raise SettingsError(f"the site's key {path} is no ECDSA key: make one with fedivon keys")
    return key


def read_verifiers(folder: Path) -> list[Verifier]:
    """Return the public keys of the sites that one agrees to work with, *.pub of a folder."""
    paths = sorted(folder.glob("*.pub"))
    if not paths:
        raise SettingsError(
            f"{folder} has no public keys of sites: put one file NAME.pub a site there"
        )
    found = []
    for path in paths:
        try:
            key = serialization.load_ssh_public_key(path.read_bytes())
        except (OSError, ValueError, UnsupportedAlgorithm) as error:
            raise SettingsError(f"{path} is no public key: {one_line(error)}") from None
        if not isinstance(key, Verifier):
            raise SettingsError(f"{path} is no ECDSA key, as the nodes' keys are")
        found.append(key)
    return found


def signed(keys: RoundKeys, session: Session, number: int, signer: Signer) -> RoundKeys:
    """Return a site's keys of one sum with its signature."""
    signature = signer.sign(_text(keys, session, number), _HOW)
    return keys.model_copy(update={"signature": signature})


def unknown(
    keys: Mapping[int, RoundKeys], session: Session, verifiers: Sequence[Verifier]
) -> list[int]:
    """Return the sites whose keys are signed by none of these, or by one that signed others too."""
    found = []
    used: set[int] = set()
    for number, own in sorted(keys.items()):
        whose = next(
            (
                place
                for place, verifier in enumerate(verifiers)
                if place not in used and _is_signed(own, session, number, verifier)
            ),
            None,
        )
        if whose is None:
            found.append(number)
        else:
            used.add(whose)
    return found


def _is_signed(keys: RoundKeys, session: Session, number: int, verifier: Verifier) -> bool:
    if keys.signature is None:
        return False
    try:
        verifier.verify(keys.signature, _text(keys, session, number), _HOW)
    except InvalidSignature:
        return False
    return True


def _text(keys: RoundKeys, session: Session, number: int) -> bytes:
    """Return what is signed: neither another site nor another sum has the same."""
    return session.label + b"\0" + b"%d" % number + b"\0" + keys.box + keys.mask
