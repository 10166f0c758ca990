"""Every method over the compact wire, in one process with the real server and the real clients."""

import json
import shutil

import numpy as np
import pytest
import torch

from fedivon_app.clients.received import Received
from fedivon_app.core.codec import Raw
from fedivon_app.core.compact import digest
from fedivon_app.core.compose import compose
from fedivon_app.methods import METHODS, method, settings_of
from fedivon_app.server.setup import prepare
from fedivon_app.strategies.rounds import Rounds
from fedivon_app.strategies.standing import Standing
from tests import golden
from tests.honest import Records
from tests.methods.test_coupled import Lossy, assert_agree
from tests.methods.test_coupled import run as run_coupled

COMPACT = "wire.codec=compact"
KNOWN = json.loads(golden.GOLDEN.read_text())  # of raw runs
CLIENTS = 5
SMALL = [
    f"data.clients={CLIENTS}",
    "clients_per_round=3",
    "client.epochs=1",
    "rounds=6",
    "evaluation.every=0",
    "evaluation.clients_every=0",
    "run.client_state=run",
    "model.options={sizes: [8], activation: relu}",
    COMPACT,
]
FULL = "bayes-admm-full"  # whose matrices go as they are


@pytest.mark.parametrize("case", [*METHODS, "fedivon, batch norm"])
def test_every_method_learns_the_same_from_fewer_bytes(case, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    first, second = golden.run(case, COMPACT)
    assert not first["dropped"] and not second["dropped"] and second["merged"]
    assert second["train_loss"] == pytest.approx(KNOWN[case]["train_loss"], rel=0.05)
    share = 1.001 if case == FULL else 0.35
    assert second["bytes_up"] <= share * KNOWN[case]["bytes_up"]
    assert second["bytes_down"] <= share * KNOWN[case]["bytes_down"]


@pytest.mark.parametrize("name", ["bayes-admm", "fed-admm", "fedlap-cov", "scaffold"])
def test_duals_and_controls_follow_from_what_the_server_reads(name, tmp_path):
    loop, _ = run_coupled(name, tmp_path, COMPACT, "train_all_clients=true", grid=Lossy({2}))
    assert_agree(loop, tmp_path, name)


# Whoever is away, comes back, or begins again.


def rounds_of(folder, standing=None, name="fedivon", **more):
    settings = compose(settings_of, "demo", name, [*SMALL, *more.get("words", [])])
    prepared = prepare(settings)
    strategy = method(name).strategy(settings, prepared.architecture)
    first = strategy.begin(prepared.flat.mean(), prepared.flat.buffers)
    folder.mkdir(exist_ok=True)
    return Rounds(strategy, first, standing=standing, run_folder=folder)


def start(loop, rounds, grid=None, after=None):
    records = Records()
    if after:
        finished = records.finished

        def and_then(standing, record):
            after(standing.round)
            return finished(standing, record)

        records.finished = and_then
    loop.start(grid or Lossy(), loop.arrays(), rounds, observer=records)
    return records.records


def same(one, other):
    for name, array in Raw().encode(one.standing.payload).items():
        np.testing.assert_array_equal(array, Raw().encode(other.standing.payload)[name])


def through_a_checkpoint(standing):
    return Standing.of(standing.round, standing.payload, standing.arrays())


@pytest.mark.parametrize("name", ["fedivon", "fedavg", "scaffold"])
def test_a_run_that_is_resumed_gives_the_same_bits(name, tmp_path):
    """Whoever was sent changes is sent a whole posterior after that, which is the same."""
    whole = rounds_of(tmp_path / "whole", name=name)
    undisturbed = start(whole, 4)
    before = rounds_of(tmp_path / "parts", name=name)
    start(before, 2)
    after = rounds_of(tmp_path / "parts", through_a_checkpoint(before.standing), name)
    (third, _) = start(after, 4)
    same(whole, after)
    assert third["bytes_down"] > undisturbed[2]["bytes_down"]


class Listening(Lossy):
    """A grid that notes the digests of what was sent last, by partition."""

    def __init__(self):
        super().__init__()
        self.sent = {}

    def push_messages(self, messages):
        for message in (messages := list(messages)):
            if message.metadata.message_type == "train":
                node = self.contexts[message.metadata.dst_node_id].node_config
                self.sent[node["partition-id"]] = message.content["config"]["sent"]
        return super().push_messages(messages)


def test_clients_of_a_simulation_keep_what_they_were_sent_in_one_place(tmp_path):
    grid = Listening()
    start(rounds_of(tmp_path), 3, grid)
    received = Received(tmp_path / "clients" / "received", most=9)
    assert len(list(received.folder.iterdir())) == 3  # a file a round, whoever took part
    for sent in grid.sent.values():
        assert digest(received.recall(sent)) == sent


def test_a_node_keeps_what_it_was_sent_last(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDIVON_STATE", str(tmp_path / "nodes"))
    grid = Listening()
    start(rounds_of(tmp_path / "run", words=["run.client_state=node"]), 3, grid)
    for partition, sent in grid.sent.items():
        place = tmp_path / "nodes" / "run" / f"partition-{partition}" / "received"
        (path,) = place.iterdir()
        assert path.stem == digest(Received(place, most=1).recall(sent)) == sent


def test_who_lost_what_it_held_is_dropped_by_name_and_then_told_the_whole(tmp_path):
    words = ["clients_per_round=5"]
    loop = rounds_of(tmp_path, words=words)

    def lose(number):
        if number == 2:
            shutil.rmtree(tmp_path / "clients" / "received")

    records = start(loop, 4, after=lose)
    assert [record["merged"] for record in records] == [True, True, False, True]
    assert len(records[2]["dropped"]) == CLIENTS
    assert "the next one comes whole" in records[2]["dropped"][0]["reason"]
    down = [record["bytes_down"] for record in records]
    assert down[1] < 0.8 * down[0] and down[3] > 0.9 * down[0]


def test_a_reply_that_was_damaged_on_its_way_is_dropped_by_name(tmp_path):
    def damage(node, reply):
        if node["partition-id"] == 1:
            arrays = reply.content["posterior"]
            data = arrays["mean"].numpy().copy()
            data[-1] ^= 1
            arrays["mean"] = type(arrays["mean"])(data)

    loop = rounds_of(tmp_path, words=["clients_per_round=5"])
    for record in start(loop, 2, grid=Lossy(changed=damage)):
        (dropped,) = record["dropped"]
        assert dropped == {
            "partition": 1,
            "reason": "mean was damaged on its way: its checksum is wrong",
        }
        assert record["merged"]
