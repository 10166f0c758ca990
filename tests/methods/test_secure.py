"""Secure aggregation of every method, in one process with the real server and the real clients.

Seven clients make a sum of which at least five have to stay. In each round one is lost before it
masks its vector and another after it did: what is merged is what a run in the open merges of six.
"""

import json

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, MessageType, RecordDict

from fedivon_app import client_app
from fedivon_app.core.codec import Raw
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import RunError, SettingsError
from fedivon_app.core.noise_width import walk
from fedivon_app.core.secure.shares import threshold_of
from fedivon_app.methods import METHODS, settings_of
from tests.golden import InProcess
from tests.honest import Records
from tests.methods.test_coupled import COUPLED, assert_agree, run

SECURE = "privacy.secure_aggregation=true"
WIDE = "privacy.wide_sums=true"
CLIENTS = 7
EARLY, LATE = 4, 2  # who is lost before and after masking
SMALL = [
    f"data.clients={CLIENTS}",
    f"clients_per_round={CLIENTS}",
    "client.epochs=1",
    "data.shard_sizes=[8,20]",
]
CASES = {
    **{name: (name,) for name in METHODS},
    **{
        f"fedivon, {rule}": ("fedivon", f"merge.rule={rule}")
        for rule in ("nwa", "ws", "lp", "conflation", "wc", "dwc", "w2")
    },
    "fedivon, equal": ("fedivon", "merge.weighting=equal"),
    "fedivon, distance": ("fedivon", "merge.weighting=distance"),
    "fedivon, wide": ("fedivon", WIDE),
    "fedivon, batch norm": (
        "fedivon",
        "model.name=resnet",
        "model.options={channels: [4], blocks: 1}",
    ),
    "pfedbayes, rho": ("pfedbayes", "merge.average=rho"),
    "pfedhb, pFedBayes' constraint": ("pfedhb", "merge.constraint=pfedbayes"),
}
BYTES_A_WEIGHT = {  # 8 for all others
    "bayes-admm": 16,
    "pvi": 16,
    "fedlap-cov": 16,
    "bregman-admm": 32,
    "fedivon, distance": 16,
    "fedivon, wide": 16,
}


class Losing(InProcess):
    """A grid that loses answers: `lost(what, round, partition)` tells which.

    `what` is a stage of a secure sum (keys, shares, unmask), or the kind of message (train). All
    that was asked and answered is kept.
    """

    def __init__(self, lost=lambda what, number, partition: False, clients=CLIENTS):
        super().__init__(clients)
        self.lost = lost
        self.seen = []

    def push_messages(self, messages):
        names = super().push_messages(messages := list(messages))
        for name, message in zip(names, messages, strict=True):
            partition = self.contexts[message.metadata.dst_node_id].node_config["partition-id"]
            what = message.metadata.message_type
            secure = message.content.get("secure")
            if secure is not None:
                number = json.loads(secure["session"])["round"]
                what = what if secure["stage"] == "masked" else secure["stage"]
            else:
                number = message.content["config"]["round"]
            self.seen.append((what, number, partition, self.replies[name]))
            if self.lost(what, number, partition):
                self.replies[name] = Message(Error(code=2, reason="lost"), reply_to=message)
        return names


class Standings(Records):
    """What the server holds after each round."""

    def __init__(self):
        super().__init__()
        self.arrays = []

    def finished(self, standing, record):
        self.arrays.append(Raw().encode(standing.payload))
        return super().finished(standing, record)


KNOWN = {"partition", "num_examples", "bytes", "weight"}  # of a client, without its reply


def lose_two(what, number, partition):
    return (what, partition) in {("train", EARLY), ("unmask", LATE)}


