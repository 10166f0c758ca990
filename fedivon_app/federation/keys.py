"""Certificates and keys of a deployment: an authority, the SuperLink's certificate, a key pair for every site.

    FOLDER/authority/ca.key, ca.crt          signs; stays with the person who admits sites
    FOLDER/server/server.key, server.crt, ca.crt    for the host of the SuperLink
    FOLDER/sites/NAME/node.key, node.pub, ca.crt    for the site; the server registers node.pub and needs no more of it

What is there stays as it is, so that the same command may be given again: with another site, after a loss, or when the
certificate is about to end. A key is replaced by removing its file, a site's by removing both files of the pair; a site
that made its pair itself sends node.pub alone, which stays alone.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedivon_app.core.settings import SettingsError

AUTHORITY_YEARS = 10
SERVER_DAYS = 397
RENEW_DAYS = 30
PEM = serialization.Encoding.PEM


def make_keys(
    folder: Path, hosts: Sequence[str], sites: Sequence[str], now: datetime | None = None
) -> list[Path]:
    """Makes what is missing, and the server's certificate anew where it lacks a host or ends within a month.

    Returns what was made.
    """
    now = now or datetime.now(UTC)
    for site in sites:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", site):
            raise SettingsError(
                f"the site's name {site!r} is to be a folder's: letters, digits, '.', '_' and '-'"
            )
    if (folder / "server" / "ca.crt").is_file() and not (folder / "authority").is_dir():
        key = None
        certificate = _read(folder / "server" / "ca.crt")
        made = []
    else:
        key, certificate, made = _authority(folder / "authority", now)
    text = certificate.public_bytes(PEM)
    made += _server(folder / "server", hosts, key, certificate, now)
    for site in sites:
        made += _site(folder / "sites" / site)
    for place in [
        folder / "server",
        *(path for path in (folder / "sites").glob("*") if path.is_dir()),
    ]:
        if not (copy := place / "ca.crt").is_file() or copy.read_bytes() != text:
            made.append(_write(copy, text))
    return made


def ends(folder: Path) -> datetime:
    """When the server's certificate does."""
    return _read(folder / "server" / "server.crt").not_valid_after_utc


def _read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _authority(
    place: Path, now: datetime
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate, list[Path]]:
    paths = place / "ca.key", place / "ca.crt"
    if there := [path for path in paths if path.is_file()]:
        if len(there) == 1:
            missing = next(path for path in paths if path not in there)
            raise SettingsError(
                f"{there[0]} is there, but {missing} is not: put it back, or begin with a new folder"
            )
        return _key(paths[0]), _read(paths[1]), []
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("FedIvon authority")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certificate = (
        _certificate(name, name, key, now, timedelta(days=365 * AUTHORITY_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA384())
    )
    return (
        key,
        certificate,
        [_write(paths[0], _pem(key), secret=True), _write(paths[1], certificate.public_bytes(PEM))],
    )


def _server(
    place: Path,
    hosts: Sequence[str],
    authority_key: ec.EllipticCurvePrivateKey | None,
    authority: x509.Certificate,
    now: datetime,
) -> list[Path]:
    made = []
    key_path = place / "server.key"
    path = place / "server.crt"
    if not key_path.is_file():
        made.append(_write(key_path, _pem(ec.generate_private_key(ec.SECP384R1())), secret=True))
    key = _key(key_path)
    known = set()
    if path.is_file():
        old = _read(path)
        known = _hosts(old)
        fresh = old.not_valid_after_utc - now > timedelta(days=RENEW_DAYS)
        if (
            fresh
            and known >= set(hosts)
            and old.public_key() == key.public_key()
            and _issued(old, authority)
        ):
            return made
    if authority_key is None:
        raise SettingsError(
            "the server's certificate is to be signed, and the authority is not here: put its folder back beside "
            f"{place}, or remove {place / 'ca.crt'} to begin with a new one"
        )
    names = sorted(known | set(hosts))
    if not names:
        raise SettingsError(
            "the server's certificate names the hosts by which nodes reach it: give at least one"
        )
    certificate = (
        _certificate(_name(names[0]), authority.subject, key, now, timedelta(days=SERVER_DAYS))
        .add_extension(
            x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA384())
    )
    return [*made, _write(path, certificate.public_bytes(PEM))]


def _site(place: Path) -> list[Path]:
    """A pair for Flower's node authentication, in OpenSSH's formats."""
    private = place / "node.key"
    public = place / "node.pub"
    made = []
    if public.is_file() and not private.is_file():
        return []
    if not private.is_file():
        key = ec.generate_private_key(ec.SECP384R1())
        made.append(_write(private, _pem(key, serialization.PrivateFormat.OpenSSH), secret=True))
    key = serialization.load_ssh_private_key(private.read_bytes(), None)
    text = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    if not public.is_file():
        made.append(_write(public, text + b"\n"))
    elif public.read_bytes().split()[:2] != text.split():
        raise SettingsError(f"{public} is not of {private}: remove the one that is not the site's")
    return made


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    lasting: timedelta,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(
        subject_name=subject, issuer_name=issuer, public_key=key.public_key()
    )
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(minutes=5)).not_valid_after(now + lasting)


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, InvalidSignature):
        return False
    return True


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _hosts(certificate: x509.Certificate) -> set[str]:
    names: Iterable[x509.GeneralName] = certificate.extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    ).value
    return {str(name.value) for name in names}


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    return serialization.load_pem_private_key(path.read_bytes(), None)


def _pem(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat | None = None) -> bytes:
    return key.private_bytes(
        PEM, form or serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes, secret: bool = False) -> Path:
    """Whole or not at all; a secret can be read by its owner alone from its first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(
        os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644), "wb"
    ) as file:
        file.write(data)
    partial.replace(path)
    return path
