"""The compact codec: what is sent comes back within a step, and without bias."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import ValidationError

from fedivon_app.core.codec import Payload, Raw
from fedivon_app.core.compact import Compact, digest
from fedivon_app.core.dense import Dense
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.wire_settings import WireSettings

STEPS = WireSettings(codec="compact")
DRAWS = 1000
TINY = float(np.finfo(np.float32).tiny)


def random_payload(size: int, seed: int = 0, buffers: bool = False, extras: bool = False):
    rng = np.random.default_rng(seed)
    mean = 0.05 * rng.standard_normal(size)
    return Payload(
        Posterior(mean, 5000 * np.exp(rng.standard_normal(size))),
        rng.random(7).astype(np.float32) if buffers else None,
        {"control": rng.standard_normal(size).astype(np.float32)} if extras else {},
    )


def changed(payload: Payload, by: float, seed: int = 1) -> Payload:
    """Return the payload after training: means moved by so many sigmas, precisions by a little."""
    rng = np.random.default_rng(seed)
    old = payload.posterior
    mean = old.mean + by * rng.laplace(0, 1, len(old)) * np.sqrt(old.variance)
    if old.precision is None:
        mean = old.mean + by * rng.standard_normal(len(old)) / 1000
        return replace(payload, posterior=Posterior(mean))
    precision = old.precision * np.exp(0.1 * rng.standard_normal(len(old)))
    return replace(payload, posterior=Posterior(mean, precision))


def point(payload: Payload) -> Payload:
    return replace(payload, posterior=Posterior(payload.posterior.mean))


def assert_same(one: Payload, other: Payload) -> None:
    """Both are the same to the bit."""
    assert list(Raw().encode(one)) == list(Raw().encode(other))
    for name, array in Raw().encode(one).items():
        np.testing.assert_array_equal(array, Raw().encode(other)[name], err_msg=name)


def num_bytes(arrays: dict[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays.values())


# Any finite payload survives.

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(2.0**-149, 2.0**127, width=32)


def posteriors(size, with_precision):
    means = arrays(np.float32, size, elements=FLOATS)
    precisions = arrays(np.float32, size, elements=POSITIVE) if with_precision else st.none()
    return st.builds(Posterior, means, precisions)


@st.composite
def pairs(draw):
    """Return sizes of tensors, a payload and a reference of the same kind, or None."""
    sizes = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    kind = posteriors(sum(sizes), draw(st.booleans()))
    reference = draw(st.none() | kind)
    return sizes, Payload(draw(kind)), None if reference is None else Payload(reference)


@settings(deadline=None, max_examples=300)
@given(pairs(), st.integers(0, 5))
def test_any_finite_payload_comes_back_within_a_step(case, seed):
    sizes, payload, reference = case
    codec = Compact(STEPS, sizes).seeded(seed)
    coded = codec.coded(payload, reference)
    found = codec.decode(coded.arrays, reference)
    assert_same(found, coded.decoded)
    assert found.fault() is None
    if payload.posterior.precision is not None and reference is not None:
        old = reference.posterior
        step = STEPS.mean_step / np.sqrt(old.known_precision.astype(np.float64))
        rounding = 1e-6 * np.maximum(np.abs(old.mean), np.abs(payload.posterior.mean))
        error = np.abs(found.posterior.mean.astype(np.float64) - payload.posterior.mean)
        assert (error <= 1.000001 * step + rounding + TINY).all()
    if payload.posterior.precision is not None:
        octaves = np.log2(found.posterior.precision.astype(np.float64)) - np.log2(
            payload.posterior.precision.astype(np.float64)
        )
        assert (np.abs(octaves) <= STEPS.precision_step + 1e-5).all()


@pytest.mark.parametrize(
    "mean",
    [
        np.zeros(6),
        np.full(6, 3.0),
        np.array([1e38, -1e38, 0, 1, -1e-38, 1e-45]),
        np.array([3.4e38] * 6),
    ],
)
@pytest.mark.parametrize("precision", [None, 1e-30, 1.0, 1e30, 3e38, 1e-44])
def test_strange_vectors_survive(mean, precision):
    posterior = Posterior(mean, None if precision is None else np.full(6, precision))
    codec = Compact(STEPS, (2, 0, 3, 1))
    for reference in (None, Payload(posterior), Payload(replace(posterior, mean=-posterior.mean))):
        coded = codec.coded(Payload(posterior), reference)
        found = codec.decode(coded.arrays, reference)
        assert_same(found, coded.decoded)
        assert found.fault() is None
        if reference is not None and precision is not None and 1e-37 < precision < 1e38:
            unit = STEPS.mean_step / np.sqrt(precision)
            rounding = 1e-6 * np.abs(posterior.mean)
            assert (np.abs(found.posterior.mean - posterior.mean) <= unit + rounding).all()


def test_nothing_changed_is_decoded_to_the_same_bits():
    sent = random_payload(2000)
    for payload in (sent, point(sent)):
        codec = Compact(STEPS, (1000, 600, 400))
        arrays = codec.encode(payload, payload)
        assert_same(codec.decode(arrays, payload), payload)
        assert num_bytes(arrays) < 100


def test_without_weights_there_is_still_a_message():
    empty = Payload(Posterior(np.empty(0), np.empty(0)))
    codec = Compact(STEPS, ())
    assert len(codec.decode(codec.encode(empty)).posterior) == 0
    assert len(codec.decode(codec.encode(empty, empty), empty).posterior) == 0


def test_numbers_that_are_not_finite_travel_as_they_are():
    """The server names them as it does with raw replies; what the client keeps is what it sent."""
    sent = random_payload(8)
    mean = sent.posterior.mean.copy()
    mean[3] = np.nan
    codec = Compact(STEPS, (4, 4))
    coded = codec.coded(Payload(Posterior(mean, sent.posterior.precision)), sent)
    np.testing.assert_array_equal(coded.decoded.posterior.mean[:4], mean[:4])
    with pytest.raises(ValueError, match="mean has 1 values that are not finite"):
        codec.decode(coded.arrays, sent)


# Rounding.


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("kind", ["posterior", "point"])
def test_rounding_keeps_expectations(whole, kind):
    sent = random_payload(40, extras=True)
    reply = changed(sent, by=0.7)
    if kind == "point":
        sent = point(sent)
        reply = point(reply)
    reference = None if whole else sent
    codec = Compact(replace_steps(precision_step=0.5, whole_point_step=0.5), (30, 10))
    draws = [codec.seeded(seed).coded(reply, reference).decoded for seed in range(DRAWS)]
    vectors = {"mean": lambda p: p.posterior.mean, "control": lambda p: p.extras["control"]}
    if kind == "posterior":
        vectors["precision"] = lambda p: p.posterior.precision
    for name, look in vectors.items():
        if name == "mean" and whole and kind == "posterior":
            continue  # its unit is a sigma that is itself drawn; see the next test
        found = np.array([look(draw) for draw in draws], np.float64)
        truth = look(reply).astype(np.float64)
        error = np.abs(found.mean(0) - truth)
        expected = found.std(0) / np.sqrt(DRAWS)
        assert (error <= 5 * expected + 1e-5 * np.abs(truth)).all(), name


def test_a_whole_mean_keeps_its_expectation():
    payload = random_payload(40)
    codec = Compact(STEPS, (40,))
    found = np.array(
        [codec.seeded(seed).coded(payload).decoded.posterior.mean for seed in range(DRAWS)]
    )
    error = np.abs(found.mean(0) - payload.posterior.mean)
    assert (error <= 5 * found.std(0) / np.sqrt(DRAWS) + 1e-7).all()


def replace_steps(**steps: float) -> WireSettings:
    return WireSettings(codec="compact", **steps)


def test_the_same_seed_gives_the_same_bytes_and_another_gives_others():
    sent = random_payload(3000)
    reply = changed(sent, by=0.5)
    codec = Compact(STEPS, (3000,))

    def mean(*seed: int) -> bytes:
        return codec.seeded(*seed).encode(reply, sent)["mean"].tobytes()

    assert mean(1, 2, 3) == mean(1, 2, 3)
    assert mean(1, 2, 3) != mean(1, 3, 2)


def test_rounding_to_the_nearest_step_leaves_half_a_step():
    sent = random_payload(3000)
    reply = changed(sent, by=0.5)
    codec = Compact(STEPS, (3000,)).nearest()
    found = codec.coded(reply, sent).decoded.posterior
    sigmas = np.abs(found.mean - reply.posterior.mean) * np.sqrt(sent.posterior.known_precision)
    assert sigmas.max() <= 0.5 * STEPS.mean_step + 1e-4
    octaves = np.abs(np.log2(found.known_precision / reply.posterior.known_precision))
    assert octaves.max() <= 0.55 * STEPS.precision_step
    assert_same(codec.decode(codec.encode(reply, sent), sent), Payload(found))


@settings(deadline=None, max_examples=40)
@given(st.sampled_from([0.1, 0.5, 1, 2]), st.sampled_from([1 / 64, 1 / 8, 1]), st.integers(0, 99))
def test_a_receiver_needs_no_settings(mean_step, precision_step, seed):
    """What a step is stands in the message, so that either side may choose its own."""
    sent = random_payload(300, seed)
    reply = changed(sent, by=1.0)
    sender = Compact(replace_steps(mean_step=mean_step, precision_step=precision_step), (200, 100))
    for reference in (None, sent):
        coded = sender.coded(reply, reference)
        assert_same(Compact(STEPS, (200, 100)).decode(coded.arrays, reference), coded.decoded)


# What goes with the posterior.


@pytest.mark.parametrize("whole", [True, False])
def test_buffers_and_extras_come_back(whole):
    sent = random_payload(1000, buffers=True, extras=True)
    reply = replace(
        changed(sent, by=0.3), buffers=sent.buffers + 0.01, extras={"control": np.ones(1000)}
    )
    codec = Compact(STEPS, (900, 100))
    reference = None if whole else sent
    arrays = codec.encode(reply, reference)
    assert list(arrays) == ["mean", "precision", "buffers", "control"]
    assert all(array.dtype == np.uint8 for array in arrays.values())
    found = codec.decode(arrays, reference)
    assert_same(found, codec.coded(reply, reference).decoded)
    np.testing.assert_allclose(found.buffers, reply.buffers, rtol=1e-3)
    step = STEPS.whole_point_step if whole else STEPS.point_step
    np.testing.assert_allclose(found.extras["control"], 1, atol=step)


def test_buffers_too_large_for_float16_are_not_cut():
    codec = Compact(STEPS, (3,))
    payload = Payload(Posterior(np.ones(3)), np.array([1e6, 1e-3], np.float32))
    np.testing.assert_array_equal(codec.decode(codec.encode(payload)).buffers, payload.buffers)


def test_extras_of_another_shape_are_exact():
    codec = Compact(STEPS, (3,))
    extras = {"count": np.array(2049.0), "matrix": np.array([[1.1, 2.2], [3.3, 4.4]])}
    found = codec.decode(codec.encode(Payload(Posterior(np.ones(3)), None, extras)))
    for name, array in extras.items():
        np.testing.assert_array_equal(found.extras[name], array.astype(np.float32))


def test_extras_that_are_no_change_to_the_reference_go_from_zero():
    """A control that a client gained has nothing to do with the server's control in its place."""
    sent = replace(random_payload(1000), extras={"control": np.full(1000, 100.0, np.float32)})
    gain = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    codec = Compact(STEPS, (1000,))
    reply = replace(sent, extras={"control": gain})
    found = codec.decode(codec.encode(reply, sent), sent)
    assert np.abs(found.extras["control"] - gain).max() < STEPS.point_step * 1.2


