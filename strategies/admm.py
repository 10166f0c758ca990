"""The ADMM family's servers: BayesADMM and what it becomes with other steps, and federated ADMM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, TypeVar

import numpy as np

from fedivon_app.core import dense
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.dense import Dense
from fedivon_app.core.duality import (
    Dual,
    Space,
    coordinates,
    reference,
    reference_point,
    summed_step,
)
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.merge_settings import (
    AdmmMergeSettings,
    BayesAdmmMergeSettings,
    FedAdmmMergeSettings,
    FullBayesAdmmMergeSettings,
    MergeSettings,
)
from fedivon_app.core.network import Architecture
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import Settings
from fedivon_app.strategies.base import Merged, PosteriorStrategy, Round, Total, contributed
from fedivon_app.strategies.summing import Own, Summand

A = TypeVar("A", bound=AdmmMergeSettings)
Kind = TypeVar("Kind")
LARGEST = 2.0**30  # of a sum's numbers: precisions grow with the examples, by factors of thousands


class DualSums:
    """The sums of all clients' duals by name, which follow from what comes in: duals never travel.

    They begin as the merge of the round before left them, and are what this one leaves.
    """

    def __init__(self, state: Mapping[str, np.ndarray]):
        self._sums = {name: array for name, array in state.items() if name.startswith("sum_")}

    def add(self, name: str, step: np.ndarray) -> None:
        """Add the clients' dual steps of a round."""
        self._sums[f"sum_{name}"] = self._sums.get(f"sum_{name}", 0) + step

    def __getitem__(self, name: str) -> np.ndarray:
        return self._sums[f"sum_{name}"]

    def state(self) -> dict[str, np.ndarray]:
        """Return the sums for the next merge, and for the checkpoint."""
        return self._sums


class Admm(PosteriorStrategy[A]):
    """What the family's servers have in common."""

    @property
    def takes_replies_whole(self) -> bool:
        return True

    def total(self, round: Round) -> Total:
        return contributed(self, round)

    def alpha(self, round: Round) -> float:
        """Return the share of prior and duals: 1/(1 + rho K), K being all clients, or as set."""
        options = self.settings.merge
        return options.alpha or 1 / (1 + options.rho * round.num_clients)


class BayesAdmm(Admm[BayesAdmmMergeSettings]):
    """BayesADMM's server (Moellenhoff et al. 2025, Algorithm 1, lines 9 to 11), K clients:

    s = (1 - alpha) mean(s_k) + alpha (delta + sum u_k), alpha = 1/(1 + rho K),
    m = [(1 - alpha) mean(s_k m_k) + alpha sum v_k] / s.

    With alpha = 1 and rho = 1 it is PVI, with the dual step in expectation parameters BregmanADMM.
    """

    settings_type: ClassVar[type[MergeSettings]] = BayesAdmmMergeSettings

    def initial(self, mean: np.ndarray) -> Posterior:
        return Posterior(mean, np.full_like(mean, self.settings.merge.prior_precision))

    def contribution(self, own: Own, sent: Payload) -> dict[str, np.ndarray]:
        spaces = spaces_of(self.settings.merge)
        return named({space: coordinates(own.posterior, space) for space in spaces})

    def summands(self, sent: Payload) -> dict[str, Summand]:
        natural = Summand(bound=LARGEST, power=-1.0, degree=0, bits=64)
        found = {"natural": (natural, natural)}
        mean = Summand(bound=LARGEST, degree=0, bits=64)
        variance = Summand(bound=LARGEST, power=1.0, degree=0, bits=64)
        found["expectation"] = (mean, variance)
        return named({space: found[space] for space in spaces_of(self.settings.merge)})

    def conclude(self, total: Total, round: Round) -> Merged:
        options = self.settings.merge
        previous = round.previous.posterior
        server = reference(previous, options.prior_precision, first=round.first)
        sums = DualSums(round.state)
        own = pair(total.sums, options.dual_space)
        v, u = summed_step(own, total.count, server, options.dual_step, options.dual_space)
        sums.add("v", v)
        sums.add("u", u)
        shift, precision = pair(total.sums, "natural")
        alpha = self.alpha(round)
        kept = (1 - alpha) / total.count
        precision = kept * precision + alpha * (options.prior_precision + sums["u"])
        shift = kept * shift + alpha * sums["v"]
        low = precision < options.smallest_precision
        precision[low] = options.smallest_precision
        return Merged(
            Posterior(shift / precision, precision),
            state=sums.state(),
            notes={"floored_precisions": int(low.sum())},
        )


