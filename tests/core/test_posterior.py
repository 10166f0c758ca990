"""Posterior and its way over the wire."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedivon_app.core.codec import Payload, Raw
from fedivon_app.core.errors import BadReply, Fault, FaultKind
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
        (
            Posterior([np.nan, 1.0], [1.0, 2.0]),
            Fault(FaultKind.NOT_FINITE, "mean has 1 values that are not finite", where="mean"),
        ),
        (
            Posterior([0.0, 1.0], [np.inf, np.nan]),
            Fault(
                FaultKind.NOT_FINITE,
                "precision has 2 values that are not finite",
                where="precision",
            ),
        ),
        (
            Posterior([0.0, 1.0], [0.0, 2.0]),
            Fault(
                FaultKind.NOT_POSITIVE,
                "precision has 1 values that are not positive",
                where="precision",
            ),
        ),
    ],
)
def test_faults_are_named(posterior, fault):
    assert posterior.fault() == fault
    assert str(posterior.fault()) == fault.text
    assert Payload(posterior).fault() == fault


def test_good_posteriors_have_no_fault():
    assert Posterior([0.0, 1.0], [1.0, 2.0]).fault() is None
    assert Posterior([0.0, 1.0]).fault() is None


def test_what_travels_beside_the_posterior_has_its_faults_too():
    good = Posterior([0.0, 1.0], [1.0, 2.0])
    assert Payload(good, np.ones(3), {"control": np.zeros(2)}).fault() is None
    for payload, name in (
        (Payload(good, np.array([np.inf])), "buffers"),
        (Payload(good, None, {"control": np.array([0.0, np.nan])}), "control"),
    ):
        text = f"{name} has values that are not finite"
        assert payload.fault() == Fault(FaultKind.NOT_FINITE, text, where=name)


def test_a_point_has_no_precision_to_be_known():
    assert Posterior([1.0], [4.0]).known_precision.tolist() == [4.0]
    with pytest.raises(ValueError, match="a precision is needed here, and this .* is a point"):
        assert Posterior([1.0]).known_precision


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


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"mean": np.zeros(2), "precision": np.ones(2)}, r"mean has shape \(2,\), not \(3,\)"),
        ({"mean": np.zeros(3)}, "has the arrays mean, not mean, precision"),
        ({}, "has the arrays none, not mean, precision"),
        ({"mean": np.zeros(3, np.int64), "precision": np.ones(3)}, "mean holds int64, not float32"),
    ],
)
def test_a_reply_of_another_model_is_refused(arrays, says):
    reference = Payload(Posterior(np.zeros(3), np.ones(3)))
    with pytest.raises(BadReply, match=says) as caught:
        Raw().decode(arrays, reference)
    assert caught.value.fault.kind is FaultKind.MALFORMED
