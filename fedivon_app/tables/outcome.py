"""What is kept of a run in docs/results: its scores by round, its costs, and how it was made.

A run's folder has megabytes; this has a few kilobytes, from which every number and figure of a
paper's table can be made again without it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field

from fedivon_app.core.client_scores import PLACES
from fedivon_app.core.section import Section
from fedivon_app.report.results import RunResults
from fedivon_app.runs.folder import Run
from fedivon_app.runs.records import SETTINGS, read_code
from fedivon_app.runs.status import RunStatus

DIGITS = 6  # significant ones that are kept of a number
CHECKED_ROUNDS = 2
SAME = 1e-4  # relative; other code that draws other numbers is off by far more

Curve = dict[int, float]  # by round


class Outcome(Section):
    """A run in brief.

    `scores` are by names such as `gm.test.mean.accuracy` (whose model, over what, in which way),
    and by round.
    """

    seed: int
    date: str = Field(description="the day on which it was begun")
    commit: str = ""
    code: dict[str, str] = Field(default_factory=dict, description="digests of modules, by name")
    versions: dict[str, str] = Field(default_factory=dict)
    rounds: int
    seconds: float = Field(description="of all rounds, training and evaluation")
    training_seconds: float = Field(description="of all clients of a round together, on average")
    megabytes: float = Field(description="up and down, of a client in a round, on average")
    clients: float = Field(description="that trained and reported in a round, on average")
    scores: dict[str, Curve] = Field(default_factory=dict)
    auroc: dict[str, float] = Field(
        default_factory=dict, description="by way and measure, such as mc.entropy"
    )
    retention: dict[str, list[float]] = Field(
        default_factory=dict, description="`fractions`, and accuracies by way and measure"
    )
    reliability: dict[str, dict[str, list[float | None]]] = Field(
        default_factory=dict, description="bins of the reliability diagram, by way"
    )
    by_client: dict[str, list[float]] = Field(
        default_factory=dict,
        description="training examples of each client, and accuracies such as pm.mean",
    )
    failed: str = Field("", description="why it came to no end, if it did not")
    start: dict[int, dict[str, float]] = Field(
        default_factory=dict,
        description="of the first rounds, what tells whether other code does the same",
    )
    checked: str = Field(
        "", description="the commit whose first rounds were found to be the same as this run's"
    )
    gigaflops: float | None = Field(
        None, description="of a client's training in a round, on average, where it was counted"
    )

    def curve(self, model: str, over: str, way: str, score: str) -> Curve:
        """Return a score by round; what was not scored is empty."""
        return self.scores.get(f"{model}.{over}.{way}.{score}", {})


def outcome_of(run: Run) -> Outcome:
    """Return in brief a run that has ended, well or not."""
    results = RunResults.read(run)
    code = read_code(run.folder)
    records = [record for record in results.rounds if record["round"] > 0]
    return Outcome(
        seed=run.settings.seed,
        date=_day(run.folder / SETTINGS),
        commit=code.get("commit", ""),
        code=code.get("modules", {}),
        versions=results.summary.get("versions", {}),
        rounds=results.last_round,
        seconds=_short(results.seconds),
        training_seconds=_mean(sum(r["seconds"].get("clients") or [0]) for r in records),
        megabytes=_mean(_bytes(record) / 1e6 for record in records),
        clients=_mean(len(record.get("clients") or ()) for record in records),
        scores=scores_of(records),
        auroc={
            f"{way}.{measure}": _short(area)
            for way, judged in _ways(results)
            for measure, area in (judged.get("ood") or {}).get("auroc", {}).items()
        },
        retention=_retention(results),
        reliability={
            way: {name: [_or_none(v) for v in values] for name, values in bins.items()}
            for way, judged in _ways(results)
            if (bins := judged.get("reliability"))
        },
        by_client=_by_client(records),
        start=start_of(records),
        failed=results.detail if results.status == RunStatus.FAILED else "",
    )


def scores_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """Return all scores of a run's rounds, by name and round."""
    curves: dict[str, Curve] = {}
    for record in records:
        for name, value in _scores(record):
            if _is_finite(value):
                curves.setdefault(name, {})[record["round"]] = _short(value)
    return curves


def start_of(records: Sequence[Mapping[str, Any]]) -> dict[int, dict[str, float]]:
    """Return the loss and the extremes of the posterior in the first rounds."""
    found = {}
    for record in records[:CHECKED_ROUNDS]:
        posterior = record.get("posterior") or {}
        values = {"train_loss": record.get("train_loss"), **posterior}
        known = {name: value for name, value in values.items() if _is_finite(value)}
        found[record["round"]] = {name: _short(value) for name, value in known.items()}
    return found


def same_start(one: Outcome, other: Outcome) -> bool:
    """Tell whether two runs did the same in their first rounds, up to the rounding of sums."""
    if not one.start or one.start.keys() != other.start.keys():
        return False
    pairs = [(one.start[number], other.start[number]) for number in one.start]
    return all(
        before.keys() == after.keys()
        and all(math.isclose(before[n], after[n], rel_tol=SAME, abs_tol=SAME**2) for n in before)
        for before, after in pairs
    )


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _scores(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The scores of a round by name.

    `pooled` is over all clients' examples together, `clients` the mean over the clients.
    """
    for model in ("gm", "pm"):
        scored = record.get(model) or {}
        places = {"test": scored.get("test"), "pooled": scored.get(PLACES[model])}
        for over, ways in places.items():
            for way in ("mean", "mc"):
                for score, value in ((ways or {}).get(way) or {}).items():
                    if score != "samples":
                        yield f"{model}.{over}.{way}.{score}", value
        for way, spread in ((places["pooled"] or {}).get("over_clients") or {}).items():
            yield f"{model}.clients.{way}.accuracy", spread.get("mean")


def _ways(results: RunResults) -> list[tuple[str, dict[str, Any]]]:
    return [(way, judged) for way in ("mean", "mc") if (judged := results.assessment(way))]


def _retention(results: RunResults) -> dict[str, list[float]]:
    kept: dict[str, list[float]] = {}
    for way, judged in _ways(results):
        for measure, values in (judged.get("retention") or {}).items():
            name = measure if measure == "fractions" else f"{way}.{measure}"
            kept[name] = [_short(value) for value in values]
    return kept


def _by_client(records: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Every client's training examples, and its accuracies in the last round that has them."""
    kept: dict[str, list[float]] = {}
    for model in ("gm", "pm"):
        places = [(record.get(model) or {}).get(PLACES[model]) for record in records]
        last = next((place for place in reversed(places) if place), None)
        if last is None:
            continue
        clients = last["by_client"]
        kept["num_train"] = [client["num_train"] for client in clients]
        kept[f"{model}.mean"] = [_short(client["accuracy"]) for client in clients]
        if all("mc" in client for client in clients):
            kept[f"{model}.mc"] = [_short(client["mc"]["accuracy"]) for client in clients]
    return kept


def _bytes(record: Mapping[str, Any]) -> float:
    clients = len(record.get("clients") or ()) or 1
    total: float = record["bytes_up"] + record["bytes_down"]
    return total / clients


def _mean(values: Iterator[float]) -> float:
    listed = list(values)
    return _short(sum(listed) / len(listed)) if listed else 0.0


def _or_none(value: float | None) -> float | None:
    return None if value is None else _short(value)


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _day(path: Path) -> str:
    return f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d}"


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as it is written; what is empty is left out."""
    values: dict[str, Any] = json.loads(outcome.model_dump_json(exclude_defaults=True))
    return values
