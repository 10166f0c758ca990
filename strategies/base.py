"""PosteriorStrategy: the hooks of a method's server. A round goes in, a value comes out.

Nothing of Flower is here: the loop that samples clients, gathers their replies, drops the bad ones
and calls these hooks is in strategies/rounds.py. A strategy itself never changes; what a method
carries from round to round (sums of duals, an optimizer's moments) is a value too, `Round.state`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
from pydantic import AfterValidator, Field

from fedivon_app.core.attack_settings import ON_PRECISION
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.merge_settings import ADVISED, MergeSettings
from fedivon_app.core.network import Architecture
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import Settings
from fedivon_app.strategies.aggregation import (
    RULES,
    SUMS,
    TakenIn,
    contribution,
    taken_as_sums,
    taken_in,
)
from fedivon_app.strategies.merge_effect import shift_from_average
from fedivon_app.strategies.rule import SumRule
from fedivon_app.strategies.summing import Own, Summand, add_up
from fedivon_app.strategies.weighting import WEIGHTINGS, weigh

# Robust merges that change no reply:
FOR_WHOLE_REPLIES = ("none", *ADVISED, "krum", "multi-krum")
M = TypeVar("M", bound=MergeSettings)
State = Mapping[str, np.ndarray]
RuleName = Annotated[str, AfterValidator(RULES.checked)]
WeightingName = Annotated[str, AfterValidator(WEIGHTINGS.checked)]


class PosteriorMergeSettings(MergeSettings):
    """Any aggregation rule with any weighting, by name or by import path."""

    rule: RuleName = Field("nwa", description="aggregation rule, see strategies/aggregation.py")
    weighting: WeightingName = Field(
        "size", description="weighting rule, see strategies/weighting.py"
    )


@dataclass(frozen=True, eq=False)
class Reply:
    """A good reply of one client.

    `source` is what was sent, or what reads it from a shelf whenever it is asked for.
    """

    partition: int
    num_examples: int
    num_bytes: int
    source: Payload | Callable[[], Payload]
    metrics: Mapping[str, Any]

    @property
    def payload(self) -> Payload:
        """Return what the client sent."""
        return self.source() if callable(self.source) else self.source

    @property
    def posterior(self) -> Posterior:
        """Return the client's posterior."""
        return self.payload.posterior


@dataclass(frozen=True, eq=False)
class Round:
    """What there is to merge in a round.

    `replies` are the good ones in partition order, `weights` how much each of them counts (sum 1),
    `previous` what the server sent, and `num_clients` the size of the federation, those who were
    absent included. `first` tells that nothing has been merged before, and `state` is what the
    merge before this one left.
    """

    number: int
    replies: Sequence[Reply]
    weights: np.ndarray
    previous: Payload
    num_clients: int
    first: bool = False
    state: State = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Total:
    """What the clients' contributions add up to: sums by name, and the weights, with the sum 1.

    Weights that the server does not know are NaN. `taken_in` is a rule that was given the clients'
    posteriors themselves, in place of its sums.
    """

    sums: Mapping[str, np.ndarray]
    weights: np.ndarray
    taken_in: TakenIn | None = None

    @property
    def count(self) -> int:
        """Return over how many clients the sum is."""
        return len(self.weights)


@dataclass(frozen=True, eq=False)
class Merged:
    """What a merge gives: the server's next posterior, and what the method has besides.

    `extras` are the arrays that the method adds on the wire (None: as before), `state` is what its
    next merge is given, and `notes` go into the round's line of metrics.
    """

    posterior: Posterior
    extras: Mapping[str, np.ndarray] | None = None
    state: State = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


