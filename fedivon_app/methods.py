"""The registry of methods: a name, its two halves, and the settings that they add."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from pydantic import create_model, model_validator

from clients.admm import BayesAdmmClient, FedAdmmClient
from clients.base import PosteriorClient
from clients.dense import DenseClient
from clients.fedper import FedPerClient, FedRepClient
from clients.ivon import IvonClient, PersonalIvonClient
from clients.laplace import FedLapCovClient, FedLaplaceClient
from clients.local import LocalClient
from clients.meanfield import LocalBnnClient
from clients.perfedavg import PerFedAvgClient
from clients.pfedbayes import PFedBayesClient
from clients.pfedhb import PFedHBClient
from clients.pfedme import PFedMeClient
from clients.pfedvem import PFedVEMClient
from clients.point import PointClient
from clients.scaffold import ScaffoldClient
from clients.variational import VariationalClient
from fedivon_app.core.settings import Settings, nearest
from strategies.admm import BayesAdmm, FedAdmm, FullBayesAdmm
from strategies.aggregation import RULES
from strategies.base import PosteriorStrategy
from strategies.fedavg import FedAvg
from strategies.fedivon import FedIvon
from strategies.fischer import Fischer
from strategies.local import FedPer, Local
from strategies.pfedhb import PFedHB
from strategies.pfedme import PFedMe
from strategies.pfedvem import PFedBayes, PFedVEM
from strategies.scaffold import Scaffold


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
    sections = {"client": (client.Settings, client.Settings()), "merge": (strategy.Settings, strategy.Settings())}
    start = {"start": model_validator(mode="after")(_start_by_rule)}
    return create_model(f"{strategy.__name__}Settings", __base__=Settings, __validators__=start, **sections)


def _start_by_rule(settings: Settings) -> Settings:
    """Where clients start, if the settings leave it to the merge rule."""
    if getattr(settings.client, "start", "given") is not None:
        return settings
    client = settings.client.model_copy(update={"start": RULES[settings.merge.rule].start})
    object.__setattr__(settings, "client", client)  # the settings are frozen for everybody else
    return settings
