"""Pages in a real browser: no error, no request, no sideways scrolling, in light and dark."""

import base64
import fcntl
import json
import os
import re
import select
import shutil
import subprocess
import time

import pytest

from fedivon_app.core.compose import compose
from fedivon_app.methods import settings_of
from fedivon_app.report.pages import write_comparison, write_report
from fedivon_app.runs.folder import Run

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
        """Load a page at a width and colour scheme, and return the events until it has settled."""
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
        self("Page.navigate", url=path.as_uri())
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


pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no `chromium` on the PATH")
LONG = "a_name_without_any_space_in_it_" * 6


def records(level: float) -> list[dict]:
    def scores(accuracy: float, **more) -> dict:
        return {"accuracy": accuracy, "nll": 2 - accuracy, "ece": 0.1, "brier": 0.5, **more}

    clients = [
        {"partition": p, "num_examples": 9, "bytes": 9, "loss": 1 + p, "weight": 0.5}
        for p in range(2)
    ]
    return [
        {
            "round": number,
            "bytes_down": 10**6,
            "bytes_up": 10**6,
            "dropped": [],
            "seconds": {"train": 1.0, "evaluate": 1.0, "clients": []},
            "clients": clients,
            "train_loss": 1 / number,
            "posterior": {
                "largest_mean": 1.0,
                "largest_precision": 10.0**number,
                "smallest_precision": 1.0,
            },
            "gm": {
                "test": {
                    "mean": scores(level + number / 100),
                    "mc": scores(level + number / 90, samples=64),
                },
                "clients_before_training": {
                    "mean": scores(level),
                    "by_client": [{"partition": p, **scores(level + p / 10)} for p in range(2)],
                },
            },
        }
        for number in range(1, 9)
    ]


