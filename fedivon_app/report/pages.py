"""Runs as pages: one HTML file with its plots, for a run or for a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedivon_app.core.errors import UserError
from fedivon_app.core.files import write_text
from fedivon_app.core.scores import Score
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.text import Unit, data_size, data_unit
from fedivon_app.plurals import counted
from fedivon_app.report import html, plots
from fedivon_app.report.chapters import written_chapters
from fedivon_app.report.figure_files import Pictures, write_figure
from fedivon_app.report.grouping import Group, grouped
from fedivon_app.report.learning_plot import By, Panel, learning
from fedivon_app.report.results import WAYS, RunResults, number, scores_held
from fedivon_app.report.style import Key
from fedivon_app.report.view import PageView
from fedivon_app.runs.folder import Run
from fedivon_app.runs.status import RunStatus

# Scores whose label reads otherwise within a phrase.
PHRASES = {"accuracy": "accuracy", "brier": "Brier score"}


def write_report(run: Run) -> Path:
    """Write RUN/report.html and RUN/plots/*.png from what the run's folder holds.

    It returns the page's path.
    """
    results = RunResults.read(run)
    view = view_of(results, Pictures(run.folder / "plots"))
    text = html.page(
        title=f"{run.settings.experiment}, {run.settings.strategy}",
        kind="FedIvon run",
        facts=facts_of_run(results),
        alert=f"{results.status}: {results.detail}" if results.detail else "",
        chapters=written_chapters(view),
        foot=(
            f"Made with {results.made_by}, from the files in {run.folder.name}. The figures are "
            "also PNG files in the folder plots beside this page."
        ),
    )
    return write_text(run.folder / "report.html", text)


def write_comparison(
    runs: Sequence[Run], folder: Path, names: Sequence[str] | None = None, title: str | None = None
) -> Path:
    """Write folder/compare.html and folder/plots/*.png, and return the page's path.

    `names` are of the runs or of the groups, in their order.
    """
    if not runs:
        raise UserError("there is nothing to compare: give at least one run")
    grouping = grouped([RunResults.read(run) for run in runs], names)
    view = PageView(
        groups=grouping.groups, pictures=Pictures(folder / "plots"), named_by=grouping.named_by
    )
    text = html.page(
        title=title or ", ".join(dict.fromkeys(run.settings.experiment for run in runs)),
        kind="FedIvon comparison",
        facts=_facts_of_groups(grouping.groups),
        alert="",
        chapters=written_chapters(view),
        foot=f"Made with {_makers(grouping.groups)}. The figures are also PNG files in the folder "
        "plots beside this page.",
    )
    return write_text(folder / "compare.html", text)


def _makers(groups: Sequence[Group]) -> str:
    """What the runs were made with, each version once."""
    return "; ".join(dict.fromkeys(run.made_by for group in groups for run in group.members))


def view_of(results: RunResults, pictures: Pictures) -> PageView:
    """Return what the page of one run is about."""
    settings = results.settings
    group = Group(label=settings.strategy, style=0, settings=settings, results=[results])
    return PageView(groups=[group], pictures=pictures, compares=False)


def facts_of_run(results: RunResults) -> list[str]:
    """Return what the head of a run's page says: its state, its data, and what it has sent."""
    settings = results.settings
    dropped = sum(len(record.get("dropped") or ()) for record in results.rounds)
    return [
        results.status,
        f"{results.last_round} of {counted(settings.rounds, 'round')}",
        _data(settings),
        _model(settings),
        settings.strategy,
        f"seed {settings.seed}",
        html.exact_duration(results.seconds),
        f"{data_size(results.bytes_sent)} sent",
        *([f"{counted(dropped, 'reply', 'replies')} dropped"] if dropped else []),
    ]


def _facts_of_groups(groups: Sequence[Group]) -> list[str]:
    runs = [run for group in groups for run in group.members]
    failed = sum(run.status == RunStatus.FAILED for run in runs)
    return [
        counted(len(runs), "run"),
        counted(len(groups), "group"),
        counted(len({run.settings.seed for run in runs}), "seed"),
        *dict.fromkeys(_data(group.settings) for group in groups),
        *dict.fromkeys(_model(group.settings) for group in groups),
        html.exact_duration(sum(run.seconds for run in runs)),
        f"{data_size(sum(run.bytes_sent for run in runs))} sent",
        *([f"{failed} failed"] if failed else []),
    ]


def _data(settings: AnySettings) -> str:
    known = settings.data.clients
    clients = f"{counted(known, 'client')}, " if known else ""
    if settings.data.source == "nodes":  # which are divided by nobody
        return "the sites' own data"
    return f"{settings.data.source} ({clients}{settings.data.partition})"


def _model(settings: AnySettings) -> str:
    return settings.model.factory or settings.model.name


def plot_learning(
    runs: Sequence[Run],
    path: Path,
    names: Sequence[str] | None = None,
    width: str | None = None,
    over_seeds: bool = False,
    by: By = "rounds",
) -> Path:
    """Draw the scores of the global models on the central test set, by rounds or by bytes.

    The file's suffix says in which format; `width` is as in `learning_plot.learning`. With
    `over_seeds` a line is the mean of runs that differ in the seed alone. Where no run has scores,
    that is a UserError.
    """
    results = [RunResults.read(run) for run in runs]
    if over_seeds:
        tracks = _test_tracks({one.label: one.results for one in grouped(results, names).groups})
    elif names is not None and len(names) != len(runs):
        told = f"{counted(len(names), 'name')} for {counted(len(runs), 'run')}"
        raise UserError(f"{told}: give one for each run")
    else:
        tracks = _tracks_of_runs(results, names or [run.settings.strategy for run in runs])
    scores = scores_held(results)
    if not scores or not tracks:
        raise UserError(
            "there are no curves to draw: no round of these runs was scored on a central test set"
        )
    unit = data_unit(max(one.bytes_sent for one in results)) if by == "bytes" else None
    panels = [
        Panel(
            title=f"test {PHRASES.get(name, score.label)}{', %' * score.percent}",
            lines=[track.line(score, unit) for track in tracks],
            unit=unit,
        )
        for name, score in scores.items()
    ]
    title = ", ".join(
        dict.fromkeys(f"{run.settings.experiment}, seed {run.settings.seed}" for run in runs)
    )
    return write_figure(learning(panels, title, width), path)


@dataclass(frozen=True, eq=False)
class _Track:
    """The scores by round of runs that differ in the seed at most, predicting in one way."""

    key: Key
    runs: Sequence[Mapping[int, Mapping[str, Any]]]
    sent: Sequence[Mapping[int, float]]  # bytes up to each round

    def line(self, score: Score, unit: Unit | None = None) -> plots.Line:
        """Return the line of a score by round or, with a unit, by the bytes that were sent."""
        first, *others = self.runs
        rounds = [one for one in first if all(one in other for other in others)]
        factor = 100 if score.percent else 1
        values = [
            [factor * number(run[one].get(score.name)) for one in rounds] for run in self.runs
        ]
        if unit is None:
            return plots.Line.mean(self.key, np.array(rounds), values)
        sent = np.mean([[own[one] for one in rounds] for own in self.sent], axis=0)
        return plots.Line.mean(self.key, sent / unit.size, values)


def _test_tracks(groups: Mapping[str, Sequence[RunResults]], first: int = 0) -> list[_Track]:
    """The tracks of groups by their names; styles are counted from the first."""
    tracks: list[_Track] = []
    for name, results in groups.items():
        ways = [w for w in reversed(WAYS) if results and all(r.scores("test", w) for r in results)]
        for way in ways:
            label = f"{name}, {WAYS[way]}" if len(ways) > 1 else name
            key = Key(label, first + len(tracks))
            scores = [one.scores("test", way) for one in results]
            tracks.append(_Track(key, scores, [one.bytes_by_round for one in results]))
    return tracks


def _tracks_of_runs(results: Sequence[RunResults], names: Sequence[str]) -> list[_Track]:
    """The tracks of single runs, of which several may have one name."""
    tracks: list[_Track] = []
    for name, one in zip(names, results, strict=True):
        tracks += _test_tracks({name: [one]}, first=len(tracks))
    return tracks
