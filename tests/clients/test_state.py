"""What a client keeps: over rounds, over a restart of its node, and back to where the server is."""

import numpy as np
import pytest
from flwr.app import RecordDict
from hypothesis import given
from hypothesis import settings as settings_of_examples
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import save_file

from fedivon_app.clients.state import Memory
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import RunError
from fedivon_app.core.instructions import Instructions
from fedivon_app.datasets.node_data import partition_of
from fedivon_app.methods import method, settings_of
from tests.clients.helpers import arrays_of, first_payload, instructions, new_client


def kept(value: float) -> dict:
    return {"v": np.full(3, value), "step": np.array([int(value)])}


def test_what_was_kept_comes_back_from_flowers_state_or_from_the_disk(tmp_path):
    memory = Memory(RecordDict(), tmp_path / "a")
    assert memory.recall(0) == {}
    memory.keep(4, kept(4.0))
    restarted = Memory(RecordDict(), tmp_path / "a")
    for one in (memory, restarted):
        assert one.recall(4)["v"].tolist() == [4.0] * 3 and one.recall(4)["v"].dtype == np.float64
    (tmp_path / "a" / "round-000004.safetensors").unlink()
    assert memory.recall(4)["step"].tolist() == [4]
    with pytest.raises(RunError, match="kept in round 4 is gone: there is no .*round-000004"):
        restarted.recall(4)


def test_a_client_goes_back_to_where_the_server_is(tmp_path):
    memory = Memory(RecordDict(), tmp_path)
    for server_round in (1, 3, 7):
        memory.keep(server_round, kept(server_round), {1, 3})
    assert memory.recall(3)["v"][0] == 3
    assert memory.recall(0) == {}
    memory.keep(8, kept(8), {3})  # nobody will ask for round 1 or 7 again
    assert sorted(int(path.stem[-6:]) for path in tmp_path.iterdir()) == [3, 8]


def test_a_client_of_a_simulation_keeps_nothing_in_flowers_state(tmp_path):
    """Flower holds the states of all clients in one process."""
    state = RecordDict()
    settings = compose(settings_of, "demo", "fedivon-personal")
    client = new_client(settings, state, tmp_path / "own")
    for told, names in (
        (Instructions(round=5, client_state=str(tmp_path / "run")), set()),
        (Instructions(round=5), {"memory", "memory-note"}),
    ):
        client.memory(told).keep(5, kept(5))
        assert set(state) == names and client.memory(told).recall(5)["v"][0] == 5
    for place in ("run", "own/run"):
        assert (tmp_path / place / "partition-3" / "round-000005.safetensors").is_file()


def test_a_long_run_leaves_a_client_with_three_rounds_at_most(tmp_path):
    """That of the last checkpoint, that which was merged last, and the new one."""
    words = ["client.epochs=1", "evaluation.personal=true"]
    settings = compose(settings_of, "demo", "fedivon-personal", words)
    start = first_payload(settings)
    found = []
    for number in range(1, 7):
        client = new_client(settings, RecordDict(), tmp_path)
        told = Instructions(
            round=number,
            learning_rate=0.1,
            total_examples=100,
            last_merged=number - 1,
            last_saved=2 * (number > 2),
        )
        client.work(start, told)
        found.append(sorted(int(path.stem[-6:]) for path in tmp_path.rglob("round-*")))
    assert found == [[1], [1, 2], [2, 3], [2, 3, 4], [2, 4, 5], [2, 5, 6]]


def test_a_file_that_was_damaged_or_is_of_another_version_is_named(tmp_path):
    memory = Memory(None, tmp_path)
    memory.keep(4, kept(4.0))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    assert Memory(None, tmp_path).recall(4)["v"].tolist() == [4.0] * 3
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    for data, says in (
        (bytes(flipped), "is damaged"),
        (whole[:-4], "cannot be read"),
        (b"", "cannot be read"),
    ):
        path.write_bytes(data)
        with pytest.raises(RunError, match=f"{says}.*{path.name}"):
            Memory(None, tmp_path).recall(4)
    save_file({"v": np.ones(2)}, path, {"version": "9"})
    with pytest.raises(
        RunError,
        match=r"is of version 9, not 1: go on with the version of FedIvon that began the run",
    ):
        Memory(None, tmp_path).recall(4)


