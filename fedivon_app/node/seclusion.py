"""A ClientApp's process that reaches its node and nothing else.

The process moves into a network namespace of Linux, where there is a loopback of its own and no
other network. A small process stays outside: it accepts what is dialled inside at the node's
address, and passes it on to the node, which is all that it ever dials. The namespace belongs to a
namespace of users, so that no process within, root's neither, can go back.

`python -m fedivon_app.node.seclusion` tells whether this machine allows that.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

NEW_USERS = 0x10000000  # CLONE_NEWUSER
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
GET_FLAGS = 0x8913  # SIOCGIFFLAGS
SET_FLAGS = 0x8914  # SIOCSIFFLAGS
IS_UP = 0x1  # IFF_UP
INTERFACE = struct.Struct("16sH14x")  # ifreq: a name, and flags
AT_ONCE = 1 << 16  # bytes


def seclude(address: str) -> None:
    """Take the network from this process and those that it forks, but for the node at `address`.

    It has to have one thread. An OSError says that this machine does not allow it.
    """
    here, there = socket.socketpair()
    if not os.fork():
        here.close()
        _stay_outside(there, address)
    with here:
        there.close()
        _enter_namespaces()
        _raise_loopback()
        with socket.create_server(_place(address), family=_family(address)) as inside:
            socket.send_fds(here, [b"."], [inside.fileno()])


def obstacle() -> str:
    """Return why no process can be secluded here, or nothing."""
    words = [sys.executable, "-P", "-m", __name__]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else tried.stderr.strip().rpartition("\n")[2]


def _enter_namespaces() -> None:
    """Move into new namespaces, with the same user and group as outside."""
    if sys.platform != "linux":
        raise OSError("only Linux has network namespaces")
    user = os.geteuid()
    group = os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_USERS | NEW_NETWORK):
        raise OSError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = fcntl.ioctl(any_socket, GET_FLAGS, INTERFACE.pack(b"lo", 0))
        name, flags = INTERFACE.unpack(asked)
        fcntl.ioctl(any_socket, SET_FLAGS, INTERFACE.pack(name, flags | IS_UP))


def _stay_outside(control: socket.socket, address: str) -> NoReturn:
    """Pass on what is dialled inside, until the secluded process ends; this never returns."""
    try:
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        os.closerange(3, control.fileno())
        os.closerange(control.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        _, received, _, _ = socket.recv_fds(control, 1, 1)
        if received:  # otherwise there was no namespace to be had
            with socket.socket(fileno=received[0]) as inside:
                while True:
                    _pass_on(inside.accept()[0], address)
    finally:
        os._exit(0)


def _pass_on(dialled: socket.socket, address: str) -> None:
    """Connect somebody inside with the node, both ways."""
    try:
        node = socket.create_connection(_place(address))
    except OSError:
        dialled.close()
        return
    for source, sink in ((dialled, node), (node, dialled)):
        threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Move bytes until one side says that it has no more; then the other is told."""
    with suppress(OSError):
        while data := source.recv(AT_ONCE):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if address.startswith("[") else socket.AF_INET


def main() -> None:
    """Try it, and say why if it cannot be done."""
    try:
        _enter_namespaces()
        _raise_loopback()
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
