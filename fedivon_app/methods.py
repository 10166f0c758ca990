"""The registry of methods: a name, its two halves, and the settings that they add."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from pydantic import create_model, model_validator

from fedivon_app.clients.admm import BayesAdmmClient, FedAdmmClient
from fedivon_app.clients.base import PosteriorClient
from fedivon_app.clients.bayes_admm_full import DenseClient
from fedivon_app.clients.fedavg import PointClient
from fedivon_app.clients.fedivon import IvonClient, PersonalIvonClient
from fedivon_app.clients.fedper import FedPerClient, FedRepClient
from fedivon_app.clients.flipout import VariationalClient
from fedivon_app.clients.laplace import FedLapCovClient, FedLaplaceClient
from fedivon_app.clients.local import LocalClient
from fedivon_app.clients.meanfield import LocalBnnClient
from fedivon_app.clients.perfedavg import PerFedAvgClient
from fedivon_app.clients.pfedbayes import PFedBayesClient
from fedivon_app.clients.pfedhb import PFedHBClient
from fedivon_app.clients.pfedme import PFedMeClient
from fedivon_app.clients.pfedvem import PFedVEMClient
from fedivon_app.clients.scaffold import ScaffoldClient
from fedivon_app.core.settings import Settings, nearest
from fedivon_app.strategies.admm import BayesAdmm, FedAdmm, FullBayesAdmm
from fedivon_app.strategies.aggregation import RULES
from fedivon_app.strategies.base import PosteriorStrategy
from fedivon_app.strategies.fedavg import FedAvg
from fedivon_app.strategies.fedivon import FedIvon
from fedivon_app.strategies.fischer import Fischer
from fedivon_app.strategies.local import FedPer, Local
from fedivon_app.strategies.pfedhb import PFedHB
from fedivon_app.strategies.pfedme import PFedMe
from fedivon_app.strategies.pfedvem import PFedBayes, PFedVEM
from fedivon_app.strategies.scaffold import Scaffold


class Method(NamedTuple):
    strategy: type[PosteriorStrategy]
    client: type[PosteriorClient]


METHODS: dict[str, Method] = {
    "fedavg": Method(FedAvg, PointClient),
    "fedivon": Method(FedIvon, IvonClient),
    "fedivon-personal": Method(FedIvon, PersonalIvonClient),
    "flipout": Method(Fischer, VariationalClient),
    "mc-dropout": Method(FedAvg, PointClient),
    "bayes-admm": Method(BayesAdmm, BayesAdmmClient),
    "bayes-admm-full": Method(FullBayesAdmm, DenseClient),
    "bregman-admm": Method(BayesAdmm, BayesAdmmClient),
    "pvi": Method(BayesAdmm, BayesAdmmClient),
    "fed-admm": Method(FedAdmm, FedAdmmClient),
    "feddyn": Method(FedAdmm, FedAdmmClient),
    "fedlap": Method(FedAdmm, FedAdmmClient),
    "fedlap-cov": Method(BayesAdmm, FedLapCovClient),
    "fedlaplace": Method(FedIvon, FedLaplaceClient),
    "fedprox": Method(FedAvg, PointClient),
    "scaffold": Method(Scaffold, ScaffoldClient),
    "local": Method(Local, LocalClient),
    "fedper": Method(FedPer, FedPerClient),
    "fedrep": Method(FedPer, FedRepClient),
    "pfedme": Method(PFedMe, PFedMeClient),
    "perfedavg": Method(FedAvg, PerFedAvgClient),
    "local-bnn": Method(Local, LocalBnnClient),
    "pfedhb": Method(PFedHB, PFedHBClient),
    "pfedbayes": Method(PFedBayes, PFedBayesClient),
    "pfedvem": Method(PFedVEM, PFedVEMClient),
}


def method(name: str) -> Method:
    if name not in METHODS:
        raise ValueError(f"there is no strategy {name!r}: {nearest(name, METHODS)}")
    return METHODS[name]


@cache
def settings_of(name: str) -> type[Settings]:
    """The settings of a method: the common ones, its client's and its merge's."""
    strategy, client = method(name)
    sections = {
        "client": (client.Settings, client.Settings()),
        "merge": (strategy.Settings, strategy.Settings()),
    }
    start = {"start": model_validator(mode="after")(_start_by_rule)}
    return create_model(
        f"{strategy.__name__}Settings", __base__=Settings, __validators__=start, **sections
    )


def _start_by_rule(settings: Settings) -> Settings:
    """Where clients start, if the settings leave it to the merge rule."""
    if getattr(settings.client, "start", "given") is not None:
        return settings
    client = settings.client.model_copy(update={"start": RULES[settings.merge.rule].start})
    object.__setattr__(settings, "client", client)  # the settings are frozen for everybody else
    return settings
