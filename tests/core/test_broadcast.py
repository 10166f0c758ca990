"""A payload for all clients of a round: whole or as what moved, it is decoded to the same bits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from fedivon_app.core.codec import Payload
from fedivon_app.core.compact import Compact, digest
from fedivon_app.core.dense import Dense
from fedivon_app.core.errors import BadReply
from fedivon_app.core.posterior import Posterior
from tests.core.test_compact import (
    STEPS,
    assert_same,
    changed,
    num_bytes,
    pairs,
    point,
    random_payload,
)

SIZES = (900, 64, 36)
CODEC = Compact(STEPS, SIZES)


def assert_decoded_alike(codec, broadcast, held):
    """Who holds nothing and who holds this payload decode the same."""
    assert_same(codec.decode(broadcast.whole), broadcast.payload)
    found = codec.decode(broadcast.change(held), held)
    assert_same(found, broadcast.payload)
    assert digest(found) == broadcast.digest


@settings(deadline=None, max_examples=200)
@given(pairs())
def test_any_finite_payload_is_decoded_to_the_same_bits_by_all(case):
    sizes, payload, held = case
    codec = Compact(STEPS, sizes)
    broadcast = codec.broadcast(payload)
    assert broadcast.payload.fault() is None
    assert_decoded_alike(codec, broadcast, held or broadcast.payload)


@pytest.mark.parametrize("kind", ["posterior", "point"])
def test_buffers_and_extras_are_decoded_to_the_same_bits_by_all(kind):
    held = random_payload(1000, buffers=True, extras=True)
    payload = changed(held, by=0.3)
    if kind == "point":
        held = point(held)
        payload = point(payload)
    payload = replace(payload, buffers=held.buffers + 1, extras={"control": np.ones(1000)})
    broadcast = CODEC.broadcast(payload)
    earlier = CODEC.broadcast(held).payload
    assert_decoded_alike(CODEC, broadcast, earlier)
    assert list(broadcast.change(earlier)) == list(broadcast.whole)


def test_rounding_leaves_half_a_step():
    payload = random_payload(1000)
    sent = CODEC.broadcast(payload).payload.posterior
    sigmas = np.abs(sent.mean - payload.posterior.mean) * np.sqrt(sent.known_precision)
    assert sigmas.max() <= 0.5 * STEPS.mean_step + 1e-3
    octaves = np.abs(np.log2(sent.known_precision / payload.posterior.known_precision))
    assert octaves.max() <= 0.55 * STEPS.precision_step


@pytest.mark.parametrize("kind", ["posterior", "point"])
def test_what_moved_little_costs_little(kind):
    payload = random_payload(1000)
    moved = Payload(
        Posterior(changed(payload, by=0.02).posterior.mean, payload.posterior.precision)
    )
    if kind == "point":
        payload = point(payload)
        moved = point(moved)
    held = CODEC.broadcast(payload).payload
    broadcast = CODEC.broadcast(moved)
    assert num_bytes(broadcast.change(held)) < 0.4 * num_bytes(broadcast.whole)
    again = CODEC.broadcast(payload)
    assert num_bytes(again.change(held)) < 120


def test_a_median_that_moves_leaves_the_other_precisions_where_they_are():
    precision = np.geomspace(100.0, 10_000.0, 100)
    codec = Compact(STEPS, (100,))
    held = codec.broadcast(Payload(Posterior(np.zeros(100), precision))).payload
    precision[:20] = 20_000.0  # of which the median rises by a fifth of all weights
    broadcast = codec.broadcast(Payload(Posterior(np.zeros(100), precision)))
    np.testing.assert_allclose(
        broadcast.payload.posterior.precision[20:], held.posterior.precision[20:], rtol=1e-6
    )


@pytest.mark.parametrize("held", [None, random_payload(1000, seed=3)])
def test_a_sigma_larger_than_all_weights_does_not_round_them_away(held):
    """So it is with the prior of a method whose first posterior is one."""
    mean = 0.05 * np.random.default_rng(0).standard_normal(1000)
    prior = Payload(Posterior(mean, np.full(1000, 0.5)))
    found = CODEC.broadcast(prior).payload.posterior.mean
    assert np.corrcoef(found, mean)[0, 1] > 0.98
    reply = Payload(Posterior(mean + 0.01, np.full(1000, 0.5)))
    coded = CODEC.seeded(1).coded(reply, CODEC.broadcast(prior).payload)
    assert np.abs(coded.decoded.posterior.mean - reply.posterior.mean).max() < 0.05


def test_a_move_from_something_else_is_refused():
    held = CODEC.broadcast(random_payload(1000)).payload
    broadcast = CODEC.broadcast(random_payload(1000, seed=1))
    arrays = broadcast.change(held)
    with pytest.raises(BadReply, match="a change to something else than what is held here"):
        CODEC.decode(arrays, broadcast.payload)
    with pytest.raises(BadReply, match="a change to something else than what is held here"):
        CODEC.decode(arrays)


def test_who_holds_other_arrays_is_sent_those_that_are_new_whole():
    held = CODEC.broadcast(point(random_payload(1000))).payload
    arrays = CODEC.broadcast(random_payload(1000)).change(held)
    assert num_bytes({"precision": arrays["precision"]}) > 200


def test_full_covariances_go_as_they_are():
    dense = Payload(Dense([1.0, 2.0], [[2.0, 0.5], [0.5, 1.0]]))
    broadcast = Compact(STEPS, (2,)).broadcast(dense)
    assert_same(broadcast.payload, dense)
    assert_decoded_alike(Compact(STEPS, (2,)), broadcast, dense)
