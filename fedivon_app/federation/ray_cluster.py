"""A Ray cluster that is there already, for simulated clients on more machines than this one.

Flower has no setting for it, but Ray reads its environment: where the cluster is, and what its
workers are to have. They are sent the app's code, so that what runs there is what was asked for
here. Their machines have Python, FedIvon's packages and the data.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path

from fedivon_app.core.errors import FlowerError

ADDRESS = "RAY_ADDRESS"
JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
NODES = 128  # simulated nodes that play the clients, whatever the size of the cluster
PATIENCE = 10.0  # seconds for the cluster to answer


def environment_for(address: str, code: Path, places: Mapping[str, str]) -> dict[str, str]:
    """Return what Flower's simulation is to have in its environment.

    `code` is the app's folder, which goes to the workers, and `places` are variables of this
    machine that hold for theirs as well.
    """
    told = {"runtime_env": {"working_dir": str(code), "env_vars": dict(places)}}
    return {ADDRESS: address, JOB: json.dumps(told)}


def check_address(address: str) -> None:
    """Raise an error if nobody answers at the address of a cluster."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise FlowerError(f"--ray {address}: give it as HOST:PORT, as `ray start --head` says it")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise FlowerError(
            f"--ray {address}: nobody answers there ({error}); start the cluster with "
            "`ray start --head`, and let this machine be one of it"
        ) from None
