"""What is searched for a method of an experiment: its settings in the search, and its ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.search_range import Choices, Option
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.loading import division
from fedivon_app.methods import settings_of
from fedivon_app.runs.personalise import has_global_model
from fedivon_app.runs.plan import plan_runs
from fedivon_app.server.setup import num_clients_of
from fedivon_app.tuning.halving import rungs_of
from fedivon_app.tuning.set_file import plain_words
from fedivon_app.tuning.space import check_given, overrides_of, space_of, words_of
from fedivon_app.tuning.study import Subject

HELD_OUT = 2000  # examples, where an experiment holds none out
LARGEST_SHARE = 10  # one in so many of the training examples, at most


@dataclass(frozen=True)
class Asked:
    """What a search is asked for.

    `words` are the user's overrides, `start` values that the first trial has and that are searched
    all the same, `base` what goes with the place of the runs, `ranges` what is given in place of
    the methods' own, `holdout` how many examples are held out, if that is said, and `first_stop`
    the round before which no run is judged.
    """

    experiment: str
    words: Sequence[str]
    base: Sequence[str]
    ranges: Mapping[str, Option]
    holdout: int | None = None
    start: Sequence[str] = ()
    first_stop: int | None = None


def strategies_of(experiment: str, named: Sequence[str] | None, words: Sequence[str]) -> list[str]:
    """Return the methods that are asked for, each once, or the experiment's own."""
    if not named:
        return [compose(settings_of, experiment, overrides=words).strategy]
    for strategy in named:
        compose(settings_of, experiment, strategy, words)
    return list(dict.fromkeys(named))


def subjects_of(asked: Asked, strategies: Sequence[str], trials: Path) -> list[Subject]:
    """Return what is searched for these methods, with trials in a folder."""
    plain = [
        _settings(asked, strategy, plain_words(asked.words, strategy)) for strategy in strategies
    ]
    check_given(asked.ranges, plain)
    return [_subject(asked, settings, trials) for settings in plain]


def _subject(asked: Asked, settings: AnySettings, trials: Path) -> Subject:
    strategy = settings.strategy
    given = plain_words(asked.words, strategy)
    fixed = frozenset(word.partition("=")[0] for word in given)
    own = [*plain_words(asked.start, strategy), *given]
    _check_scored(settings)
    held_out = asked.holdout or settings.data.holdout or default_count(settings)
    early = rungs_of(settings.rounds, asked.first_stop)[:-1]
    words = [*asked.base, *own, *search_words(early, held_out), f"run.folder={trials}"]
    searched = _settings(asked, strategy, words)
    space = space_of(searched, asked.ranges, fixed)
    if not space:
        raise SettingsError(
            f"nothing is left to search for {strategy}: what --set gives is not searched; "
            "--range adds a setting"
        )
    subject = Subject(
        settings=searched,
        space=space,
        words=words,
        own=own,
        fixed=fixed,
        holds_out=settings.data.holdout > 0,
        first_stop=asked.first_stop,
    )
    _check_ranges(asked, subject)
    return subject


def search_words(early: Sequence[int], held_out: int) -> list[str]:
    """Return what a search changes for its own sake: it scores held-out examples at the rungs.

    The test set is left alone: nobody is to look at it, and it would take its time.
    """
    return [
        f"data.holdout={held_out}",
        "evaluation.every=0",
        f"evaluation.at={list(early)}",
        "evaluation.clients_every=0",
        "evaluation.test=false",
    ]


def default_count(settings: AnySettings) -> int:
    """Return how many examples are held out where the experiment holds none out."""
    return min(HELD_OUT, training_examples(settings) // LARGEST_SHARE)


def training_examples(settings: AnySettings) -> int:
    """Return how many training examples there are."""
    clients = num_clients_of(settings)
    return len(division(settings.data, clients, settings.seed, settings.task).source.y_train)


def _settings(asked: Asked, strategy: str, words: Sequence[str]) -> AnySettings:
    (plan,) = plan_runs(asked.experiment, {"strategy": [strategy]}, list(words))
    return plan.settings


def _check_scored(settings: AnySettings) -> None:
    """Raise a SettingsError where there is nothing to score on held-out examples."""
    if settings.data.source == "nodes":
        raise SettingsError(
            "the data lie at the nodes, and the server has no training examples to hold out: "
            "a search needs a data set that is shared, as data.source of another experiment"
        )
    if settings.merge.robust == "held-out":
        raise SettingsError(
            "merge.robust=held-out merges by the held-out examples, so that they cannot be what a "
            "search judges by: use merge.robust=auto"
        )
    if not has_global_model(settings):
        raise SettingsError(
            f"{settings.strategy} has no global model here, which is what held-out examples score: "
            "there is nothing to search by"
        )


def _check_ranges(asked: Asked, subject: Subject) -> None:
    """Raise a SettingsError for a range that was given and whose ends are no valid values."""
    for name in asked.ranges.keys() & subject.space.keys():
        option = subject.space[name]
        ends = option.values if isinstance(option, Choices) else (option.low, option.high)
        for end in ends:
            value = int(end) if not isinstance(option, Choices) and option.whole else end
            overrides = overrides_of({name: value}, subject.settings, subject.fixed)
            try:
                _settings(asked, subject.strategy, [*subject.words, *words_of(overrides)])
            except SettingsError as error:
                why = str(error).partition("\n")[0].removeprefix("the command line: ")
                raise SettingsError(f"--range {name}: {why}") from None
