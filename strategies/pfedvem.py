"""Servers that average the clients' Gaussians: pFedBayes' and pFedVEM's."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import inf
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch.nn.functional import softplus

from fedivon_app.core.meanfield import inverse_softplus
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import Settings as AppSettings
from fedivon_app.strategies.base import MergeSettings, PosteriorStrategy
from fedivon_app.strategies.fedavg import FedAvg, PointMergeSettings
from fedivon_app.strategies.guard import lower_median
from fedivon_app.strategies.parts import KnowsHead
from fedivon_app.strategies.replies import Reply

log = logging.getLogger("fedivon")

STREAM = 0x68656164  # of the seed: the head before round 1


class PFedBayes(PosteriorStrategy):
    """pFedBayes' server (Zhang et al. 2022): mu = sum w_k mu_k, and var = sum w_k var_k (rule `nwa`), by data size.

    `average: rho` is what the official code does: rho = sum w_k rho_k, with sigma = softplus(rho).
    """

    class Settings(MergeSettings):
        rule: Literal["nwa"] = "nwa"
        average: Literal["variance", "rho"] = Field(
            "variance", description="what of the deviations is averaged"
        )

    def merge(
        self, replies: Sequence[Reply], weights: np.ndarray, previous: Posterior
    ) -> Posterior:
        merged = super().merge(replies, weights, previous)
        if self.settings.merge.average == "variance":
            return merged
        rho = torch.zeros(len(previous), dtype=torch.float64)
        for reply, weight in zip(replies, weights.tolist(), strict=True):
            sigma = torch.tensor(reply.posterior.precision, dtype=torch.float64).rsqrt_()
            rho.add_(inverse_softplus(sigma), alpha=weight)
        return Posterior(merged.mean, softplus(rho).pow_(-2).numpy())


class PFedVEM(KnowsHead, FedAvg):
    """pFedVEM's server (Zhu et al. 2023): the base averaged by data size, the head by confidence.

    mu = sum(m_k / rho_k^2) / sum(1 / rho_k^2) over the head, with rho_k^2 a client's metric `head_variance`.
    The head begins at N(0, head_init^2), as in the official code: clients draw theirs with deviation 1 around it, and
    would lose a network's small first weights in the noise, so that each would find features of its own.
    """

    class Settings(PointMergeSettings):
        head_init: float | None = Field(
            1.0,
            gt=0,
            description="standard deviation of the head's weights before round 1; none: as the model has it",
        )

    def __init__(
        self, settings: AppSettings, shape: tuple[int, ...] = (), num_classes: int | None = None
    ):
        super().__init__(settings, shape, num_classes)
        self.network = shape, num_classes

    def initial(self, mean: np.ndarray) -> Posterior:
        settings = self.settings
        begin = mean.copy()
        if settings.merge.head_init is not None:
            rng = np.random.default_rng([settings.seed, STREAM])
            begin[self.head] = rng.normal(0, settings.merge.head_init, begin[self.head].shape)
        return super().initial(begin)

    def merge(
        self, replies: Sequence[Reply], weights: np.ndarray, previous: Posterior
    ) -> Posterior:
        merged = super().merge(replies, weights, previous)
        head = self.head
        confidence = self.bounded(np.array([self.confidence(reply) for reply in replies]))
        merged.mean[head] = previous.mean[head]
        if confidence.any():
            heads = (reply.posterior.mean[head] for reply in replies)
            shares = (confidence / confidence.sum()).tolist()
            merged.mean[head] = sum(
                w * m.astype(np.float64) for w, m in zip(shares, heads, strict=True)
            )
        return merged

    def bounded(self, confidence: np.ndarray) -> np.ndarray:
        """As the guard bounds precisions: who exceeds a multiple of the median has the median."""
        bound = self.settings.server.precision_bound
        said = confidence[confidence > 0]
        if bound is None or not len(said):
            return confidence
        typical = lower_median(said)
        return np.where(confidence > bound * typical, typical, confidence)

    @staticmethod
    def confidence(reply: Reply) -> float:
        """1 / rho_k^2; nothing, with a warning, for a client that does not say a positive number."""
        variance = reply.metrics.get("head_variance", 0.0)
        if 0 < variance < inf:
            return 1 / variance
        log.warning(
            "the head of partition %d is left out: its head_variance is %s",
            reply.partition,
            variance,
        )
        return 0.0
