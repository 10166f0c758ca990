"""Runs as pages: one HTML file with its plots, for a run or for a comparison."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from fedivon_app.core.settings import Settings, SettingsError, compose
from fedivon_app.methods import settings_of
from fedivon_app.report import html, page, plots
from fedivon_app.report.grouping import Group, Outcome, flat, grouped, shared, written
from fedivon_app.report.html import NOTHING, Cell, Section, number
from fedivon_app.runs.folder import Run

PANELS = {
    "accuracy": "test accuracy",
    "nll": "test NLL",
    "ece": "test ECE",
    "brier": "test Brier score",
}
MISSING = object()


def write_report(run: Run) -> Path:
    """RUN/report.html and RUN/plots/*.png, from what the run's folder holds."""
    outcome = Outcome.read(run)
    group = Group(run.settings.strategy, 0, run.settings, [outcome])
    text = _page_of_run(group, outcome, plots.Pictures(run.folder / "plots"))
    return _write(run.folder / "report.html", text)


def write_comparison(
    runs: Sequence[Run], folder: Path, names: Sequence[str] | None = None, title: str | None = None
) -> Path:
    """folder/compare.html and folder/plots/*.png; `names` are of the runs or of the groups, in their order."""
    if not runs:
        raise ValueError("there is nothing to compare: give at least one run")
    groups, named_by = grouped([Outcome.read(run) for run in runs], names)
    experiments = ", ".join(dict.fromkeys(run.settings.experiment for run in runs))
    folder.mkdir(parents=True, exist_ok=True)
    text = _page_of_groups(groups, named_by, title or experiments, plots.Pictures(folder / "plots"))
    return _write(folder / "compare.html", text)


def _write(path: Path, text: str) -> Path:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    return partial.replace(path)


def _page_of_run(group: Group, outcome: Outcome, pictures: plots.Pictures) -> str:
    settings = outcome.run.settings
    groups = [group]
    dropped = sum(len(record.get("dropped") or ()) for record in outcome.rounds)
    facts = [
        outcome.status,
        f"{outcome.last} of {settings.rounds} rounds",
        _data(settings),
        settings.model.factory or settings.model.name,
        settings.strategy,
        f"seed {settings.seed}",
        html.duration(outcome.seconds),
        f"{html.size(outcome.sent)} sent",
        *([f"{dropped} replies dropped"] if dropped else []),
    ]
    alert = f"{outcome.status}: {outcome.detail}" if outcome.detail else ""
    sections = [*page.sections(groups, "", pictures), _settings_of_run(outcome)]
    title = f"{settings.experiment}, {settings.strategy}"
    foot = f"From the files in {outcome.run.folder.name}; the figures lie beside this page, as PNG, in plots."
    return html.page(title, "FedIvon run", facts, alert, sections, foot)


def _page_of_groups(
    groups: Sequence[Group], named_by: str, title: str, pictures: plots.Pictures
) -> str:
    outcomes = [o for group in groups for o in group.outcomes + group.left_out]
    failed = sum(o.status == "failed" for o in outcomes)
    facts = [
        _count(len(outcomes), "run"),
        _count(len(groups), "group"),
        _count(len({o.run.settings.seed for o in outcomes}), "seed"),
        *dict.fromkeys(_data(group.settings) for group in groups),
        *dict.fromkeys(
            group.settings.model.factory or group.settings.model.name for group in groups
        ),
        html.duration(sum(o.seconds for o in outcomes)),
        f"{html.size(sum(o.sent for o in outcomes))} sent",
        *([f"{failed} failed"] if failed else []),
    ]
    sections = [
        *page.sections(groups, named_by, pictures),
        _runs(groups),
        _settings_of_groups(groups),
    ]
    foot = "The figures lie beside this page, as PNG, in plots."
    return html.page(title, "FedIvon comparison", facts, "", sections, foot)


def _runs(groups: Sequence[Group]) -> Section:
    columns = ["Group", "Status", "Seed", "Rounds", "Time", "Sent", "Folder"]
    rows = []
    lost = []
    for group, outcome in ((g, o) for g in groups for o in g.outcomes + g.left_out):
        seed = outcome.run.settings.seed
        last = outcome.last
        seconds = outcome.seconds
        sent = outcome.sent
        numbers = (str(seed), seed), (f"{last} of {outcome.run.settings.rounds}", last)
        numbers += (html.duration(seconds), seconds), (html.size(sent), sent)
        row = [
            Cell(group.label),
            Cell(outcome.status),
            *(Cell(text, float(value)) for text, value in numbers),
        ]
        rows.append([*row, Cell(outcome.run.folder.name)])
        if outcome in group.left_out:
            lost.append([*row[:4], Cell(outcome.detail or NOTHING, long=True)])
    body = ""
    if lost:
        why = "These failed, or did not end while others of their group did; no figure or mean has them."
        body = html.paragraph(why) + html.table([*columns[:4], "Why"], lost, 5)
    return Section(
        "runs", "Runs", body + html.folded(f"All {len(rows)} runs", html.table(columns, rows, 7))
    )


def _settings_of_run(outcome: Outcome) -> Section:
    again = command(outcome.run.settings)
    body = html.paragraph("The same run again:") + html.code(again) if again else ""
    return Section(
        "settings",
        "Settings",
        body + html.folded("All settings", html.code(_text(outcome.run.settings))),
    )


def _settings_of_groups(groups: Sequence[Group]) -> Section:
    body = "".join(html.folded(group.label, html.code(_text(group.settings))) for group in groups)
    return Section("settings", "Settings", body)


def _text(settings: Settings) -> str:
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)


def _data(settings: Settings) -> str:
    clients = f"{settings.data.clients} clients, " if settings.data.clients else ""
    return f"{settings.data.source} ({clients}{settings.data.partition})"


def _count(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def plot_learning(runs: Sequence[Run], path: Path, names: Sequence[str] | None = None) -> bool:
    """Draws the scores of the global models on the central test set by round; False where no run has any."""
    names = names or [run.settings.strategy for run in runs]
    panels: dict[str, list[plots.Line]] = {title: [] for title in PANELS.values()}
    for name, run in zip(names, runs, strict=True):
        tracks = {way: Outcome.read(run).scores("test", way) for way in ("mean", "mc")}
        tracks = {way: scores for way, scores in tracks.items() if scores}
        for way, scores in tracks.items():
            label = f"{name}, {page.WAYS[way]}" if len(tracks) > 1 else name
            style = len(next(iter(panels.values())))
            for measure, title in PANELS.items():
                values = np.array([number(score.get(measure)) for score in scores.values()])
                panels[title].append(plots.Line(label, style, np.array(list(scores)), values))
    if not any(panels.values()):
        return False
    title = ", ".join(
        dict.fromkeys(f"{run.settings.experiment}, seed {run.settings.seed}" for run in runs)
    )
    plots.png(plots.learning(panels, title), path)
    return True


def command(settings: Settings) -> str | None:
    """The command line that runs the same again; None where its experiment is no longer there."""
    try:
        plain = flat(
            compose(settings_of, settings.experiment, settings.strategy).model_dump(mode="json")
        )
    except SettingsError:
        return None
    given = flat(shared(settings))
    changed = {key: value for key, value in given.items() if plain.get(key, MISSING) != value}
    words = [
        "fedivon",
        "run",
        settings.experiment,
        "--strategy",
        settings.strategy,
        "--seed",
        str(settings.seed),
    ]
    return shlex.join(
        words + (["--set"] if changed else []) + [f"{k}={written(v)}" for k, v in changed.items()]
    )
