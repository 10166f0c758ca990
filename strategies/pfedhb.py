"""pFedHB."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from fedivon_app.core.flat import Part
from fedivon_app.core.meanfield import Gaussian
from fedivon_app.core.merge_settings import MergeSettings, PFedHBMergeSettings
from fedivon_app.core.optimizers import Adam
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.base import Merged, PosteriorStrategy, Round, State, Total
from fedivon_app.strategies.parts import head_of

MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # what Adam keeps of a parameter


class PFedHB(PosteriorStrategy[PFedHBMergeSettings]):
    """pFedHB's server (Thapa and Li 2025, Eq. 9): a few steps of Adam, whose moments last, on

        sum_k w_k KL(q_k || N(mu, sigma^2)) + lambda_1 |mu|^2 + lambda_2 |sigma|^2,

    with sigma = softplus(rho). In mu and sigma the sum is KL(p || N(mu, sigma^2)) and a constant,
    with p the clients' linear pool: its mean is sum w_k mu_k, its variance sum w_k (var_k + (mu_k
    - mean)^2). Without penalties p is the minimum. Under pFedBayes' constraint mu_k = mu (section
    4.2) its variance is sum w_k var_k. All of it goes coordinate by coordinate, so that the
    paper's order, first the base and then the head, is the same as both at once.
    """

    settings_type: ClassVar[type[MergeSettings]] = PFedHBMergeSettings

    @property
    def has_global_model(self) -> bool:
        return self.settings.merge.shared == "both"

    @property
    def head(self) -> Part:
        """Return where the head lies in the flat vector."""
        return head_of(self.settings.client, self.architecture)

    @property
    def rule(self) -> str:
        return "nwa" if self.settings.merge.constraint == "pfedbayes" else "lp"

    def conclude(self, total: Total, round: Round) -> Merged:
        options = self.settings.merge
        pool = super().conclude(total, round).posterior
        merged = Merged(pool) if options.solution == "closed" else self.approach(pool, round)
        if options.shared == "base":
            head = self.head
            previous = round.previous.posterior
            merged.posterior.mean[head] = previous.mean[head]
            merged.posterior.known_precision[head] = previous.known_precision[head]
        return merged

    def approach(self, pool: Posterior, round: Round) -> Merged:
        """Return where Adam's steps lead from the previous posterior, and Adam's moments."""
        options = self.settings.merge
        server = Gaussian.of(round.previous.posterior)
        mean = torch.from_numpy(pool.mean)
        variance = torch.from_numpy(pool.variance)
        rate = options.rate_in(round.number)
        optimizer = Adam(server.parameters(), lr=rate, fused=True)
        named = {"mean": server.mean, "rho": server.rho}
        for name, parameter in named.items():
            if kept := _moments(round.state, name):
                optimizer.state[parameter] = kept
        for _ in range(options.steps):
            server.zero_gradient()
            server.add_fit(mean, variance)
            server.add_penalties(options.mean_penalty, options.sigma_penalty)
            optimizer.step()
        state = {
            f"adam_{name}.{key}": value.numpy().reshape(-1)
            for name, parameter in named.items()
            for key, value in optimizer.state[parameter].items()
        }
        return Merged(server.posterior(), state=state)


def _moments(state: State, name: str) -> dict[str, torch.Tensor]:
    """Return what Adam kept of a parameter, as copies; nothing before the first round."""
    if f"adam_{name}.step" not in state:
        return {}
    found = {key: torch.from_numpy(np.array(state[f"adam_{name}.{key}"])) for key in MOMENTS}
    return found | {"step": found["step"].squeeze()}
