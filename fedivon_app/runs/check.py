"""What can be told of planned runs before anything starts: whether they have a chance.

Folders that cannot be made, data and models that cannot either, and methods that do not fit them
are said here, and not by a federation that has been started for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedivon_app.core.client_settings import HeadSettings
from fedivon_app.core.errors import SettingsError, UserError
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.loading import is_standardised
from fedivon_app.datasets.node_data import partition_of
from fedivon_app.methods import method
from fedivon_app.runs.folder import Run, root_of
from fedivon_app.runs.plan import Plan
from fedivon_app.runs.uncertainty import out_of_distribution
from fedivon_app.server.setup import Preparation, num_clients_of, prepare, with_facts
from fedivon_app.server.standardising import check_standardising
from fedivon_app.server.trackers import check_trackers


def check(plans: Iterable[Plan], blame: bool = False, remote: bool = False) -> None:
    """Raise a SettingsError for what is wrong with a plan.

    Of plans that differ in nothing that counts here one is looked at. With `blame`, the complaint
    begins with the plan's values. Where runs are `remote`, files are the server's and the nodes',
    and only what needs none of them is looked at.
    """
    seen: set[str] = set()
    for plan in plans:
        try:
            _check(plan.settings, seen, remote)
        except (UserError, OSError) as error:
            blamed = f"{plan.label}: " if blame and plan.label else ""
            raise SettingsError(f"{blamed}{error}") from None


def check_resumable(run: Run, settings: AnySettings) -> None:
    """Raise a SettingsError if a run cannot go on with these settings.

    Its records and its last checkpoint have to be readable, and all else as for a new run.
    """
    check_place(run.folder)
    for _ in run.metrics():
        pass
    if kept := run.checkpoints():
        run.load(kept[-1].path)
    try:
        _check(settings, set(), remote=False)
    except (UserError, OSError) as error:
        raise SettingsError(f"{run.folder}: {error}") from None


def check_place(folder: Path) -> None:
    """Raise a SettingsError if a folder is not there and cannot be made, or not be written to."""
    place = next(path for path in (folder, *folder.parents) if path.exists())
    if not place.is_dir():
        raise SettingsError(f"cannot write to {folder}: {place} is not a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise SettingsError(f"cannot write to {folder}: {place} may not be written to by you")


def _check(settings: AnySettings, seen: set[str], remote: bool) -> None:
    data = settings.data
    if remote and settings.attack.kind != "none":
        raise SettingsError(
            f"attack.kind is {settings.attack.kind}: attacks are for simulations, not for the "
            "nodes of a SuperLink"
        )
    if remote and (data.source != "nodes" or data.path):
        return
    if not remote:
        check_place(root_of(settings).expanduser())
        if data.source == "nodes":
            raise SettingsError(
                "data.source is `nodes`: every site has a file of its own, and a simulation has no "
                "sites; run it on theirs (--superlink HOST:PORT), or choose a common data.source"
            )
        check_trackers(settings.run.trackers)
    needed = [data, settings.model, settings.seed, settings.evaluation.ood]
    looked_at = f"{needed}"
    learned = [settings.strategy, settings.task, settings.client, settings.merge]
    used = f"{needed[:2]} {learned} {settings.privacy}"
    if {looked_at, used} <= seen:
        return
    prepared = prepare(settings)
    check_standardising(settings, prepared.data.shape)
    if used not in seen:
        _check_method(with_facts(settings, prepared.data), prepared, remote)
    if looked_at not in seen and not remote:
        _check_outside(settings, prepared)
    seen |= {looked_at, used}


def _check_method(settings: AnySettings, prepared: Preparation, remote: bool) -> None:
    """Make both halves of the method, as a run would."""
    chosen = method(settings.strategy)
    if isinstance(settings.client, HeadSettings):
        prepared.architecture.head(settings.client.head)
    strategy = chosen.strategy(settings, prepared.architecture)
    strategy.begin(prepared.flat.mean(), prepared.flat.buffers)
    if not remote:
        node = {"partition-id": 0, "num-partitions": num_clients_of(settings)}
        partition = partition_of(settings, node)
        _check_gaps(settings, partition.source)
        chosen.client(settings, partition)


def _check_gaps(settings: AnySettings, source: Source) -> None:
    """Look for missing values, which only standardised inputs can have."""
    if is_standardised(settings.data) or source.x_train.dtype.kind != "f":
        return
    gaps = int(np.isnan(source.x_train.reshape(len(source.x_train), -1)).any(axis=1).sum())
    if gaps:
        raise SettingsError(
            f"data.standardise is off, and {gaps} of {len(source.x_train)} rows have missing "
            "values: with data.standardise=true the mean takes their place; or leave such columns "
            "out (data.drop_columns), or fill them in"
        )


def _check_outside(settings: AnySettings, prepared: Preparation) -> None:
    """Read the out-of-distribution data, which are needed only when all rounds are done."""
    evaluation = settings.evaluation
    if evaluation.ood is None:
        return
    shape = prepared.data.shape
    out_of_distribution(settings, shape, evaluation.ood, evaluation.ood_path, count=1)
