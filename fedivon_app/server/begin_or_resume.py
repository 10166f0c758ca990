"""Beginning a run, or resuming one from its last checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedivon_app.clients.task import Carries
from fedivon_app.core.compose import compose, split_words
from fedivon_app.datasets.loading import natural_clients
from fedivon_app.methods import method, settings_of
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.runs.folder import Run
from fedivon_app.runs.place import agreed_place
from fedivon_app.runs.resuming import changed
from fedivon_app.server.pretraining import pretrain
from fedivon_app.server.recorder import checkpoint_of
from fedivon_app.server.setup import Preparation, with_facts
from fedivon_app.server.trial import trial_of
from fedivon_app.strategies.roll_call import RollCall, wait_for_nodes
from fedivon_app.strategies.rounds import Rounds
from fedivon_app.strategies.secure_rounds import SecureRounds
from fedivon_app.strategies.standing import Standing

log = logging.getLogger("fedivon")


@dataclass(frozen=True, eq=False)
class Opened:
    """The run that the run config asks for, and the checkpoint that it goes on from."""

    run: Run
    checkpoint: Checkpoint | None = None


def open_run(config: Mapping[str, Any], grid: Grid) -> Opened:
    """Return the run that the run config asks for: a new one, or the one to resume."""
    overrides = split_words(config.get("set", ""))
    if config.get("resume"):
        run = Run.open(config["resume"])
        if overrides:
            run = run.with_settings(changed(run, overrides))
        run.note_code(config.get("commit", ""))
        return Opened(run, run.resume())
    if place := agreed_place(config.get("runs"), overrides):
        overrides.append(f"run.folder={place}")
    settings = compose(settings_of, config["experiment"], config.get("strategy"), overrides)
    if (clients := natural_clients(settings)) is not None:
        data = settings.data.model_copy(update={"clients": clients})
        settings = settings.model_copy(update={"data": data})
    if settings.data.clients is None:
        counted = wait_for_nodes(grid, settings)
        log.info("data.clients is not set: %d nodes are there, and as many clients", counted)
        data = settings.data.model_copy(update={"clients": counted})
        settings = settings.model_copy(update={"data": data})
    folder = config.get("folder")
    run = Run.create(settings, folder=Path(folder) if folder else None)
    run.note_code(config.get("commit", ""))
    return Opened(run)


def rounds_of(opened: Opened, prepared: Preparation, roll_call: RollCall | None = None) -> Rounds:
    """Return the rounds of a run, from its beginning or from its checkpoint.

    `roll_call` is that of who has been called already.
    """
    run = opened.run
    settings = with_facts(run.settings, prepared.data)
    chosen = method(settings.strategy)
    strategy = chosen.strategy(settings, prepared.architecture)
    first = strategy.begin(prepared.flat.mean(), prepared.flat.buffers)
    standing = Standing(0, first)
    if (checkpoint := opened.checkpoint) is not None:
        standing = Standing.of(checkpoint.round, checkpoint.payload, checkpoint.state)
    elif settings.pretraining.fraction:
        standing = Standing(0, pretrain(settings, first, prepared.flat))
        run.save(checkpoint_of(standing))
    kind = SecureRounds if settings.privacy.secure_aggregation else Rounds
    rounds = kind(
        strategy,
        first,
        standing=standing,
        clients_carry_on=Carries.TRAINING in chosen.client.carried(settings),
        run_folder=run.folder,
        roll_call=roll_call,
        trial=trial_of(settings, prepared),
    )
    rounds.summary()
    if checkpoint is not None:
        log.info("resumed after round %d", checkpoint.round)
    return rounds
