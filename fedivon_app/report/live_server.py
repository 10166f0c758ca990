"""A server of this machine's own for the page of a run under way: 127.0.0.1 and no other address.

It knows two paths: `/` is the page, `/version` a word that changes with it. A request whose Host
is not this machine is refused, so that no page of another site can read this one through a name
that points here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from fedivon_app.core.errors import FedIvonError, SettingsError
from fedivon_app.report.live import empty_page, live_page, version_of
from fedivon_app.runs.folder import Run

HOST = "127.0.0.1"
SHARE = 0.2  # of the time that may go into drawing, so that a run is not held up by who watches it


@dataclass
class LivePage:
    """The newest page of a run, drawn when it is asked for and no more often than it should be.

    `find` returns the folder of the run to show, or None while there is none.
    """

    find: Callable[[], Path | None]
    place: str
    _text: str = ""
    _version: str | None = None
    _drawn: float = 0.0
    _took: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def version(self) -> str:
        """Return the version of the page that a reader would get now."""
        folder = self.find()
        newest = version_of(folder) if folder else ""
        with self._lock:
            rests = time.monotonic() - self._drawn < self._took / SHARE
            return self._version if rests and self._version is not None else newest

    def text(self) -> str:
        """Return the page."""
        wanted = self.version()
        with self._lock:
            if self._version != wanted:
                began = time.monotonic()
                folder = self.find()
                self._version = version_of(folder) if folder else ""
                self._text = _page(folder, self.place, self._version)
                self._drawn = time.monotonic()
                self._took = self._drawn - began
            return self._text


def _page(folder: Path | None, place: str, version: str) -> str:
    if folder is None:
        return empty_page("No run yet", f"There is no run in {place} so far.")
    try:
        return live_page(Run.open(folder))
    except FedIvonError as error:  # a file that was damaged, or is of another version
        return empty_page(folder.name, str(error), version)


class _Handler(BaseHTTPRequestHandler):
    page: ClassVar[LivePage]

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in (HOST, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path == "/":
            self._answer(self.page.text(), "text/html")
        elif self.path == "/version":
            self._answer(self.page.version(), "text/plain")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _answer(self, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests, which come every two seconds."""


def live_server(page: LivePage, port: int = 0) -> ThreadingHTTPServer:
    """Return a server of the page on this port, or on a free one where it is 0."""
    handler = type("Handler", (_Handler,), {"page": page})
    try:
        server = ThreadingHTTPServer((HOST, port), handler)
    except OSError as error:
        raise SettingsError(
            f"port {port} cannot be used: {error.strerror}; --port takes another"
        ) from None
    server.daemon_threads = True
    return server