class PosteriorStrategy(Generic[M]):
    """The server half of a method.

    A method overrides `merge`, and `initial` where it starts with another posterior.
    `settings_type` is the class of the method's options under `merge` in the settings.
    """

    settings_type: ClassVar[type[MergeSettings]] = PosteriorMergeSettings

    def __init__(self, settings: Settings[ClientSettings, M], architecture: Architecture):
        self.settings = settings
        self.architecture = architecture
        robust = settings.merge.robust
        if self.takes_replies_whole and robust not in FOR_WHOLE_REPLIES:
            raise SettingsError(
                f"strategy {settings.strategy} takes a reply as it is or not at all, for clients "
                f"keep what the server follows; merge.robust={robust} changes replies: use "
                f"{', '.join(FOR_WHOLE_REPLIES)}"
            )
        if robust == "held-out" and not self.has_global_model:
            raise SettingsError(
                f"strategy {settings.strategy} has no global model that could be tried on held-out "
                "examples: use merge.robust=auto"
            )

    @property
    def has_global_model(self) -> bool:
        """Tell whether what the server holds is a model that can be scored."""
        return True

    @property
    def takes_replies_whole(self) -> bool:
        """Tell whether a reply may only be merged as it is, or not at all.

        So it is where clients keep duals or controls that the server follows: both sides compute
        them from the reply.
        """
        return False

    def begin(self, mean: np.ndarray, buffers: np.ndarray | None = None) -> Payload:
        """Return what is sent in round 1, around the network's initial weights."""
        first = self.initial(mean)
        kind = self.settings.attack.kind
        if first.precision is None and kind in ON_PRECISION:
            raise SettingsError(
                f"attack.kind is {kind}, but the clients of strategy {self.settings.strategy} send "
                "no precision that could be attacked"
            )
        return Payload(first, buffers, self.initial_extras(mean))

    def initial(self, mean: np.ndarray) -> Posterior:
        """Return the server's posterior before round 1, around the network's initial weights."""
        precision = self.settings.client.initial_precision(mean)
        return Posterior(mean, None if precision is None else np.full_like(mean, precision))

    def initial_extras(self, mean: np.ndarray) -> dict[str, np.ndarray]:
        """Return what the method adds to the posterior on the wire, before round 1."""
        return {}

    def weigh(self, replies: Sequence[Reply], previous: Posterior) -> np.ndarray:
        """Return how much each client counts, by the weighting of the settings; the sum is 1."""
        return weigh(
            self.settings.merge.weighting,
            posteriors=(reply.posterior for reply in replies),
            sizes=[reply.num_examples for reply in replies],
            previous=previous,
        )

    # A merge: what each client contributes, the sum of it, and what the server makes of that.

    @property
    def rule(self) -> str:
        """Return the name or import path of the rule by which posteriors are merged."""
        return self.settings.merge.rule

    def contribution(self, own: Own, sent: Payload) -> dict[str, np.ndarray]:
        """Return what one client adds to the sums by name, given what it was sent."""
        mean = sent.posterior.mean
        return dict(contribution(self._sum_rule(), own.weight, own.posterior, origin=mean))

    def summands(self, sent: Payload) -> dict[str, Summand]:
        """Return of each sum how large its numbers are, as secure aggregation has to know it."""
        of_rule = dict(zip(SUMS, self._sum_rule().summands, strict=True))
        if sent.posterior.precision is None:
            del of_rule[SUMS[1]]
        return of_rule

    def total(self, round: Round) -> Total:
        """Return the sum over the replies; here the rule takes them in, block by block."""
        posteriors = (reply.posterior for reply in round.replies)
        given = taken_in(self.rule, posteriors, round.weights, round.previous.posterior)
        return Total({}, round.weights, given)

    def conclude(self, total: Total, round: Round) -> Merged:
        """Return what the server makes of the sum; here what the rule makes of it."""
        previous = round.previous.posterior
        given = total.taken_in
        if given is None:
            given = taken_as_sums(self._sum_rule(), total.sums, total.weights, previous)
        aggregated = given.result()
        kept = aggregated.kept_coordinates
        notes: dict[str, Any] = {} if kept is None else {"kept_coordinates": kept}
        by_precisions = aggregated.posterior.precision is not None and not given.rule.averages
        if by_precisions and round.replies and self.settings.is_scored(round.number):
            notes["merge_shift"] = shift_from_average(
                aggregated.posterior,
                posteriors=(reply.posterior for reply in round.replies),
                weights=round.weights,
            )
        return Merged(aggregated.posterior, notes=notes)

    def merge(self, round: Round) -> Merged:
        """Return the server's next posterior.

        A method that is no sum over its clients overrides this, and cannot be aggregated securely.
        """
        return self.conclude(self.total(round), round)

    def _sum_rule(self) -> type[SumRule]:
        kind = RULES.find(self.rule)
        if not issubclass(kind, SumRule):
            raise TypeError(f"the rule {self.rule} is no sum over the clients")
        return kind


def contributed(strategy: PosteriorStrategy[Any], round: Round) -> Total:
    """Return the sum of the contributions of a round's replies, one of which is held at a time."""
    owns = (
        Own(reply.payload, weight, reply.metrics)
        for reply, weight in zip(round.replies, round.weights.tolist(), strict=True)
    )
    sums = add_up(strategy.contribution(own, round.previous) for own in owns)
    return Total(sums, round.weights)
