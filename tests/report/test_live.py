"""The page of a run under way, in a real browser: it renews itself as rounds come."""

import os
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedivon_app.cli.main import main
from fedivon_app.report.live import live_page, version_of
from fedivon_app.report.live_server import HOST, LivePage, live_server
from fedivon_app.runs.catalogue import newest
from fedivon_app.runs.folder import Run
from tests.cli.helpers import make_run
from tests.report.browser import CHROMIUM

SCORES = {"accuracy": 0.5, "nll": 1.25, "ece": 0.1, "brier": 0.6}


def record(number: int, *, dropped=(), loss=1.0, accuracy=0.5) -> dict:
    clients = [
        {"partition": p, "name": f"clinic-{p}", "num_examples": 9, "bytes": 1000, "loss": loss}
        for p in range(3)
        if p not in dropped
    ]
    gone = [{"partition": p, "name": f"clinic-{p}", "reason": "no reply in time"} for p in dropped]
    return {
        "round": number,
        "bytes_down": 3000,
        "bytes_up": 1000 * len(clients),
        "dropped": gone,
        "clients": clients,
        "merged": True,
        "train_loss": loss,
        "seconds": {"train": 2.0, "evaluate": 1.0, "clients": [0.5] * len(clients)},
        "gm": {"test": {"mean": SCORES | {"accuracy": accuracy}}},
    }


@contextmanager
def served(find, place="runs"):
    page = LivePage(find, place)
    with live_server(page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://{HOST}:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def run(tmp_path) -> Run:
    run = make_run(tmp_path / "runs", 0, status=None, planned=20)
    (run.folder / "log.txt").write_text("10:00 round 1: node 7 joins as partition 2 (clinic-2)\n")
    for number in (1, 2):
        run.append(record(number))
    return run


def test_the_page_says_who_is_there_who_was_dropped_and_how_long_it_takes(run):
    run.append(record(3, dropped=[1]))
    text = live_page(run)
    for part in (
        "<li>running</li><li>about 51 s left</li>",  # 17 rounds of 3 s
        "3 of 20 rounds",
        "Round 3: 2 clients answered, 1 reply dropped, 3 kB sent to them, 2 kB received, in 3 s.",
        "clinic-1</td>",
        "round 3: no reply in time",
        "joins as partition 2 (clinic-2)",
    ):
        assert part in text, part
    first = text.split("<tbody>")[1].split("</tr>")[0]
    assert "clinic-1" in first  # those whose replies were dropped come first


def test_a_private_run_says_what_it_has_spent(run):
    private = record(3)
    for spent, client in enumerate(private["clients"], start=1):
        client["epsilon"] = spent / 2
    run.append(private)
    assert f"epsilon so far at most {len(private['clients']) / 2:.3g}." in live_page(run)


def test_a_run_without_rounds_and_one_that_has_ended_have_pages(tmp_path):
    begun = make_run(tmp_path / "a", 0, status=None)
    assert "waits for its clients" in live_page(begun)
    ended = make_run(tmp_path / "b", 4, test={"mean": SCORES})
    text = live_page(ended)
    assert "<li>completed</li>" in text and "left</li>" not in text


def test_only_this_machine_is_answered_and_only_the_page(run):
    with served(lambda: run.folder) as address:
        port = address.rstrip("/").rpartition(":")[2]
        for path, host, status in (
            ("settings.yaml", f"{HOST}:{port}", 404),
            ("../settings.yaml", f"localhost:{port}", 404),
            ("", "evil.example", 403),
            ("version", f"evil.example:{port}", 403),
        ):
            request = urllib.request.Request(address + path, headers={"Host": host})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request)
            assert refused.value.code == status
            refused.value.close()
        with urllib.request.urlopen(address + "version") as answer:
            assert answer.read().decode() == version_of(run.folder)


def test_a_page_is_drawn_again_only_when_something_was_written(run, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "fedivon_app.report.live_server.live_page", lambda run: drawn.append(run) or "page"
    )
    page = LivePage(lambda: run.folder, "runs")
    for _ in range(3):
        assert page.text() == "page"
    assert len(drawn) == 1
    run.append(record(3))
    page._took = 100.0  # a page that takes long is left alone for a while
    page.text()
    assert len(drawn) == 1 and page.version() != version_of(run.folder)
    page._took = 0.0
    page.text()
    assert len(drawn) == 2


def test_the_newest_run_is_the_one_that_was_written_to_last(tmp_path):
    assert newest(tmp_path / "none") is None and newest(tmp_path) is None
    one = make_run(tmp_path, 1, name="one")
    time.sleep(0.02)
    other = make_run(tmp_path / "sweep", 1, name="other")
    assert newest(tmp_path) == other.folder
    time.sleep(0.02)
    one.append(record(2))
    assert newest(tmp_path) == one.folder


def test_what_is_no_run_is_told_before_anything_is_served(tmp_path, capsys):
    assert main(["watch", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err


@pytest.mark.skipif(CHROMIUM is None, reason="there is no `chromium` on the PATH")
def test_the_page_in_a_browser_follows_the_run(browser, run, tmp_path):
    with served(lambda: newest(tmp_path / "runs")) as address:
        events = browser.open(address, 1280, "light")
        browser.value("document.querySelector('details').open = true; scrollTo(0, 300)")
        facts = "document.querySelector('.facts').textContent"
        assert "2 of 20 rounds" in browser.value(facts)
        run.append(record(3, dropped=[2]))
        until(browser, facts, "3 of 20 rounds")
        assert "no reply in time" in browser.value("document.querySelector('#now').textContent")
        assert browser.value("document.querySelector('details').open")
        assert browser.value("scrollY") == 300
        browser.click("#now th button")  # what the page's script adds is there again
        if picture := os.environ.get("FEDIVON_SCREENSHOT"):
            browser.screenshot(Path(picture))
        run.summarise("completed")
        until(browser, facts, "completed")
        events = [*events, *browser.events]
    until(browser, "document.documentElement.className", "gone")
    complaints = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    assert [event for event in events if event["method"] in complaints] == []
    urls = [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
    assert urls and all(url.startswith((address, "data:")) for url in urls)


def until(browser, expression: str, part: str, seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while part not in browser.value(expression):
        assert time.monotonic() < limit, browser.value(expression)
        time.sleep(0.1)
