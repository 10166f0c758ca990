"""The rounds of a run against hand-made nodes: sampling, merging, the record of a round."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from flwr.app import MetricRecord

from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import CONF, compose, validate
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.network import Architecture
from fedivon_app.methods import settings_of
from fedivon_app.strategies.aggregation import RULES
from fedivon_app.strategies.base import PosteriorStrategy
from fedivon_app.strategies.rounds import Rounds
from fedivon_app.strategies.standing import Standing
from fedivon_app.strategies.weighting import WEIGHTINGS
from tests.strategies.nodes import FIRST, Nodes, fedivon, good, start, strategy_of


def test_merges_good_replies_weighted_by_size():
    loop = fedivon()
    (record,) = start(loop, Nodes(3, good))
    np.testing.assert_allclose(
        loop.standing.payload.posterior.mean, (0 * 10 + 1 * 20 + 2 * 30) / 60
    )
    np.testing.assert_allclose(loop.standing.payload.posterior.precision, 1)
    assert [c["partition"] for c in record["clients"]] == [0, 1, 2]
    assert record["train_loss"] == pytest.approx((0.5 * 20 + 1.0 * 30) / 60)
    assert (
        record["bytes_up"]
        == record["bytes_down"]
        == sum(c["bytes"] for c in record["clients"])
        > 3 * 2 * 4 * 4
    )
    assert record["posterior"] == {
        "largest_mean": pytest.approx(4 / 3),
        "smallest_precision": 1,
        "largest_precision": 1,
    }


def test_too_few_good_replies_leave_the_posterior_as_it_was():
    loop = fedivon(server={"min_replies": 3})
    (record,) = start(loop, Nodes(3, lambda p, m: None if p == 1 else good(p, m)))
    assert record["merged"] is False
    np.testing.assert_array_equal(loop.standing.payload.posterior.mean, 0)


def test_the_record_has_the_weights_and_the_coordinates_that_dwc_kept():
    loop = fedivon(merge={"rule": "dwc", "weighting": "distance"})
    nodes = Nodes(
        2, lambda p, m: good(p, m, mean=np.full(4, p + 1.0), precision=[1.0, 1.0, 0.4, 0.4])
    )
    (record,) = start(loop, nodes)
    assert record["kept_coordinates"] == 2  # 0.4 + 0.4 - 1 is not positive
    np.testing.assert_allclose(loop.standing.payload.posterior.precision, [1, 1, 1, 1])
    np.testing.assert_allclose(loop.standing.payload.posterior.mean, [3, 3, 0, 0])
    weights = [client["weight"] for client in record["clients"]]
    assert (
        sum(weights) == pytest.approx(1) and weights[0] > weights[1]
    )  # the second went farther from the server


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_every_pair_of_rules_merges_by_settings_alone(rule, weighting):
    loop = fedivon(merge={"rule": rule, "weighting": weighting})
    (record,) = start(loop, Nodes(3, lambda p, m: good(p, m, precision=np.full(4, 2.0 + p))))
    assert record["merged"] and loop.standing.payload.posterior.fault() is None


def test_sampling_is_by_partition_whatever_the_node_ids():
    def sampled(first_id, seed=0):
        loop = fedivon(seed=seed, clients_per_round=4, rounds=5)
        records = start(loop, Nodes(10, good, first_id), rounds=5)
        return [[c["partition"] for c in r["clients"]] for r in records]

    once = sampled(100)
    assert once == sampled(5_000_000)
    assert once != sampled(100, seed=1)
    assert len({tuple(chosen) for chosen in once}) > 1
    assert all(len(set(chosen)) == 4 for chosen in once)


def test_a_resumed_run_samples_as_if_it_had_not_stopped():
    whole = start(fedivon(clients_per_round=2), Nodes(6, good), rounds=3)
    resumed = fedivon(standing=Standing(2, FIRST), clients_per_round=2)
    rest = start(resumed, Nodes(6, good), rounds=3)
    assert [r["clients"] for r in rest] == [whole[2]["clients"]]


def test_batch_norm_statistics_are_averaged_by_size():
    loop = fedivon(Payload(FIRST.posterior, np.zeros(2, np.float32)))
    start(loop, Nodes(3, lambda p, m: good(p, m, buffers=np.full(2, p))))
    np.testing.assert_allclose(loop.standing.payload.buffers, (20 + 60) / 60)


def test_all_clients_can_train_while_only_those_sampled_report():
    asked = {}

    def reply(partition, message):
        asked.setdefault(partition, []).append(bool(message.content["config"]["report"]))
        if asked[partition][-1]:
            return good(partition, message)
        return {"metrics": MetricRecord({"num-examples": 10, "loss": 9.0})}

    loop = fedivon(train_all_clients=True, clients_per_round=2)
    first, _ = start(loop, Nodes(5, reply), rounds=2)
    assert sorted(asked) == list(range(5)) and all(len(reports) == 2 for reports in asked.values())
    assert [sum(reports[r] for reports in asked.values()) for r in (0, 1)] == [2, 2]
    assert len(first["clients"]) == 2 and first["silent"] == 3 and first["dropped"] == []
    assert first["train_loss"] < 9 and loop.standing.last_merged == dict.fromkeys(range(5), 2)
    sampled = [
        c["partition"] for c in start(fedivon(clients_per_round=2), Nodes(5, good))[0]["clients"]
    ]
    assert [
        c["partition"] for c in first["clients"]
    ] == sampled  # the same clients as where only they train


def test_those_whose_training_nobody_would_see_are_spared():
    asked = {}

    def reply(partition, message):
        asked.setdefault(message.content["config"]["round"], []).append(partition)
        return good(partition, message)

    evaluation = {"clients_every": 3}
    loop = fedivon(train_all_clients=True, clients_per_round=2, rounds=5, evaluation=evaluation)
    loop = Rounds(loop.strategy, FIRST, clients_carry_on=False)
    start(
        loop,
        Nodes(4, lambda p, m: None if "evaluate" in m.metadata.message_type else reply(p, m)),
        rounds=5,
    )
    counts = [len(asked[server_round]) for server_round in range(1, 6)]
    assert counts == [2, 2, 4, 2, 4]  # all in scored rounds


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [("constant", [1.0, 1.0, 1.0]), ("linear", [1.0, 0.6, 0.2]), ("cosine", [1.0, 0.6, 0.2])],
)
def test_learning_rate_schedules(schedule, rates):
    final = {"final_learning_rate": 0.2} if schedule != "constant" else {}
    client = ClientSettings(learning_rate=1.0, schedule=schedule, **final)
    assert [client.rate_in(r, 3) for r in (1, 2, 3)] == pytest.approx(rates)
    assert client.rate_in(1, 1) == 1.0


def test_a_schedule_over_the_steps_of_a_round_begins_every_round_at_the_first_rate():
    settings = compose(
        settings_of, "demo", "fedivon", "client.final_learning_rate=0.01 client.schedule_over=steps"
    )
    assert {settings.client.rate_in(r, 3) for r in (1, 2, 3)} == {settings.client.learning_rate}


def test_the_exponential_schedule_holds_and_then_falls_by_a_factor_a_round():
    client = ClientSettings(learning_rate=1.0, schedule="exponential", decay=0.04, decay_after=50)
    assert [client.rate_in(r, 400) for r in (1, 50)] == [1.0, 1.0]
    assert [client.rate_in(r, 400) for r in (51, 75)] == pytest.approx([np.exp(-0.04), np.exp(-1)])


@pytest.mark.parametrize(
    ("rule", "start"),
    [(rule, "posterior") for rule in ("product", "nwa", "dwc", "w2")]
    + [(rule, "mean") for rule in ("ws", "lp", "conflation", "wc")],
)
def test_where_ivon_clients_start_follows_the_rule_unless_it_is_said(rule, start):
    assert fedivon(merge={"rule": rule}).settings.client.start == start
    assert (
        fedivon(merge={"rule": rule}, client={"start": "posterior"}).settings.client.start
        == "posterior"
    )


def test_rules_that_need_a_precision_are_refused_for_points_by_name():
    for merge, key in (
        ({"rule": "ws"}, "merge.rule is 'ws'"),
        ({"weighting": "distance"}, "weighting is 'distance'"),
    ):
        with pytest.raises(SettingsError, match=key):
            values = {"experiment": "test", "strategy": "fedavg", "merge": merge}
            validate(
                settings_of("fedavg"), values, {"merge.rule": "here", "merge.weighting": "here"}
            )


def test_fedivon_starts_from_hess_init_and_fedavg_from_a_point():
    strategy = strategy_of("fedivon", client={"ess": 10, "hess_init": 2, "weight_decay": 0.5})
    assert strategy.initial(np.zeros(2)).precision.tolist() == [25, 25]
    assert strategy_of("fedavg").initial(np.zeros(2)).precision is None


def test_fedivon_is_fedivon_by_its_classes_alone():
    """What conf/strategy/fedivon.yaml says, the classes say by themselves."""
    values = yaml.safe_load((CONF / "strategy" / "fedivon.yaml").read_text())
    settings = strategy_of("fedivon").settings
    for section in ("client", "merge"):
        own = getattr(settings, section)
        assert {name: getattr(own, name) for name in values[section]} == values[section]


class Keeps(PosteriorStrategy):
    """A strategy that keeps the number of merges, and says so."""

    def merge(self, round):
        count = round.state.get("count", np.zeros(1)) + 1
        merged = super().merge(round)
        return replace(merged, state={"count": count}, notes={"merges": int(count[0])})


def test_what_a_merge_leaves_is_given_to_the_next_one_and_outlasts_a_checkpoint():
    settings = fedivon(rounds=4).settings
    loop = Rounds(Keeps(settings, Architecture((4,), 3)), FIRST)
    records = start(loop, Nodes(2, good), rounds=2)
    assert [record["merges"] for record in records] == [1, 2]
    kept = loop.standing
    again = Standing.of(kept.round, kept.payload, kept.arrays())
    assert dict(again.last_merged) == {0: 2, 1: 2}
    resumed = Rounds(Keeps(settings, Architecture((4,), 3)), FIRST, standing=again)
    assert [record["merges"] for record in start(resumed, Nodes(2, good), rounds=4)] == [3, 4]


def test_clients_are_told_of_the_last_round_that_was_merged_and_of_the_last_one_saved():
    told = []

    def reply(partition, message):
        told.append(Instructions.from_config(message.content["config"]))
        return good(partition, message)

    start(fedivon(), Nodes(1, reply), rounds=3)
    assert [(one.last_merged, one.last_saved) for one in told] == [(0, 0), (1, 0), (2, 0)]
    told.clear()
    start(fedivon(), Nodes(1, reply), rounds=3, saves=True)
    assert [(one.last_merged, one.last_saved) for one in told] == [(0, 0), (1, 1), (2, 2)]
