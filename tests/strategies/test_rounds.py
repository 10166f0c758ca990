"""The rounds of a run against hand-made nodes: sampling, bad replies, the record of a round."""

import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from flwr.app import ConfigRecord, Error, MetricRecord

from fedivon_app.core.client_scores import to_metrics
from fedivon_app.core.client_settings import ClientSettings
from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import CONF, compose, validate
from fedivon_app.core.errors import DivergenceError, RunError, SettingsError
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.metrics import Tally
from fedivon_app.core.network import Architecture
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.scores import Score
from fedivon_app.methods import settings_of
from fedivon_app.strategies.aggregation import RULES
from fedivon_app.strategies.base import PosteriorStrategy
from fedivon_app.strategies.replies import to_record
from fedivon_app.strategies.rounds import Rounds
from fedivon_app.strategies.standing import Standing
from fedivon_app.strategies.weighting import WEIGHTINGS
from tests.strategies.nodes import FIRST, Nodes, arrays_of, fedivon, good, start, strategy_of

OWN = Score(
    "own",
    "Own",
    higher_is_better=True,
    sums=lambda probabilities, labels: np.ones(1),
    value=lambda tally: tally.sums["own"][0] / tally.count,
)
ONES = Payload(Posterior(np.ones(4), np.ones(4)))


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


def metrics(**values):
    """A reply that is good but for these metrics."""
    return lambda p, m: (
        good(p, m) | {"metrics": MetricRecord({"num-examples": 20, "loss": 0.5} | values)}
    )


def arrays_like(mean):
    """A reply that is good but for the type of its mean."""
    return lambda p, m: (
        good(p, m) | {"posterior": to_record({"mean": mean, "precision": np.ones(4, np.float32)})}
    )