def test_full_covariances_are_left_to_the_raw_codec():
    dense = Payload(Dense([1.0, 2.0], [[2.0, 0.5], [0.5, 1.0]]))
    codec = Compact(STEPS, (2,))
    for reference in (None, dense):
        arrays = codec.encode(dense, reference)
        assert arrays["precision"].dtype == np.float64
        found = codec.decode(arrays, reference).posterior
        assert isinstance(found, Dense)
        np.testing.assert_array_equal(found.precision, dense.posterior.precision)


def test_a_reference_with_other_arrays_counts_as_none():
    payload = random_payload(50)
    codec = Compact(STEPS, (50,))
    arrays = codec.encode(payload, point(payload))
    assert_same(codec.decode(arrays), codec.coded(payload).decoded)


# Sizes.


def test_changes_take_few_bytes():
    sent = random_payload(80_000)
    posterior = sent.posterior
    codec = Compact(STEPS, (400, 16, 12_800, 32, 66_752))
    small = Payload(Posterior(changed(sent, by=0.02).posterior.mean, posterior.precision))
    raw = 4 * len(posterior)
    assert num_bytes(codec.encode(small, sent)) < 0.01 * raw
    assert num_bytes(codec.encode(changed(sent, by=0.1), sent)) < 0.07 * raw
    assert num_bytes(codec.encode(sent)) < 0.28 * raw
    assert num_bytes(codec.encode(point(changed(sent, by=0.1)), point(sent))) < 0.06 * raw
    assert num_bytes(codec.encode(point(sent))) < 0.28 * raw


