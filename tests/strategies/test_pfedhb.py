"""The servers of pFedHB, pFedBayes and pFedVEM against their closed forms."""

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.flat import Flat
from fedivon_app.core.meanfield import inverse_softplus
from fedivon_app.core.models import build
from fedivon_app.core.network import Architecture
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import method, settings_of
from fedivon_app.strategies.aggregation import aggregate
from fedivon_app.strategies.base import Reply, Round

SHAPE = (3,)
CLASSES = 2
MODEL = {"name": "mlp", "options": {"sizes": [3]}}
HEAD = slice(12, 20)  # of 20 weights: 3 x 3 + 3 in the base, 3 x 2 + 2 in the head


def strategy(name, **merge):
    values = {"experiment": "test", "strategy": name, "merge": merge, "model": MODEL}
    slices = Flat(build("mlp", SHAPE, CLASSES, sizes=[3])).slices
    architecture = Architecture(SHAPE, CLASSES, slices)
    return method(name).strategy(settings_of(name).model_validate(values), architecture)


class Server:
    """A strategy, and what its merges leave from round to round."""

    def __init__(self, strategy, state=None):
        self.strategy = strategy
        self.state = state or {}


def posterior(seed, size=20):
    rng = np.random.default_rng(seed)
    return Posterior(rng.standard_normal(size), rng.uniform(1, 20, size))


def replies(seeds, **metrics):
    return [
        Reply(k, 10 * (k + 1), 0, Payload(posterior(seed)), dict(metrics))
        for k, seed in enumerate(seeds)
    ]


def merge(server, answers, number, previous):
    server = server if isinstance(server, Server) else Server(server)
    weights = server.strategy.weigh(answers, previous)
    sent = Payload(previous)
    merged = server.strategy.merge(
        Round(number, answers, weights, sent, len(answers), state=server.state)
    )
    server.state = merged.state
    return merged.posterior


CLOSED = {"solution": "closed", "mean_penalty": 0, "sigma_penalty": 0}


def test_the_closed_form_is_the_mean_and_the_variance_about_it():
    """Two clients with weights 1/3 and 2/3.

    Mean 1/3 0 + 2/3 3, variance 1/3 (1 + 4) + 2/3 (4 + 1).
    """
    answers = [
        Reply(0, 10, 0, Payload(Posterior(np.zeros(1), np.ones(1))), {}),
        Reply(1, 20, 0, Payload(Posterior(np.full(1, 3.0), np.full(1, 0.25))), {}),
    ]
    previous = Posterior(np.full(1, 9.0), np.full(1, 9.0))
    merged = merge(strategy("pfedhb", **CLOSED), answers, 1, previous)
    assert merged.mean[0] == pytest.approx(2) and 1 / merged.precision[0] == pytest.approx(5)
    bayes = merge(strategy("pfedhb", constraint="pfedbayes", **CLOSED), answers, 1, previous)
    assert bayes.mean[0] == pytest.approx(2) and 1 / bayes.precision[0] == pytest.approx(
        1 / 3 + 8 / 3
    )


@pytest.mark.parametrize("constraint", ["none", "pfedbayes"])
def test_many_steps_agree_with_the_closed_form(constraint):
    """Over rounds in which the clients stay as they are.

    Under the constraint that is pFedBayes' merge.
    """
    answers = replies([1, 2, 3])
    options = {
        "steps": 1500,
        "learning_rate": 0.02,
        "milestones": (4, 5, 6),
        "decay": 0.2,
        "constraint": constraint,
    }
    server = Server(strategy("pfedhb", mean_penalty=0, sigma_penalty=0, **options))
    reached = posterior(0)
    for number in range(1, 8):
        reached = merge(server, answers, number, reached)
    closed = merge(strategy("pfedhb", constraint=constraint, **CLOSED), answers, 1, posterior(0))
    np.testing.assert_allclose(reached.mean, closed.mean, atol=1e-3)
    np.testing.assert_allclose(reached.precision, closed.precision, rtol=5e-3)
    bayes = merge(strategy("pfedbayes"), answers, 1, posterior(0))
    if constraint == "pfedbayes":
        np.testing.assert_allclose(closed.mean, bayes.mean, atol=1e-6)
        np.testing.assert_allclose(closed.precision, bayes.precision, rtol=1e-6)
    else:
        assert (
            closed.precision < bayes.precision
        ).all()  # the clients' disagreement is in the variance


