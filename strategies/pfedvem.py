"""pFedVEM."""

from __future__ import annotations

import logging
from math import inf
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedivon_app.core.flat import Part
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import MergeSettings
from fedivon_app.strategies.base import Merged, Reply, Round
from fedivon_app.strategies.fedavg import PointMergeSettings, PointStrategy
from fedivon_app.strategies.guard import lower_median
from fedivon_app.strategies.parts import head_of

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

    def merge(self, round: Round) -> Merged:
        merged = super().merge(round)
        mean = merged.posterior.mean
        head = self.head
        confidence = self.bounded(np.array([self.confidence(reply) for reply in round.replies]))
        mean[head] = round.previous.posterior.mean[head]
        if confidence.any():
            shares = (confidence / confidence.sum()).tolist()
            heads = (reply.posterior.mean[head] for reply in round.replies)
            mean[head] = sum(w * m.astype(np.float64) for w, m in zip(shares, heads, strict=True))
        return merged

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
        variance = float(reply.metrics.get("head_variance", 0.0))
        if 0 < variance < inf:
            return 1 / variance
        log.warning(
            "the head of partition %d is left out: its head_variance is %s",
            reply.partition,
            variance,
        )
        return 0.0
