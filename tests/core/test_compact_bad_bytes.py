"""Bytes that no honest client sends: each is refused with its reason, at bounded cost."""

import struct
import tracemalloc
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedivon_app.core import symbols
from fedivon_app.core.codec import Payload
from fedivon_app.core.compact import Compact
from fedivon_app.core.envelope import Envelope, Kind, check_of
from fedivon_app.core.errors import BadReply, FaultKind
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.rounding import Rounding
from fedivon_app.core.wire_settings import WireSettings
from tests.core.test_compact import STEPS, changed, point, random_payload

SIZES = (900, 64, 36)
SENT = random_payload(1000, buffers=True, extras=True)
REPLY = changed(SENT, by=0.5)
CODEC = Compact(STEPS, SIZES)
CHANGE = CODEC.encode(REPLY, SENT)
WHOLE = CODEC.encode(REPLY)
MOVE = CODEC.broadcast(REPLY).change(SENT)
SCALES = b"\0\0" + struct.pack("<3f", 1, 1, 1)  # nearest steps, no tensor exactly, and scales
DRAWN = Rounding((1, 2, 3)).seal() + SCALES[1:]
HEAD = 10  # bytes of an array before its checksum


def refused(arrays, reference=SENT, codec=CODEC):
    """Return the fault for which the arrays are refused."""
    with pytest.raises(BadReply) as caught:
        codec.decode(arrays, reference)
    return caught.value.fault


def forged(name: str, data: bytes) -> np.ndarray:
    """Return the bytes with a checksum that is right."""
    total = crc32(data[HEAD + 4 :], crc32(data[:HEAD], crc32(name.encode())))
    return np.frombuffer(data[:HEAD] + struct.pack("<I", total) + data[HEAD + 4 :], np.uint8)


def decoded_or_refused(arrays, reference):
    try:
        payload = CODEC.decode(arrays, reference)
    except BadReply as error:
        assert error.fault.text
        return
    assert payload.fault() is None
    assert len(payload.posterior) == 1000


# Accidents.


@pytest.mark.parametrize("name", list(CHANGE))
@pytest.mark.parametrize("message", [CHANGE, WHOLE, MOVE], ids=["change", "whole", "move"])
def test_every_flipped_bit_is_noticed(name, message):
    reference = None if message is WHOLE else SENT
    rng = np.random.default_rng(0)
    bits = 8 * len(message[name])
    for bit in {*range(8 * HEAD + 32), *rng.integers(0, bits, 100).tolist()}:
        damaged = message[name].copy()
        damaged[bit // 8] ^= 1 << bit % 8
        fault = refused({**message, name: damaged}, reference)
        assert fault.kind is FaultKind.MALFORMED
        assert fault.text == f"{name} was damaged on its way: its checksum is wrong"


@pytest.mark.parametrize("name", list(CHANGE))
def test_bytes_that_are_missing_or_too_many_are_noticed(name):
    whole = CHANGE[name]
    for length in (0, 1, HEAD, HEAD + 3, HEAD + 4, len(whole) - 4, len(whole) - 1):
        assert refused({**CHANGE, name: whole[:length]}).text.startswith(name)
    longer = np.append(whole, np.zeros(4, np.uint8))
    assert "checksum" in refused({**CHANGE, name: longer}).text


def test_arrays_in_each_others_place_are_noticed():
    swapped = {**CHANGE, "mean": CHANGE["control"], "control": CHANGE["mean"]}
    assert "checksum" in refused(swapped).text


def test_a_change_to_something_else_is_noticed():
    other = random_payload(1000, seed=5, buffers=True, extras=True)
    assert refused(CHANGE, other).text == (
        "precision is a change to something else than what is held here"
    )
    assert "precision is a change to something else" in refused(CHANGE, None).text


def test_other_arrays_than_those_of_the_reference_are_named():
    assert refused({"mean": CHANGE["mean"]}).text == (
        "has the arrays mean, not mean, precision, buffers, control"
    )
    assert "no" in refused({}, None).text
    assert "not a mean and a few others" in refused({"precision": WHOLE["precision"]}, None).text
    many = {**WHOLE, **{f"x{n}": WHOLE["control"] for n in range(20)}}
    assert "not a mean and a few others" in refused(many, None).text


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(1000, np.float32),
        np.zeros((4, 4), np.uint8),
        np.zeros(40, np.int8),
        np.array(7, np.uint8),
    ],
)
def test_arrays_that_are_no_bytes_are_named(array):
    assert "not coded bytes" in refused({**CHANGE, "mean": array}).text


