"""When a run ends by itself: nobody can train, nothing is finite, or the merge diverges."""

import numpy as np
import pytest
from flwr.app import Error

from fedivon_app.core.codec import Payload
from fedivon_app.core.errors import DivergenceError, RunError
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.standing import Standing
from tests.strategies.nodes import FIRST, Nodes, fedivon, good, start

ONES = Payload(Posterior(np.ones(4), np.ones(4)))


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
