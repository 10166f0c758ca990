"""Pages in a real browser: no error, no request, no sideways scrolling, in light and dark."""

import json
import re

import pytest

from fedivon_app.core.compose import compose
from fedivon_app.methods import settings_of
from fedivon_app.report.pages import write_comparison, write_report
from fedivon_app.runs.folder import Run
from tests.report.browser import CHROMIUM

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