def uncertainty() -> dict:
    kinds = ("entropy", "aleatoric", "epistemic")
    way = {
        "samples": 64,
        "reliability": {
            "confidence": [None, 0.3, 0.7],
            "accuracy": [None, 0.4, 0.6],
            "count": [0, 4, 6],
        },
        "retention": {"fractions": [0.5, 1.0]} | {kind: [0.9, 0.5] for kind in kinds},
        "histograms": {
            k: {"edges": [0.0, 0.5, 1.0], "in": [0.7, 0.3], "out": [0.4, 0.6]} for k in kinds
        },
        "ood": {"source": "mnist", "num_in": 9, "num_out": 9, "auroc": dict.fromkeys(kinds, 0.9)},
    }
    return {"round": 8, "checkpoint": "last", "num_examples": 10, "ways": {"mc": way, "mean": way}}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report, and a comparison of three groups: one has failed, one has a very long name."""
    folder = tmp_path_factory.mktemp("pages")
    runs = []
    for ess, seed in ((500, 0), (500, 1), (50, 0), (5, 0)):
        sets = [f"run.folder={folder}", f"seed={seed}", "rounds=8", f"client.ess={ess}"]
        run = Run.create(compose(settings_of, "demo", "fedivon", sets))
        for record in records(0.4 + seed / 50 + ess / 2000):
            run.append(record)
        (run.folder / "uncertainty.json").write_text(json.dumps(uncertainty()))
        run.summarise(*(("failed", f"round 8: {LONG}") if ess == 5 else ("completed",)))
        runs.append(run)
    names = ["wide", LONG, "<b>narrow</b>"]
    return {
        "report": write_report(runs[0]),
        "comparison": write_comparison(runs, folder / "compare", names),
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", ["report", "comparison"])
def test_page_opens_without_complaint(browser, pages, kind, width, scheme):
    events = browser.open(pages[kind], width, scheme)
    complaints = (
        "Runtime.consoleAPICalled",
        "Runtime.exceptionThrown",
        "Log.entryAdded",
        "Network.loadingFailed",
    )
    assert [event for event in events if event["method"] in complaints] == []
    requested = [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in requested if not url.startswith("data:")] == [pages[kind].as_uri()]
    assert browser.value("innerWidth") == width
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    tables = "[...document.querySelectorAll('table')].filter(t => t.offsetParent)"
    assert browser.value(
        f"{tables}.every(t => t.parentElement.getBoundingClientRect().right <= innerWidth)"
    )
    boxes = "[...document.querySelectorAll('figure')].map(f => f.getBoundingClientRect())"
    seen = f"{boxes}.filter(b => b.width)"
    assert browser.value(f"{seen}.length") >= 14
    assert browser.value(
        f"{seen}.every(b => b.width >= 300 && b.right <= innerWidth && b.height > 150)"
    )
    background, text, tick, line = (
        browser.value(COLOUR % where) for where in ("body", "h1", "figure text", LINE)
    )
    assert (luminance(background) > 0.5) == (scheme == "light")
    assert contrast(text, background) >= 7
    assert contrast(tick, background) >= 4.5
    assert contrast(line, background) >= 3


LINE = "figure .series > path[style^='fill: none']"
# The colour of the first such element: that of its text, or where it has none, of its line.
COLOUR = """(() => {
  const element = document.querySelector(%r), style = getComputedStyle(element);
  if (element === document.body) return style.backgroundColor;
  if (element.tagName === "text") return style.fill;
  return element.tagName === "path" ? style.stroke : style.color;
})()"""


def luminance(colour: str) -> float:
    parts = [
        int(part) / 255 for part in re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour).groups()
    ]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_axes_switch_between_rounds_and_bytes_without_scripts(browser, pages):
    browser.open(pages["report"], 1280, "light", scripts=False)
    sides = "[...document.querySelectorAll('.switch > div')]"
    shown = f"{sides}.map(side => side.getClientRects().length > 0)"
    assert browser.value(shown) == [True, False]
    browser.click("label[for=axis-1]")
    assert browser.value(shown) == [False, True]
    assert browser.value("document.querySelectorAll('.code button, th button').length") == 0


def test_columns_are_sorted_by_value(browser, pages):
    browser.open(pages["comparison"], 1280, "light")
    column = (
        "[...document.querySelector('table').tBodies[0].rows].map(row => row.cells[2].textContent)"
    )
    order = sorted(
        browser.value(column), key=lambda text: float(re.sub(r"[^\d.].*", "", text) or "inf")
    )
    assert order != browser.value(column)
    browser.click("th:nth-child(3) button")
    assert browser.value(column) == order
    browser.click("th:nth-child(3) button")
    assert browser.value(column) == [
        *reversed(order[:-1]),
        order[-1],
    ]  # what has no value stays below


def test_a_pressed_legend_brings_its_series_forward(browser, pages):
    browser.open(pages["comparison"], 1280, "light")
    dim = "[...new Set([...document.querySelectorAll('.series.dim')].map(e => e.dataset.series))]"
    assert browser.value(dim) == []
    browser.click(".legend button")
    assert browser.value(dim) == ["1"]
    browser.click(".legend button")
    browser.value(
        "document.querySelector('.legend button').dispatchEvent(new PointerEvent('pointerleave'))"
    )
    assert browser.value(dim) == []


COVERED = """[...document.querySelectorAll('.code')].filter(block => {
  const button = block.querySelector('button'), text = document.createRange();
  if (!button || !button.offsetParent) return false;
  text.selectNodeContents(block.querySelector('pre'));
  const box = button.getBoundingClientRect();
  return [...text.getClientRects()].some(line => line.right > box.left && line.top < box.bottom);
}).length"""


@pytest.mark.parametrize("width", [1280, 390])
def test_the_button_that_copies_covers_no_text(browser, pages, width):
    browser.open(pages["report"], width, "light")
    assert browser.value("document.querySelectorAll('.code button').length") >= 1
    browser.value("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    long = "'word '.repeat(200)"
    browser.value(f"document.querySelectorAll('pre').forEach(p => {{ p.textContent = {long}; }})")
    assert browser.value(COVERED) == 0