class FullBayesAdmm(Admm[FullBayesAdmmMergeSettings]):
    """BayesADMM's server with full covariance (Moellenhoff et al. 2025, appendix C.4).

    It is for small models. It begins at the prior N(0, I/delta), whatever the network's weights
    are: with rho = dual_step = 1/K and quadratic losses, round 1 ends at the pooled posterior
    (Proposition 3.2).
    """

    settings_type: ClassVar[type[MergeSettings]] = FullBayesAdmmMergeSettings

    def __init__(
        self,
        settings: Settings[ClientSettings, FullBayesAdmmMergeSettings],
        architecture: Architecture,
    ):
        super().__init__(settings, architecture)
        model = settings.model
        if model.factory or model.name != "linear" or model.dropout:
            given = model.factory or model.name + (" with dropout" if model.dropout else "")
            raise SettingsError(
                f"strategy {settings.strategy} is for one linear layer: "
                f"set model.name=linear, not {given}"
            )

    def initial(self, mean: np.ndarray) -> Dense:
        options = self.settings.merge
        if len(mean) > options.largest_size:
            raise SettingsError(
                f"strategy {self.settings.strategy}: the precision of {len(mean)} weights would be "
                f"a matrix of {8 * len(mean) ** 2 / 1e6:.0f} MB; merge.largest_size allows "
                f"{options.largest_size} weights"
            )
        return Dense.isotropic(len(mean), options.prior_precision)

    def contribution(self, own: Own, sent: Payload) -> dict[str, np.ndarray]:
        posterior = full(own.posterior)
        spaces = spaces_of(self.settings.merge)
        return named({space: dense.coordinates(posterior, space) for space in spaces})

    def summands(self, sent: Payload) -> dict[str, Summand]:
        vector = Summand(bound=LARGEST, degree=0, bits=64)
        matrix = replace(vector, size=len(sent.posterior) ** 2)
        spaces = spaces_of(self.settings.merge)
        return named({space: (vector, matrix) for space in spaces})

    def conclude(self, total: Total, round: Round) -> Merged:
        options = self.settings.merge
        server = full(round.previous.posterior)
        size = len(server)
        pairs = {
            space: (total.sums[f"{space}.0"], total.sums[f"{space}.1"].reshape(size, size))
            for space in spaces_of(options)
        }
        sums = DualSums(round.state)
        v, matrix = dense.summed_step(
            pairs[options.dual_space], total.count, server, options.dual_step, options.dual_space
        )
        sums.add("v", v)
        sums.add("V", matrix)
        merged, floored = dense.merge_sums(
            pairs["natural"],
            total.count,
            duals=(sums["v"], sums["V"]),
            delta=options.prior_precision,
            alpha=self.alpha(round),
        )
        return Merged(merged, state=sums.state(), notes={"floored_precisions": floored})


def spaces_of(options: BayesAdmmMergeSettings | FullBayesAdmmMergeSettings) -> list[Space]:
    """Return the spaces in which posteriors are summed: the natural one, and that of the duals."""
    return ["natural"] if options.dual_space == "natural" else ["natural", "expectation"]


def named(pairs: Mapping[Space, tuple[Kind, Kind]]) -> dict[str, Kind]:
    """Return what there is of both coordinates of each space, by name."""
    return {f"{space}.{k}": one for space, both in pairs.items() for k, one in enumerate(both)}


def pair(sums: Mapping[str, np.ndarray], space: Space) -> Dual:
    """Return the sums of both coordinates of a space."""
    return sums[f"{space}.0"], sums[f"{space}.1"]


def full(posterior: Posterior) -> Dense:
    """Return a posterior that has full covariance; another kind is a TypeError."""
    if not isinstance(posterior, Dense):
        raise TypeError("a posterior with full covariance is needed here, not a diagonal one")
    return posterior


class FedAdmm(Admm[FedAdmmMergeSettings]):
    """Federated ADMM's server (Moellenhoff et al. 2025, Figure 2a, line 3), with unit covariance.

    m = (rho K mean(m_k) + sum v_k) / (delta + rho K); with delta = 0 FedDyn's (Acar et al. 2021,
    h = -sum v_k / K). With alpha = 1, rho = delta and damped dual steps it is FedLap's (Swaroop et
    al. 2025): m = sum v_k / delta, which begins at the prior's mean 0, wherever the network does.
    """

    settings_type: ClassVar[type[MergeSettings]] = FedAdmmMergeSettings

    def contribution(self, own: Own, sent: Payload) -> dict[str, np.ndarray]:
        return {"change": own.posterior.mean.astype(np.float64) - sent.posterior.mean}

    def summands(self, sent: Payload) -> dict[str, Summand]:
        return {"change": Summand(bound=2.0**20, degree=0, bits=64)}

    def conclude(self, total: Total, round: Round) -> Merged:
        options = self.settings.merge
        previous = round.previous.posterior.mean
        change = total.sums["change"]
        mean = previous + change / total.count
        server = reference_point(previous, options.alpha, first=round.first)
        sums = DualSums(round.state)
        sums.add("v", options.dual_step * (change + total.count * (previous - server)))
        if options.alpha is not None:
            point = (1 - options.alpha) * mean + options.alpha * sums["v"] / options.prior_precision
        else:
            tie = options.rho * round.num_clients
            point = (tie * mean + sums["v"]) / (options.prior_precision + tie)
        return Merged(Posterior(point), state=sums.state())
