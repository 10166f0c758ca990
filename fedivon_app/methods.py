"""The registry of methods: a name, its two halves, and the settings that they add."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from pydantic import create_model

from clients.base import PosteriorClient
from clients.ivon import IvonClient
from clients.point import PointClient
from fedivon_app.core.settings import Settings, nearest
from strategies.base import PosteriorStrategy
from strategies.fedavg import FedAvg
from strategies.fedivon import FedIvon


class Method(NamedTuple):
    strategy: type[PosteriorStrategy]
    client: type[PosteriorClient]


METHODS: dict[str, Method] = {
    "fedavg": Method(FedAvg, PointClient),
    "fedivon": Method(FedIvon, IvonClient),
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
    return create_model(f"{strategy.__name__}Settings", __base__=Settings, **sections)