def test_what_all_precisions_of_a_tensor_forget_takes_no_bytes_and_no_rounding():
    sent = random_payload(1000)
    codec = Compact(STEPS, (400, 600))
    kept = np.repeat(np.array([0.99, 0.97], np.float32), (400, 600))
    forgotten = Payload(Posterior(sent.posterior.mean, sent.posterior.known_precision * kept))
    coded = codec.coded(forgotten, sent)
    found = coded.decoded.posterior.known_precision
    np.testing.assert_allclose(found, forgotten.posterior.known_precision, rtol=1e-6)
    same = codec.encode(sent, sent)
    assert coded.arrays["precision"].nbytes == same["precision"].nbytes
    known = forgotten.posterior.known_precision.copy()
    known[7] *= 4  # what one of them learned is told beside it
    learned = codec.coded(Payload(Posterior(sent.posterior.mean, known)), sent).decoded
    np.testing.assert_allclose(learned.posterior.known_precision, known, rtol=1e-6)


# Making one.


def test_it_is_made_of_the_places_of_tensors():
    assert Compact.of(STEPS, [slice(0, 3), slice(3, 10)]).sizes == (3, 7)
    with pytest.raises(ValueError, match="does not begin at 3"):
        Compact.of(STEPS, [slice(0, 3), slice(4, 10)])
    with pytest.raises(ValueError, match="5 weights do not fit tensors of 10"):
        Compact(STEPS, (3, 7)).encode(random_payload(5))


