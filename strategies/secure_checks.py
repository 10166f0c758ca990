"""Which settings secure aggregation cannot be combined with, because they need single replies."""

from __future__ import annotations

from typing import Any

from fedivon_app.core.errors import UserError
from fedivon_app.core.secure.site import SMALLEST_COHORT
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.single_replies import needing_single_replies
from fedivon_app.strategies.aggregation import RULES, WeightedConflation
from fedivon_app.strategies.base import PosteriorStrategy
from fedivon_app.strategies.rule import Rule, SumRule
from fedivon_app.strategies.weighting import OF_ONE_CLIENT


def why_not_secure(settings: AnySettings, strategy: type[PosteriorStrategy[Any]]) -> str | None:
    """Return which setting keeps a run's clients from being aggregated securely, or None."""
    merge = settings.merge
    rule = _rule(merge.rule)
    if settings.task == "regression":
        return "task=regression has scores that are not summed securely yet"
    if strategy.merge is not PosteriorStrategy.merge:
        return (
            f"strategy {settings.strategy} merges single replies (it overrides `merge`); "
            "write its merge as `contribution` and `conclude`"
        )
    if rule is not None and not issubclass(rule, SumRule):
        return f"merge.rule={merge.rule} is no sum over the clients"
    if merge.weighting not in OF_ONE_CLIENT:
        return (
            f"merge.weighting={merge.weighting} compares the clients with each other; "
            f"use {', '.join(OF_ONE_CLIENT)}"
        )
    if rule is not None and issubclass(rule, WeightedConflation) and merge.weighting == "distance":
        return "merge.rule=wc needs the largest weight, and by distance nobody knows it; use size"
    if settings.wire.codec != "raw":
        return f"wire.codec={settings.wire.codec} cannot be summed; use wire.codec=raw"
    if seeing := needing_single_replies(settings):
        return f"{seeing[0]} needs to see single replies; leave it out"
    if settings.evaluation.sets:
        return "evaluation.sets=true asks for histograms of single clients; use false"
    for name, count in (
        ("clients_per_round", settings.clients_per_round),
        ("data.clients", settings.data.clients),
    ):
        if count is not None and count < SMALLEST_COHORT:
            return (
                f"{name} is {count}, and a sum over fewer than {SMALLEST_COHORT} clients hides none"
            )
    return None


def _rule(name: str) -> type[Rule] | None:
    """Return the rule of this name, or None for a method that has no such rule."""
    try:
        return RULES.find(name)
    except UserError:
        return None
