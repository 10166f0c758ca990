"""What is done with a finished round: scores, a line of metrics, a checkpoint, a line to read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import isfinite
from typing import Any

from fedivon_app.core.codec import Payload
from fedivon_app.core.curvature import spread
from fedivon_app.core.noise_width import with_noise_width
from fedivon_app.core.scores import chosen_scores
from fedivon_app.runs.calibration import Calibration
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.runs.folder import Run
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server.guessing import no_better_than_guessing
from fedivon_app.server.newcomers import Newcomers
from fedivon_app.server.trackers import Trackers
from fedivon_app.strategies.round_record import CALIBRATION, Record
from fedivon_app.strategies.standing import Standing

log = logging.getLogger("fedivon")

# Which scores stand in a round's line: the first that there are, and whose they are.
SHOWN = (
    ("gm", "test", ""),
    ("gm", "clients_before_training", "clients' test parts, "),
    ("pm", "clients_after_training", "PMs, clients' test parts, "),
)


class Recorder:
    """The observer of a run's rounds, who writes what came of them to the run's folder."""

    def __init__(
        self,
        run: Run,
        evaluator: Evaluator,
        *,
        num_classes: int,
        has_global_model: bool,
        deviation: float = 1.0,
        trackers: Trackers | None = None,
    ):
        self.run = run
        self.deviation = deviation  # of a number that is predicted
        self.evaluator = evaluator
        self.num_classes = num_classes
        self.has_global_model = has_global_model
        self.trackers = trackers
        self.last: Standing | None = None  # the last good round
        self.unlearned: str | None = None  # why the model scored last is no better than a guess
        self._has_learned = False  # in any round
        self._newcomers = Newcomers.of(run.metrics())

    def score(self, server_round: int, payload: Payload) -> Mapping[str, Any] | None:
        """Return the scores of the global model, in rounds in which the settings want them."""
        able = self.has_global_model and self.evaluator.parts
        if not (able and self.run.settings.is_scored(server_round)):
            return None
        known = with_noise_width(payload, self.run.settings, self.run.metrics())
        scores = self.evaluator(server_round, known)
        self.unlearned = no_better_than_guessing(scores, self.num_classes, self.deviation)
        if self.unlearned and self._has_learned:
            log.warning("round %d: what was learned is lost; %s", server_round, self.unlearned)
        self._has_learned = self._has_learned or not self.unlearned
        return scores

    def finished(self, standing: Standing, record: Record) -> bool:
        """Write the round's line, and checkpoints where they are due; tell whether one was."""
        settings = self.run.settings
        self.last = standing
        line = {key: value for key, value in record.items() if key != CALIBRATION}
        self.run.append(line | self._spread(standing))
        if self.trackers is not None:
            self.trackers.round(line)
        if CALIBRATION in record:
            samples = settings.evaluation.samples
            Calibration(standing.round, samples, record[CALIBRATION]).write(self.run)
        self._keep_best(standing, record)
        stops = standing.round in (settings.rounds, settings.run.stop_after)
        due = stops or standing.round % settings.run.checkpoint_every == 0
        if due:
            self.run.save(checkpoint_of(standing))
        log.info(progress(record, settings.rounds))
        if told := self._newcomers.fall(record):
            log.warning(told)
        self._newcomers = self._newcomers.after(record)
        return due

    def _spread(self, standing: Standing) -> Record:
        """Return how the precision spreads over the weights, in rounds that are scored."""
        if not (self.has_global_model and self.run.settings.is_scored(standing.round)):
            return {}
        found = spread(standing.payload.posterior, self.evaluator.flat.slices)
        return {"precision": found} if found else {}

    def _keep_best(self, standing: Standing, record: Record) -> None:
        """Keep a checkpoint of the round with the best held-out score."""
        held_out = record.get("gm", {}).get("holdout")
        if not held_out:
            return
        evaluation = self.run.settings.evaluation
        scores = chosen_scores(evaluation.scores, self.run.settings.task)
        score = scores[evaluation.select_by]
        value = list(held_out.values())[-1][evaluation.select_by]
        smaller_is_better = -value if score.higher_is_better else value
        best = self.run.best()
        if isfinite(value) and (best is None or smaller_is_better < best.score):
            self.run.save_best(checkpoint_of(standing), smaller_is_better)

    def keep_last(self) -> None:
        """Write a checkpoint of the last good round, where there is none yet."""
        if self.last is None:
            return
        if self.last.round not in {saved.round for saved in self.run.checkpoints()}:
            self.run.save(checkpoint_of(self.last))


def checkpoint_of(standing: Standing) -> Checkpoint:
    """Return a run's standing as its folder keeps it."""
    return Checkpoint(standing.round, standing.payload, standing.arrays())


def progress(record: Record, rounds: int) -> str:
    """Return a round in one line."""
    line = f"round {record['round']}/{rounds}"
    if "train_loss" in record:
        line += f"  train loss {record['train_loss']:.4f}"
    line += _scores(record)
    if record["dropped"]:
        line += f"  dropped {len(record['dropped'])}"
    return f"{line}  {record['seconds']['train'] + record['seconds']['evaluate']:.2f} s"


def _scores(record: Record) -> str:
    """Return the scores of the global model, where there are none those of the clients' own."""
    for model, part, whose in SHOWN:
        ways = record.get(model, {}).get(part, {})
        if found := [f"{way}: {_shown(ways[way])}" for way in ("mean", "mc") if way in ways]:
            return f"  {whose}{'  '.join(found)}"
    return ""


def _shown(scores: Mapping[str, float]) -> str:
    if "rmse" in scores:
        return f"rmse {scores['rmse']:.4g} nll {scores['nll']:.4f} crps {scores['crps']:.4g}"
    accuracy = 100 * scores["accuracy"]
    return f"acc {accuracy:.2f} nll {scores['nll']:.4f} ece {scores['ece']:.4f}"
