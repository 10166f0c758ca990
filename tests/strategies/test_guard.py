"""The guard: what a reply claims, held against its cohort.

And a liar among ten, with it and without.
"""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app import client_app
from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.dense import Dense
from fedivon_app.core.errors import RunError
from fedivon_app.core.metrics import classification
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict_moments
from fedivon_app.datasets.loading import tensors
from fedivon_app.methods import method, settings_of
from fedivon_app.server.setup import prepare
from fedivon_app.strategies.base import Reply
from fedivon_app.strategies.guard import Bounds, Guarded, guarded, lower_median, precision_shares
from fedivon_app.strategies.rounds import Rounds

BLOCKS = [slice(0, 2), slice(2, 4)]
SERVER = Posterior(np.zeros(4), np.ones(4))


def cohort(*posteriors):
    return [Reply(10 + k, 1, 0, Payload(posterior), {}) for k, posterior in enumerate(posteriors)]


def bounded(replies, server=SERVER, blocks=BLOCKS, batch_size=1, **bounds):
    return guarded(replies, server, blocks=blocks, bounds=Bounds(**bounds), batch_size=batch_size)


def honest(scale=1.0, mean=1.0):
    return Posterior(np.full(4, mean), scale * np.array([1.0, 3.0, 100.0, 300.0]))


def test_a_cohort_that_agrees_is_left_as_it_is():
    replies = cohort(honest(), honest(2.0, 1.5), honest(0.1, -2.0))
    found = bounded(replies, precision=10, change=5)
    assert found.findings == {}
    assert all(one is other for one, other in zip(found.replies, replies, strict=True))


def test_a_precision_beyond_the_bound_is_cut_back_to_the_median_in_its_block_alone():
    liar = Posterior(np.ones(4), np.array([1.0, 3.0, 1e6, 3e6]))
    found = bounded(cohort(honest(), honest(), liar), precision=10)
    assert found.findings == {12: {"precision": pytest.approx(1e4)}}
    precision = found.replies[2].posterior.precision
    assert precision[:2].tolist() == [1.0, 3.0]  # this block was honest
    assert precision[2:].mean() == pytest.approx(200) and precision[2:].max() <= 300
    np.testing.assert_array_equal(found.replies[2].posterior.mean, liar.mean)


def test_one_coordinate_cannot_hide_in_its_block():
    spike = np.ones(1000)
    spike[7] = 9000.0  # the block's mean is ten times the median's: within the bound
    plain = Posterior(np.ones(1000), np.ones(1000))
    replies = cohort(plain, plain, Posterior(np.ones(1000), spike))
    server = Posterior(np.zeros(1000), np.ones(1000))
    found = bounded(replies, server, [slice(None)], precision=10)
    assert found.findings == {12: {"precision": pytest.approx(9000)}}
    np.testing.assert_array_equal(found.replies[2].posterior.precision, np.ones(1000))


def test_a_mean_that_moved_too_far_is_brought_as_near_as_the_median():
    far = Posterior(np.array([60.0, 0.0, 0.0, 80.0]), honest().precision)
    found = bounded(cohort(honest(), honest(), far), change=5)
    assert found.findings == {12: {"change": pytest.approx(50)}}
    np.testing.assert_allclose(found.replies[2].posterior.mean, [1.2, 0, 0, 1.6], rtol=1e-6)


def test_nobody_is_bounded_where_nobody_moves_and_points_have_no_precision():
    still = [Posterior(np.zeros(4)), Posterior(np.zeros(4)), Posterior(np.ones(4))]
    assert bounded(cohort(*still), precision=10, change=5).findings == {}
    assert bounded([], precision=10, change=5) == Guarded([], {})
    assert precision_shares(cohort(*still), np.ones(3) / 3) is None


def test_a_matrix_is_scaled_as_a_whole():
    server = Dense.isotropic(3, 1.0)
    plain = Dense(np.ones(3), np.diag([1.0, 2.0, 3.0]))
    liar = Dense(np.ones(3), 1e4 * np.array([[2.0, 1, 0], [1, 2, 0], [0, 0, 2]]))
    found = bounded(cohort(plain, plain, liar), server, [slice(None)], precision=10, change=5)
    assert found.findings == {12: {"precision": pytest.approx(1e4)}}
    np.testing.assert_allclose(found.replies[2].posterior.precision, liar.precision / 1e4)


@pytest.mark.parametrize(
    ("values", "median"), [([5.0], 5), ([9.0, 2.0], 2), ([3.0, 9.0, 1.0], 3), ([4, 1, 2, 3], 2)]
)
def test_the_median_is_the_lower_one(values, median):
    assert lower_median(np.array(values)) == median


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.floats(0.1, 30), st.integers(0, 1000))
def test_a_minority_never_has_more_than_the_bound_allows(count, spread, seed):
    """After the guard, nobody exceeds a multiple of the honest ones' largest, whatever the liars
    send.
    """
    rng = np.random.default_rng(seed)
    liars = (count - 1) // 2
    claims = np.exp(rng.uniform(-1, 1, (count, 4)))
    claims[:liars] *= np.exp(rng.uniform(0, 5 * spread, (liars, 1)))
    replies = cohort(*(Posterior(np.ones(4), claim) for claim in claims))
    found = bounded(replies, precision=10)
    limit = 10 * claims[liars:].reshape(-1, 2, 2).max(axis=(0, 2))
    for reply in found.replies:
        assert (reply.posterior.precision.reshape(2, 2).max(axis=1) <= limit * (1 + 1e-5)).all()
        assert reply.posterior.fault() is None


