"""What a simulation is told of a Ray cluster, and what keeps it from using one."""

import json
import socket

import pytest

from fedivon_app.cli.main import main
from fedivon_app.core.errors import FlowerError
from fedivon_app.federation.local_federation import Federation, free_port
from fedivon_app.federation.ray_cluster import ADDRESS, JOB, NODES, check_address, environment_for


def test_workers_are_sent_the_code_and_told_where_the_data_are(tmp_path):
    told = environment_for("10.0.0.1:6379", tmp_path, {"FEDIVON_DATA": "/shared"})
    assert told[ADDRESS] == "10.0.0.1:6379"
    assert json.loads(told[JOB])["runtime_env"] == {
        "working_dir": str(tmp_path),
        "env_vars": {"FEDIVON_DATA": "/shared"},
    }


def test_flower_is_not_told_of_cores_that_are_rays_to_know():
    (_, told) = Federation(ray="10.0.0.1:6379")._federation(1000, 2)
    assert told.startswith(f"num-supernodes={NODES} client-resources-num-cpus=2")
    assert "init-args" not in told


def test_a_cluster_that_answers_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_address(f"127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("address", ["auto", "10.0.0.1", ":6379", "host:port"])
def test_what_is_no_address_is_said_so(address):
    with pytest.raises(FlowerError, match="HOST:PORT"):
        check_address(address)


def test_a_cluster_that_is_not_there_is_named_before_anything_is_started():
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(FlowerError, match="nobody answers"), Federation(ray=address):
        pytest.fail("it started")


@pytest.mark.parametrize("other", ["--engine inline", "--superlink localhost:1"])
def test_only_flowers_engine_has_a_cluster(other, capsys):
    words = ["run", "demo", "--ray", "127.0.0.1:1", *other.split()]
    assert main(words) == 2
    assert "--ray spreads the simulated clients" in capsys.readouterr().err