BAD = {
    "an error": (
        lambda p, m: Error(2, "Traceback ...\nValueError: no data here"),
        "ValueError: no data here",
    ),
    "an error of a SuperNode": (
        lambda p, m: Error(2, "<class 'ValueError'>:<'what it kept is gone'>"),
        "^ValueError: what it kept is gone$",
    ),
    "an error of a simulated client": (
        lambda p, m: Error(
            2,
            "<class 'X'>:<'ray::train() ...\n\n"
            "Exception ClientAppException occurred. Message: no data'>",
        ),
        "^no data$",
    ),
    "silence": (lambda p, m: None, "no reply in time"),
    "no posterior": (
        lambda p, m: {"metrics": MetricRecord({"num-examples": 1})},
        "lacks 'posterior'",
    ),
    "no num-examples": (
        lambda p, m: good(p, m) | {"metrics": MetricRecord({"loss": 1.0})},
        "lacks 'num-examples'",
    ),
    "no precision": (
        lambda p, m: good(p, m) | {"posterior": arrays_of(mean=np.zeros(4))},
        "has the arrays mean, not mean, precision",
    ),
    "another model": (
        lambda p, m: good(p, m, mean=np.zeros(3), precision=np.ones(3)),
        r"mean has shape \(3,\)",
    ),
    "NaN": (
        lambda p, m: good(p, m, mean=[np.nan, 0, 0, 0]),
        "mean has 1 values that are not finite",
    ),
    "infinity": (
        lambda p, m: good(p, m, precision=[np.inf, 1, 1, 1]),
        "precision has 1 values that are not finite",
    ),
    "negative precision": (
        lambda p, m: good(p, m, precision=[-1, 1, 1, 0]),
        "precision has 2 values that are not positive",
    ),
    "zero examples": (
        metrics(**{"num-examples": 0}),
        "num-examples is 0, not a whole number of at least 1",
    ),
    "half an example": (
        metrics(**{"num-examples": 2.5}),
        "num-examples is 2.5, not a whole number",
    ),
    "infinitely many": (metrics(**{"num-examples": np.inf}), "num-examples is inf, not finite"),
    "numbers of examples": (
        metrics(**{"num-examples": [1, 2]}),
        r"num-examples is \[1, 2\], not a number",
    ),
    "no loss": (
        lambda p, m: good(p, m) | {"metrics": MetricRecord({"num-examples": 5})},
        "lacks 'loss'",
    ),
    "losses": (metrics(loss=[1.0, 2.0]), r"loss is \[1.0, 2.0\], not a number"),
    "a loss that is NaN": (metrics(loss=np.nan), "loss is nan, not finite"),
    "words for metrics": (
        lambda p, m: good(p, m) | {"metrics": ConfigRecord({"num-examples": "many"})},
        "lacks 'metrics' of the kind MetricRecord",
    ),
    "numbers for arrays": (
        lambda p, m: good(p, m) | {"posterior": MetricRecord({"mean": 1.0})},
        "lacks 'posterior' of the kind ArrayRecord",
    ),
    **{
        f"{kind} for numbers": (
            arrays_like(values),
            re.escape(f"mean holds {values.dtype}, not float32"),
        )
        for kind, values in {
            "letters": np.array(list("abcd")),
            "complex numbers": np.ones(4, np.complex64),
            "truth values": np.ones(4, bool),
            "whole numbers": np.ones(4, int),
            "dates": np.zeros(4, "datetime64[s]"),
            "structures": np.zeros(4, [("a", "f4")]),
        }.items()
    },
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_reply_is_dropped_by_name_and_never_merged(kind):
    bad, reason = BAD[kind]
    loop = fedivon()
    (record,) = start(loop, Nodes(3, lambda p, m: bad(p, m) if p == 1 else good(p, m)))
    (drop,) = record["dropped"]
    assert drop["partition"] == 1
    assert re.search(reason, drop["reason"])
    np.testing.assert_allclose(loop.standing.payload.posterior.mean, 2 * 30 / 40)


def test_too_few_good_replies_leave_the_posterior_as_it_was():
    loop = fedivon(server={"min_replies": 3})
    (record,) = start(loop, Nodes(3, lambda p, m: None if p == 1 else good(p, m)))
    assert record["merged"] is False
    np.testing.assert_array_equal(loop.standing.payload.posterior.mean, 0)


def test_a_run_in_which_every_client_fails_from_the_start_stops_and_says_why():
    asked = []

    def fails(partition, message):
        asked.append(message.content["config"]["round"])
        return Error(2, "Traceback ...\nValueError: the model has no head")

    with pytest.raises(
        RunError,
        match="^round 3: no client can train; partition 0: ValueError: the model has no head$",
    ):
        start(fedivon(rounds=9), Nodes(2, fails), rounds=9)
    assert max(asked) == 3
    with pytest.raises(RunError, match="round 2: no client can train"):
        start(fedivon(rounds=2), Nodes(2, fails), rounds=2)


def test_a_run_that_everybody_left_goes_on_without_them():
    nodes = Nodes(2, good)
    nodes.get_node_ids = lambda: [] if nodes.queried else list(nodes.ids)
    records = start(fedivon(rounds=4), nodes, rounds=4)
    assert [record["merged"] for record in records] == [False] * 4


@pytest.mark.parametrize("who", ["one trains", "one is late", "one trained before"])
def test_failing_clients_do_not_stop_a_run_that_may_recover(who):
    def reply(partition, message):
        if partition == 1 or (
            who == "one trained before" and message.content["config"]["round"] > 1
        ):
            return Error(2, "ValueError: no data here")
        return None if who == "one is late" else good(partition, message)

    assert len(start(fedivon(rounds=5), Nodes(2, reply), rounds=5)) == 5


def test_a_run_in_which_every_reply_is_nan_stops():
    with pytest.raises(RunError, match="round 1: the run diverged"):
        start(fedivon(), Nodes(2, lambda p, m: good(p, m, mean=np.full(4, np.nan))))


def test_a_run_that_explodes_stops_with_the_round():
    def grows(partition, message):
        return good(
            partition,
            message,
            precision=np.full(4, 10.0 ** (4 * message.content["config"]["round"])),
        )

    wide = Payload(Posterior(np.zeros(4), np.full(4, 1e4)))
    with pytest.raises(
        DivergenceError, match=r"round 3: the run diverged; the largest precision is 1e\+12"
    ):
        start(fedivon(wide, server={"max_growth": 1e6}), Nodes(2, grows), rounds=3)


def test_a_diverging_run_names_the_client_that_is_most_extreme():
    def one_grows(partition, message):
        return good(partition, message, mean=np.full(4, 1e8 if partition == 1 else 1.0))

    loop = fedivon(ONES, Standing(0, FIRST), server={"change_bound": None})
    with pytest.raises(
        RunError,
        match=r"largest mean is 3.33e\+07.*the largest of a client is 1e\+08, of partition 1",
    ):
        start(loop, Nodes(3, one_grows))
    np.testing.assert_array_equal(
        loop.standing.payload.posterior.mean, 0
    )  # the posterior of the last good round


def test_a_run_whose_variances_explode_stops_too():
    def flattens(partition, message):
        return good(partition, message, precision=np.full(4, 1e-9 if partition == 2 else 1e-8))

    loop = fedivon(ONES)
    with pytest.raises(
        RunError, match=r"smallest precision is .*the smallest of a client is 1e-09, of partition 2"
    ):
        start(loop, Nodes(3, flattens))


def test_a_merge_that_overflows_stops_the_run():
    """Each precision is finite in float32, their sum is not."""
    loop = fedivon(merge={"rule": "conflation"})
    with pytest.raises(
        RunError,
        match="the merged posterior's precision has 4 values that are not finite; .* partition",
    ):
        start(loop, Nodes(3, lambda p, m: good(p, m, precision=np.full(4, 3e38))))


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


def test_clients_scores_are_pooled_not_averaged():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), 60)
    labels = rng.integers(0, 3, 60)
    parts = [slice(0, 5), slice(5, 60)]

    def reply(partition, message):
        if message.metadata.message_type == "train":
            return good(partition, message)
        tally = Tally.of(probabilities[parts[partition]], labels[parts[partition]])
        return {"metrics": MetricRecord({"num-examples": 1, **to_metrics({"gm": {"mean": tally}})})}

    (record,) = start(fedivon(evaluation={"clients_every": 1}), Nodes(2, reply))
    scores = record["gm"]["clients_before_training"]
    assert scores["mean"] == pytest.approx(Tally.of(probabilities, labels).scores())
    assert [c["partition"] for c in scores["by_client"]] == [0, 1]