def run_both(case, folder):
    """The same run in the open and by secure sums, two rounds each."""
    name, *words = CASES[case]
    found = []
    for more in ([], [SECURE]):
        standings = Standings()
        loop, records = run(
            name,
            folder / f"{len(found)}",
            *SMALL,
            *words,
            *more,
            grid=Losing(lose_two),
            rounds=2,
            records=standings,
        )
        found.append((loop, records, standings.arrays))
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_secure_sum_is_merged_to_what_the_open_one_is(case, tmp_path):
    (_, plain, in_the_open), (loop, secure, by_sums) = run_both(case, tmp_path)
    for record, same in zip(plain, secure, strict=True):
        assert record["merged"] and same["merged"]
        there = [client["partition"] for client in same["clients"]]
        assert there == [client["partition"] for client in record["clients"]]
        assert same["train_loss"] == pytest.approx(record["train_loss"], rel=1e-4)
    arrays, after = in_the_open
    other, later = by_sums
    assert list(arrays) == list(other)
    for name, array in arrays.items():
        # Clients train from what was merged, and make more of the smallest difference.
        np.testing.assert_allclose(later[name], after[name], rtol=1e-2, atol=1e-3, err_msg=name)
        if name == "precision":
            small = 1e-5 * np.abs(array).max() if array.ndim > 1 else 0
            np.testing.assert_allclose(other[name], array, rtol=1e-5, atol=small, err_msg=name)
        else:
            np.testing.assert_allclose(other[name], array, rtol=0, atol=1e-6, err_msg=name)
    if case in COUPLED:
        assert_agree(loop, tmp_path / "1", case, CLIENTS)
    size = other["mean"].size
    most = size * BYTES_A_WEIGHT.get(case, 8) + 8 * other.get("buffers", np.empty(0)).size
    if case == "bayes-admm-full":
        most *= 1 + size
    for record in secure:
        assert max(client["bytes"] for client in record["clients"]) <= most + 64
        assert record["secure"]["bytes"] <= CLIENTS * CLIENTS * 1024
        assert KNOWN - {"weight"} <= set(record["clients"][0]) <= KNOWN


def test_of_a_single_client_nothing_leaves_in_the_clear(tmp_path):
    """Whatever a client sends is keys, sealed shares, shares or uniform words."""
    grid = Losing()
    words = ["train_all_clients=true", "clients_per_round=4", "evaluation.clients_every=1"]
    run("fedivon-personal", tmp_path, *SMALL, *words, SECURE, grid=grid, rounds=1)
    kinds = {}
    for what, _, _, reply in grid.seen:
        kinds.setdefault(what, []).append(reply.content)
    assert [len(kinds[what]) for what in ("keys", "shares", "unmask")] == [11, 11, 11]
    silent = 0
    for content in kinds["train"] + kinds["evaluate"]:
        if "masked" in content:
            assert set(content) == {"masked"} and set(content["masked"]) == {"narrow", "wide"}
            words = content["masked"]["narrow"].numpy().view(np.uint8)
            if words.size:
                assert np.bincount(words, minlength=256).max() < 3 * words.size / 256
        else:
            silent += 1
            assert set(content) == {"posterior", "metrics"}
            assert not content["posterior"] and not content["metrics"]
    assert silent == 3 and len(kinds["evaluate"]) == CLIENTS
    roll_call = kinds["query"][0]["properties"]
    assert set(roll_call) == {
        "partition-id",
        "name",
        "num-train",
        "num-test",
        "shape",
        "num-classes",
        "frozen",
    }


def test_noisy_posteriors_can_be_summed_securely(tmp_path):
    """Nothing of a single private client is told but what it has spent of its privacy."""
    words = ["privacy.epsilon=8", "evaluation.clients_every=0", "run.client_state=run"]
    grid = Losing(lose_two)
    loop, records = run("fedivon", tmp_path, *SMALL, *words, SECURE, grid=grid, rounds=2)
    assert [record["merged"] for record in records] == [True, True]
    for record in records:
        assert "train_loss" not in record
        for client in record["clients"]:
            assert set(client) == KNOWN | {"epsilon", "noise"}
    first, second = ([c["epsilon"] for c in record["clients"]] for record in records)
    assert 0 < min(first) < max(second) <= 8
    assert walk(records) > 0  # so that the noise's width can go into the posterior
    assert len(list((tmp_path / "clients").glob("partition-*/ledger/*.jsonl"))) == CLIENTS
    assert loop.standing.payload.fault() is None


