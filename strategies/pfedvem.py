"""pFedVEM."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Part
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.base import Merged, Reply, Round, Total, contributed
from fedivon_app.strategies.fedavg import PointMergeSettings, PointStrategy
from fedivon_app.strategies.guard import lower_median
from fedivon_app.strategies.parts import head_of
from fedivon_app.strategies.summing import Own, Summand

log = logging.getLogger("fedivon")

STREAM = 0x68656164  # of the seed: the head before round 1


class PFedVEMMergeSettings(PointMergeSettings):
    """FedAvg's, and where the head begins."""

    head_init: float | None = Field(
        1.0,
        gt=0,
        description="standard deviation of the head's weights before round 1; "
        "none: as the model has it",
    )


class PFedVEM(PointStrategy[PFedVEMMergeSettings]):
    """pFedVEM's server (Zhu et al. 2023): the base averaged by data size, the head by confidence.

    mu = sum(m_k / rho_k^2) / sum(1 / rho_k^2) over the head, with rho_k^2 a client's metric
    `head_variance`. The head begins at N(0, head_init^2), as in the official code: clients draw
    theirs with deviation 1 around it, and would lose a network's small first weights in the noise,
    so that each would find features of its own.
    """

    settings_type: ClassVar[type[MergeSettings]] = PFedVEMMergeSettings

    @property
    def head(self) -> Part:
        """Return where the head lies in the flat vector."""
        return head_of(self.settings.client, self.architecture)

    def initial(self, mean: np.ndarray) -> Posterior:
        begin = mean.copy()
        if self.settings.merge.head_init is not None:
            rng = np.random.default_rng([self.settings.seed, STREAM])
            head = self.head
            begin[head] = rng.normal(0, self.settings.merge.head_init, begin[head].shape)
        return super().initial(begin)

    def contribution(self, own: Own, sent: Payload) -> dict[str, np.ndarray]:
        head = self.head
        change = own.posterior.mean[head].astype(np.float64) - sent.posterior.mean[head]
        confidence = confidence_of(own.metrics)
        found = super().contribution(own, sent)
        found["first"][head] = 0.0
        return found | {"head": confidence * change, "confidence": np.array([confidence])}

    def summands(self, sent: Payload) -> dict[str, Summand]:
        size = sent.posterior.mean[self.head].size
        by_confidence = Summand(bound=2.0**24, degree=0, bits=64, size=size)
        scalar = replace(by_confidence, size=1)
        return super().summands(sent) | {"head": by_confidence, "confidence": scalar}

    def total(self, round: Round) -> Total:
        return contributed(self, replace(round, replies=self.bounded_replies(round.replies)))

    def conclude(self, total: Total, round: Round) -> Merged:
        merged = super().conclude(total, round)
        mean = merged.posterior.mean
        head = self.head
        mean[head] = round.previous.posterior.mean[head]
        if confidence := float(total.sums["confidence"][0]):
            mean[head] = mean[head] + total.sums["head"] / confidence
        return merged

    def bounded_replies(self, replies: Sequence[Reply]) -> list[Reply]:
        """Return the replies with confidences within the bounds of the settings."""
        said = self.bounded(np.array([self.confidence(reply) for reply in replies]))
        return [
            replace(reply, metrics={"head_variance": 1 / one if one else 0.0})
            for reply, one in zip(replies, said.tolist(), strict=True)
        ]

    def bounded(self, confidence: np.ndarray) -> np.ndarray:
        """Bound confidences as the guard bounds precisions.

        A client that exceeds a multiple of the median has the median.
        """
        bound = self.settings.server.precision_bound
        said = confidence[confidence > 0]
        if bound is None or not len(said):
            return confidence
        typical = lower_median(said)
        return np.where(confidence > bound * typical, typical, confidence)

    @staticmethod
    def confidence(reply: Reply) -> float:
        """Return 1 / rho_k^2, or with a warning 0 for a client that says no positive number."""
        if confidence := confidence_of(reply.metrics):
            return confidence
        log.warning(
            "the head of partition %d is left out: its head_variance is %s",
            reply.partition,
            reply.metrics.get("head_variance", 0.0),
        )
        return 0.0


def confidence_of(metrics: Mapping[str, Any]) -> float:
    """Return 1 / rho_k^2 of a client's metrics, or 0 where rho_k^2 is no positive number."""
    variance = float(metrics.get("head_variance", 0.0))
    return 1 / variance if 0 < variance < inf else 0.0
