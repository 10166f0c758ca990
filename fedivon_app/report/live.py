"""The page of a run under way: who is there, who was dropped, how long it takes, and the report.

It is written in memory from what the run's folder holds. A script asks for a newer page every two
seconds, and puts its parts in place of the old ones; what a reader has opened stays open.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

from fedivon_app.core.text import data_size, duration
from fedivon_app.plurals import counted
from fedivon_app.report import html
from fedivon_app.report.chapters import written_chapters
from fedivon_app.report.figure_files import Pictures
from fedivon_app.report.html import Cell, Chapter
from fedivon_app.report.pages import facts_of_run, view_of
from fedivon_app.report.results import RunResults, number
from fedivon_app.runs.catalogue import look
from fedivon_app.runs.folder import Run
from fedivon_app.runs.records import METRICS, SETTINGS, SUMMARY, UNCERTAINTY
from fedivon_app.runs.status import RunStatus

LOG = "log.txt"
SHOWN_CLIENTS = 200
SHOWN_LINES = 12
RECENT = 10  # rounds by which the rest of a run is estimated

STYLE = """
.gone header::before { content: "This page is no longer updated: `fedivon watch` has ended.";
  display: block; margin-bottom: 1rem; padding: .6rem 1rem; border-radius: 6px;
  background: var(--tint); font-weight: 600 }
