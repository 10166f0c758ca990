"""A search as a page: the best settings, their test scores, and the score by every setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedivon_app.core.files import write_text
from fedivon_app.core.scores import known_scores
from fedivon_app.plurals import numbered
from fedivon_app.report import html
from fedivon_app.report.figure_files import Pictures
from fedivon_app.report.grouping import written
from fedivon_app.report.results import WAYS
from fedivon_app.tuning.finals import Final
from fedivon_app.tuning.halving import Trial, spent
from fedivon_app.tuning.pictures import keys_of, setting_figure
from fedivon_app.tuning.space import range_text, words_of
from fedivon_app.tuning.study import Study, file_name

PAGE = "tune.html"


@dataclass(frozen=True)
class About:
    """What a page says of the search as a whole."""

    experiment: str
    command: str
    budget: int
    seed: int
    held_out: int
    final_seeds: Sequence[int]
    file_text: str


def write_page(
    about: About, studies: Sequence[Study], finals: Mapping[str, Final], folder: Path
) -> Path:
    """Write folder/tune.html and folder/plots/*.png, and return the page's path.

    `finals` are by method; one without a trial that ended well has none.
    """
    pictures = Pictures(folder / "plots")
    chapters = [html.Chapter("best", "Best settings", _best(studies))]
    if finals and about.final_seeds:
        seeds = numbered("seed", about.final_seeds)
        body = _test_scores(list(finals.values()))
        chapters.append(html.Chapter("test", f"On the test set, {seeds}", body))
    for study in studies:
        chapters.append(
            html.Chapter(
                f"method-{file_name(study.strategy)}",
                f"{study.strategy}: score by setting",
                _by_setting(study, pictures),
            )
        )
    chapters.append(html.Chapter("how", "How it was searched", _how(about, studies)))
    trials = sum(len(study.trials) for study in studies)
    text = html.page(
        title=f"{about.experiment}: {', '.join(study.strategy for study in studies)}",
        kind="FedIvon search",
        facts=[
            f"{len(studies)} method{'' if len(studies) == 1 else 's'}",
            f"{trials} trials",
            f"{about.budget} full runs' worth of rounds each",
            f"search by seed {about.seed}",
            f"{about.held_out:,} held-out examples",
        ],
        alert=_alert(studies, finals),
        chapters=chapters,
        foot=about.command,
    )
    return write_text(folder / PAGE, text)


def _alert(studies: Sequence[Study], finals: Mapping[str, Final]) -> str:
    none = [study.strategy for study in studies if study.strategy not in finals]
    lines = [f"No trial of {strategy} came to its last round." for strategy in none]
    for strategy, final in finals.items():
        missing = len(final.steps) - len(final.completed)
        lines += [f"{missing} runs of the best of {strategy} failed."] if missing else []
    return "\n".join(lines)


def _best(studies: Sequence[Study]) -> str:
    rows = []
    for study in studies:
        best = study.best
        if best is None:
            continue
        values = study.subject.overrides(best)
        words = ", ".join(words_of(values))
        first = study.trials[0].scores.get(max(best.scores), math.nan)
        rows.append(
            [
                html.Cell(study.strategy),
                html.Cell(words, long=True),
                _number(best.last_score),
                html.Cell(str(max(best.scores)), max(best.scores)),
                _number(first),
                html.Cell(str(len(study.trials)), len(study.trials)),
                html.Cell(f"{spent(study.trials):,}", spent(study.trials)),
            ]
        )
    if not rows:
        return html.paragraph("No trial has a score.")
    columns = ["method", "best values", "held-out NLL", "after round"]
    columns += ["first trial's NLL", "trials", "rounds in all"]
    marked = html.mark_best(rows, 2, high=False, alike=[0] * len(rows))
    edges = [html.paragraph(f"{s.edge_text}.") for s in studies if s.edge_text]
    return (
        html.table(columns, marked, words=2)
        + "".join(edges)
        + html.paragraph(
            "The first trial has the experiment's own values, or those of --start, where the "
            "ranges hold them; its NLL is that after the same round, if it came that far."
        )
    )


def _number(value: float) -> html.Cell:
    return html.Cell(f"{value:.4f}", value) if math.isfinite(value) else html.Cell(html.NOTHING)


def _test_scores(finals: Sequence[Final]) -> str:
    scores = list(known_scores(()).values())
    rows = []
    alike: list[str] = []
    for final in finals:
        for way, words in WAYS.items():
            found = final.scores(way)
            if not found:
                continue
            cells = [html.Cell(final.study.strategy), html.Cell(words)]
            for score in scores:
                values = [one.get(score.name, math.nan) for one in found]
                cells.append(html.score_cell(values, digits=score.digits, percent=score.percent))
            rows.append([*cells, html.Cell(str(len(found)), len(found))])
            alike.append("")
    if not rows:
        return html.paragraph("No run of the best has test scores.")
    for place, score in enumerate(scores):
        rows = html.mark_best(rows, place + 2, high=score.higher_is_better, alike=alike)
    columns = ["method", "prediction", *(score.heading for score in scores), "seeds"]
    return html.table(columns, rows, words=2) + html.paragraph(
        "The settings were chosen by the held-out score alone; nothing was chosen by these numbers."
    )


def _by_setting(study: Study, pictures: Pictures) -> str:
    keys = keys_of(study.rungs)
    figures = []
    for name, option in study.subject.space.items():
        figure = setting_figure(name, option, study.trials, study.rungs)
        file = f"{file_name(study.strategy)}-{name.replace('.', '-')}"
        title = f"{study.strategy}: held-out NLL by {name}"
        figures.append(pictures(file, figure, title, keys))
    note = (
        "A dot is a trial, at the last round that it came to; the ring is the best one. Triangles "
        "at the upper edge failed, or are far above."
    )
    table = html.folded("All trials", _trials(study))
    return html.legend(keys) + html.grid(figures) + html.paragraph(note) + table


def _trials(study: Study) -> str:
    names = list(study.subject.space)
    rows = []
    for trial in study.trials:
        cells = [html.Cell(str(trial.number + 1), trial.number + 1)]
        cells += [_value(trial, name) for name in names]
        cells += [_number(trial.scores.get(rung, math.nan)) for rung in study.rungs]
        rows.append([*cells, html.Cell(trial.failure, long=True)])
    columns = ["trial", *names, *(f"NLL at {rung}" for rung in study.rungs), "failed"]
    return html.table(columns, rows)


def _value(trial: Trial, name: str) -> html.Cell:
    value = trial.values[name]
    number = float(value) if isinstance(value, int | float) else math.nan
    return html.Cell(written(value), number)


def _how(about: About, studies: Sequence[Study]) -> str:
    rungs = studies[0].rungs
    stops = numbered("round", rungs)
    text = (
        f"Each method had {about.budget} full runs' worth of rounds. Values were proposed by "
        f"Optuna's TPE; runs were compared after {stops}, and a run went on if it was "
        f"in the best third of those that came as far. What counts is the NLL on {about.held_out:,}"
        " training examples that no client has; the test set was not looked at before the end."
    )
    parts = [html.paragraph(text)]
    for study in studies:
        ranges = "\n".join(
            f"{name}={range_text(option)}" for name, option in study.subject.space.items()
        )
        parts.append(html.folded(f"Ranges of {study.strategy}", html.code(ranges)))
    if about.file_text:
        said = "The best values as a file for --set-file; best.yaml beside this page holds them:"
        parts += [html.paragraph(said), html.code(about.file_text)]
    return "".join(parts)
