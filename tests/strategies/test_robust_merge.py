"""The stage of a robust merge: replies and weights in, replies and weights out."""

import tracemalloc
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.core.codec import Payload, Raw
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.merge_settings import MergeSettings, Robust
from fedivon_app.core.network import Architecture
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.single_replies import needing_single_replies
from fedivon_app.methods import METHODS, method, settings_of
from fedivon_app.strategies import cohort
from fedivon_app.strategies.aggregation import aggregate
from fedivon_app.strategies.base import FOR_WHOLE_REPLIES, Reply
from fedivon_app.strategies.replies import Shelf
from fedivon_app.strategies.robust_merge import capped, vetted
from fedivon_app.strategies.standing import Standing

RULES = [rule for rule in get_args(Robust) if rule != "none"]
SIZE = 40
SENT = Payload(Posterior(np.zeros(SIZE), np.full(SIZE, 5.0)), np.zeros(3))


def replies(count=7, seed=0, spread=0.1, points=False):
    rng = np.random.default_rng(seed)
    way = rng.standard_normal(SIZE)
    found = []
    for k in range(count):
        mean = way + spread * rng.standard_normal(SIZE)
        precision = None if points else 5 * np.exp(spread * rng.standard_normal(SIZE))
        payload = Payload(Posterior(mean, precision), np.full(3, 1.0 + k))
        found.append(Reply(k, 10, 0, payload, {}))
    return found


def merged(given, rule, whole=False, weights=None, aggregation="product", sent=SENT):
    weights = np.full(len(given), 1 / len(given)) if weights is None else weights
    out = vetted(given, weights, sent, MergeSettings(robust=rule), whole=whole)
    assert out.weights.sum() == pytest.approx(1)
    posteriors = [reply.posterior for reply in out.replies]
    return aggregate(aggregation, posteriors, out.weights), out


@pytest.mark.parametrize("rule", RULES)
def test_replies_that_agree_are_merged_as_without_it(rule):
    same = [Reply(k, 10, 0, replies(1)[0].payload, {}) for k in range(5)]
    found, _ = merged(same, rule)
    np.testing.assert_allclose(found.mean, same[0].posterior.mean, rtol=1e-5)
    np.testing.assert_allclose(found.precision, same[0].posterior.precision, rtol=1e-5)


@pytest.mark.parametrize("rule", RULES)
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 1000), far=st.floats(1, 1e6), claim=st.floats(1e-6, 1e6))
def test_two_liars_of_seven_cannot_move_mean_nor_precision_far(rule, seed, far, claim):
    """Neither by how far their means go nor by how certain they say to be."""
    given = replies(seed=seed)
    honest = [reply.posterior for reply in given[2:]]
    for k in (0, 1):
        own = given[k].posterior
        lie = Posterior(-far * own.mean, claim * own.precision)
        given[k] = Reply(k, 10, 0, Payload(lie, np.ones(3)), {})
    found, _ = merged(given, rule)
    centre = np.mean([one.mean for one in honest], axis=0)
    assert np.linalg.norm(found.mean - centre) < 0.9 * np.linalg.norm(centre)
    precisions = np.array([one.precision for one in honest])
    assert (found.precision > 0.4 * precisions.min(axis=0)).all()
    assert (found.precision < 2.5 * precisions.max(axis=0)).all()


@pytest.mark.parametrize("rule", RULES)
def test_points_have_no_precision_and_are_merged_likewise(rule):
    given = replies(points=True)
    sent = Payload(Posterior(np.zeros(SIZE)), np.zeros(3))
    found, _ = merged(given, rule, aggregation="nwa", sent=sent)
    centre = np.mean([reply.posterior.mean for reply in given], axis=0)
    assert found.precision is None
    assert np.linalg.norm(found.mean - centre) < 0.5 * np.linalg.norm(centre)


@pytest.mark.parametrize("rule", RULES)
def test_blocks_of_the_vector_do_not_matter(rule, monkeypatch):
    given = replies(seed=3, spread=0.5)
    whole, _ = merged(given, rule)
    monkeypatch.setattr(cohort, "_BYTES", 8 * len(given) * 7)
    in_blocks, _ = merged(given, rule)
    np.testing.assert_allclose(whole.mean, in_blocks.mean, rtol=1e-5)
    np.testing.assert_allclose(whole.precision, in_blocks.precision, rtol=1e-5)


@pytest.mark.parametrize("rule", ["auto", "krum", "multi-krum"])
def test_replies_that_are_taken_whole_are_as_they_came(rule):
    given = replies()
    lie = Posterior(-50 * given[0].posterior.mean, given[0].posterior.precision)
    given[0] = Reply(0, 10, 0, Payload(lie, np.ones(3)), {})
    _, out = merged(given, rule, whole=True)
    assert 0 in out.left_out and out.left_out.isdisjoint(r.partition for r in out.replies)
    assert all(reply is given[reply.partition] for reply in out.replies)


def test_what_one_client_claims_to_weigh_is_what_half_of_the_others_have():
    np.testing.assert_allclose(
        capped(np.array([0.05, 0.05, 0.1, 0.8])), [1 / 6, 1 / 6, 1 / 3, 1 / 3]
    )


