"""Whether two sides agree on TLS: what to say to whoever cannot reach a SuperLink."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

PATIENCE = 3.0  # seconds for a look at who is there


def tls_hint(address: str, ca: Path | None) -> str:
    """Return what is wrong between this authority, or none, and who listens at the address.

    It is empty where that is not the fault, or where nobody listens.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        return "the address is not of the form HOST:PORT"
    if ca is not None and not ca.is_file():
        return f"there is no {ca}, which --ca names"
    try:
        trust = ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        return f"{ca} is not a certificate"
    try:
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as plain:
            return _hint(plain, host, ca, trust)
    except (OSError, OverflowError):
        return ""


def _hint(plain: socket.socket, host: str, ca: Path | None, trust: ssl.SSLContext) -> str:
    if ca is None:
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE
    try:
        with trust.wrap_socket(plain, server_hostname=host):
            return "" if ca else "it speaks TLS: give --ca, its authority's ca.crt"
    except ssl.SSLCertVerificationError as error:
        return f"its certificate does not go with {ca}: {error.verify_message}"
    except (OSError, ValueError):
        return "it does not speak TLS: leave out --ca" if ca else ""