def test_who_has_more_examples_may_be_more_precise_and_move_further():
    """Ten times the examples bear ten times the precision, and, step by step, ten times the way."""
    few = cohort(honest(), honest())
    much = Reply(12, 10, 0, Payload(honest(scale=90.0, mean=40.0)), {})
    assert bounded([*few, much], precision=10, change=5).findings == {}
    claims = Reply(12, 10, 0, Payload(honest(scale=110.0, mean=60.0)), {})
    found = bounded([*few, claims], precision=10, change=5).findings[12]
    assert found == {"precision": pytest.approx(11), "change": pytest.approx(6)}
    one_step = bounded([*few, much], change=5, batch_size=10).findings[12]
    assert one_step == {"change": pytest.approx(40)}


def test_a_size_is_cut_back_to_its_multiple_of_the_median():
    replies = [Reply(k, size, 0, Payload(honest()), {}) for k, size in enumerate([10, 20, 30, 900])]
    found = bounded(replies, size=3)
    assert found.findings == {3: {"size": pytest.approx(45)}}
    assert [reply.num_examples for reply in found.replies] == [10, 20, 30, 60]


def test_shares_of_the_merged_precision():
    replies = cohort(honest(), honest(3.0))
    assert precision_shares(replies, np.array([0.5, 0.5])) == pytest.approx([0.25, 0.75])
    assert precision_shares(replies, np.array([0.75, 0.25])) == pytest.approx([0.5, 0.5])


class Federation:
    """A grid of the app's own clients in this process; partition 3 lies, is honest, or has gone."""

    def __init__(self, count: int, third: str):
        self.third = third
        self.contexts = {
            100 + k: Context(
                1, 100 + k, {"partition-id": k, "num-partitions": count}, RecordDict(), {}
            )
            for k in range(count)
        }

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        self.replies = [self._answer(message) for message in messages]
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, message_ids):
        return self.replies

    def send_and_receive(self, messages, *, timeout=None):
        """The roll call, after which one may leave."""
        replies = self.pull_messages(self.push_messages(messages))
        if self.third == "gone":
            self.contexts.pop(103, None)
        return replies

    def _answer(self, message):
        node = message.metadata.dst_node_id
        message.metadata._message_id = f"message-{node}"
        kind = message.metadata.message_type
        reply = getattr(client_app, kind)(message, self.contexts[node])
        if kind == "train" and node == 103 and self.third == "lies":
            arrays = {name: array.numpy() for name, array in reply.content["posterior"].items()}
            noise = np.random.default_rng(0).standard_normal(len(arrays["mean"]))
            lie = {"mean": noise.astype(np.float32), "precision": 1e6 * arrays["precision"]}
            reply.content["posterior"] = ArrayRecord(
                {k: Array(v.astype(np.float32)) for k, v in lie.items()}
            )
        return reply


def run(third: str, *overrides: str, rounds: int = 30) -> tuple[float, list[dict]]:
    """Accuracy of the server's mean after the rounds, or when the run ended by itself, and the
    rounds' records.
    """
    words = [
        "data.clients=10",
        "clients_per_round=null",
        f"rounds={rounds}",
        "server.node_timeout=1",
        "server.precision_bound=10",
        "server.change_bound=5",
        *overrides,
    ]
    values = compose(settings_of, "demo", "fedivon", words)
    prepared = prepare(values)
    flat = prepared.flat
    strategy = method("fedivon").strategy(values, prepared.architecture)
    loop = Rounds(strategy, strategy.begin(flat.mean()))
    records = []
    notes = SimpleNamespace(
        score=lambda server_round, payload: None,
        finished=lambda standing, record: records.append(record),
    )
    try:
        loop.start(Federation(10, third), loop.arrays(), rounds, observer=notes)
    except RunError as error:
        assert "partition 3" in str(error)
    test = prepared.data.parts["test"]
    inputs, labels = tensors(test.x, test.y, values.data.scaling, torch.device("cpu"))
    probabilities = predict_moments(flat, loop.standing.payload.posterior, inputs, 0, 0).mean
    return classification(probabilities, labels.numpy())["accuracy"], records


def test_one_liar_in_ten_costs_two_points_at_most_with_the_guard_and_everything_without(caplog):
    without, _ = run("gone")
    with caplog.at_level(logging.WARNING, "fedivon"):
        guarded_, records = run("lies")
    unguarded, _ = run("lies", "server.precision_bound=null", "server.change_bound=null", rounds=10)
    assert without > 0.9 and guarded_ > without - 0.02
    assert unguarded < 0.3
    liar = next(client for client in records[0]["clients"] if client["partition"] == 3)
    assert (
        liar["bounded"]["precision"] == pytest.approx(1e6, rel=0.01)
        and liar["bounded"]["change"] > 5
    )
    assert liar["precision_share"] == pytest.approx(0.1, abs=0.02)
    others = [
        client for record in records for client in record["clients"] if client["partition"] != 3
    ]
    assert not any("bounded" in client for client in others)
    assert (
        "the reply of partition 3 is bounded: its precision is 1e+06 times the median"
        in caplog.text
    )


def test_the_honest_are_not_touched():
    assert not any(
        "bounded" in client for record in run("honest", rounds=5)[1] for client in record["clients"]
    )
