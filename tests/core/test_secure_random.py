"""Numbers from the system's randomness: of the right distribution, and never the same."""

import numpy as np
import torch
from scipy import stats

from fedivon_app.core.secure_random import SecureRandom

LARGE = 200_000  # a test at this size fails by chance once in a million runs


def test_normal_numbers_are_normal_and_independent():
    drawn = SecureRandom().normal(LARGE).double().numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(drawn[: LARGE // 2], drawn[LARGE // 2 :])[0, 1]) < 0.02  # of a pair
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.02


def test_an_odd_count_is_a_count():
    assert SecureRandom().normal(7).shape == (7,)
    assert SecureRandom().normal(0).shape == (0,)


def test_two_streams_differ_whatever_the_seeds_are():
    torch.manual_seed(0)
    np.random.seed(0)
    first = SecureRandom().normal(100)
    torch.manual_seed(0)
    np.random.seed(0)
    assert not torch.equal(first, SecureRandom().normal(100))


def test_each_is_chosen_by_itself():
    random = SecureRandom()
    counts = [len(random.chosen(1000, 0.1)) for _ in range(2000)]
    assert abs(np.mean(counts) - 100) < 1.1  # five standard errors
    assert abs(np.var(counts) / 90 - 1) < 0.2
    assert len(random.chosen(50, 1.0)) == 50


def test_a_noisy_count_has_the_chances_of_its_epsilon():
    random = SecureRandom()
    drawn = np.array([random.noisy_count(1000, 0.5) - 1000 for _ in range(20_000)])
    for k in range(4):
        ratio = np.mean(drawn == k) / np.mean(drawn == k + 1)
        assert abs(ratio / np.exp(0.5) - 1) < 0.25
    assert abs(drawn.mean()) < 0.15
    assert min(SecureRandom().noisy_count(1, 0.1) for _ in range(50)) == 1
