"""What the node and its warm process say to each other: values, one packet each."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass

LARGEST = 1 << 16  # bytes of a packet


@dataclass(frozen=True)
class Order:
    """A task for a ClientApp: its token opens the Runtime API of the node at `address`.

    Without `secure` that API speaks no TLS; `ca` is the file of its authority, None for those of
    the system. The app that the task runs has a name and a version, and its bundle a hash. If it is
    `secluded`, its process reaches nothing but that API.
    """

    task: int
    token: str
    app: str
    version: str
    bundle: str
    address: str
    secure: bool = False
    ca: str | None = None
    secluded: bool = False


@dataclass(frozen=True)
class Ready:
    """The warm process has imported what it needs, or has a complaint and is of no use."""

    complaint: str = ""


@dataclass(frozen=True)
class Gone:
    """The process of a task is gone; a negative status is the signal that ended it."""

    task: int
    status: int


Packet = Order | Ready | Gone
KINDS: dict[str, type[Packet]] = {kind.__name__: kind for kind in (Order, Ready, Gone)}


def send(link: socket.socket, packet: Packet) -> None:
    """Send a packet through a socket that keeps packets apart."""
    link.send(json.dumps([type(packet).__name__, asdict(packet)]).encode())


def receive(link: socket.socket) -> Packet | None:
    """Return the next packet, or None when the other end is closed."""
    data = link.recv(LARGEST)
    if not data:
        return None
    kind, values = json.loads(data)
    return KINDS[kind](**values)
