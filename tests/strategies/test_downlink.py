"""What the server sends to whom, and what rounding leaves to the next round."""

import numpy as np
import pytest

from fedivon_app.core.codec import Payload, Raw
from fedivon_app.core.compact import Compact, digest
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.wire_settings import WireSettings
from fedivon_app.strategies.downlink import downlink_of
from tests.core.test_compact import num_bytes

CODEC = Compact(WireSettings(codec="compact"), (300, 100))


def payload_of(seed: int) -> Payload:
    """A posterior that has moved a little by each number."""
    rng = np.random.default_rng(0)
    mean = 0.05 * rng.standard_normal(400)
    return Payload(Posterior(mean + 1e-4 * seed * rng.standard_normal(400), np.full(400, 5000.0)))


def downlink(remembered=3):
    return downlink_of(CODEC, remembered)


def test_raw_sends_the_payload_itself():
    plain = downlink_of(Raw(), 3)
    payload = payload_of(0)
    parcel = plain.parcel(payload, 1)
    assert parcel.arrays is None and parcel.sent is None
    plain.note(payload, {1: True})
    assert plain.received(payload) is payload
    merged = payload_of(1)
    assert plain.carried(payload, merged) is merged


def test_a_client_is_told_the_whole_until_it_answers_and_then_what_changed():
    down = downlink()
    first = payload_of(0)
    assert down.parcel(first, 1).held is None
    down.note(first, {1: True, 2: False})
    second = payload_of(1)
    change = down.parcel(second, 1)
    whole = down.parcel(second, 2)
    assert change.held == digest(down.received(first)) and whole.held is None
    assert change.sent == whole.sent == digest(down.received(second))
    assert num_bytes(change.arrays) < num_bytes(whole.arrays) - 150
    held = CODEC.decode(whole.arrays)
    assert digest(held) == digest(down.received(second))


def test_all_who_hold_the_same_are_sent_one_message():
    down = downlink()
    down.note(payload := payload_of(0), dict.fromkeys(range(5), True))
    assert down.received(payload)
    second = payload_of(1)
    parcels = {id(down.parcel(second, node)) for node in range(5)}
    assert len(parcels) == 1


def test_who_does_not_answer_is_told_the_whole_again():
    down = downlink()
    down.note(payload_of(0), {1: True})
    second = payload_of(1)
    assert down.parcel(second, 1).held is not None
    down.note(second, {1: False})
    assert down.parcel(payload_of(2), 1).held is None


@pytest.mark.parametrize(
    ("away", "remembered", "whole"), [(1, 3, False), (2, 3, False), (3, 3, True)]
)
def test_who_was_away_for_long_is_told_the_whole(away, remembered, whole):
    down = downlink(remembered)
    down.note(payload_of(0), {1: True})
    for number in range(1, away):
        down.note(payload_of(number), {2: True})
    assert (down.parcel(payload_of(away), 1).held is None) == whole


def test_a_change_that_is_no_shorter_goes_whole():
    down = downlink()
    rng = np.random.default_rng(5)
    strangers = [
        Payload(Posterior(rng.standard_normal(400), np.full(400, 5000.0))) for _ in range(2)
    ]
    down.note(strangers[0], {1: True})
    assert down.parcel(strangers[1], 1).held is None


# What rounding leaves over.


def test_what_nobody_changed_stays_as_it_was():
    down = downlink()
    payload = payload_of(0)
    payload = Payload(payload.posterior, None, {"control": np.linspace(-1, 1, 400)})
    kept = down.carried(payload, down.received(payload))
    for name, array in Raw().encode(payload).items():
        np.testing.assert_allclose(Raw().encode(kept)[name], array, rtol=1e-5, atol=1e-7)


def test_small_steps_add_up_and_rounding_does_not():
    """Each round moves means by a fiftieth of a step, and precisions by a fiftieth of theirs.

    Rounded to the nearest in every round, without what is left over, none of them would ever move.
    """
    down = downlink()
    payload = first = payload_of(0)
    for _ in range(200):
        sent = down.received(payload).posterior
        step = 1 / 50 / np.sqrt(sent.known_precision)
        moved = Posterior(sent.mean + step, sent.known_precision * 2 ** (1 / 4 / 50))
        payload = down.carried(payload, Payload(moved))
    octaves = np.log2(payload.posterior.known_precision / first.posterior.known_precision)
    np.testing.assert_allclose(octaves, 1.0, atol=1e-3)
    # sigma falls by half an octave on the way: 4 of the first sigmas become the mean of 1 and .7
    way = (payload.posterior.mean - first.posterior.mean) * np.sqrt(5000)
    np.testing.assert_allclose(way, 4 * (1 - 2**-0.5) / (0.5 * np.log(2)), rtol=0.05)


def test_extras_that_were_not_sent_before_stay_as_they_are():
    down = downlink()
    payload = payload_of(0)
    merged = Payload(payload.posterior, None, {"new": np.ones(400)})
    np.testing.assert_array_equal(down.carried(payload, merged).extras["new"], np.ones(400))
