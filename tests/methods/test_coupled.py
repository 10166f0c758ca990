"""State that server and clients both follow, duals and controls, never drifts apart.

Runs in one process with the real server and the real clients, in which replies get lost, clients
train without reporting, or claim too much.
"""

import numpy as np
import pytest
from flwr.app import Error, Message

from fedivon_app.clients.state import Memory
from fedivon_app.core.compose import compose
from fedivon_app.methods import METHODS, method, settings_of
from fedivon_app.server.setup import prepare
from fedivon_app.strategies.rounds import Rounds
from fedivon_app.strategies.secure_rounds import SecureRounds
from tests.clients.test_state import STATEFUL
from tests.golden import InProcess
from tests.honest import Records

CLIENTS = 5
COUPLED = [name for name in METHODS if METHODS[name].client.coupled]
SMALL = [
    f"data.clients={CLIENTS}",
    "clients_per_round=2",
    "client.epochs=2",
    "evaluation.every=0",
    "evaluation.clients_every=0",
    "run.client_state=run",
]


class Lossy(InProcess):
    """A grid that loses the replies of some rounds, or changes what clients send."""

    def __init__(self, lost=(), changed=None):
        super().__init__(CLIENTS)
        self.lost = lost
        self.changed = changed

    def push_messages(self, messages):
        names = super().push_messages(messages := list(messages))
        for name, message in zip(names, messages, strict=True):
            reply = self.replies[name]
            if message.metadata.message_type != "train" or reply.has_error():
                continue
            if message.content["config"]["round"] in self.lost:
                self.replies[name] = Message(Error(code=2, reason="lost"), reply_to=message)
            elif self.changed:
                self.changed(self.contexts[message.metadata.dst_node_id].node_config, reply)
        return names


def run(name, folder, *words, grid=None, rounds=4, records=None):
    """The rounds after they are done, and their records."""
    experiment = "digits-regression" if name == "bayes-admm-full" else "demo"
    small = ["model.options={sizes: [8], activation: relu}"]
    if name == "bayes-admm-full":
        small = ["data.per_class=15"]
    settings = compose(settings_of, experiment, name, [*SMALL, *small, f"rounds={rounds}", *words])
    prepared = prepare(settings)
    strategy = method(name).strategy(settings, prepared.architecture)
    first = strategy.begin(prepared.flat.mean(), prepared.flat.buffers)
    folder.mkdir(parents=True, exist_ok=True)
    kind = SecureRounds if settings.privacy.secure_aggregation else Rounds
    loop = kind(strategy, first, run_folder=folder)
    records = records or Records()
    loop.start(grid or Lossy(), loop.arrays(), rounds, observer=records)
    return loop, records.records


def kept(loop, folder, name):
    """The sum over all clients of what they keep under a name, as the server counts on it."""
    total = 0
    for partition, server_round in loop.standing.last_merged.items():
        memory = Memory(None, folder / "clients" / f"partition-{partition}")
        total = total + memory.recall(server_round).get(name, 0)
    return total


def assert_agree(loop, folder, name, clients=CLIENTS):
    """Server and clients have the same sums of duals, or the same mean control."""
    for part in METHODS[name].client.coupled:
        own = kept(loop, folder, part)
        if part == "control":
            server = loop.standing.payload.extras["control"] * clients
        else:
            server = loop.standing.state[f"sum_{part}"]
        if name == "bayes-admm-full":  # whose clients have their weights in another order
            own = np.sort(own, axis=None)
            server = np.sort(server, axis=None)
        scale = max(float(np.abs(server).max()), 1e-9)
        assert np.abs(server - own).max() <= 1e-5 * scale, part
        assert np.abs(server).max() > 0


def test_the_coupled_methods_are_those_with_duals_or_controls():
    assert set(COUPLED) == {*STATEFUL, "bayes-admm-full"}
    for name in METHODS:
        settings = compose(settings_of, "digits-regression", name)
        strategy = method(name).strategy(settings, prepare(settings).architecture)
        assert strategy.takes_replies_whole == (name in COUPLED), name


@pytest.mark.parametrize("name", COUPLED)
def test_who_trains_without_reporting_does_not_step_what_the_server_follows(name, tmp_path):
    loop, records = run(name, tmp_path, "train_all_clients=true", "evaluation.personal=true")
    assert all(record["silent"] == CLIENTS - 2 for record in records)
    assert_agree(loop, tmp_path, name)


@pytest.mark.parametrize("name", COUPLED)
def test_a_reply_beyond_the_bounds_is_dropped_whole(name, tmp_path):
    def lie(node, reply):
        if node["partition-id"] == 1:
            arrays = reply.content["posterior"]
            far = arrays["mean"].numpy() + 1000.0
            arrays["mean"] = type(arrays["mean"])(far)

    loop, records = run(
        name,
        tmp_path,
        "clients_per_round=5",
        "server.change_bound=50",
        grid=Lossy(changed=lie),
        rounds=3,
    )
    for record in records:
        dropped = [one["partition"] for one in record["dropped"]]
        assert 1 in dropped and not any("bounded" in client for client in record["clients"])
        assert 1 not in [client["partition"] for client in record["clients"]]
    assert 1 not in loop.standing.last_merged
    assert_agree(loop, tmp_path, name)


@pytest.mark.parametrize("name", COUPLED)
def test_a_first_round_that_is_lost_is_begun_again(name, tmp_path):
    """What is merged first counts as the first round, whatever its number is."""
    _, records = run(name, tmp_path / "whole", "clients_per_round=5", rounds=3)
    lost, late = run(name, tmp_path / "lost", "clients_per_round=5", grid=Lossy(lost={1}), rounds=4)
    assert [record["merged"] for record in late] == [False, True, True, True]
    largest = [record["posterior"]["largest_mean"] for record in records]
    again = [record["posterior"]["largest_mean"] for record in late[1:]]
    np.testing.assert_allclose(again, largest, rtol=0.5)
    assert_agree(lost, tmp_path / "lost", name)


def test_who_claims_more_examples_than_in_the_roll_call_is_dropped(tmp_path):
    def boast(node, reply):
        if node["partition-id"] == 1:
            reply.content["metrics"]["num-examples"] *= 50

    loop, records = run(
        "fedivon", tmp_path, "clients_per_round=5", grid=Lossy(changed=boast), rounds=2
    )
    for record in records:
        (dropped,) = record["dropped"]
        assert dropped["partition"] == 1
        assert "but in the roll call it was" in dropped["reason"]
    assert 1 not in loop.standing.last_merged


def test_weights_are_those_of_the_roll_call(tmp_path):
    def belittle(node, reply):
        reply.content["metrics"]["num-examples"] = 1

    _, plain = run("fedivon", tmp_path, "clients_per_round=5", rounds=1)
    _, same = run(
        "fedivon", tmp_path, "clients_per_round=5", grid=Lossy(changed=belittle), rounds=1
    )
    weights = [[client["weight"] for client in one[0]["clients"]] for one in (plain, same)]
    assert weights[0] == weights[1]
