"""The next values to try, by Optuna's tree-structured Parzen estimators.

A proposal depends on the trials so far, on the seed and on its own number, and on nothing else:
nothing of Optuna's is kept, and a search that is gone on with proposes what it would have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.search_range import Choices, Option
from fedivon_app.tuning.halving import Trial
from fedivon_app.tuning.space import Space, Values, contains, rounded

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

MISSING = "fedivon tune needs Optuna, which is not installed: pip install 'fedivon[tune]' brings it"
SEEDS = 2**32


def check_installed() -> None:
    """Raise a SettingsError if there is no Optuna."""
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError:
        raise SettingsError(MISSING) from None


def propose(space: Space, trials: Sequence[Trial], rungs: Sequence[int], seed: int) -> Values:
    """Return the values of the next trial."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    number = len(trials)
    sampler = optuna.samplers.TPESampler(seed=(seed * 1_000_003 + number) % SEEDS)
    study = optuna.create_study(sampler=sampler)
    ranges = {name: _distribution(option) for name, option in space.items()}
    study.add_trials([_told(trial, ranges, rungs[-1]) for trial in _usable(trials, space)])
    asked = study.ask(ranges)
    return {name: rounded(asked.params[name], option) for name, option in space.items()}


def _usable(trials: Iterable[Trial], space: Space) -> list[Trial]:
    """The trials whose values are all in the space."""
    return [
        trial
        for trial in trials
        if trial.values.keys() == space.keys()
        and all(contains(option, trial.values[name]) for name, option in space.items())
    ]


def _distribution(option: Option) -> BaseDistribution:
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if isinstance(option, Choices):
        return CategoricalDistribution(option.values)
    if option.whole:
        return IntDistribution(math.ceil(option.low), math.floor(option.high), log=option.log)
    return FloatDistribution(option.low, option.high, log=option.log)


def _told(trial: Trial, ranges: dict[str, BaseDistribution], last: int) -> FrozenTrial:
    """A trial as Optuna knows it.

    Those that came to the last round are complete, runs on their way are running, and all others
    count as pruned where they stand; one that failed is the worst, as it has no score at all.
    """
    from optuna.trial import TrialState, create_trial

    finite = {rung: score for rung, score in trial.scores.items() if math.isfinite(score)}
    known: dict[str, Any] = {"params": dict(trial.values), "distributions": ranges}
    if trial.failure:
        return create_trial(state=TrialState.PRUNED, **known)
    if last in finite:
        return create_trial(state=TrialState.COMPLETE, value=finite[last], **known)
    running = trial.goal is not None and not finite
    state = TrialState.RUNNING if running else TrialState.PRUNED
    return create_trial(state=state, intermediate_values=finite, **known)