# Malice: all of these have the right checksum.


def with_body(name: str, body: bytes, **changes) -> dict[str, np.ndarray]:
    kind = changes.pop("kind", Kind.CHANGE)
    reference = check_of(SENT)
    envelope = Envelope(kind, body, **{"step": 0.25, "reference": reference, **changes})
    return {**CHANGE, name: envelope.seal(name)}


@pytest.mark.parametrize("step", [0.0, -1.0, np.nan, np.inf])
def test_steps_that_are_none_are_named(step):
    assert f"mean has a step of {step}" in refused(with_body("mean", b"", step=step)).text


@pytest.mark.parametrize("step", [0.3, 2.0, 2.0**-20])
def test_steps_of_precisions_that_are_none_are_named(step):
    fault = refused(with_body("precision", b"", step=step))
    assert "not a power of two up to 1" in fault.text


def test_another_version_and_kind_are_named():
    data = CHANGE["mean"].tobytes()
    newer = forged("mean", bytes([9]) + data[1:])
    assert refused({**CHANGE, "mean": newer}).text == "mean is coded in version 9, not 4"
    strange = forged("mean", data[:1] + bytes([77]) + data[2:])
    assert "of the kind 77" in refused({**CHANGE, "mean": strange}).text


@pytest.mark.parametrize("scale", [np.nan, np.inf, -1.0])
def test_scales_that_are_none_are_named(scale):
    body = b"\0\0" + struct.pack("<3f", 1, scale, 1)
    assert "scales that are negative or not finite" in refused(with_body("control", body)).text


def test_exact_numbers_that_are_missing_are_noticed():
    assert refused(with_body("mean", b"\0\xff" + bytes(112))).text == (
        "mean ends early: 100 bytes, not 4000 or more"
    )
    assert refused(with_body("mean", b"")).text == "mean ends early: 0 bytes, not 1 or more"


@pytest.mark.parametrize("words", [1, 3, 255])
def test_a_rounding_that_is_cut_off_is_noticed(words):
    body = bytes([words]) + bytes(4 * words)
    assert refused(with_body("mean", body)).text == (
        f"mean ends early: {4 * words} bytes, not {4 * words + 4} or more"
    )


def test_what_was_drawn_may_be_any():
    """Who tells another rounding than his own has other symbols decoded, and nothing worse."""
    honest = bytes(Envelope.open("mean", CHANGE["mean"]).body)
    size = len(Rounding(CODEC.entropy).seal())
    for entropy in ((7,), tuple(range(255)), (2**32 - 1, 0)):
        for skipped in (0, 2**32 - 1):
            other = Rounding(entropy, skipped).seal()
            decoded_or_refused(with_body("mean", other + honest[size:], step=1.0), SENT)


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [((np.nan,), FaultKind.NOT_FINITE), ((-1.0,), FaultKind.NOT_POSITIVE)],
)
def test_exact_numbers_that_are_none_are_named(numbers, kind):
    values = np.full(1000, numbers[0], np.float32)
    bare = Payload(Posterior(SENT.posterior.mean, values), SENT.buffers, SENT.extras)
    fault = refused(CODEC.encode(bare, SENT))
    assert fault.kind is kind and fault.where == "precision"