def test_scores_of_all_clients_together_are_those_in_the_open(tmp_path):
    words = [*SMALL, "evaluation.clients_every=1", "evaluation.samples=2"]
    found = []
    for more in ([], [SECURE]):
        _, records = run(
            "fedivon-personal", tmp_path / f"{len(found)}", *words, *more, grid=Losing(), rounds=1
        )
        found.append(records[0])
    plain, secure = found
    for who, place in (("gm", "clients_before_training"), ("pm", "clients_after_training")):
        for way in ("mean", "mc"):
            mine, same = secure[who][place][way], plain[who][place][way]
            assert mine == pytest.approx(same, abs=1e-4), (who, way)
        assert secure[who][place]["by_client"] == []


@pytest.mark.parametrize("what", ["keys", "shares", "train", "unmask"])
def test_below_the_threshold_a_round_ends_by_name_and_the_run_goes_on(what, tmp_path, caplog):
    too_many = CLIENTS - threshold_of(CLIENTS) + 1

    def lost(stage, number, partition):
        return number == 2 and stage == what and partition < too_many

    standings = Standings()
    _, records = run(
        "fedivon", tmp_path, *SMALL, SECURE, grid=Losing(lost), rounds=3, records=standings
    )
    if what == "keys":  # four are left, who make a sum of their own
        assert [len(record["clients"]) for record in records] == [7, 4, 7]
        return
    assert [record["merged"] for record in records] == [True, False, True]
    assert np.array_equal(standings.arrays[0]["mean"], standings.arrays[1]["mean"])
    assert "training in round 2: of 7 sites 4" in caplog.text
    assert "nothing of any site is revealed" in caplog.text


def ask(grid, partition, stage, number, **body):
    """Ask a client for a stage of a sum again, as the server did before."""
    node_id = 100 + 7 * partition
    session = json.dumps({"run": grid.run, "round": number, "what": "train"})
    record = ConfigRecord({"stage": stage, "session": session, "body": json.dumps(body)})
    message = Message(RecordDict({"secure": record}), node_id, MessageType.QUERY)
    return client_app.app(message, grid.contexts[node_id])


def test_a_client_tells_its_shares_once_and_answers_a_round_once(tmp_path):
    grid = Losing()
    grid.run = tmp_path.name
    run("fedivon", tmp_path, *SMALL, SECURE, grid=grid, rounds=2)
    everybody = list(range(CLIENTS))
    for number in (1, 2):
        with pytest.raises(RunError, match="answers each stage once, in their order"):
            ask(grid, 0, "unmask", number, numbers=everybody)
    with pytest.raises(RunError, match="answers each stage once"):
        ask(grid, 0, "shares", 3, keys={})

    again = Losing()
    _, records = run("fedivon", tmp_path, *SMALL, SECURE, grid=again, rounds=3)
    assert [record["merged"] for record in records] == [False, False, True]
    assert {reply["reason"] for reply in records[0]["dropped"]} == {
        "training in round 1 was answered before: with two sums over one round, a single site's "
        "part could be known; the run goes on with the next round"
    }