def test_rounds_are_adam_on_the_papers_objective():
    """Eq. 9 written out, client by client, by autograd.

    One Adam over four rounds, its rate falls after the second.
    """
    penalties = {"mean_penalty": 0.7, "sigma_penalty": 0.3}
    server = Server(strategy("pfedhb", milestones=(2,), steps=3, **penalties))
    ours = posterior(0)
    mean = torch.from_numpy(ours.mean.copy()).requires_grad_()
    rho = inverse_softplus(torch.from_numpy(ours.precision).rsqrt()).requires_grad_()
    adam = torch.optim.Adam([mean, rho], lr=0.01)
    for number in range(1, 5):
        answers = replies([10 * number, 10 * number + 1, 10 * number + 2])
        ours = merge(server, answers, number, ours)
        adam.param_groups[0]["lr"] = 0.01 if number <= 2 else 0.001
        for _ in range(3):
            adam.zero_grad()
            own = Normal(mean, softplus(rho))
            loss = 0.7 * mean.square().sum() + 0.3 * own.stddev.square().sum()
            for answer in answers:
                client = [
                    torch.from_numpy(a) for a in (answer.posterior.mean, answer.posterior.variance)
                ]
                loss = (
                    loss
                    + answer.num_examples
                    / 60
                    * kl_divergence(Normal(client[0], client[1].sqrt()), own).sum()
                )
            loss.backward()
            adam.step()
        np.testing.assert_allclose(ours.mean, mean.detach(), atol=1e-5)
        np.testing.assert_allclose(ours.precision, softplus(rho).pow(-2).detach(), rtol=1e-4)


def test_penalties_pull_mean_and_deviation_to_zero():
    """At the end (mu - m) / sigma^2 + 2 l1 mu = 0 and 1 - (v + (mu - m)^2) / sigma^2 + 2 l2
    sigma^2 = 0.
    """
    answers = replies([1, 2])
    l1 = 5.0
    l2 = 5.0
    options = {"steps": 500, "learning_rate": 0.02, "milestones": (3, 5, 6), "decay": 0.2}
    server = Server(strategy("pfedhb", mean_penalty=l1, sigma_penalty=l2, **options))
    reached = posterior(0)
    for number in range(1, 8):
        reached = merge(server, answers, number, reached)
    pool = aggregate("lp", [answer.posterior for answer in answers], [1 / 3, 2 / 3])
    shift = reached.mean - pool.mean
    variance = reached.variance
    np.testing.assert_allclose(shift / variance + 2 * l1 * reached.mean, 0, atol=0.05)
    np.testing.assert_allclose(
        1 - (pool.variance + shift**2) / variance + 2 * l2 * variance, 0, atol=0.05
    )
    assert (np.abs(reached.mean) < np.abs(pool.mean)).all()


def test_adams_moments_last_over_rounds_and_over_a_resume():
    answers = replies([1, 2])
    begin = posterior(0)
    through = Server(strategy("pfedhb"))
    after_one = merge(through, answers, 1, begin)
    resumed = Server(strategy("pfedhb"), through.state)
    expected = merge(through, answers, 2, after_one)
    again = merge(resumed, answers, 2, after_one)  # the merge above has not changed its state
    np.testing.assert_array_equal(again.mean, expected.mean)
    np.testing.assert_array_equal(again.precision, expected.precision)
    fresh = Server(strategy("pfedhb"))
    assert not np.array_equal(merge(fresh, answers, 2, after_one).mean, expected.mean)