#now .wide { max-height: 26rem; overflow: auto }
"""
SCRIPT = """
(() => {
  let version = document.documentElement.dataset.version;
  const open = () => [...document.querySelectorAll("details")].map(d => d.open);
  const chosen = () => [...document.querySelectorAll("input:checked")].map(i => i.id);
  const renew = text => {
    const next = new DOMParser().parseFromString(text, "text/html");
    const opened = open(), checked = chosen(), place = scrollY;
    for (const part of ["header", "main", "footer"])
      document.querySelector(part).replaceWith(next.querySelector(part));
    document.title = next.title;
    document.querySelectorAll("details").forEach((d, n) => { d.open = Boolean(opened[n]); });
    checked.forEach(id => { const i = document.getElementById(id); if (i) i.checked = true; });
    begin();
    scrollTo(0, place);
    version = next.documentElement.dataset.version;
    document.documentElement.dataset.version = version;
  };
  const gone = there => document.documentElement.classList.toggle("gone", !there);
  const ask = async () => {
    try {
      const told = await (await fetch("/version")).text();
      if (told !== version) renew(await (await fetch("/")).text());
      gone(true);
    } catch { gone(false); }
    setTimeout(ask, 2000);
  };
  setTimeout(ask, 2000);
})();
"""


@dataclass
class _Client:
    """What the records of all rounds tell of one client."""

    partition: int
    name: str = ""
    answered: int = 0
    last_round: int = 0
    loss: float = float("nan")
    seconds: float = float("nan")
    sent: float = 0.0
    dropped: int = 0
    reason: str = ""


def version_of(folder: Path) -> str:
    """Return a word that changes whenever the run has written something that a page shows."""
    marks = []
    for name in (SETTINGS, METRICS, SUMMARY, UNCERTAINTY, LOG):
        path = folder / name
        if path.is_file():
            state = path.stat()
            marks.append(f"{state.st_mtime_ns:x}.{state.st_size:x}")
    return "-".join([folder.name, *marks])


def live_page(run: Run) -> str:
    """Return the page of a run as it is now."""
    version = version_of(run.folder)
    results = RunResults.read(run)
    status = look(run.folder).status
    chapters = [_now(results, status), *written_chapters(view_of(results, Pictures()))]
    _, *facts = facts_of_run(results)
    alert = results.detail if results.summary and results.detail else ""
    text = html.page(
        title=f"{run.settings.experiment}, {run.settings.strategy}",
        kind="FedIvon, live",
        facts=[status, *_time_left(results, status), *facts],
        alert=f"{results.status}: {alert}" if alert else "",
        chapters=chapters,
        foot=f"This page updates itself after every round, from the files in {run.folder}.",
        script=SCRIPT,
    )
    return _marked(text, version)


def empty_page(title: str, alert: str, version: str = "") -> str:
    """Return the page that is shown while there is no run, or none that can be read."""
    text = html.page(
        title=title,
        kind="FedIvon, live",
        facts=[],
        alert=alert,
        chapters=[],
        foot="This page updates itself as soon as there is something to show.",
        script=SCRIPT,
    )
    return _marked(text, version)


def _marked(text: str, version: str) -> str:
    """The page with its version, by which its script knows that there is a newer one."""
    renewed = '<noscript><meta http-equiv="refresh" content="10"></noscript>'
    head = f'<html lang="en" data-version="{escape(version)}">'
    marked = text.replace('<html lang="en">', head, 1)
    return marked.replace("</head>", f"<style>{STYLE}</style>{renewed}</head>", 1)


def _time_left(results: RunResults, status: RunStatus) -> list[str]:
    rounds = results.settings.rounds - results.last_round
    times = [record.get("seconds") or {} for record in results.rounds[-RECENT:]]
    if status is not RunStatus.RUNNING or not rounds or not times:
        return []
    mean = fmean(number(t.get("train") or 0) + number(t.get("evaluate") or 0) for t in times)
    return [f"about {duration(rounds * mean)} left"]


def _now(results: RunResults, status: RunStatus) -> Chapter:
    """The chapter on the last round, the clients and the last lines of the log."""
    parts = [html.paragraph(_last_round(results, status))]
    clients = _clients(results.rounds)
    if clients:
        parts.append(_table(clients))
    if len(clients) > SHOWN_CLIENTS:
        parts.append(html.paragraph(f"and {len(clients) - SHOWN_CLIENTS} more clients"))
    if lines := _log(results.run.folder / LOG):
        parts.append(html.folded("The last lines of the log", html.code("\n".join(lines))))
    return Chapter("now", "Now", "".join(parts))


def _last_round(results: RunResults, status: RunStatus) -> str:
    if not results.rounds:
        began = "The run has ended before its first round was over."
        waits = "The run waits for its clients, or is in its first round."
        return waits if status is RunStatus.RUNNING else began
    last = results.rounds[-1]
    dropped = last.get("dropped") or []
    seconds = last.get("seconds") or {}
    told = [
        f"Round {last['round']}: {counted(len(last.get('clients') or ()), 'client')} answered",
        f"{counted(len(dropped), 'reply', 'replies')} dropped",
        f"{data_size(number(last.get('bytes_down') or 0))} sent to them",
        f"{data_size(number(last.get('bytes_up') or 0))} received",
        f"in {_short(number(seconds.get('train')) + number(seconds.get('evaluate')))}",
    ]
    if not last.get("merged", True):
        told.append("too few to merge, so that the model stayed as it was")
    if spent := [number(c["epsilon"]) for c in last.get("clients") or () if "epsilon" in c]:
        told.append(f"epsilon so far at most {max(spent):.3g}")
    return ", ".join(told) + "."


def _short(seconds: float) -> str:
    """Return how long a round took, which may be less than a second."""
    return f"{seconds:.2g} s" if seconds < 10 else html.exact_duration(seconds)


def _clients(rounds: list[dict[str, Any]]) -> list[_Client]:
    """Who has been heard of, those first whose replies were dropped, then by partition."""
    found: dict[int, _Client] = {}
    for record in rounds:
        times = (record.get("seconds") or {}).get("clients") or []
        for place, told in enumerate(record.get("clients") or ()):
            one = found.setdefault(told["partition"], _Client(told["partition"]))
            one.name = told.get("name") or one.name
            one.answered += 1
            one.last_round = record["round"]
            one.loss = number(told.get("loss"))
            one.seconds = number(times[place]) if place < len(times) else float("nan")
            one.sent += number(told.get("bytes") or 0)
        for told in record.get("dropped") or ():
            one = found.setdefault(told["partition"], _Client(told["partition"]))
            one.name = told.get("name") or one.name
            one.dropped += 1
            one.reason = f"round {record['round']}: {told.get('reason', '')}"
    return sorted(found.values(), key=lambda one: (-one.dropped, one.partition))


def _table(clients: list[_Client]) -> str:
    named = any(one.name for one in clients)
    dropped = any(one.dropped for one in clients)
    columns = ["client", *(["name"] if named else [])]
    words = len(columns)
    columns += ["rounds", "last round", "loss", "seconds", "sent"]
    columns += ["dropped", "the last reason"] if dropped else []
    rows = []
    for one in clients[:SHOWN_CLIENTS]:
        row = [Cell(str(one.partition), one.partition), *([Cell(one.name)] if named else [])]
        row += [
            Cell(str(one.answered), one.answered),
            Cell(str(one.last_round or html.NOTHING), one.last_round),
            _measured(one.loss, 4),
            _measured(one.seconds, 2),
            Cell(data_size(one.sent), one.sent),
        ]
        if dropped:
            row += [Cell(str(one.dropped), one.dropped), Cell(one.reason, long=True)]
        rows.append(row)
    return html.table(columns, rows, words)


def _measured(value: float, digits: int) -> Cell:
    return Cell(f"{value:.{digits}f}", value) if value == value else Cell(html.NOTHING)


def _log(path: Path) -> list[str]:
    if not path.is_file():
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        return [line.rstrip() for line in deque(file, maxlen=SHOWN_LINES)]
