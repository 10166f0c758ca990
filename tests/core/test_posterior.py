"""Posterior and its way over the wire."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedivon_app.core.codec import Payload, Raw
from fedivon_app.core.posterior import Posterior


def random_posterior(seed: int, size: int = 50) -> Posterior:
    rng = np.random.default_rng(seed)
    return Posterior(rng.standard_normal(size), rng.gamma(2.0, 3.0, size) + 0.1)


def test_kl_is_that_of_torch_distributions():
    p = random_posterior(0)
    q = random_posterior(1)

    def normal(posterior):
        return torch.distributions.Normal(
            torch.tensor(posterior.mean).double(),
            torch.tensor(posterior.precision).double() ** -0.5,
        )

    expected = torch.distributions.kl_divergence(normal(p), normal(q)).sum().item()
    assert p.kl(q) == pytest.approx(expected, rel=1e-6)
    assert p.kl(p) == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="a point has none"):
        p.kl(Posterior(q.mean))


def test_samples_have_the_posteriors_moments():
    posterior = Posterior([1.0, -2.0], [4.0, 0.25])
    rng = np.random.default_rng(0)
    draws = np.array([posterior.sample(rng) for _ in range(20000)])
    np.testing.assert_allclose(draws.mean(0), posterior.mean, atol=0.05)
    np.testing.assert_allclose(draws.var(0), posterior.variance, rtol=0.05)
    np.testing.assert_array_equal(Posterior([1.0, 2.0]).sample(rng), [1.0, 2.0])


@pytest.mark.parametrize(
    ("posterior", "fault"),
    [
        (Posterior([0.0, 1.0], [1.0, 2.0]), None),
        (Posterior([0.0, 1.0]), None),
        (Posterior([np.nan, 1.0], [1.0, 2.0]), "mean has 1 values that are not finite"),
        (Posterior([0.0, 1.0], [np.inf, np.nan]), "precision has 2 values that are not finite"),
        (Posterior([0.0, 1.0], [0.0, 2.0]), "precision has 1 values that are not positive"),
    ],
)
def test_faults_are_named(posterior, fault):
    assert posterior.fault() == fault


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"flat vector; this one has shape \(1, 2\)"):
        Posterior([[1.0, 2.0]])
    with pytest.raises(ValueError, match="one length, not 2 and 1"):
        Posterior([1.0, 2.0], [1.0])


vectors = arrays(np.float32, 7, elements=st.floats(-1e6, 1e6, width=32))


@given(
    vectors,
    st.none() | vectors.map(lambda v: np.abs(v) + 1),
    st.none() | vectors,
    st.none() | vectors,
)
def test_raw_codec_is_lossless_and_keeps_the_order_of_keys(mean, precision, buffers, control):
    payload = Payload(
        Posterior(mean, precision), buffers, {} if control is None else {"control": control}
    )
    arrays = Raw().encode(payload)
    given_keys = [
        ("mean", mean),
        ("precision", precision),
        ("buffers", buffers),
        ("control", control),
    ]
    assert list(arrays) == [name for name, value in given_keys if value is not None]
    decoded = Raw().decode(arrays, payload)
    for name, array in Raw().encode(decoded).items():
        np.testing.assert_array_equal(array, arrays[name])


def test_a_reply_of_another_model_is_refused():
    reference = Payload(Posterior(np.zeros(3), np.ones(3)))
    with pytest.raises(ValueError, match=r"mean has shape \(2,\), not \(3,\)"):
        Raw().decode({"mean": np.zeros(2), "precision": np.ones(2)}, reference)
    with pytest.raises(ValueError, match="has the arrays mean, not mean, precision"):
        Raw().decode({"mean": np.zeros(3)}, reference)
