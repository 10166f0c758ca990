"""The node's end of the warm process: starts it, speaks with it, and starts it anew if it dies."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from enum import StrEnum

from fedivon_app.node.orders import Gone, Order, Packet, Ready, receive, send

PATIENCE = 120.0  # seconds that its imports may take on a busy machine


class Mode(StrEnum):
    """How `fedivon node` starts ClientApps, as FEDIVON_NODE says."""

    FORK = "fork"  # a process for every message, forked from the warm one
    WORKER = "worker"  # one for all messages of a bundle
    STOCK = "stock"  # Flower's own node


class WarmProcess:
    """A zygote, from which processes for ClientApps come."""

    def __init__(self, mode: Mode):
        self._mode = mode
        self.start()

    def start(self) -> None:
        """Start the process, in the place of one that is gone.

        What it needs for that goes on beside what the node does next.
        """
        self._link, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            # -P: no module of the node's working directory is to be taken for another one.
            words = [sys.executable, "-P", "-m", "fedivon_app.node.zygote"]
            self._process = subprocess.Popen(
                [*words, str(there.fileno()), self._mode],
                pass_fds=[there.fileno()],
                env={**os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
            )
        self._ready: Ready | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def alive(self) -> bool:
        """Tell whether the process is there, and can be spoken to."""
        return self._link.fileno() >= 0 and self._process.poll() is None

    def complaint(self) -> str:
        """Wait until the process can be used; return why it cannot, or nothing."""
        limit = time.monotonic() + PATIENCE
        while self._ready is None:
            if not self.alive():
                return f"it ended with status {self._process.returncode} before it was ready"
            if time.monotonic() > limit:
                return f"it was not ready after {PATIENCE:g} s"
            self.news(1.0)
        return self._ready.complaint

    def order(self, order: Order) -> None:
        """Have a ClientApp started; that the process is gone shows in `alive`."""
        try:
            send(self._link, order)
        except OSError:
            self._process.wait()

    def news(self, seconds: float) -> list[Gone]:
        """Return whose processes have ended, as soon as there is one, or after so many seconds."""
        gone: list[Gone] = []
        while packet := self._next(seconds if not gone else 0.0):
            if isinstance(packet, Ready):
                self._ready = packet
                break
            if isinstance(packet, Gone):
                gone.append(packet)
        return gone

    def _next(self, seconds: float) -> Packet | None:
        if not select.select([self._link], [], [], seconds)[0]:
            return None
        try:
            packet = receive(self._link)
        except OSError:
            packet = None
        if packet is None:  # the other end is closed, and the process about to be gone
            self._process.wait()
        return packet

    def close(self) -> None:
        """Let the process end, with all that came of it."""
        self._link.close()
