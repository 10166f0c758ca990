"""Certificates and keys of a deployment: an authority, the SuperLink's certificate, a pair a site.

    FOLDER/authority/ca.key, ca.crt                 signs; stays with the person who admits sites
    FOLDER/server/server.key, server.crt, ca.crt    for the host of the SuperLink
    FOLDER/sites/NAME/node.key, node.pub, ca.crt    for the site; the server registers node.pub

What is there stays as it is, so that the same command may be given again: with another site, after
a loss, or when the certificate is about to end. A key is replaced by removing its file, a site's by
removing both files of the pair; a site that made its pair itself sends node.pub alone, which stays
alone.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.files import write_bytes
from fedivon_app.core.text import one_line
from fedivon_app.federation.site_files import check_names

AUTHORITY_YEARS = 10
SERVER_DAYS = 397
RENEW_DAYS = 30
LOOPBACK = "127.0.0.1"  # where the SuperLink's own processes dial it, whatever others call it
PEM = serialization.Encoding.PEM
SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Authority:
    """Who signs: a certificate, and the key to it unless that is kept elsewhere."""

    certificate: x509.Certificate
    key: SigningKey | None


def make_keys(
    folder: Path, hosts: Sequence[str], sites: Sequence[str], now: datetime | None = None
) -> list[Path]:
    """Make the files that are missing, and return what was made.

    The server's certificate is made anew where it lacks a host or ends within a month.
    """
    now = now or datetime.now(UTC)
    check_names(sites)
    _check_hosts(hosts)
    made: list[Path] = []
    began_before = (folder / "server" / "ca.crt").is_file()
    kept_elsewhere = began_before and not (folder / "authority").is_dir()
    if not kept_elsewhere:
        made += _make_authority(folder / "authority", now)
    authority = _authority(folder, kept_elsewhere)
    made += _make_server(folder / "server", hosts, authority, now)
    for site in sites:
        made += _make_site(folder / "sites" / site)
    text = authority.certificate.public_bytes(PEM)
    places = [path for path in (folder / "sites").glob("*") if path.is_dir()]
    for place in [folder / "server", *places]:
        copy = place / "ca.crt"
        if not copy.is_file() or copy.read_bytes() != text:
            made.append(write_bytes(copy, text))
    return made


def certificate_end(folder: Path) -> datetime:
    """Return the date on which the server's certificate expires."""
    return _read(folder / "server" / "server.crt").not_valid_after_utc


def _authority(folder: Path, kept_elsewhere: bool) -> Authority:
    if kept_elsewhere:
        return Authority(certificate=_read(folder / "server" / "ca.crt"), key=None)
    place = folder / "authority"
    return Authority(certificate=_read(place / "ca.crt"), key=_key(place / "ca.key"))


def _make_authority(place: Path, now: datetime) -> list[Path]:
    paths = [place / "ca.key", place / "ca.crt"]
    there = [path for path in paths if path.is_file()]
    missing = [path for path in paths if path not in there]
    if there and missing:
        raise SettingsError(
            f"{there[0]} is there, but {missing[0]} is not: put it back, or begin with a new folder"
        )
    if there:
        return []
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("FedIvon authority")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    lasting = timedelta(days=365 * AUTHORITY_YEARS)
    certificate = (
        _certificate(subject=name, issuer=name, key=key, now=now, lasting=lasting)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA384())
    )
    return [
        write_bytes(place / "ca.key", _pem(key), secret=True),
        write_bytes(place / "ca.crt", certificate.public_bytes(PEM)),
    ]


def _make_server(
    place: Path, hosts: Sequence[str], authority: Authority, now: datetime
) -> list[Path]:
    made: list[Path] = []
    key_path = place / "server.key"
    path = place / "server.crt"
    if not key_path.is_file():
        secret = _pem(ec.generate_private_key(ec.SECP384R1()))
        made.append(write_bytes(key_path, secret, secret=True))
    key = _key(key_path)
    known: set[str] = set()
    wanted = {*hosts, LOOPBACK} if hosts else set()
    if path.is_file():
        old = _read(path)
        known = _hosts(old)
        fresh = old.not_valid_after_utc - now > timedelta(days=RENEW_DAYS)
        own = old.public_key() == key.public_key()
        if fresh and own and known >= wanted and _issued(old, authority.certificate):
            return made
    if authority.key is None:
        raise SettingsError(
            "the server's certificate is to be signed, and the authority is not here: put its "
            f"folder back beside {place}, or remove {place / 'ca.crt'} to begin with a new one"
        )
    names = sorted(known | wanted)
    if not names:
        raise SettingsError(
            "the server's certificate names the hosts by which nodes reach it: give at least one"
        )
    issuer = authority.certificate
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
    certificate = (
        _certificate(
            subject=_name(names[-1]),
            issuer=issuer.subject,
            key=key,
            now=now,
            lasting=timedelta(days=SERVER_DAYS),
        )
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority.key, hashes.SHA384())
    )
    return [*made, write_bytes(path, certificate.public_bytes(PEM))]


def _make_site(place: Path) -> list[Path]:
    """Make a pair for Flower's node authentication, in OpenSSH's formats."""
    private = place / "node.key"
    public = place / "node.pub"
    if public.is_file() and not private.is_file():
        return []
    made: list[Path] = []
    if not private.is_file():
        new = ec.generate_private_key(ec.SECP384R1())
        secret = _pem(new, serialization.PrivateFormat.OpenSSH)
        made.append(write_bytes(private, secret, secret=True))
    try:
        key = serialization.load_ssh_private_key(private.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{private} is not a private key: {one_line(error)}") from None
    text = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    if not public.is_file():
        made.append(write_bytes(public, text + b"\n"))
    elif public.read_bytes().split()[:2] != text.split():
        raise SettingsError(f"{public} is not of {private}: remove the one that is not the site's")
    return made


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: SigningKey, now: datetime, lasting: timedelta
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


def _check_hosts(hosts: Iterable[str]) -> None:
    """Raise a SettingsError for what can be neither a host's name nor its address."""
    for host in hosts:
        if not (_is_address(host) or re.fullmatch(r"[A-Za-z0-9*_-]+(\.[A-Za-z0-9_-]+)*", host)):
            raise SettingsError(
                f"{host!r} is neither a host's name nor an address: give them without a scheme or "
                "a port, as in --host fl.example.org localhost"
            )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _hosts(certificate: x509.Certificate) -> set[str]:
    names: Iterable[x509.GeneralName] = certificate.extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    ).value
    return {str(name.value) for name in names}


def _read(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise SettingsError(f"{path} is not a certificate: {one_line(error)}") from None


def _key(path: Path) -> SigningKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{path} is not a private key: {one_line(error)}") from None
    if not isinstance(key, SigningKey):
        raise SettingsError(
            f"{path} is not an elliptic or RSA key: the certificates here are of such"
        )
    return key


def _pem(
    key: ec.EllipticCurvePrivateKey,
    form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8,
) -> bytes:
    return key.private_bytes(PEM, form, serialization.NoEncryption())