def test_a_precisions_step_is_a_power_of_two():
    with pytest.raises(ValidationError, match="0.3 is no power of two"):
        WireSettings(precision_step=0.3)


def test_digests_tell_payloads_apart():
    one = random_payload(10, extras=True)
    assert digest(one) == digest(random_payload(10, extras=True))
    others = [
        random_payload(10, seed=1, extras=True),
        random_payload(10),
        point(one),
        replace(one, extras={"other": one.extras["control"]}),
        replace(one, buffers=np.zeros(1, np.float32)),
    ]
    assert len({digest(payload) for payload in [one, *others]}) == 6


def test_the_bytes_are_the_same_on_all_machines():
    """Who changes these changes what is spoken, and must raise envelope.VERSION."""
    mean = np.arange(-20, 20, dtype=np.float32) / 64
    sent = Payload(Posterior(mean, np.full(40, 4096.0)))
    reply = Payload(Posterior(mean[::-1], np.full(40, 8192.0)))
    codec = Compact(STEPS, (40,)).seeded(1, 2, 3)
    coded = codec.coded(reply, sent)
    assert digest(coded.decoded) == "d1eeb1136ff402bea6b0f6cf9fcc587c"
    head = "04020000803f529630c466358e00"
    drawn = "030100000002000000030000000a000000"
    rest = "000000003e006cb041a49334fe5198ba6d17652428b836b8640043e09e44c0920a5d5e17"
    more = "1398b3698b14a7d3c73c1b9da346d8ef1cb2e6958e4f02044c9fb0e1c02c39b3c7f85e89f3"
    assert coded.arrays["mean"].tobytes().hex() == head + drawn + rest + more
