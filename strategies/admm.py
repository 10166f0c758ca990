"""The ADMM family's servers: BayesADMM and what it becomes with other steps, and federated ADMM on points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from fedivon_app.core import dense
from fedivon_app.core.dense import Dense
from fedivon_app.core.duality import Space, dual_step, reference
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import Settings as AppSettings
from fedivon_app.core.settings import SettingsError
from fedivon_app.strategies.base import MergeSettings, PosteriorStrategy
from fedivon_app.strategies.replies import Reply


class AdmmMergeSettings(MergeSettings):
    rule: Literal["admm"] = "admm"
    weighting: Literal["equal"] = "equal"
    rho: float = Field(1.0, gt=0, description="how strongly clients are tied to the server")
    dual_step: float = Field(1.0, ge=0, description="gamma")
    prior_precision: float = Field(1.0, gt=0, description="delta, of the prior N(0, 1/delta)")
    alpha: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of prior and duals; none: ADMM's, by rho and the number of clients; PVI: 1",
    )


class BayesAdmmMergeSettings(AdmmMergeSettings):
    dual_space: Space = Field("natural", description="of the dual step; expectation: BregmanADMM")
    smallest_precision: float = Field(
        1e-6, gt=0, description="a smaller merged precision is raised to this, and counted"
    )


class Admm(PosteriorStrategy):
    """What both servers have: the sums of all clients' duals, which follow from what comes in."""

    duals: tuple[str, ...] = ("v",)

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.sums: dict[str, np.ndarray] = {}

    @property
    def clients(self) -> int:
        """K, of all clients, those absent from a round included."""
        return self.settings.data.clients or len(self.roll_call.nodes)

    @property
    def alpha(self) -> float:
        merge = self.settings.merge
        return merge.alpha or 1 / (1 + merge.rho * self.clients)

    def add_duals(self, *steps: np.ndarray) -> list[np.ndarray]:
        for name, step in zip(self.duals, steps, strict=True):
            self.sums[name] = self.sums.get(name, 0) + step
        return [self.sums[name] for name in self.duals]

    def state(self) -> dict[str, np.ndarray]:
        return super().state() | {f"sum_{name}": array for name, array in self.sums.items()}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        super().load_state(state)
        self.sums = {name: state[f"sum_{name}"] for name in self.duals if f"sum_{name}" in state}


class BayesAdmm(Admm):
    """BayesADMM's server (Moellenhoff et al. 2025, Algorithm 1, lines 9 to 11), K clients, alpha = 1/(1 + rho K):

    s = (1 - alpha) mean(s_k) + alpha (delta + sum u_k), m = [(1 - alpha) mean(s_k m_k) + alpha sum v_k] / s.
    With alpha = 1 and rho = 1 it is PVI, with the dual step in expectation parameters BregmanADMM.
    """

    Settings = BayesAdmmMergeSettings
    duals = ("v", "u")

    def initial(self, mean: np.ndarray) -> Posterior:
        return Posterior(mean, np.full_like(mean, self.settings.merge.prior_precision))

    def merge(
        self, replies: Sequence[Reply], weights: np.ndarray, previous: Posterior
    ) -> Posterior:
        merge = self.settings.merge
        server = reference(previous, self.record["round"], merge.prior_precision)
        precision = np.zeros(len(previous))
        shift = np.zeros(len(previous))
        for reply in replies:
            sum_v, sum_u = self.add_duals(
                *dual_step(reply.posterior, server, merge.dual_step, merge.dual_space)
            )
            own = reply.posterior.precision.astype(np.float64)
            precision += own / len(replies)
            shift += own * reply.posterior.mean / len(replies)
        alpha = self.alpha
        precision = (1 - alpha) * precision + alpha * (merge.prior_precision + sum_u)
        shift = (1 - alpha) * shift + alpha * sum_v
        low = precision < merge.smallest_precision
        self.record["floored_precisions"] = int(low.sum())
        precision[low] = merge.smallest_precision
        return Posterior(shift / precision, precision)


class FullBayesAdmm(Admm):
    """BayesADMM's server with full covariance (Moellenhoff et al. 2025, appendix C.4), for small models.

    It begins at the prior N(0, I/delta), whatever the network's weights are: with rho = dual_step = 1/K and quadratic
    losses, round 1 ends at the pooled posterior (Proposition 3.2).
    """

    duals = ("v", "V")

    class Settings(AdmmMergeSettings):
        dual_space: Space = Field(
            "natural", description="of the dual step; expectation: BregmanADMM"
        )
        largest_size: int = Field(
            2000, ge=1, description="weights at most: their precision is a matrix"
        )

    def __init__(self, settings: AppSettings, *arguments, **options):
        super().__init__(settings, *arguments, **options)
        if settings.model.factory or settings.model.name != "linear" or settings.model.dropout:
            given = settings.model.factory or settings.model.name + (
                " with dropout" if settings.model.dropout else ""
            )
            raise SettingsError(
                f"strategy {settings.strategy} is for one linear layer: set model.name=linear, not {given}"
            )

    def initial(self, mean: np.ndarray) -> Dense:
        merge = self.settings.merge
        if len(mean) > merge.largest_size:
            raise SettingsError(
                f"strategy {self.settings.strategy}: the precision of {len(mean)} weights would be a matrix of "
                f"{8 * len(mean) ** 2 / 1e6:.0f} MB; merge.largest_size allows {merge.largest_size} weights"
            )
        return Dense.isotropic(len(mean), merge.prior_precision)

    def merge(self, replies: Sequence[Reply], weights: np.ndarray, previous: Dense) -> Dense:
        merge = self.settings.merge
        for reply in replies:
            sums = self.add_duals(
                *dense.dual_step(reply.posterior, previous, merge.dual_step, merge.dual_space)
            )
        posteriors = [reply.posterior for reply in replies]
        delta = merge.prior_precision
        merged, self.record["floored_precisions"] = dense.merge(posteriors, sums, delta, self.alpha)
        return merged


class FedAdmm(Admm):
    """Federated ADMM's server (Moellenhoff et al. 2025, Figure 2a, line 3): unit covariance, a point and its duals.

    m = (rho K mean(m_k) + sum v_k) / (delta + rho K); with delta = 0 FedDyn's (Acar et al. 2021, h = -sum v_k / K).
    With alpha = 1, rho = delta and damped dual steps it is FedLap's (Swaroop et al. 2025): m = sum v_k / delta.
    """

    class Settings(AdmmMergeSettings):
        prior_precision: float = Field(1.0, ge=0, description="delta, of the prior N(0, 1/delta)")

    def merge(
        self, replies: Sequence[Reply], weights: np.ndarray, previous: Posterior
    ) -> Posterior:
        merge = self.settings.merge
        mean = np.zeros(len(previous))
        for reply in replies:
            own = reply.posterior.mean.astype(np.float64)
            mean += own / len(replies)
            (sum_v,) = self.add_duals(merge.dual_step * (own - previous.mean))
        if merge.alpha is not None:
            return Posterior((1 - merge.alpha) * mean + merge.alpha * sum_v / merge.prior_precision)
        tie = merge.rho * self.clients
        return Posterior((tie * mean + sum_v) / (merge.prior_precision + tie))
