"""Private clients: what they send, what it is made of, and who may be private."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedivon_app import logs
from fedivon_app.client_app import app
from fedivon_app.core.accountant import epsilon_of, pure_cost
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import Refused, SettingsError
from fedivon_app.core.ledger import Ledger, Limit
from fedivon_app.core.privacy import PrivateSteps, planned_rounds
from fedivon_app.core.sampling import sampled
from fedivon_app.methods import METHODS, settings_of
from fedivon_app.strategies.messages import COLUMN_SUMS
from tests.clients.helpers import Asked, client_of, first_payload, instructions, part_of

PRIVATE = [name for name, method in METHODS.items() if method.private]
NOT_PRIVATE = [name for name, method in METHODS.items() if not method.private]
OFF = "evaluation.clients_every=0"  # which the demo asks for
WORDS = ("privacy.epsilon=8", "client.batch_size=16", "rounds=5", OFF)


def private(strategy, folder, *words) -> Asked:
    return client_of(strategy, folder, *WORDS, *words)


def told(asked, number=1, **more):
    return instructions(asked.client, number, **({"total_examples": 1000} | more))


@dataclass(frozen=True)
class Recording(PrivateSteps):
    """Private steps that keep the gradients they gave."""

    given: list = field(default_factory=list)

    def noisy_mean(self, flat, inputs, labels):
        found = super().noisy_mean(flat, inputs, labels)
        self.given.append(found.clone())
        return found


@dataclass(frozen=True)
class Replaying(PrivateSteps):
    """Private steps that see no data, and give what others gave."""

    given: list = field(default_factory=list)

    def batches(self, inputs, labels):
        for _ in range(self.plan.steps // self.plan.epochs):
            yield inputs[:0], labels[:0]

    def noisy_mean(self, flat, inputs, labels):
        assert not len(labels)
        return self.given.pop(0).clone()


def trained_with(asked, kind, given, blind=False):
    """Train a round with such steps; a blind one has no example of the client's."""
    client = asked.client
    plan = client.plan(told(asked))
    task = client.task(told(asked), {}, plan)
    if blind:
        task = replace(task, inputs=task.inputs[:0], labels=task.labels[:0])
    client.begin_at(asked.start)
    return client.train(asked.start, replace(task, private=kind(plan, given=given)))


@pytest.mark.parametrize("strategy", PRIVATE)
def test_noisy_gradients_replayed_without_data_give_all_that_is_sent(strategy, tmp_path):
    """Mean, precision and what goes with them, bit for bit: the posterior costs nothing more."""
    given = []
    asked = private(strategy, tmp_path, "client.epochs=3")
    learned = trained_with(asked, Recording, given)
    assert len(given) == asked.client.plan(told(asked)).steps > 2
    again = trained_with(asked, Replaying, given, blind=True)
    assert not given
    np.testing.assert_array_equal(again.posterior.mean, learned.posterior.mean)
    if learned.posterior.precision is not None:
        np.testing.assert_array_equal(again.posterior.precision, learned.posterior.precision)
    for name, array in (learned.extras or {}).items():
        np.testing.assert_array_equal(again.extras[name], array)


@pytest.mark.parametrize("strategy", PRIVATE)
def test_one_seed_gives_other_numbers_every_time(strategy, tmp_path):
    asked = private(strategy, tmp_path)
    first, second = (
        asked.client.work(asked.start, told(asked, run=run)).payload for run in ("first", "second")
    )
    assert not np.array_equal(first.posterior.mean, second.posterior.mean)


@pytest.mark.parametrize("strategy", NOT_PRIVATE)
def test_methods_that_send_more_than_noisy_gradients_are_refused_by_name(strategy):
    words = ["privacy.epsilon=4"]
    with pytest.raises(SettingsError, match=f"the clients of {strategy} send more.*fedivon"):
        compose(settings_of, "demo", strategy, words)


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("client.mc_samples=2", "client.mc_samples is 2.*has to be 1"),
        ("evaluation.clients_every=5", "clients_every is 5.*test parts"),
        ("pretraining.fraction=0.1", "pretraining.fraction is 0.1"),
        ("data.source=nodes", "data.num_classes is not set"),
    ],
)
def test_settings_that_would_show_examples_without_noise_are_refused(word, why):
    with pytest.raises(SettingsError, match=why):
        compose(settings_of, "demo", "fedivon", ["privacy.epsilon=4", OFF, word])


def test_batch_norm_is_refused_by_the_name_of_its_layer(tmp_path):
    words = ["model.name=resnet", "model.options={channels: [4], blocks: 1}"]
    with pytest.raises(SettingsError, match=r"layer base\.\S+ is a BatchNorm2d"):
        private("fedavg", tmp_path, *words)


# What leaves a private client: every field of every reply.

SENT = {
    "query": {
        "properties": {
            "partition-id",
            "name",
            "num-train",  # noisy
            "num-test",  # 0
            "shape",
            "num-classes",  # of the settings or the common source
            "frozen",  # the digest of what the network does not learn
        }
    },
    "train": {"posterior": {"mean", "precision"}, "metrics": {"num-examples", "epsilon", "noise"}},
}


