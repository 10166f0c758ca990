"""The registry of methods: a name, its two halves, and the settings that they add."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Self, TypeVar

from pydantic import model_validator

from fedivon_app.clients.admm import BayesAdmmClient, FedAdmmClient
from fedivon_app.clients.base import PosteriorClient
from fedivon_app.clients.bayes_admm_full import FullBayesAdmmClient
from fedivon_app.clients.fedavg import PointClient
from fedivon_app.clients.fedivon import FedIvonClient, PersonalIvonClient
from fedivon_app.clients.fedper import FedPerClient, FedRepClient
from fedivon_app.clients.flipout import FlipoutClient
from fedivon_app.clients.laplace import FedLapCovClient, FedLaplaceClient
from fedivon_app.clients.local import LocalClient
from fedivon_app.clients.local_bnn import LocalBnnClient
from fedivon_app.clients.perfedavg import PerFedAvgClient
from fedivon_app.clients.pfedbayes import PFedBayesClient
from fedivon_app.clients.pfedhb import PFedHBClient
from fedivon_app.clients.pfedme import PFedMeClient
from fedivon_app.clients.pfedvem import PFedVEMClient
from fedivon_app.clients.scaffold import ScaffoldClient
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.merge_settings import MergeSettings
from fedivon_app.core.privacy import unhidden
from fedivon_app.core.registry import Registry
from fedivon_app.core.settings import AnySettings, Settings
from fedivon_app.strategies.admm import BayesAdmm, FedAdmm, FullBayesAdmm
from fedivon_app.strategies.base import PosteriorStrategy
from fedivon_app.strategies.client_start import with_client_start
from fedivon_app.strategies.fedavg import FedAvg
from fedivon_app.strategies.fedivon import FedIvon
from fedivon_app.strategies.fedper import FedPer
from fedivon_app.strategies.flipout import Flipout
from fedivon_app.strategies.local import Local
from fedivon_app.strategies.pfedbayes import PFedBayes
from fedivon_app.strategies.pfedhb import PFedHB
from fedivon_app.strategies.pfedme import PFedMe
from fedivon_app.strategies.pfedvem import PFedVEM
from fedivon_app.strategies.scaffold import Scaffold
from fedivon_app.strategies.secure_checks import why_not_secure


@dataclass(frozen=True)
class Method:
    """A method: the class of its server's hooks, and that of its client.

    `private` says that all a client sends is made of the gradients that `Task.backward` gives, and
    of nothing else that it knows of its examples: differential privacy is for such methods alone.
    """

    strategy: type[PosteriorStrategy[Any]]
    client: type[PosteriorClient[Any, Any]]
    private: bool = False


METHODS: Registry[Method] = Registry(
    "strategy",
    {
        "fedavg": Method(FedAvg, PointClient, private=True),
        "fedivon": Method(FedIvon, FedIvonClient, private=True),
        "fedivon-personal": Method(FedIvon, PersonalIvonClient, private=True),
        "flipout": Method(Flipout, FlipoutClient),
        "mc-dropout": Method(FedAvg, PointClient, private=True),
        "bayes-admm": Method(BayesAdmm, BayesAdmmClient, private=True),
        "bayes-admm-full": Method(FullBayesAdmm, FullBayesAdmmClient),
        "bregman-admm": Method(BayesAdmm, BayesAdmmClient, private=True),
        "pvi": Method(BayesAdmm, BayesAdmmClient, private=True),
        "fed-admm": Method(FedAdmm, FedAdmmClient, private=True),
        "feddyn": Method(FedAdmm, FedAdmmClient, private=True),
        "fedlap": Method(FedAdmm, FedAdmmClient, private=True),
        "fedlap-cov": Method(BayesAdmm, FedLapCovClient),
        "fedlaplace": Method(FedIvon, FedLaplaceClient),
        "fedprox": Method(FedAvg, PointClient, private=True),
        "scaffold": Method(Scaffold, ScaffoldClient, private=True),
        "local": Method(Local, LocalClient),
        "fedper": Method(FedPer, FedPerClient),
        "fedrep": Method(FedPer, FedRepClient),
        "pfedme": Method(PFedMe, PFedMeClient),
        "perfedavg": Method(FedAvg, PerFedAvgClient),
        "local-bnn": Method(Local, LocalBnnClient),
        "pfedhb": Method(PFedHB, PFedHBClient),
        "pfedbayes": Method(PFedBayes, PFedBayesClient),
        "pfedvem": Method(PFedVEM, PFedVEMClient),
    },
    kind=Method,
)


def method(name: str) -> Method:
    """Return the method of this name, or the user's own by import path."""
    return METHODS.find(name)


C_co = TypeVar("C_co", bound=ClientSettings, covariant=True)
M_co = TypeVar("M_co", bound=MergeSettings, covariant=True)


class MethodSettings(Settings[C_co, M_co], Generic[C_co, M_co]):
    """The settings of a method, in which the merge rule says where clients start."""

    @model_validator(mode="before")
    @classmethod
    def _start_by_rule(cls, values: Any) -> Any:
        """Fill in `client.start` where the settings leave it to the merge rule."""
        return with_client_start(values, cls) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _private_if_asked(self) -> Self:
        if self.privacy.is_private and (why := self._unhidden()):
            raise ValueError(f"privacy.epsilon is {self.privacy.epsilon:g}, but {why}")
        return self

    def _unhidden(self) -> str:
        """Return what would let examples be seen without noise, or nothing."""
        if not method(self.strategy).private:
            able = ", ".join(name for name in METHODS if method(name).private)
            return (
                f"the clients of {self.strategy} send more than noisy gradients make of their "
                f"model; differential privacy is for {able}"
            )
        return unhidden(self)

    @model_validator(mode="after")
    def _can_be_aggregated_securely(self) -> Self:
        if not self.privacy.secure_aggregation:
            return self
        if why := why_not_secure(self, method(self.strategy).strategy):
            raise ValueError(f"privacy.secure_aggregation needs a sum over the clients: {why}")
        return self


@cache
def settings_of(name: str) -> type[AnySettings]:
    """Return the settings class of a method: the common ones, its client's and its merge's."""
    found = method(name)
    client_options = found.client.settings_type
    merge_options = found.strategy.settings_type
    kind: type[AnySettings] = MethodSettings[client_options, merge_options]  # type: ignore[valid-type]
    return kind