def test_a_client_refuses_a_cohort_below_its_minimum_and_any_run_in_the_open(tmp_path):
    grid = Losing()
    for context in grid.contexts.values():
        context.node_config["smallest-cohort"] = CLIENTS
    _, records = run("fedivon", tmp_path, *SMALL, SECURE, grid=grid, rounds=1)
    assert records[0]["merged"]
    grid = Losing(lambda what, number, partition: what == "keys" and partition == 3)
    grid.contexts[100].node_config["smallest-cohort"] = CLIENTS
    _, records = run("fedivon", tmp_path / "one", *SMALL, SECURE, grid=grid, rounds=1)
    reasons = {one["partition"]: one["reason"] for one in records[0]["dropped"]}
    assert "a sum over 6 sites, and this site takes part with at least 7" in reasons[0]
    assert set(reasons) == {0, 3} and len(records[0]["clients"]) == CLIENTS - 2
    with pytest.raises(RunError, match="partition 0: this site takes part in sums over at least 7"):
        run("fedivon", tmp_path / "open", *SMALL, grid=grid, rounds=1)
    grid.contexts[100].node_config["smallest-cohort"] = 2
    _, records = run("fedivon", tmp_path / "two", *SMALL, SECURE, grid=grid, rounds=1)
    reasons = {one["partition"]: one["reason"] for one in records[0]["dropped"]}
    assert "in a sum over two, each knows the other's part" in reasons[0]


def test_a_client_of_a_secure_run_sends_nothing_in_the_open(tmp_path):
    """A server that forgets to ask for masks, or does so on purpose, gets nothing."""
    settings = compose(settings_of, "demo", "fedivon", [*SMALL, SECURE])
    grid = InProcess(CLIENTS)
    config = ConfigRecord({"settings": settings.model_dump_json(), "round": 1, "report": True})
    for kind in (MessageType.TRAIN, MessageType.EVALUATE):
        message = Message(RecordDict({"config": config}), 100, kind)
        with pytest.raises(RunError, match="the server asks for this client's own numbers"):
            client_app.app(message, grid.contexts[100])


def test_numbers_that_are_cut_off_end_the_run_by_name_unless_sums_are_wide(tmp_path):
    words = [*SMALL, "client.learning_rate=1e3", SECURE]
    with pytest.raises(RunError, match=r"round 1: \d+ numbers .* Try privacy.wide_sums=true"):
        run("fedavg", tmp_path / "0", *words, grid=Losing(), rounds=1)
    _, records = run("fedavg", tmp_path / "1", *words, WIDE, grid=Losing(), rounds=1)
    assert records[0]["merged"]
    words[-2] = "client.learning_rate=1e12"
    with pytest.raises(RunError, match=r"round 1: \d+ numbers .* Try smaller steps"):
        run("fedavg", tmp_path / "2", *words, WIDE, grid=Losing(), rounds=1)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["merge.weighting=max-discrepancy"], "merge.weighting=max-discrepancy compares"),
        (["merge.weighting=farthest"], "merge.weighting=farthest compares"),
        (["merge.rule=own_method.rules:Median"], "rules:Median is no sum over the clients"),
        (["merge.rule=wc", "merge.weighting=distance"], "merge.rule=wc needs the largest weight"),
        (["wire.codec=compact"], "wire.codec=compact cannot be summed; use wire.codec=raw"),
        (["server.precision_bound=10"], "server.precision_bound=10 needs to see single replies"),
        (["server.change_bound=10"], "server.change_bound=10 needs to see single replies"),
        (["server.size_bound=10"], "server.size_bound=10 needs to see single replies"),
        (["server.history=true"], "server.history=true needs to see single replies"),
        (["merge.robust=median"], "merge.robust=median needs to see single replies"),
        (
            ["attack.kind=noise", "attack.share=0.2"],
            "attack.kind=noise needs to see single replies",
        ),
        (["evaluation.sets=true"], "evaluation.sets=true asks for histograms of single clients"),
        (["clients_per_round=2"], "clients_per_round is 2, and a sum over fewer than 3"),
        (["clients_per_round=null", "data.clients=2"], "data.clients is 2, and a sum over fewer"),
    ],
)
def test_what_needs_single_replies_is_refused_before_anything_starts(words, why, monkeypatch):
    monkeypatch.syspath_prepend("examples/own-method")
    with pytest.raises(SettingsError, match="privacy.secure_aggregation needs a sum") as error:
        compose(settings_of, "demo", "fedivon", [*SMALL, SECURE, *words])
    assert why in str(error.value)
    compose(settings_of, "demo", "fedivon", [*SMALL, *words])
