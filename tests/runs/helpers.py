"""Runs with a model, made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import settings_of
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.runs.folder import Run
from fedivon_app.server.setup import prepare


def make_run(
    folder: Path,
    *overrides: str,
    names: Sequence[str] | None = None,
    model: bool = True,
    checkpoint: bool = True,
) -> Run:
    """Return a run of the demo with a wide posterior around the network's first weights.

    These are made five times as large in its last checkpoint, and have the other sign in its best.
    """
    settings = compose(settings_of, "demo", None, [f"run.folder={folder}", *overrides])
    run = Run.create(settings)
    prepared = prepare(settings)
    data = prepared.data
    flat = prepared.flat
    if model:
        known = {"shape": data.shape, "num_classes": data.num_classes, "class_names": names}
        run.write("model.json", json.dumps(known))
    if checkpoint:
        mean = 5 * flat.mean()
        precision = np.full(len(flat), 100.0, np.float32)
        last = Payload(Posterior(mean, precision), flat.buffers)
        best = Payload(Posterior(-mean, precision), flat.buffers)
        run.save(Checkpoint(3, last, {}))
        run.save_best(Checkpoint(2, best, {}), 0.5)
    return run
