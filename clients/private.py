"""The privacy of a client's examples: their account, the plan of a run, the price of a round."""

from __future__ import annotations

from fedivon_app.core.instructions import Instructions
from fedivon_app.core.ledger import Account, Ledger, Steps, digest_of
from fedivon_app.core.privacy import Plan, planned_rounds
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.node_data import Partition


def account_of(partition: Partition, ledger: Ledger) -> Account:
    """Return what has been spent of the privacy of the examples that a client trains on."""
    source = partition.source
    rows = partition.train
    return ledger.account(digest_of(source.x_train[rows], source.y_train[rows]))


def plan_of(settings: AnySettings, partition: Partition, account: Account, run: str) -> Plan:
    """Return what a client does in a private run."""
    privacy = settings.privacy
    return Plan(
        privacy=privacy,
        size=account.size(len(partition.train), privacy.size_epsilon, run),
        batch_size=settings.client.batch_size,
        epochs=settings.client.epochs,
        rounds=planned_rounds(settings, partition.number),
    )


def pay(settings: AnySettings, plan: Plan, account: Account, told: Instructions) -> float:
    """Pay for a round before it is trained, and return the epsilon of the run so far.

    What cannot be paid is a Refused.
    """
    privacy = settings.privacy
    assert privacy.epsilon is not None
    release = Steps(
        run=told.run,
        round=told.round,
        method=settings.strategy,
        noise=plan.noise_multiplier,
        rate=plan.rate,
        steps=plan.steps,
        clip_norm=privacy.clip_norm,
    )
    return account.charge(release, epsilon=privacy.epsilon, delta=privacy.delta)
