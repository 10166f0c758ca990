"""Going on with a run: whether there is anything left to do, and which settings may change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from fedivon_app.core.compose import validate
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.settings import AnySettings
from fedivon_app.runs.folder import Run
from fedivon_app.runs.records import read_summary
from fedivon_app.runs.status import RunStatus

# Settings that say how long a run goes on, how it is watched and for whom it waits. All others say
# what is learned: with another value it would be another run.
MAY_CHANGE = (
    "rounds",
    "run.stop_after",
    "run.checkpoint_every",
    "evaluation.every",
    "evaluation.at",
    "evaluation.samples",
    "evaluation.final_samples",
    "evaluation.antithetic",
    "evaluation.clients_every",
    "evaluation.ood",
    "evaluation.ood_path",
    "evaluation.ood_size",
    "server.round_timeout",
    "server.node_timeout",
    "server.quorum",
    "server.grace",
    "server.min_replies",
)


def rounds_done(run: Run) -> int:
    """Return the round of the last checkpoint, from which a run goes on; 0 where there is none."""
    kept = run.checkpoints()
    return kept[-1].round if kept else 0


def check_not_begun_again(run: Run) -> None:
    """Raise a SettingsError for a completed run without a checkpoint.

    To go on with it would be to make it anew over its own results. A run that was stopped before
    its first checkpoint does begin again: it has no results.
    """
    summary = read_summary(run.folder) or {}
    if summary.get("status") == RunStatus.COMPLETED and not run.checkpoints():
        raise SettingsError(
            f"{run.folder} is completed, but has no checkpoint to go on from: its folder "
            "checkpoint is empty or was deleted; start a new run with `fedivon run`"
        )


def changed(run: Run, overrides: Sequence[str]) -> AnySettings:
    """Return the settings with which a run goes on; what may not change is refused by name."""
    values = run.settings.model_dump(mode="json")
    for word in overrides:
        key, equals, text = word.partition("=")
        if not (key and equals):
            raise SettingsError(
                f"the override {word!r} is not of the form name=value, such as rounds=200"
            )
        if key not in MAY_CHANGE:
            raise SettingsError(
                f"{key} cannot change in the middle of a run: start a new one with "
                f"`fedivon run`. What may change is {', '.join(MAY_CHANGE)}"
            )
        _put(values, key.split("."), text)
    given = [word.partition("=")[0] for word in overrides]
    settings = validate(type(run.settings), values, dict.fromkeys(given, "the command line"))
    done = rounds_done(run)
    if settings.rounds < done:
        raise SettingsError(
            f"rounds is {settings.rounds}, but {run.folder} has done {done} already: give more"
        )
    return settings


def consequence(run: Run, settings: AnySettings) -> str:
    """Return in one line what another number of rounds does to the learning rate.

    It is empty where the number is as before.
    """
    before = run.settings
    if settings.rounds == before.rounds:
        return ""
    done = rounds_done(run)
    last = before.client.rate_in(max(done, 1), before.rounds)
    next_one = settings.client.rate_in(done + 1, settings.rounds)
    told = f"{before.rounds} planned rounds are now {settings.rounds}; "
    if settings.client.schedule == "constant" or settings.client.schedule_over == "steps":
        return f"{told}the learning rate of a round stays as it is, {next_one:.3g}"
    return (
        f"{told}the learning rate was {last:.3g} in round {max(done, 1)} and is {next_one:.3g} in "
        f"round {done + 1}, for client.schedule={settings.client.schedule} is now over "
        f"{settings.rounds} rounds"
    )


def _put(values: dict[str, Any], path: Sequence[str], text: str) -> None:
    *parents, leaf = path
    for parent in parents:
        values = values[parent]
    try:
        values[leaf] = yaml.safe_load(text)
    except yaml.YAMLError:
        raise SettingsError(f"the value of {'.'.join(path)} is not valid YAML: {text!r}") from None