UNSCORED = {
    "an error": (Error(2, "ValueError: no data here"), "ValueError: no data here"),
    "silence": (None, "no reply in time"),
    "no metrics": ({}, "lacks 'metrics'"),
    "scores in words": (
        {"metrics": ConfigRecord({"gm.mean.count": "many"})},
        "lacks 'metrics' of the kind",
    ),
    "half a tally": ({"metrics": MetricRecord({"gm.mean.count": 3})}, "a tally needs 'correct'"),
    "no examples": (
        {"metrics": MetricRecord(to_metrics({"gm": {"mean": Tally()}}))},
        "the GM are of no examples",
    ),
    "samples alone": (
        {"metrics": MetricRecord(to_metrics({"pm": {"mc": Tally()}}))},
        "the PM are of no examples",
    ),
}


@pytest.mark.parametrize("kind", UNSCORED)
def test_a_client_without_sound_scores_is_named_and_the_others_count(kind, caplog):
    bad, why = UNSCORED[kind]
    tally = Tally.of(np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([1, 1]))

    def reply(partition, message):
        if message.metadata.message_type == "train":
            return good(partition, message)
        return (
            bad
            if partition == 1
            else {"metrics": MetricRecord(to_metrics({"gm": {"mean": tally}}))}
        )

    (record,) = start(fedivon(evaluation={"clients_every": 1}), Nodes(3, reply))
    scores = record["gm"]["clients_before_training"]
    assert [c["partition"] for c in scores["by_client"]] == [0, 2]
    assert scores["mean"] == pytest.approx(tally.scores())
    (line,) = [message for message in caplog.messages if "no scores" in message]
    assert line.startswith("round 1: no scores of partition 1: ") and why in line


def test_sums_that_give_no_value_of_an_own_score_are_named_and_the_others_count(caplog):
    plain = Tally.of(np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([1, 1]))

    def reply(partition, message):
        if message.metadata.message_type == "train":
            return good(partition, message)
        sums = np.zeros(0) if partition == 1 else np.ones(1)
        tally = replace(plain, sums={"own": sums})
        return {"metrics": MetricRecord(to_metrics({"gm": {"mean": tally}}))}

    scores = {"clients_every": 1, "scores": ["tests.strategies.test_rounds:OWN"]}
    (record,) = start(fedivon(evaluation=scores), Nodes(3, reply))
    found = record["gm"]["clients_before_training"]
    assert [c["partition"] for c in found["by_client"]] == [0, 2] and found["mean"]["own"] == 0.5
    assert "no scores of partition 1: the score own cannot be computed" in caplog.text


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
