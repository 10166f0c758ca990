"""What runs came to at their ends, read from their folders, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedivon_app.cli.table_formats import FORMS
from fedivon_app.cli.tables import WAYS, ScoredRow, columns_of, scores_table, way_of
from fedivon_app.core.client_scores import PLACES
from fedivon_app.core.errors import SettingsError
from fedivon_app.runs.records import read_settings, read_summary

WORDS = ("experiment", "strategy", "seed", "round", "model")
WORDS_OVER_SEEDS = ("experiment", "method", "seeds", "round", "model")
# The parts of the data that models are scored on, and what a table adds to a model's name for it.
SCORED_ON = {"test": "", **dict.fromkeys(PLACES.values(), ", clients' test parts")}


@dataclass(frozen=True)
class _Scored:
    """A model of a run, and its scores by part and way."""

    model: str
    server_round: int
    scores: Mapping[str, Any]
    note: str = ""


def summary_of(folder: Path) -> dict[str, Any]:
    """Return the summary of a run that has ended."""
    summary = read_summary(folder)
    if summary is None:
        raise SettingsError(
            f"{folder} has no summary.json: it is not a run folder, or its run has not ended"
        )
    return summary


def own_scores(folders: Iterable[Path]) -> list[str]:
    """Return the import paths of the scores that these runs had of their own."""
    paths: list[str] = []
    for folder in folders:
        with suppress(SettingsError):  # a summary without settings is shown all the same
            evaluation = read_settings(folder).get("evaluation") or {}
            paths += evaluation.get("scores") or ()
    return list(dict.fromkeys(paths))


def summary_table(
    summaries: Iterable[Mapping[str, Any]], own: Iterable[str] = (), form: str = "text"
) -> str:
    """Return a table with a line for every run, model and way of predicting.

    A run's global model (GM) is shown after the last round and at the best held-out round, its
    clients' personal models (PM) after the last; each at the mean and by Monte Carlo. `own` are the
    import paths of scores that the runs had of their own, and `form` is a name in FORMS.
    """
    return _in_form(form, WORDS, [row for one in summaries for row in _rows(one)], own)


def table_over_seeds(
    groups: Mapping[str, Sequence[Mapping[str, Any]]], own: Iterable[str] = (), form: str = "text"
) -> str:
    """Return a table with a line for every group of runs, model and way of predicting.

    A group has a name, and the summaries of runs that differ in the seed alone; a line has the mean
    and the standard deviation over them. The rest is as in `summary_table`.
    """
    rows = []
    for name, summaries in groups.items():
        models: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
        for row in (row for summary in summaries for row in _rows(summary)):
            experiment, _, _, server_round, model = row.words
            models.setdefault((experiment, server_round, model), []).extend(row.scores)
        for (experiment, server_round, model), scores in models.items():
            words = [experiment, name, str(len(scores)), server_round, model]
            rows.append(ScoredRow(words, scores))
    return _in_form(form, WORDS_OVER_SEEDS, rows, own)


def _in_form(form: str, words: Sequence[str], rows: Sequence[ScoredRow], own: Iterable[str]) -> str:
    if form == "text":
        return scores_table(words, rows, own=own)
    return FORMS[form](words, rows, columns_of(rows, own))


def _rows(summary: Mapping[str, Any]) -> Iterator[ScoredRow]:
    who = (summary["experiment"], summary["strategy"], str(summary["seed"]))
    for one in _models(summary):
        for part, addition in SCORED_ON.items():
            for way, values in one.scores.get(part, {}).items():
                if way in WAYS:
                    model = way_of(way, values.get("samples"), one.model)
                    words = [*who, str(one.server_round), f"{model}{addition}{one.note}"]
                    yield ScoredRow(words, [values])


def _models(summary: Mapping[str, Any]) -> Iterator[_Scored]:
    rounds = summary["rounds"]
    best = summary["best"]
    yield _Scored("GM", rounds, summary["final"] or {})
    if best and best["round"] != rounds:
        yield _Scored("GM", best["round"], best["gm"] or {}, note=", best held-out")
    yield _Scored("PM", rounds, summary.get("personal") or {})