def test_ratios_beyond_float32_are_refused():
    def coded(step: int) -> bytes:
        usual = np.ones(len(CODEC.sizes), "<f4")
        steps = np.full(1000, step, np.int32)
        return b"\0\0" + usual.tobytes() + symbols.encode(steps, CODEC.vectors.matrices)

    fault = refused(with_body("precision", coded(100_000)))
    assert fault.text == "precision cannot be decoded: a ratio is beyond 125 octaves"
    assert refused(with_body("precision", coded(499))).kind is FaultKind.NOT_FINITE
    tiny = Payload(Posterior(np.zeros(1000), np.full(1000, 1e-30)), SENT.buffers, SENT.extras)
    envelope = Envelope(Kind.CHANGE, coded(-499), step=0.25, reference=check_of(tiny))
    arrays = {**CODEC.encode(tiny, tiny), "precision": envelope.seal("precision")}
    assert refused(arrays, tiny).kind is FaultKind.NOT_POSITIVE


@pytest.mark.parametrize("shape", [(1 << 30,), (1 << 31, 1 << 31), (0, 1 << 31), (999,), (7, 1)])
def test_shapes_that_plain_numbers_do_not_have_are_named(shape):
    body = struct.pack(f"<BB{len(shape)}I", 1, len(shape), *shape) + bytes(28)
    assert "buffers has" in refused(with_body("buffers", body, kind=Kind.PLAIN)).text


@pytest.mark.parametrize("body", [b"", b"\1", b"\7\1", b"\1\xff" + bytes(40), b"\1\2\0\0"])
def test_plain_numbers_without_a_shape_are_named(body):
    fault = refused(with_body("buffers", body, kind=Kind.PLAIN))
    assert fault.text.startswith("buffers ")


def test_buffers_coded_as_weights_are_refused():
    data = Envelope.open("control", CHANGE["control"])
    arrays = with_body("buffers", bytes(data.body))
    assert refused(arrays).text == "buffers is coded as weights are, and is none"


def test_bytes_claim_no_more_memory_than_the_weights_take():
    """A thousand weights are decoded in little memory, whatever the bytes say."""
    rng = np.random.default_rng(0)
    tracemalloc.start()
    try:
        for length in [*range(0, 400, 7)] * 4:
            data = rng.bytes(length // 4 * 4)
            for kind in (Kind.CHANGE, Kind.MOVE):
                for start in (SCALES, DRAWN):
                    decoded_or_refused(with_body("mean", start + data, kind=kind), SENT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(["mean", "precision", "control"]),
    st.sampled_from([b"", SCALES, DRAWN]),
    st.binary(max_size=300),
    st.sampled_from([Kind.WHOLE, Kind.CHANGE, Kind.MOVE]),
)
def test_any_bytes_are_decoded_or_refused(name, start, data, kind):
    decoded_or_refused(with_body(name, start + data, kind=kind), SENT)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_forged_bytes_are_decoded_or_refused(data):
    """Bytes are changed, cut off or added, and the checksum is made to fit."""
    message = data.draw(st.sampled_from([CHANGE, WHOLE, MOVE]))
    reference = None if message is WHOLE else SENT
    name = data.draw(st.sampled_from(list(message)))
    wire = bytearray(message[name].tobytes())
    for _ in range(data.draw(st.integers(0, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(HEAD + 4, len(wire)))
    added = data.draw(st.binary(max_size=12))
    decoded_or_refused({**message, name: forged(name, bytes(wire[:cut]) + added)}, reference)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.sampled_from(["mean", "precision", "x"]), st.binary(max_size=40)))
def test_any_arrays_are_refused_without_a_reference(named):
    arrays = {name: np.frombuffer(data, np.uint8) for name, data in named.items()}
    with pytest.raises(BadReply):
        CODEC.decode(arrays)


def test_full_covariances_that_are_none_are_refused():
    matrix = np.zeros((3, 3))
    for arrays in ({"precision": matrix}, {"mean": np.zeros(2), "precision": matrix}):
        assert "no full-covariance posterior" in refused(arrays, None).text


def test_points_are_guarded_too():
    codec = Compact(WireSettings(codec="compact"), (1000,))
    sent = point(random_payload(1000))
    arrays = codec.encode(point(changed(random_payload(1000), by=0.1)), sent)
    damaged = arrays["mean"].copy()
    damaged[-1] ^= 1
    assert "checksum" in refused({"mean": damaged}, sent, codec).text
