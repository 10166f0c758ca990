"""The ServerApp: settings -> strategy -> rounds -> run folder."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from typing import Any

import numpy as np
import torch
from flwr.app import Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from clients.data import classes, division, new_network, pick_device
from datasets.sources import DataError, load
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.settings import Settings, SettingsError, compose
from fedivon_app.evaluation import Evaluator
from fedivon_app.methods import method, settings_of
from fedivon_app.report import plot_learning
from fedivon_app.runs import Run
from strategies.base import PosteriorStrategy
from strategies.roll_call import RunError, wait_for_nodes

app = ServerApp()
log = logging.getLogger("fedivon")

Parts = dict[str, tuple[np.ndarray, np.ndarray]]
Checkpoint = tuple[int, Payload, dict[str, np.ndarray]]


@app.main()
def main(grid: Grid, context: Context) -> None:
    _log_to_stdout()
    run = None
    try:
        run, checkpoint = _open(context.run_config, grid)
        _run(grid, run, checkpoint)
    except (SettingsError, DataError, RunError) as error:
        for line in str(error).splitlines():
            log.error("error: %s", line)
        if run is not None:
            run.summarise("failed", str(error))
        raise RunError(str(error)) from None


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
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count()))  # clients rest while it evaluates
    log.info("%s, %s, seed %d; run folder %s", settings.experiment, settings.strategy, settings.seed, run.folder)
    flat, shape, num_classes, parts = prepare(settings)
    data = settings.data.model_copy(update={"num_classes": num_classes})  # a node's own file may lack some classes
    strategy = method(settings.strategy).strategy(settings.model_copy(update={"data": data}), shape, num_classes)
    strategy.summary()
    done, strategy.payload = 0, Payload(strategy.initial(flat.mean()), flat.buffers)
    if checkpoint is not None:
        done, strategy.payload, state = checkpoint
        strategy.load_state(state)
        log.info("resumed after round %d", done)
    last = min(settings.rounds, settings.run.stop_after or settings.rounds) if checkpoint is None else settings.rounds
    recorder = Recorder(run, strategy, Evaluator(settings, flat, parts))
    hooks = {"evaluate_fn": recorder.evaluate, "on_round": recorder.record, "first_round": done + 1}
    strategy.start(grid, strategy.arrays(), last, settings.server.round_timeout, **hooks)
    summary = run.summarise("completed" if last == settings.rounds else "stopped")
    plot_learning([run], run.folder / "plots" / "learning.png")
    log.info("%s after round %d; run folder %s", summary["status"], last, run.folder)


def prepare(settings: Settings) -> tuple[Flat, tuple[int, ...], int, Parts]:
    """The network with the weights of the run's seed, and what the server can score it on."""
    data, parts = settings.data, {}
    if data.source == "nodes":
        if data.shape is None or data.num_classes is None:
            raise SettingsError(
                "data.source is `nodes`: say data.shape and data.num_classes, for the server sees no data"
            )
        shape, num_classes = data.shape, data.num_classes
        source = load("npz", data.root, path=data.path, num_classes=num_classes) if data.path else None
    else:
        source, split = division(data, data.clients, settings.seed)
        shape, num_classes = source.shape, classes(data, source)
        if len(split.holdout):
            parts["holdout"] = source.x_train[split.holdout], source.y_train[split.holdout]
    if source is not None:
        parts["test"] = source.x_test, source.y_test
    torch.manual_seed(settings.seed)
    try:
        flat = new_network(settings.model, tuple(shape), num_classes, pick_device("auto"))
    except ValueError as error:
        raise SettingsError(f"model: {error}") from None
    return flat, tuple(shape), num_classes, parts


class Recorder:
    """What is done with a finished round: scores, a line of metrics, a checkpoint, a line for the person who waits."""

    def __init__(self, run: Run, strategy: PosteriorStrategy, evaluator: Evaluator):
        self.run, self.strategy, self.evaluator = run, strategy, evaluator

    def evaluate(self, server_round: int, arrays: Any) -> MetricRecord | None:
        if not (self.evaluator.parts and self.evaluator.due(server_round)):
            return None
        scores = self.evaluator(server_round, self.strategy.payload)
        self.strategy.record.setdefault("gm", {}).update(scores)
        best_way = list(scores.get("test", {"mean": {}}).values())[-1]
        return MetricRecord({key: float(value) for key, value in best_way.items()})

    def record(self, server_round: int, payload: Payload, record: dict[str, Any]) -> None:
        settings, state = self.run.settings, self.strategy.state()
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
        log.info(progress(record, settings.rounds))


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


def _log_to_stdout() -> None:
    log.setLevel(logging.INFO)
    log.propagate = False
    if not log.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("fedivon | %(message)s"))
        log.addHandler(handler)
