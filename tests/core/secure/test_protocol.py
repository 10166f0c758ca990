"""Secure sums: what comes out, who may be missing, and what a site refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.core.errors import Refused, SumLost
from fedivon_app.core.secure import shares
from fedivon_app.core.secure.masks import key_pair
from fedivon_app.core.secure.messages import Advertised, Boxes, Masked, Roster, RoundKeys, Shared
from fedivon_app.core.secure.site import Conditions, advertise, mask, share, unmask
from tests.core.secure.federation import NO_CONDITIONS, SESSION, Trial, exact_layout, integers


@st.composite
def drop_outs(draw):
    """A number of sites, and who of them is lost when, so that the sum can still be known."""
    clients = draw(st.integers(3, 9))
    spare = clients - shares.threshold_of(clients)
    order = draw(st.permutations([3 * k + 1 for k in range(clients)]))
    lost = order[: draw(st.integers(0, spare))]
    when = [draw(st.sampled_from(["early", "between", "late"])) for _ in lost]
    return clients, {w: [n for n, at in zip(lost, when, strict=True) if at == w] for w in when}


@settings(max_examples=25, deadline=None)
@given(drop_outs(), st.integers(0, 2**32 - 1))
def test_the_sum_is_exact_whoever_drops_out_down_to_the_threshold(lost, seed):
    clients, when = lost
    values = integers(clients, seed=seed)
    trial = Trial(
        values,
        exact_layout(clients),
        lost_early=when.get("early", ()),
        lost_between=when.get("between", ()),
        lost_late=when.get("late", ()),
    )
    summed = trial.summed()
    there = set(values) - set(when.get("early", ())) - set(when.get("between", ()))
    assert summed.sites == len(there)
    for name in ("narrow", "wide"):
        expected = sum(values[number][name] for number in there)
        assert np.array_equal(summed.values[name], expected)


@pytest.mark.parametrize("clients", [3, 4, 5, 10])
@pytest.mark.parametrize("when", ["lost_early", "lost_between", "lost_late"])
def test_below_the_threshold_the_sum_ends_by_name(clients, when):
    values = integers(clients)
    too_many = list(values)[: clients - shares.threshold_of(clients) + 1]
    with pytest.raises(SumLost, match=r"training in round 3: of \d+ sites .* nothing of any site"):
        Trial(values, exact_layout(clients), **{when: too_many}).summed()


def test_with_one_share_less_than_the_threshold_every_secret_is_as_likely():
    """Whatever the secret is, some polynomial has these shares and that secret."""
    secret = bytes(range(32))
    given_shares = shares.split(secret, 4, range(6))
    three = {holder: given_shares[holder] for holder in (0, 2, 5)}
    for other in (bytes(32), bytes([255]) * 32, secret):
        point_zero = {-1: other.rjust(33, b"\0"), **three}  # holder -1 stands at the point 0
        value = _through(point_zero, at=4)
        assert shares.join({**three, 3: value}, 4) == other
    assert shares.join(given_shares, 4) == secret
    with pytest.raises(ValueError, match="3 shares are fewer than the threshold of 4"):
        shares.join(three, 4)


def _through(points, at):
    """The value at a point of the polynomial through some others, by Lagrange."""
    total = 0
    for holder, value in points.items():
        factor = int.from_bytes(value, "big")
        for other in points:
            if other != holder:
                factor = factor * (at - other - 1) * pow(holder - other, -1, shares.PRIME)
        total += factor
    return (total % shares.PRIME).to_bytes(33, "big")


def test_two_quorums_have_more_than_a_third_of_the_sites_in_common():
    for clients in range(3, 1000):
        threshold = shares.threshold_of(clients)
        assert clients >= threshold > 2 * clients / 3
        assert 2 * threshold - clients > clients / 3


def test_the_server_is_never_told_both_secrets_of_a_site():
    """Even a server that names other survivors to every site gets no second secret of anyone."""
    clients = 7
    trial = Trial(integers(clients), exact_layout(clients), lost_between=[1])
    told = trial.told(set(trial.sent))
    for one in told.values():
        assert not set(one.seeds) & set(one.keys)
        assert set(one.seeds) | set(one.keys) == trial.cohort
    numbers = sorted(trial.cohort)
    target = numbers[2]
    seeds = 0
    keys = 0
    for place, (number, one) in enumerate(trial.masked.items()):
        if number == target:
            continue
        pretended = set(trial.sent) - ({target} if place % 2 else set())
        said = unmask(one, pretended, NO_CONDITIONS)
        seeds += target in said.seeds
        keys += target in said.keys
    assert max(seeds, keys) < shares.threshold_of(clients)


def _until_shared(clients=4, conditions=NO_CONDITIONS):
    own = [advertise(SESSION, n, conditions) for n in range(clients)]
    return own, Roster(keys={n: one.public for n, one in enumerate(own)})


def test_a_site_refuses_a_roster_that_is_not_what_was_sent():
    own, roster = _until_shared()
    swapped = roster.keys | {0: own[1].public}
    with pytest.raises(Refused, match="not the keys of this site"):
        share(own[0], Roster(keys=swapped), NO_CONDITIONS)
    with pytest.raises(Refused, match="not the keys of this site"):
        share(own[0], Roster(keys={n: k for n, k in roster.keys.items() if n}), NO_CONDITIONS)
    twice = roster.keys | {9: roster.keys[1]}
    with pytest.raises(Refused, match="twice"):
        share(own[0], Roster(keys=twice), NO_CONDITIONS)
    worthless = roster.keys | {1: RoundKeys(box=bytes(32), mask=key_pair().public)}
    with pytest.raises(Refused, match="no secret can be agreed on"):
        share(own[0], Roster(keys=worthless), NO_CONDITIONS)


def test_sites_that_were_shown_different_rosters_cannot_open_each_others_boxes():
    own, roster = _until_shared()
    ghost = advertise(SESSION, 7, NO_CONDITIONS)
    wider = Roster(keys=roster.keys | {7: ghost.public})
    after, _ = share(own[0], roster, NO_CONDITIONS)
    boxes = {n: share(own[n], wider, NO_CONDITIONS)[1] for n in (1, 2, 3)}
    passed_on = Boxes(sealed={n: sent.sealed[0] for n, sent in boxes.items()})
    words = exact_layout(4).encode(integers(1)[1])
    with pytest.raises(Refused, match="agreed to another roster"):
        mask(after, passed_on, words, NO_CONDITIONS)


def test_a_site_refuses_shares_of_strangers_and_survivors_that_it_does_not_know():
    own, roster = _until_shared()
    states, boxes = zip(*(share(one, roster, NO_CONDITIONS) for one in own), strict=True)
    words = exact_layout(4).encode(integers(1)[1])
    passed_on = {n: boxes[n].sealed[0] for n in (1, 2, 3)}
    with pytest.raises(Refused, match="not in the roster: 8"):
        mask(states[0], Boxes(sealed=passed_on | {8: b"x"}), words, NO_CONDITIONS)
    masked, _ = mask(states[0], Boxes(sealed=passed_on), words, NO_CONDITIONS)
    with pytest.raises(Refused, match="said to survive: 9"):
        unmask(masked, {0, 1, 2, 9}, NO_CONDITIONS)
    with pytest.raises(Refused, match="not in the sum"):
        unmask(masked, {1, 2, 3}, NO_CONDITIONS)
    with pytest.raises(Refused, match="2 sites"):
        unmask(masked, {0, 1}, NO_CONDITIONS)


def test_a_site_refuses_a_cohort_below_its_minimum_at_every_step():
    strict = Conditions(smallest_cohort=6)
    own, roster = _until_shared(clients=5)
    with pytest.raises(Refused, match=r"sum over 5 sites, .* at least 6"):
        share(own[0], roster, strict)
    pair, both = _until_shared(clients=2)
    with pytest.raises(Refused, match=r"sum over 2 sites, .* at least 3"):
        share(pair[0], both, NO_CONDITIONS)
    states, boxes = zip(*(share(one, roster, NO_CONDITIONS) for one in own), strict=True)
    words = exact_layout(5).encode(integers(1)[1])
    passed_on = Boxes(sealed={n: boxes[n].sealed[0] for n in (1, 2, 3)})
    with pytest.raises(Refused, match="sum over 4 sites"):
        mask(states[0], passed_on, words, Conditions(smallest_cohort=5))
    masked, _ = mask(states[0], passed_on, words, NO_CONDITIONS)
    with pytest.raises(Refused, match="sum over 4 sites"):
        unmask(masked, {0, 1, 2, 3}, Conditions(smallest_cohort=5))


def test_wrong_shares_are_noticed_and_give_no_sum():
    clients = 5

    def lie_about_seeds(told):
        liar = told[4]
        told[4] = liar.model_copy(update={"seeds": dict.fromkeys(liar.seeds, bytes(33))})

    with pytest.raises(SumLost, match="masks did not come off|do not belong together"):
        Trial(integers(clients), exact_layout(clients)).summed(lie_about_seeds)

    def lie_about_keys(told):
        liar = told[4]
        told[4] = liar.model_copy(update={"keys": dict.fromkeys(liar.keys, bytes(33))})

    with pytest.raises(SumLost, match="site 13"):
        Trial(integers(clients), exact_layout(clients), lost_between=[13]).summed(lie_about_keys)


def test_a_site_that_leaves_somebody_out_of_its_boxes_is_left_out():
    own, roster = _until_shared(clients=5)
    boxes = {n: share(one, roster, NO_CONDITIONS)[1] for n, one in enumerate(own)}
    boxes[2] = Boxes(sealed={n: box for n, box in boxes[2].sealed.items() if n != 4})
    joint = Trial(integers(5), exact_layout(5)).joint
    assert set(joint.boxes_for(boxes)) == {0, 1, 3, 4}
    assert set(joint.boxes_for(boxes)[4].sealed) == {0, 1, 3}


def test_what_a_site_keeps_survives_as_text():
    trial = Trial(integers(4), exact_layout(4))
    told = advertise(SESSION, 3, NO_CONDITIONS)
    shared = trial.shared[1]
    masked = trial.masked[1]
    assert Advertised.from_json(told.to_json()) == told
    assert Shared.from_json(shared.to_json()) == shared
    assert Masked.from_json(masked.to_json()) == masked
    for kind in (Advertised, Shared, Masked):
        with pytest.raises(ValueError, match="validation error"):
            kind.from_json('{"stage": "other"}')
