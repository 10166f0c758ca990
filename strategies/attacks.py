"""Attacks on a simulated federation: what liars send in place of their honest replies.

The lies are made on the server, between the receipt of the replies and the guard. A real liar would
make them at its site; but those that collude use what all others send, so that the strongest
attacker, who sees every honest reply of the round before it answers, is simulated where these
replies lie. What follows, guard and merge, cannot tell. Attacks on the data (label flip, backdoor)
and on the size are the clients' own (clients/poison.py).

m_o is the server's mean, m_k and s_k are a liar's honest mean and precision, and `m`, `d` the
average and the deviation over the honest replies of the round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedivon_app.core.attack_settings import ON_DATA, AttackSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.dense import Dense
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.base import Reply
from fedivon_app.strategies.cohort import diagonal

STREAM = 0x6C6965  # of the seed: the noise in lies
TRIED = 2.0 ** np.arange(-3, 6)  # strengths of an attacker who searches, times the attack's own
TOP = 0.05  # share of the weights that a poisoned prior moves: those that are known best

Merge = Callable[[Sequence[Reply]], Posterior]  # guard and merge, as the attacker knows them


@dataclass(frozen=True, eq=False)
class Honest:
    """What the honest replies of a round have in common."""

    change: np.ndarray
    deviation: np.ndarray
    precision: np.ndarray | None
    largest: np.ndarray | None  # precision of any honest reply
    replies: Sequence[Reply]

    @classmethod
    def of(cls, replies: Sequence[Reply], sent: Posterior) -> Honest:
        """Return it, reading one reply after another."""
        total = np.zeros(len(sent))
        squares = np.zeros(len(sent))
        logs = None if sent.precision is None else np.zeros(len(sent))
        largest = None if sent.precision is None else np.zeros(len(sent))
        for reply in replies:
            own = reply.posterior
            change = own.mean.astype(np.float64) - sent.mean
            total += change
            squares += change**2
            if logs is not None and largest is not None:
                known = diagonal(own)
                logs += np.log(known)
                np.maximum(largest, known, out=largest)
        count = len(replies)
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
        precision = None if logs is None else np.exp(logs / count)
        return cls(mean, deviation, precision=precision, largest=largest, replies=replies)


@dataclass(frozen=True, eq=False)
class Attack:
    """The lies of a run: who tells them, and how."""

    options: AttackSettings
    liars: frozenset[int]
    seed: int

    def forged(
        self, number: int, replies: Sequence[Reply], sent: Posterior, merge: Merge
    ) -> list[Reply]:
        """Return a round's replies, those of liars forged; `merge` is what the server would do."""
        honest = [reply for reply in replies if reply.partition not in self.liars]
        lying = len(replies) - len(honest)
        if not lying or not honest or self.options.kind in ON_DATA:
            return list(replies)
        common = Honest.of(honest, sent)

        def lies(strength: float) -> list[Reply]:
            return [
                self._lie(reply, number, sent, common, strength)
                if reply.partition in self.liars
                else reply
                for reply in replies
            ]

        own = self.options.value
        if self.options.strength != "worst":
            return lies(own)
        harms = [_harm(merge(lies(own * times)), sent, common) for times in TRIED]
        return lies(own * float(TRIED[int(np.argmax(harms))]))

    def _lie(
        self, reply: Reply, number: int, sent: Posterior, common: Honest, strength: float
    ) -> Reply:
        """Return what a liar says, worked out whenever it is read."""

        def lie() -> Payload:
            payload = reply.payload
            rng = np.random.default_rng([self.seed, STREAM, number, reply.partition])
            told = LIES[self.options.kind](payload.posterior, sent, common, strength, rng)
            return replace(payload, posterior=told)

        return replace(reply, source=lie)


def _harm(merged: Posterior, sent: Posterior, common: Honest) -> float:
    """Return how far the merge goes against the honest average change."""
    moved = merged.mean.astype(np.float64) - sent.mean
    return -float(moved @ common.change)


Lie = Callable[[Posterior, Posterior, Honest, float, np.random.Generator], Posterior]


def sign_flip(
    own: Posterior, sent: Posterior, common: Honest, strength: float, rng: np.random.Generator
) -> Posterior:
    """Send the change the other way: m_o - c (m_k - m_o)."""
    return replace(own, mean=sent.mean - strength * (own.mean - sent.mean))


