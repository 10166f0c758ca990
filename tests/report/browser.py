"""Chromium for the tests of pages, spoken to by its own protocol."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Browser:
    """Chromium, spoken to by the DevTools protocol over a pair of pipes.

    Messages are JSON, and end in a zero byte.
    """

    def __init__(self, profile):
        # Chromium reads from descriptor 3 and writes to 4; the copies stay clear of both.
        (theirs_in, self.write_to) = os.pipe()
        (self.read_from, theirs_out) = os.pipe()
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out)]

        def attach():
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        command = [
            CHROMIUM,
            *FLAGS,
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, close_fds=False, preexec_fn=attach, **quiet)
        for end in (theirs_in, theirs_out, *theirs):
            os.close(end)
        self.number = 0
        self.rest = b""
        self.events = []
        self.session = None
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _next(self, seconds=30):
        until = time.monotonic() + seconds
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read_from], [], [], max(0, until - time.monotonic()))
            assert ready, "the browser did not answer"
            read = os.read(self.read_from, 1 << 20)
            assert read, "the browser has gone"
            self.rest += read
        first, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(first)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, path, width, scheme, scripts=True):
        """Load a file, or an address, at a width and colour scheme, and return the events until
        it has settled."""
        self.events.clear()
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self("Emulation.setEmulatedMedia", features=features)
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self("Emulation.setScriptExecutionDisabled", value=not scripts)
        self("Page.navigate", url=path if isinstance(path, str) else path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._next()
        self(
            "Runtime.evaluate",
            expression="new Promise(r => setTimeout(r, 200))",
            awaitPromise=scripts,
        )
        return list(self.events)

    def value(self, expression):
        result = self("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def click(self, selector):
        """Presses the mouse in the middle of an element, as a person would."""
        element = f"document.querySelector({selector!r})"
        self.value(f"{element}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = f"{element}.getBoundingClientRect()"
        place = self.value(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({box})")
        for kind in ("mousePressed", "mouseReleased"):
            where = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
            self("Input.dispatchMouseEvent", type=kind, **where)

    def screenshot(self, path):
        content = self("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(content["data"]))

    def close(self):
        self.session = None
        try:
            self("Browser.close")
            self.process.wait(10)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self.write_to)
            os.close(self.read_from)