@settings_of_examples(deadline=None, max_examples=25)
@given(
    arrays(np.float32, st.integers(0, 5)),
    arrays(np.int64, st.tuples(st.integers(0, 3), st.integers(1, 3))),
)
def test_whatever_is_kept_comes_back_as_it_was(tmp_path_factory, one, other):
    folder = tmp_path_factory.mktemp("kept")
    Memory(None, folder).keep(1, {"one": one, "other": other, "scalar": np.float64(2.5)})
    found = Memory(None, folder).recall(1)
    for name, array in {"one": one, "other": other}.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)
    assert found["scalar"] == 2.5


def test_another_runs_memory_is_not_this_ones(tmp_path):
    state = RecordDict()
    Memory(state, tmp_path / "one").keep(2, kept(2))
    with pytest.raises(RunError, match="is gone"):
        Memory(state, tmp_path / "other").recall(2)


def rounds(strategy, folder, numbers, restart=False, **overrides):
    """A client's replies in these rounds of a run, each (round, last merged)."""
    words = [f"{key.replace('__', '.')}={value}" for key, value in overrides.items()]
    settings = compose(settings_of, "demo", strategy, words)
    start = first_payload(settings)
    state = RecordDict()
    results = []
    for number, last in numbers:
        client = new_client(settings, RecordDict() if restart else state, folder)
        told = instructions(client, number, last_merged=last, total_examples=100)
        results.append(arrays_of(client.work(start, told).payload))
    return results


STATEFUL = [
    "bayes-admm",
    "bregman-admm",
    "pvi",
    "fed-admm",
    "feddyn",
    "fedlap",
    "fedlap-cov",
    "scaffold",
]


@pytest.mark.parametrize("strategy", STATEFUL)
def test_duals_change_what_a_client_does_and_survive_a_restart(strategy, tmp_path):
    one = rounds(strategy, tmp_path / "a", [(2, 0), (3, 2)])
    same = rounds(strategy, tmp_path / "b", [(2, 0), (3, 2)], restart=True)
    fresh = rounds(strategy, tmp_path / "c", [(2, 0), (3, 0)])
    np.testing.assert_array_equal(one[1][0], same[1][0])
    assert not np.array_equal(one[1][0], fresh[1][0])


@pytest.mark.parametrize("strategy", STATEFUL)
def test_a_reply_that_was_lost_is_as_if_it_had_not_been(strategy, tmp_path):
    """Round 3's reply did not count: round 4 starts from what was kept in round 2."""
    lost = rounds(strategy, tmp_path / "a", [(2, 0), (3, 2), (4, 2)])
    never = rounds(strategy, tmp_path / "b", [(2, 0), (4, 2)])
    np.testing.assert_array_equal(lost[2][0], never[1][0])


def test_adams_moments_can_be_kept(tmp_path):
    kept_on = rounds("fedavg", tmp_path / "a", [(2, 0), (3, 2)], client__optimizer_state="kept")
    fresh = rounds("fedavg", tmp_path / "b", [(2, 0), (3, 2)])
    np.testing.assert_array_equal(kept_on[0][0], fresh[0][0])
    assert not np.array_equal(kept_on[1][0], fresh[1][0])
    assert not (tmp_path / "b").exists()


def test_a_client_that_does_not_see_the_folder_of_the_run_says_so_in_the_roll_call(tmp_path):
    settings = compose(settings_of, "demo", "bayes-admm", ["data.clients=20"])
    own = partition_of(settings, {"partition-id": 0})
    client = method("bayes-admm").client(settings, own)
    there = {"client-state": str(tmp_path / "clients")}
    assert client.get_properties(there)["num-train"] > 0
    with pytest.raises(RunError, match="all machines share"):
        client.get_properties({"client-state": str(tmp_path / "elsewhere" / "clients")})
