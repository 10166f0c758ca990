"""The ServerApp: settings -> strategy -> rounds -> run folder."""

from __future__ import annotations

import json
import logging
import os
from contextlib import ExitStack

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedivon_app import logs
from fedivon_app.core.errors import DivergenceError, FedIvonError, RunError
from fedivon_app.core.settings import AnySettings
from fedivon_app.federation.shared_nodes import CLIENTS, SharedNodes
from fedivon_app.report.pages import write_report
from fedivon_app.runs.folder import Run
from fedivon_app.runs.status import RunStatus
from fedivon_app.runs.trained_model import model_facts
from fedivon_app.runs.uncertainty import assess
from fedivon_app.server.arrivals import ask_again_sooner
from fedivon_app.server.begin_or_resume import Opened, open_run, rounds_of
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server.lost_workers import outlive_lost_workers
from fedivon_app.server.recorder import Recorder
from fedivon_app.server.setup import ServerData, prepare, with_facts
from fedivon_app.server.standardising import agree
from fedivon_app.server.trackers import Trackers
from fedivon_app.server.unscaled import unscaled

app = ServerApp()
log = logging.getLogger("fedivon")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Do what the run config asks for; a run that fails says why in its folder."""
    logs.to_stdout()
    ask_again_sooner()
    run = None
    if clients := int(context.run_config.get(CLIENTS, 0)):
        grid = SharedNodes(grid, clients)
        outlive_lost_workers()
    with ExitStack() as stack:
        try:
            opened = open_run(context.run_config, grid)
            run = opened.run
            stack.enter_context(logs.also_in(run.folder / "log.txt"))
            done = opened.checkpoint.round if opened.checkpoint else 0
            trackers = stack.enter_context(Trackers(run, done))
            do_rounds(grid, opened, trackers)
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


def do_rounds(grid: Grid, opened: Opened, trackers: Trackers | None = None) -> None:
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
    kept = model_facts(run) if opened.checkpoint else None
    agreed = agree(grid, settings, prepare(settings), kept, run.folder)
    prepared = agreed.prepared
    data = prepared.data
    run.write("model.json", json.dumps(data.facts) + "\n")
    rounds = rounds_of(opened, prepared, agreed.roll_call)
    last = last_round(settings, done=opened.checkpoint.round if opened.checkpoint else 0)
    has_global_model = rounds.strategy.has_global_model
    scored = {
        name: p for name, p in data.parts.items() if name != "test" or settings.evaluation.test
    }
    evaluator = Evaluator(with_facts(settings, data), prepared.flat, scored)
    recorder = Recorder(
        run,
        evaluator,
        num_classes=data.num_classes,
        has_global_model=has_global_model,
        deviation=data.standard.target_deviation if data.standard else 1.0,
        trackers=trackers,
    )
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
    except DivergenceError as error:
        recorder.keep_last()
        raise DivergenceError("; ".join([str(error), *_scale(prepared.data, settings)])) from None
    except RunError:
        recorder.keep_last()
        raise
    completed = last == settings.rounds
    status = RunStatus.COMPLETED if completed else RunStatus.STOPPED
    unlearned = (completed and recorder.unlearned) or ""
    if unlearned:
        log.warning("%s", unlearned)
    run.summarise(status, unlearned)
    if trackers is not None:
        trackers.ended(status)
    if completed and "test" in scored and has_global_model:
        assess(run, predicted=evaluator.moments)
    _report(run)
    log.info("%s after round %d; run folder %s", status, last, run.folder)


def _scale(data: ServerData, settings: AnySettings) -> list[str]:
    """What is wrong with the scale of the data, as far as the server can see them."""
    if data.standard is not None:
        return []
    told = [unscaled(part.x, settings.data.scaling) for part in data.parts.values()]
    return [text for text in told if text][:1]


def last_round(settings: AnySettings, done: int) -> int:
    """Return the round after which a run stops, of which so many rounds are done.

    Who resumes a run that has come to its `stop_after` wants the rest of it.
    """
    stop = settings.run.stop_after
    return settings.rounds if stop is None or stop <= done else min(stop, settings.rounds)


def _report(run: Run) -> None:
    """Write the run's page; if it cannot be drawn, the run is none the worse for it."""
    try:
        write_report(run)
    except Exception as error:
        log.warning("no report: %s (`fedivon report %s` tries again)", error, run.folder)
