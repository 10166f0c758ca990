"""Fast normal numbers: from the right distribution, independent, and a function of the seed."""

import numpy as np
import pytest
import torch
from scipy import stats

from fedivon_app.core.ivon import IVON
from fedivon_app.core.normals import _levels, _points, normals

CPU = torch.device("cpu")
FAST = ["fast", "faster", "fused"]


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


def test_points_of_the_plane_have_the_moments_of_two_independent_numbers():
    x, y = _points().view(torch.float32).view(-1, 2).double().numpy().T
    assert np.array_equal(np.sort(x), np.sort(y)) and np.array_equal(x, _levels().double().numpy())
    assert abs(np.mean(x * y)) < 1e-5
    assert abs(np.mean(x**2 * y**2) - 1) < 1e-3
    assert max(abs(np.mean(x**a * y**b)) for a, b in [(1, 2), (2, 1), (1, 3), (3, 1)]) < 1e-3
    assert np.mean((x**2 + y**2) ** 3) == pytest.approx(48, rel=2e-3)


@pytest.mark.parametrize("bits", [1, 4, 8, 11, 15])
def test_what_is_known_of_a_points_first_number_tells_nothing_of_the_second(bits):
    """Each of 2^16 cells of equal probability, by so many bits of one and the rest of the other."""
    x, y = _points().view(torch.float32).view(-1, 2).numpy().T
    first, second = x.argsort().argsort(), y.argsort().argsort()
    cells = (first >> (16 - bits) << (16 - bits)) + (second >> bits)
    assert np.array_equal(np.sort(cells), np.arange(2**16))


@pytest.mark.parametrize("kind", FAST)
@pytest.mark.parametrize("seed", range(3))
def test_draws_are_normal_and_independent(seed, kind):
    draws = drawn(400_001, seed, kind)
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    bound = 4 / np.sqrt(len(draws))
    for lag in (1, 2, 3, 4, 8, 1000):  # four numbers come of one word
        assert abs(np.mean(draws[lag:] * draws[:-lag])) < bound
        assert abs(np.mean((draws[lag:] ** 2 - 1) * (draws[:-lag] ** 2 - 1))) < 2 * bound


@pytest.mark.parametrize("count", [1, 1001, 65_537, 200_003])
def test_fast_ones_are_levels_by_the_16_bits_of_a_generator_in_blocks(count):
    torch.manual_seed(0)
    bits = np.random.Generator(np.random.SFC64(int(torch.randint(2**63 - 1, ()))))
    sizes = [min(2**16, count - start) for start in range(0, count, 2**16)]
    words = [bits.integers(2**64, size=-(-size // 4), dtype=np.uint64) for size in sizes]
    places = [word.view(np.uint16)[:size] for word, size in zip(words, sizes, strict=True)]
    assert np.array_equal(drawn(count), _levels().numpy()[np.concatenate(places)])


@pytest.mark.parametrize("kind", FAST)
def test_they_follow_from_torchs_seed_and_go_on(kind):
    assert np.array_equal(drawn(1001, 1, kind), drawn(1001, 1, kind))
    assert not np.array_equal(drawn(1001, 1, kind), drawn(1001, 2, kind))
    torch.manual_seed(0)
    fill = normals(kind, CPU)
    first, second = torch.empty(5), torch.empty(5)
    fill(first)
    fill(second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_pairs_fill_a_part_of_a_vector_wherever_it_begins(start):
    torch.manual_seed(0)
    vector = torch.zeros(1000)
    normals("faster", CPU)(vector[start : start + 501])
    assert np.array_equal(vector.numpy()[start : start + 501], drawn(501, kind="faster"))
    assert not vector[:start].any() and not vector[start + 501 :].any()


def test_torchs_own_are_torchs_own():
    torch.manual_seed(3)
    expected = torch.empty(100).normal_().numpy()
    assert np.array_equal(drawn(100, 3, "torch"), expected)


@pytest.mark.parametrize("kind", FAST)
@pytest.mark.parametrize("antithetic", [False, True])
def test_ivon_learns_the_same_posterior_of_a_quadratic_loss_with_either(antithetic, kind):
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

    fast, slow = learned(kind), learned("torch")
    exact = target * curvature / (curvature + decay)
    assert fast.mean.mean() == pytest.approx(exact, rel=0.01)
    assert fast.precision.mean() == pytest.approx(ess * (curvature + decay), rel=0.06)
    assert fast.precision.mean() == pytest.approx(slow.precision.mean(), rel=0.02)  # 3 sigmas
    assert fast.precision.std() == pytest.approx(slow.precision.std(), rel=0.1)