def test_a_head_that_does_not_travel_stays_and_then_there_is_no_global_model():
    server = strategy("pfedhb", shared="base")
    previous = posterior(0)
    merged = merge(server, replies([1, 2]), 1, previous)
    for now, before in ((merged.mean, previous.mean), (merged.precision, previous.precision)):
        np.testing.assert_array_equal(now[HEAD], before[HEAD])
        assert (now[:12] != before[:12]).all()
    assert not server.has_global_model and strategy("pfedhb").has_global_model


def test_the_closed_form_with_penalties_is_an_error_that_says_what_to_do():
    with pytest.raises(SettingsError, match="with penalties use solution optimise"):
        compose(settings_of, "demo", "pfedhb", ["merge.solution=closed"])


def test_pfedbayes_averages_variances_or_as_its_code_does_rho():
    answers = replies([1, 2])
    previous = posterior(0)
    first, second = (answer.posterior for answer in answers)
    variance = merge(strategy("pfedbayes"), answers, 1, previous)
    np.testing.assert_allclose(variance.mean, first.mean / 3 + second.mean * 2 / 3, atol=1e-6)
    np.testing.assert_allclose(
        variance.variance, first.variance / 3 + second.variance * 2 / 3, rtol=1e-5
    )
    rho = merge(strategy("pfedbayes", average="rho"), answers, 1, previous)
    rhos = [np.log(np.expm1(np.sqrt(q.variance.astype(np.float64)))) for q in (first, second)]
    np.testing.assert_allclose(
        np.sqrt(rho.variance), np.log1p(np.exp(rhos[0] / 3 + rhos[1] * 2 / 3)), rtol=1e-5
    )
    np.testing.assert_array_equal(rho.mean, variance.mean)


def points(*variances):
    return [
        Reply(
            k,
            10 * (k + 1),
            0,
            Payload(Posterior(posterior(k).mean)),
            {} if v is None else {"head_variance": v},
        )
        for k, v in enumerate(variances)
    ]


def test_pfedvem_weighs_bases_by_size_and_heads_by_confidence():
    answers = points(0.5, 2.0)
    previous = Posterior(posterior(9).mean)
    merged = merge(strategy("pfedvem"), answers, 1, previous).mean
    first, second = (answer.posterior.mean for answer in answers)
    np.testing.assert_allclose(merged[:12], first[:12] / 3 + second[:12] * 2 / 3, atol=1e-6)
    np.testing.assert_allclose(
        merged[HEAD], (first[HEAD] * 2 + second[HEAD] * 0.5) / 2.5, atol=1e-6
    )


def test_pfedvems_head_begins_where_its_clients_doubt_does_not_drown_it():
    mean = posterior(9).mean
    begun, again = (strategy("pfedvem").begin(mean).posterior.mean for _ in range(2))
    np.testing.assert_array_equal(begun[:12], mean[:12])
    np.testing.assert_array_equal(begun, again)
    assert not np.isclose(begun[HEAD], mean[HEAD]).any()
    np.testing.assert_array_equal(
        strategy("pfedvem", head_init=None).begin(mean).posterior.mean, mean
    )
    wide = strategy("pfedvem", head_init=100).begin(mean).posterior.mean
    np.testing.assert_allclose(wide[HEAD], 100 * begun[HEAD], rtol=1e-5)
    assert 0.3 < float(begun[HEAD].std()) < 2


@pytest.mark.parametrize("bad", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_a_head_without_a_confidence_is_left_out_by_name(bad, caplog):
    answers = points(bad, 2.0)
    previous = Posterior(posterior(9).mean)
    merged = merge(strategy("pfedvem"), answers, 1, previous).mean
    np.testing.assert_allclose(merged[HEAD], answers[1].posterior.mean[HEAD], atol=1e-6)
    assert "head of partition 0 is left out" in caplog.text
    nobody = merge(strategy("pfedvem"), points(bad, bad), 1, previous).mean
    np.testing.assert_array_equal(nobody[HEAD], previous.mean[HEAD])