def inner_product(
    own: Posterior, sent: Posterior, common: Honest, strength: float, rng: np.random.Generator
) -> Posterior:
    """Send the average change the other way (Xie et al. 2020): m_o - c (m - m_o)."""
    return replace(own, mean=sent.mean - strength * common.change)


def alie(
    own: Posterior, sent: Posterior, common: Honest, strength: float, rng: np.random.Generator
) -> Posterior:
    """Hide among the honest (Baruch et al. 2019, "a little is enough"): m - c d."""
    return replace(own, mean=sent.mean + common.change - strength * common.deviation)


def mimic(
    own: Posterior, sent: Posterior, common: Honest, strength: float, rng: np.random.Generator
) -> Posterior:
    """Say what the first honest client of the round says (Karimireddy et al. 2022)."""
    return common.replies[0].posterior


def noise(
    own: Posterior, sent: Posterior, common: Honest, strength: float, rng: np.random.Generator
) -> Posterior:
    """Send noise, c times as large as an honest change."""
    usual = float(np.sqrt(np.mean(common.change**2 + common.deviation**2)))
    return replace(own, mean=sent.mean + strength * usual * rng.standard_normal(len(own)))


def inflated_precision(
    own: Posterior, sent: Posterior, common: Honest, strength: float, rng: np.random.Generator
) -> Posterior:
    """Send the change the other way, and say to be c times as certain of it."""
    return replace(
        own,
        mean=2 * sent.mean - own.mean,
        precision=strength * own.known_precision,
    )


def collapsed_variance(
    own: Posterior, sent: Posterior, common: Honest, strength: float, rng: np.random.Generator
) -> Posterior:
    """Send the honest mean with c times its precision, against the calibration of the model."""
    return replace(own, precision=strength * own.known_precision)


def poisoned_prior(
    own: Posterior, sent: Posterior, common: Honest, strength: float, rng: np.random.Generator
) -> Posterior:
    """Move the best known weights by c honest deviations, and say to be ten times as certain."""
    known = diagonal(own)
    best = known >= np.quantile(known, 1 - TOP)
    step = strength * common.deviation * np.where(common.change > 0, 1.0, -1.0)
    mean = np.where(best, sent.mean + common.change - step, own.mean)
    if isinstance(own, Dense):
        return replace(own, mean=mean, precision=own.precision + np.diag(9 * best * known))
    return replace(own, mean=mean, precision=np.where(best, 10 * known, known))


def combined(
    own: Posterior, sent: Posterior, common: Honest, strength: float, rng: np.random.Generator
) -> Posterior:
    """Stay among the honest in every weight, against their change, with their largest precision.

    The mean is m - c d sign(m - m_o): a lie that distances and orders hardly show, told by all
    liars alike.
    """
    away = np.where(common.change > 0, 1.0, -1.0) * common.deviation
    lie = replace(own, mean=sent.mean + common.change - strength * away)
    if common.largest is None or isinstance(own, Dense):
        return lie
    return replace(lie, precision=common.largest)


def disguised(
    own: Posterior, sent: Posterior, common: Honest, strength: float, rng: np.random.Generator
) -> Posterior:
    """Keep a face of one's own, that of honest data, and push against the honest change under it.

    The mean is m_k - c d sign(m - m_o): made against a server that knows clients by portraits.
    """
    away = np.where(common.change > 0, 1.0, -1.0) * common.deviation
    return replace(own, mean=own.mean - strength * away)


def claimed_size(
    own: Posterior, sent: Posterior, common: Honest, strength: float, rng: np.random.Generator
) -> Posterior:
    """Send the change the other way; that it counts c times was said in the roll call."""
    return sign_flip(own, sent, common, 1.0, rng)


LIES: dict[str, Lie] = {
    "sign-flip": sign_flip,
    "inner-product": inner_product,
    "alie": alie,
    "mimic": mimic,
    "noise": noise,
    "inflated-precision": inflated_precision,
    "collapsed-variance": collapsed_variance,
    "poisoned-prior": poisoned_prior,
    "claimed-size": claimed_size,
    "combined": combined,
    "disguised": disguised,
}
