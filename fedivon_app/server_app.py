"""The ServerApp: settings -> strategy -> rounds -> run folder."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedivon_app import logs
from fedivon_app.clients.base import Carries
from fedivon_app.core.compose import compose, split_words
from fedivon_app.core.errors import FedIvonError, RunError
from fedivon_app.core.settings import AnySettings
from fedivon_app.methods import method, settings_of
from fedivon_app.report.pages import write_report
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.runs.folder import Run
from fedivon_app.runs.status import RunStatus
from fedivon_app.runs.uncertainty import assess
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server.pretraining import pretrain
from fedivon_app.server.recorder import Recorder, checkpoint_of
from fedivon_app.server.setup import Preparation, prepare
from fedivon_app.strategies.roll_call import wait_for_nodes
from fedivon_app.strategies.rounds import Rounds
from fedivon_app.strategies.standing import Standing

app = ServerApp()
log = logging.getLogger("fedivon")


@dataclass(frozen=True, eq=False)
class Opened:
    """The run that the run config asks for, and the checkpoint that it goes on from."""

    run: Run
    checkpoint: Checkpoint | None = None


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Do what the run config asks for; a run that fails says why in its folder."""
    logs.to_stdout()
    run = None
    with ExitStack() as stack:
        try:
            opened = open_run(context.run_config, grid)
            run = opened.run
            stack.enter_context(logs.also_in(run.folder / "log.txt"))
            do_rounds(grid, opened)
        except FedIvonError as error:  # what the settings, the data or the clients make impossible
            _note_failure(run, str(error))
            raise RunError(str(error)) from None
        except Exception as error:
            _note_failure(run, f"{type(error).__name__}: {error}")
            raise


def _note_failure(run: Run | None, why: str) -> None:
    for line in why.splitlines():
        log.error("error: %s", line)
    if run is not None:
        run.summarise(RunStatus.FAILED, why)
        _report(run)


def open_run(config: Mapping[str, Any], grid: Grid) -> Opened:
    """Return the run that the run config asks for: a new one, or the one to resume."""
    if config.get("resume"):
        run = Run.open(config["resume"])
        return Opened(run, run.resume())
    overrides = split_words(config.get("set", ""))
    if config.get("runs"):
        overrides.append(f"run.folder={config['runs']}")
    settings = compose(settings_of, config["experiment"], config.get("strategy"), overrides)
    if settings.data.clients is None:
        counted = wait_for_nodes(grid, settings)
        log.info("data.clients is not set: %d nodes are there, and as many clients", counted)
        data = settings.data.model_copy(update={"clients": counted})
        settings = settings.model_copy(update={"data": data})
    folder = config.get("folder")
    return Opened(Run.create(settings, folder=Path(folder) if folder else None))


def do_rounds(grid: Grid, opened: Opened) -> None:
    """Make the rounds of a run that are left, and write what came of them."""
    run = opened.run
    settings = run.settings
    # Clients rest while the server evaluates.
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    log.info(
        "%s, %s, seed %d; run folder %s",
        settings.experiment,
        settings.strategy,
        settings.seed,
        run.folder,
    )
    prepared = prepare(settings)
    data = prepared.data
    known = {"shape": data.shape, "num_classes": data.num_classes, "class_names": data.class_names}
    run.write("model.json", json.dumps(known) + "\n")
    rounds = rounds_of(opened, prepared)
    last = settings.rounds
    if opened.checkpoint is None:
        last = min(last, settings.run.stop_after or last)
    has_global_model = rounds.strategy.has_global_model
    evaluator = Evaluator(settings, prepared.flat, data.parts)
    recorder = Recorder(run, evaluator, has_global_model=has_global_model)
    try:
        rounds.start(
            grid,
            rounds.arrays(),
            num_rounds=last,
            timeout=settings.server.round_timeout,
            observer=recorder,
        )
        if not rounds.standing.last_merged:
            raise RunError(
                f"in {last} rounds there were never enough good replies to merge: "
                "nothing was learned"
            )
    except RunError:
        recorder.keep_last()
        raise
    completed = last == settings.rounds
    status = RunStatus.COMPLETED if completed else RunStatus.STOPPED
    run.summarise(status)
    if completed and "test" in data.parts and has_global_model:
        assess(run, predicted=evaluator.moments)
    _report(run)
    log.info("%s after round %d; run folder %s", status, last, run.folder)


def rounds_of(opened: Opened, prepared: Preparation) -> Rounds:
    """Return the rounds of a run, from its beginning or from its checkpoint."""
    run = opened.run
    settings = with_classes(run.settings, prepared.data.num_classes)
    chosen = method(settings.strategy)
    strategy = chosen.strategy(settings, prepared.architecture)
    first = strategy.begin(prepared.flat.mean(), prepared.flat.buffers)
    standing = Standing(0, first)
    if (checkpoint := opened.checkpoint) is not None:
        standing = Standing.of(checkpoint.round, checkpoint.payload, checkpoint.state)
    elif settings.pretraining.fraction:
        standing = Standing(0, pretrain(run.settings, first, prepared.flat))
        run.save(checkpoint_of(standing))
    rounds = Rounds(
        strategy,
        first,
        standing=standing,
        clients_carry_on=Carries.TRAINING in chosen.client.carried(settings),
        run_folder=run.folder,
    )
    rounds.summary()
    if checkpoint is not None:
        log.info("resumed after round %d", checkpoint.round)
    return rounds


def with_classes(settings: AnySettings, num_classes: int) -> AnySettings:
    """Return the settings with the number of classes, for a node's own file may lack some."""
    data = settings.data.model_copy(update={"num_classes": num_classes})
    return settings.model_copy(update={"data": data})


def _report(run: Run) -> None:
    """Write the run's page; if it cannot be drawn, the run is none the worse for it."""
    try:
        write_report(run)
    except Exception as error:
        log.warning("no report: %s (`fedivon report %s` tries again)", error, run.folder)