@pytest.mark.parametrize("rule", ["auto", "trimmed-mean", "multi-krum"])
def test_replies_stay_on_the_shelf(rule, monkeypatch):
    """Memory does not grow with the number of replies: they are read in blocks, or one by one."""
    monkeypatch.setattr(cohort, "_BYTES", 1 << 18)
    size = 100_000
    sent = Payload(Posterior(np.zeros(size), np.ones(size)))
    shelf = Shelf()
    rng = np.random.default_rng(0)
    given = []
    for k in range(30):
        stored = shelf.put(
            {"mean": rng.standard_normal(size, np.float32), "precision": np.ones(size, np.float32)}
        )
        given.append(Reply(k, 1, 0, lambda stored=stored: Raw().decode(stored()), {}))
    tracemalloc.start()
    try:
        out = vetted(given, np.full(30, 1 / 30), sent, MergeSettings(robust=rule), whole=False)
        aggregate("product", (reply.posterior for reply in out.replies), out.weights)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 8 * size  # eight vectors; thirty replies are thirty of them


def test_where_data_differ_nobody_is_left_out():
    rng = np.random.default_rng(0)
    given = [
        Reply(k, 10, 0, Payload(Posterior(rng.standard_normal(SIZE), np.full(SIZE, 5.0))), {})
        for k in range(8)
    ]
    _, out = merged(given, "auto", sent=Payload(SENT.posterior))
    assert len(out.replies) == 8 and not out.left_out


@pytest.mark.parametrize("name", METHODS)
def test_a_method_refuses_a_robust_merge_that_it_cannot_take(name):
    kind = method(name).strategy
    model = {"name": "linear"} if name == "bayes-admm-full" else {}
    values = {"experiment": "x", "strategy": name, "model": model, "data": {"holdout": 9}}

    def strategy(rule):
        options = settings_of(name).model_validate(values | {"merge": {"robust": rule}})
        return kind(options, Architecture())

    whole = strategy("none").takes_replies_whole
    for rule in RULES:
        if whole and rule not in FOR_WHOLE_REPLIES:
            with pytest.raises(SettingsError, match=f"merge.robust={rule} changes replies"):
                strategy(rule)
        elif rule == "held-out" and not strategy("none").has_global_model:
            with pytest.raises(SettingsError, match="no global model that could be tried"):
                strategy(rule)
        else:
            strategy(rule)


def test_points_have_no_precision_to_attack():
    words = ["attack.kind=inflated-precision", "attack.share=0.2"]
    chosen = compose(settings_of, "demo", "fedavg", words)
    with pytest.raises(SettingsError, match="send no precision that could be attacked"):
        method("fedavg").strategy(chosen, Architecture()).begin(np.zeros(3))


def test_settings_that_need_single_replies_are_named():
    assert needing_single_replies(compose(settings_of, "demo")) == []
    words = ["merge.robust=auto", "server.size_bound=3", "server.history=true"]
    words += ["attack.kind=alie", "attack.share=0.1"]
    assert needing_single_replies(compose(settings_of, "demo", None, words)) == [
        "merge.robust=auto",
        "server.size_bound=3",
        "server.history=true",
        "attack.kind=alie",
    ]


def test_a_trimmed_mean_of_natural_parameters_in_closed_form():
    given = replies(count=7, spread=0.5)
    equal = np.full(7, 1 / 7)
    options = MergeSettings(robust="trimmed-mean", robust_space="natural", robust_share=0.01)
    middle = vetted(given, equal, SENT, options, whole=False).replies[0].posterior
    precisions = np.sort([reply.posterior.precision for reply in given], axis=0)
    np.testing.assert_allclose(middle.precision, precisions[1:-1].mean(axis=0), rtol=1e-5)
    pulls = np.sort([r.posterior.precision * r.posterior.mean for r in given], axis=0)
    wanted = pulls[1:-1].mean(axis=0) / precisions[1:-1].mean(axis=0)
    np.testing.assert_allclose(middle.mean, wanted, rtol=1e-4, atol=1e-6)
    same = [replace(given[0], partition=k) for k in range(7)]
    found = vetted(same, equal, SENT, options, whole=False).replies[0].posterior
    np.testing.assert_allclose(found.mean, given[0].posterior.mean, rtol=1e-5)


def test_clipping_with_a_memory_starts_from_the_last_move():
    """All but one go on as before, by v; one goes far the other way, and is clipped from v on."""
    way = np.random.default_rng(0).standard_normal(SIZE)
    going_on = [
        Reply(k, 10, 0, Payload(Posterior(0.5 * way, np.full(SIZE, 5.0)), np.zeros(3)), {})
        for k in range(6)
    ]
    lie = replace(
        going_on[0], source=Payload(Posterior(-50 * way, np.full(SIZE, 5.0))), partition=6
    )
    options = MergeSettings(robust="centred-clipping", robust_memory=0.5)
    found = {}
    for name, moved in (("with", way.astype(np.float32)), ("without", None)):
        equal = np.full(7, 1 / 7)
        out = vetted([*going_on, lie], equal, SENT, options, whole=False, moved=moved)
        found[name] = aggregate("product", [r.posterior for r in out.replies], out.weights).mean
    np.testing.assert_allclose(found["with"], 0.5 * way, rtol=1e-4)  # most of them are there
    assert np.linalg.norm(found["without"] - 0.5 * way) > 0.01 * np.linalg.norm(way)


def test_a_memory_survives_a_checkpoint():
    moved = np.arange(3, dtype=np.float32)
    kept = Standing(5, SENT, state={"sum_v": np.ones(2)}, moved=moved)
    found = Standing.of(5, SENT, kept.arrays())
    assert list(found.state) == ["sum_v"]
    np.testing.assert_array_equal(found.moved, moved)
    assert Standing.of(5, SENT, Standing(5, SENT).arrays()).moved is None