def answer(kind, tmp_path, *words, node=None, **config):
    """What a node of the app answers to a message of this kind, or raises."""
    settings = compose(settings_of, "demo", "fedivon", [*WORDS, *words])
    start = first_payload(settings)
    values = told(private("fedivon", tmp_path)).to_config() | config
    content = RecordDict(
        {"config": ConfigRecord({**values, "settings": settings.model_dump_json()})}
    )
    arrays = {"mean": start.posterior.mean, "precision": start.posterior.precision}
    content["posterior"] = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    node = {"partition-id": 3, "num-partitions": 20, "state-path": str(tmp_path)} | (node or {})
    context = Context(1, 1, node, RecordDict(), {})
    return app(Message(content, 1, kind), context).content


@pytest.mark.parametrize("kind", SENT)
def test_nothing_but_these_fields_leaves_a_private_client(kind, tmp_path):
    content = answer(kind, tmp_path)
    assert {name: set(record) for name, record in content.items()} == SENT[kind]


def test_the_size_that_leaves_is_noisy_and_always_the_same(tmp_path):
    first = answer("query", tmp_path)["properties"]["num-train"]
    assert first == answer("query", tmp_path)["properties"]["num-train"]
    assert first == answer("train", tmp_path)["metrics"]["num-examples"]
    sizes = {answer("query", tmp_path / str(k))["properties"]["num-train"] for k in range(4)}
    assert len(sizes) > 1


def test_a_private_client_scores_nothing(tmp_path):
    with pytest.raises(Refused, match="does not score"):
        answer("evaluate", tmp_path)


def test_a_private_client_tells_no_sums_of_its_columns(tmp_path):
    with pytest.raises(Refused, match="the sums of its columns would have no noise"):
        answer("query", tmp_path, ask=COLUMN_SUMS)
    node = {"data-path": str(tmp_path / "patients-of-ward-7.npz")}
    with pytest.raises(Refused, match="its own log says why"):
        answer("query", tmp_path, node=node, ask=COLUMN_SUMS)


def test_the_text_of_an_error_stays_at_the_site(tmp_path):
    node = {"data-path": str(tmp_path / "patients-of-ward-7.npz")}
    with pytest.raises(Refused, match="its own log says why") as told_to_server:
        answer("train", tmp_path, node=node)
    assert "ward" not in str(told_to_server.value)
    with logs.also_in(tmp_path / "log.txt"):
        error = answer("query", tmp_path, node=node)["properties"]["error"]
    assert "ward" not in error
    assert "patients-of-ward-7" in (tmp_path / "log.txt").read_text()


# The budget.


def test_the_epsilon_of_the_run_is_reached_in_its_last_planned_round(tmp_path):
    asked = private("fedavg", tmp_path, "clients_per_round=7", "rounds=12")
    settings = asked.client.settings
    count = settings.data.clients
    rounds = [
        number
        for number in range(1, 13)
        if 3 in sampled(range(count), 7, seed=settings.seed, server_round=number)
    ]
    assert planned_rounds(settings, 3) == len(rounds)
    spent = [
        asked.client.work(asked.start, told(asked, number, last_merged=0)).metrics["epsilon"]
        for number in rounds
    ]
    assert spent == sorted(spent)
    assert 0.98 * 8 < spent[-1] <= 8
    with pytest.raises(Refused, match="asked more often than planned"):
        asked.client.work(asked.start, told(asked, 13, last_merged=0))


def test_a_round_is_paid_for_before_it_is_trained(tmp_path, monkeypatch):
    asked = private("fedavg", tmp_path)

    def die(*words):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(asked.client), "train", die)
    with pytest.raises(KeyboardInterrupt):
        asked.client.work(asked.start, told(asked))
    assert asked.client.account(told(asked)).spent() > 0


def test_a_sites_ledger_counts_over_runs_and_declines_when_it_is_spent(tmp_path):
    settings = compose(settings_of, "demo", "fedavg", [*WORDS, "clients_per_round=20"])
    start = first_payload(settings)

    def work(run):
        client = METHODS["fedavg"].client(
            settings, part_of(settings), None, tmp_path, Ledger(tmp_path / "l", Limit(9.0))
        )
        asked = Asked(client, start)
        return [client.work(start, told(asked, k, run=run, last_merged=0)) for k in range(1, 6)]

    work("first")
    with pytest.raises(Refused, match="the privacy of this site's data is spent"):
        work("second")


def test_an_empty_batch_still_has_noise(tmp_path):
    asked = private("fedavg", tmp_path)
    plan = asked.client.plan(told(asked))
    steps = PrivateSteps(plan)
    flat = asked.client.flat
    images, labels = asked.client.examples("train", asked.client.partition.train[:0])
    drawn = torch.stack([steps.noisy_mean(flat, images, labels) for _ in range(3)])
    assert drawn.std().item() == pytest.approx(plan.gradient_noise, rel=0.05)


def test_the_plan_costs_what_was_asked_for(tmp_path):
    plan = private("fedivon", tmp_path).client.plan(
        instructions(private("fedivon", tmp_path).client)
    )
    cost = plan.rounds * plan.round_cost + pure_cost(plan.privacy.size_epsilon)
    assert 0.98 * 8 < epsilon_of(cost, 1e-5) <= 8
