"""The ServerApp: settings -> strategy -> rounds -> run folder."""

from __future__ import annotations

import json
import logging
import os
import shlex
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from flwr.app import Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedivon_app import logs
from fedivon_app.core.codec import Payload
from fedivon_app.core.settings import SettingsError, compose
from fedivon_app.datasets.sources import DataError
from fedivon_app.methods import method, settings_of
from fedivon_app.report.writing import write_report
from fedivon_app.runs.folder import Run
from fedivon_app.runs.uncertainty import assess
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server.pretraining import pretrain
from fedivon_app.server.setup import prepare
from fedivon_app.strategies.base import PosteriorStrategy
from fedivon_app.strategies.divergence import extremes
from fedivon_app.strategies.roll_call import RunError, wait_for_nodes

app = ServerApp()
log = logging.getLogger("fedivon")

Checkpoint = tuple[int, Payload, dict[str, np.ndarray]]


@app.main()
def main(grid: Grid, context: Context) -> None:
    logs.to_stdout()
    run = None
    with ExitStack() as stack:
        try:
            run, checkpoint = _open(context.run_config, grid)
            stack.enter_context(logs.also_in(run.folder / "log.txt"))
            _run(grid, run, checkpoint)
        except (
            ValueError,
            RunError,
        ) as error:  # what the settings, the data or the clients make impossible
            for line in str(error).splitlines():
                log.error("error: %s", line)
            if run is not None:
                run.summarise("failed", str(error))
                _report(run)
            raise RunError(str(error)) from (
                None if isinstance(error, SettingsError | DataError | RunError) else error
            )


def _open(config: dict[str, Any], grid: Grid) -> tuple[Run, Checkpoint | None]:
    """The run that the run config asks for: a new one, or the one to resume."""
    if config.get("resume"):
        run = Run.open(config["resume"])
        return run, run.resume()
    overrides = shlex.split(config.get("set", ""))
    if config.get("runs"):
        overrides.append(f"run.folder={config['runs']}")
    settings = compose(settings_of, config["experiment"], config.get("strategy"), overrides)
    if settings.data.clients is None:
        data = settings.data.model_copy(update={"clients": wait_for_nodes(grid, settings)})
        settings = settings.model_copy(update={"data": data})
    return Run.create(settings), None


def _run(grid: Grid, run: Run, checkpoint: Checkpoint | None) -> None:
    settings = run.settings
    torch.set_num_threads(
        int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count())
    )  # clients rest while it evaluates
    log.info(
        "%s, %s, seed %d; run folder %s",
        settings.experiment,
        settings.strategy,
        settings.seed,
        run.folder,
    )
    flat, (shape, num_classes, class_names, parts) = prepare(settings)
    known = {"shape": shape, "num_classes": num_classes, "class_names": class_names}
    run.write("model.json", json.dumps(known) + "\n")
    data = settings.data.model_copy(
        update={"num_classes": num_classes}
    )  # a node's own file may lack some classes
    strategy = method(settings.strategy).strategy(
        settings.model_copy(update={"data": data}), shape, num_classes
    )
    strategy.run_folder = run.folder
    strategy.blocks = list(flat.slices.values())
    strategy.clients_go_on = method(settings.strategy).client.goes_on(settings)
    strategy.summary()
    done = 0
    strategy.payload = strategy.begin(flat.mean(), flat.buffers)
    strategy.first_extremes = extremes(strategy.payload.posterior)
    if checkpoint is not None:
        done, strategy.payload, state = checkpoint
        strategy.load_state(state)
        log.info("resumed after round %d", done)
    elif settings.pretraining.fraction:
        strategy.payload = pretrain(settings, strategy.payload, flat)
        run.save(0, strategy.payload, strategy.state())
    last = (
        min(settings.rounds, settings.run.stop_after or settings.rounds)
        if checkpoint is None
        else settings.rounds
    )
    recorder = Recorder(run, strategy, Evaluator(settings, flat, parts))
    hooks = {"evaluate_fn": recorder.evaluate, "on_round": recorder.record, "first_round": done + 1}
    try:
        strategy.start(grid, strategy.arrays(), last, settings.server.round_timeout, **hooks)
        if not strategy.last_merged:
            raise RunError(
                f"in {last} rounds there were never enough good replies to merge: nothing was learned"
            )
    except RunError:
        recorder.keep_last()
        raise
    summary = run.summarise("completed" if last == settings.rounds else "stopped")
    if last == settings.rounds and "test" in parts and strategy.has_global_model:
        assess(run, predicted=recorder.evaluator.moments)
    _report(run)
    log.info("%s after round %d; run folder %s", summary["status"], last, run.folder)


def _report(run: Run) -> None:
    """The run's page; if it cannot be drawn, the run is none the worse for it."""
    try:
        write_report(run)
    except Exception as error:
        log.warning("no report: %s (`fedivon report %s` tries again)", error, run.folder)


class Recorder:
    """What is done with a finished round: scores, a line of metrics, a checkpoint, a line for the person who waits."""

    def __init__(self, run: Run, strategy: PosteriorStrategy, evaluator: Evaluator):
        self.run = run
        self.strategy = strategy
        self.evaluator = evaluator
        self.last: tuple[int, Payload, dict[str, np.ndarray]] | None = None  # the last good round

    def evaluate(self, server_round: int, arrays: Any) -> MetricRecord | None:
        if not (
            self.strategy.has_global_model
            and self.evaluator.parts
            and self.evaluator.due(server_round)
        ):
            return None
        scores = self.evaluator(server_round, self.strategy.payload)
        self.strategy.record.setdefault("gm", {}).update(scores)
        best_way = list(scores.get("test", {"mean": {}}).values())[-1]
        return MetricRecord({key: float(value) for key, value in best_way.items()})

    def record(self, server_round: int, payload: Payload, record: dict[str, Any]) -> None:
        settings = self.run.settings
        state = self.strategy.state()
        self.last = server_round, payload, state
        self.run.append(record)
        if "holdout" in record.get("gm", {}):
            score = list(record["gm"]["holdout"].values())[-1][settings.evaluation.select_by]
            score = -score if settings.evaluation.select_by == "accuracy" else score
            best = self.run.best()
            if best is None or score < best["score"]:
                self.run.save_best(server_round, payload, state, score)
        stops = server_round in (settings.rounds, settings.run.stop_after)
        if stops or server_round % settings.run.checkpoint_every == 0:
            self.run.save(server_round, payload, state)
            self.strategy.saved()
        log.info(progress(record, settings.rounds))

    def keep_last(self) -> None:
        """A checkpoint of the last good round, where there is none yet."""
        if self.last is not None and self.last[0] not in dict(self.run.checkpoints()):
            self.run.save(*self.last)


def progress(record: dict[str, Any], rounds: int) -> str:
    """A round in one line."""
    line = f"round {record['round']}/{rounds}"
    if "train_loss" in record:
        line += f"  train loss {record['train_loss']:.4f}"
    for way, scores in record.get("gm", {}).get("test", {}).items():
        line += f"  {way}: acc {100 * scores['accuracy']:.2f} nll {scores['nll']:.4f} ece {scores['ece']:.4f}"
    if record["dropped"]:
        line += f"  dropped {len(record['dropped'])}"
    return f"{line}  {record['seconds']['train'] + record['seconds']['evaluate']:.2f} s"
