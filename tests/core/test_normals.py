"""Fast normal numbers: from the right distribution, independent, and a function of the seed."""

import numpy as np
import pytest
import torch
from scipy import stats

from fedivon_app.core.ivon import IVON
from fedivon_app.core.normals import _levels, normals

CPU = torch.device("cpu")


def drawn(count: int, seed: int = 0, kind: str = "fast") -> np.ndarray:
    torch.manual_seed(seed)
    out = torch.empty(count)
    normals(kind, CPU)(out)
    return out.numpy()


def test_levels_have_the_moments_of_a_standard_normal():
    levels = _levels().double().numpy()
    assert levels.mean() == 0 and np.array_equal(levels, -levels[::-1])
    assert np.mean(levels**2) == pytest.approx(1, abs=1e-6)
    assert np.mean(levels**4) == pytest.approx(3, abs=5e-3)
    assert np.mean(levels**6) == pytest.approx(15, rel=1e-2)
    assert (np.diff(levels) > 0).all() and 4.2 < levels[-1] < 4.5


@pytest.mark.parametrize("seed", range(3))
def test_draws_are_normal_and_independent(seed):
    draws = drawn(400_001, seed)
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    bound = 4 / np.sqrt(len(draws))
    for lag in (1, 2, 3, 4, 8, 1000):  # four numbers come of one word
        assert abs(np.mean(draws[lag:] * draws[:-lag])) < bound
        assert abs(np.mean((draws[lag:] ** 2 - 1) * (draws[:-lag] ** 2 - 1))) < 2 * bound


def test_they_follow_from_torchs_seed_and_go_on():
    assert np.array_equal(drawn(1001, 1), drawn(1001, 1))
    assert not np.array_equal(drawn(1001, 1), drawn(1001, 2))
    torch.manual_seed(0)
    fill = normals("fast", CPU)
    first, second = torch.empty(5), torch.empty(5)
    fill(first)
    fill(second)
    assert not torch.equal(first, second)


def test_torchs_own_are_torchs_own():
    torch.manual_seed(3)
    expected = torch.empty(100).normal_().numpy()
    assert np.array_equal(drawn(100, 3, "torch"), expected)


@pytest.mark.parametrize("antithetic", [False, True])
def test_ivon_learns_the_same_posterior_of_a_quadratic_loss_with_either(antithetic):
    """With loss c/2 (theta - t)^2 the posterior is N(t c/(c + wd), 1/(ess (c + wd)))."""
    target, curvature, decay, ess = 1.5, 2.0, 0.5, 50.0

    def learned(noise):
        weights = torch.nn.Parameter(torch.zeros(2000))
        torch.manual_seed(0)
        optimizer = IVON(
            [weights],
            lr=0.05,
            ess=ess,
            beta2=0.99,
            weight_decay=decay,
            rescale_lr=False,
            antithetic=antithetic,
            noise=noise,
        )
        for _ in range(1000):
            with optimizer.sampled_params(train=True):
                (curvature / 2 * (weights - target).square()).sum().backward()
            optimizer.step()
        return optimizer.posterior()

    fast, slow = learned("fast"), learned("torch")
    exact = target * curvature / (curvature + decay)
    assert fast.mean.mean() == pytest.approx(exact, rel=0.01)
    assert fast.precision.mean() == pytest.approx(ess * (curvature + decay), rel=0.06)
    assert fast.precision.mean() == pytest.approx(slow.precision.mean(), rel=0.01)
    assert fast.precision.std() == pytest.approx(slow.precision.std(), rel=0.1)
