"""What a run's folder holds, as pages and plots read it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedivon_app.core.client_scores import PLACES
from fedivon_app.core.scores import NUMBER_SCORES, Score, known_scores
from fedivon_app.core.settings import AnySettings
from fedivon_app.runs.folder import Run
from fedivon_app.runs.records import UNCERTAINTY, read_code, read_json, read_summary
from fedivon_app.runs.status import RunStatus
from fedivon_app.runs.version import version_text

# The names that records have, in words.
WAYS = {"mc": "Monte Carlo", "mean": "at the mean"}
PARTS = {
    "test": "central test set",
    "clients_before_training": "clients' test parts",
    "holdout": "held-out examples",
}
UNCERTAINTIES = {"entropy": "Entropy", "aleatoric": "Aleatoric part", "epistemic": "Epistemic part"}


def number(value: object) -> float:
    """Return the value as a float; what is no finite number is NaN."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan


@dataclass(frozen=True, eq=False)
class RunResults:
    """What a run's folder holds; parts that are missing are empty."""

    run: Run
    rounds: list[dict[str, Any]]
    summary: dict[str, Any]
    uncertainty: dict[str, Any]

    @classmethod
    def read(cls, run: Run) -> RunResults:
        """Read the results of a run from its folder."""
        return cls(
            run=run,
            rounds=list(run.metrics()),
            summary=read_summary(run.folder) or {},
            uncertainty=read_json(run.folder / UNCERTAINTY) or {},
        )

    @property
    def settings(self) -> AnySettings:
        """Return the settings of the run."""
        return self.run.settings

    @property
    def status(self) -> str:
        """Return how the run ended, as its summary says; a run without one is unfinished."""
        return str(self.summary.get("status") or RunStatus.UNFINISHED)

    @property
    def detail(self) -> str:
        """Return why the run ended so, where there is something to say."""
        missing = "" if self.summary else "no summary.json was written"
        return str(self.summary.get("detail") or missing)

    @property
    def made_by(self) -> str:
        """Return the version and the commit that made the run, as far as its folder tells them."""
        versions = self.summary.get("versions") or {}
        commit = self.summary.get("commit") or read_code(self.run.folder).get("commit", "")
        return version_text(versions.get("fedivon", ""), commit)

    @property
    def seconds(self) -> float:
        """Return how long training and evaluation took in all rounds."""
        times = [record.get("seconds") or {} for record in self.rounds]
        return sum(number(t.get("train") or 0) + number(t.get("evaluate") or 0) for t in times)

    @property
    def last_round(self) -> int:
        """Return the number of the last round that there is a record of, or 0."""
        last: int = self.rounds[-1]["round"] if self.rounds else 0
        return last

    @cached_property
    def bytes_by_round(self) -> dict[int, float]:
        """Return the bytes sent in both directions up to each round."""
        sent = [
            number(r.get("bytes_up") or 0) + number(r.get("bytes_down") or 0) for r in self.rounds
        ]
        return dict(zip([r["round"] for r in self.rounds], np.cumsum(sent).tolist(), strict=True))

    @property
    def bytes_sent(self) -> float:
        """Return the bytes sent in both directions in all rounds."""
        return max(self.bytes_by_round.values(), default=0.0)

    def last_clients(self, whose: str) -> dict[str, Any]:
        """Return the last scores of the GM (`gm`) or the PMs (`pm`) on the clients' test parts.

        They are pooled under `mean`, and each client's under `by_client`.
        """
        scored = ((record.get(whose) or {}).get(PLACES[whose]) for record in reversed(self.rounds))
        return next((scores for scores in scored if scores), {})

    def scores(self, part: str, way: str) -> dict[int, dict[str, Any]]:
        """Return the GM's scores by round on one of PARTS, predicting in one of WAYS."""
        found = ((r["round"], ((r.get("gm") or {}).get(part) or {}).get(way)) for r in self.rounds)
        return {server_round: scores for server_round, scores in found if scores}

    def track(self, *names: str) -> dict[int, float]:
        """Return a number by round, such as `train_loss` or `posterior`, `largest_mean`.

        Rounds that lack it are left out.
        """
        values = {}
        for record in self.rounds:
            value: Any = record
            for name in names:
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                values[record["round"]] = number(value)
        return values

    def assessment(self, way: str) -> dict[str, Any]:
        """Return what `fedivon uncertainty` found of the model that predicts in one of WAYS."""
        return (self.uncertainty.get("ways") or {}).get(way) or {}


def scores_held(results: Sequence[RunResults]) -> dict[str, Score]:
    """Return the scores that any of the runs holds: the project's, then the users' own."""
    own = dict.fromkeys(path for one in results for path in one.settings.evaluation.scores)
    held = {
        name
        for one in results
        for part in PARTS
        for way in WAYS
        for scores in one.scores(part, way).values()
        for name in scores
    }
    known = known_scores(own)
    known |= {name: score for name, score in NUMBER_SCORES.items() if name not in known}
    return {name: score for name, score in known.items() if name in held}
