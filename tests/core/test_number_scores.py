"""Scores of predicted numbers against closed forms and against integrals."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from fedivon_app.core.likelihood import Classes, Number
from fedivon_app.core.metrics import Tally
from fedivon_app.core.number_scores import LEVELS, NumberTally, gaussian_crps, gaussian_nll
from fedivon_app.core.predict import Moments
from fedivon_app.core.scores import NUMBER_SCORES, number_tally_of, tally_from, values_of


@pytest.mark.parametrize(("y", "mean", "sigma"), [(0.0, 0.0, 1.0), (3.0, 1.0, 0.5), (-2.0, 5.0, 4)])
def test_the_crps_is_the_integral_that_defines_it(y, mean, sigma):
    def integrand(x):
        return (norm.cdf(x, mean, sigma) - (x >= y)) ** 2

    low, high = min(y, mean - 12 * sigma), max(y, mean + 12 * sigma)
    expected = quad(integrand, low, y)[0] + quad(integrand, y, high)[0]
    found = gaussian_crps(np.array(y), np.array(mean), np.array(sigma**2))
    assert found == pytest.approx(expected, abs=1e-6)


def test_crps_of_a_standard_gaussian_at_its_centre():
    expected = 2 / np.sqrt(2 * np.pi) - 1 / np.sqrt(np.pi)
    assert gaussian_crps(np.zeros(1), np.zeros(1), np.ones(1))[0] == pytest.approx(expected)


def test_the_coverage_of_a_known_gaussian_is_its_level():
    generator = np.random.default_rng(0)
    mean = generator.normal(100, 30, 40_000)
    variance = generator.uniform(0.5, 4, 40_000)
    truth = generator.normal(mean, np.sqrt(variance))
    tally = NumberTally.of(mean, variance, truth)
    np.testing.assert_allclose(tally.coverage, LEVELS, atol=0.01)
    assert tally.coverage_error < 0.005
    assert tally.rmse == pytest.approx(np.sqrt(variance.mean()), rel=0.02)
    assert tally.crps == pytest.approx((np.sqrt(variance) / np.sqrt(np.pi)).mean(), rel=0.02)
    assert tally.nll == pytest.approx(-norm.logpdf(truth, mean, np.sqrt(variance)).mean())
    sure = NumberTally.of(mean, variance / 4, truth)  # intervals of half the width
    half = 2 * norm.cdf(norm.ppf(0.95) / 2) - 1
    assert sure.coverage[LEVELS.index(0.9)] == pytest.approx(half, abs=0.01)


def test_tallies_of_clients_add_up_and_travel():
    generator = np.random.default_rng(1)
    moments = np.stack([generator.normal(size=30), generator.uniform(1e-3, 2e-3, 30)], axis=1)
    truth = moments[:, 0] + 0.01
    whole = number_tally_of(moments, truth)
    assert whole.nll < 0  # a density may be above 1
    parts = [number_tally_of(moments[rows], truth[rows]) for rows in (slice(11), slice(11, 30))]
    back = [tally_from(part.to_dict()) for part in parts]
    assert values_of(back[0] + back[1], NUMBER_SCORES) == pytest.approx(
        values_of(whole, NUMBER_SCORES)
    )
    with pytest.raises(TypeError):
        parts[0] + Tally()
    broken = whole.to_dict() | {"covered": [31.0] * len(LEVELS)}
    with pytest.raises(ValueError, match="intervals hold more"):
        tally_from(broken)
    with pytest.raises(ValueError, match="not positive"):
        NumberTally.of(np.zeros(1), np.zeros(1), np.zeros(1))


def test_the_loss_is_the_negative_log_density_of_the_standardised_number():
    outputs = torch.randn(50, 2, dtype=torch.float64)
    y = 100 + 20 * torch.randn(50, dtype=torch.float64)
    number = Number(mean=100.0, deviation=20.0)
    mu, variance = number.predicted(outputs).unbind(-1)
    expected = gaussian_nll((y.numpy() - 100) / 20, mu.numpy(), variance.numpy()).mean()
    assert float(number.loss(outputs, y)) == pytest.approx(expected)


def test_the_variance_over_samples_is_that_of_their_mixture():
    generator = np.random.default_rng(2)
    mu = generator.normal(0.3, 0.7, (500, 4))
    v = generator.uniform(0.2, 1.5, (500, 4))
    drawn = np.stack([mu, v], axis=-1)
    number = Number(mean=10.0, deviation=3.0)
    moments = Moments(drawn.mean(0), np.square(drawn).mean(0), number)
    draws = 10 + 3 * generator.normal(mu[:, None], np.sqrt(v)[:, None], (500, 2000, 4))
    np.testing.assert_allclose(moments.scored[:, 0], draws.mean((0, 1)), rtol=0.01)
    np.testing.assert_allclose(moments.scored[:, 1], draws.var((0, 1)), rtol=0.02)
    parts = moments.uncertainty()
    np.testing.assert_allclose(parts["epistemic"], 9 * mu.var(0))
    np.testing.assert_allclose(parts["aleatoric"], 9 * v.mean(0))


def test_class_weights_weigh_the_examples_of_a_class():
    logits = torch.randn(6, 3)
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    weights = torch.tensor([1.0, 2.0, 0.5])
    expected = (weights[labels] * each).sum() / 6
    assert torch.isclose(Classes((1.0, 2.0, 0.5)).loss(logits, labels), expected)
    assert torch.equal(Classes().loss(logits, labels), each.mean())
