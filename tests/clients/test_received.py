"""What a client was sent is kept for changes to it, and never taken for something else."""

import os

import numpy as np
import pytest

from fedivon_app.clients.received import Received, decoded
from fedivon_app.core.codec import Payload, Raw
from fedivon_app.core.compact import Compact, digest
from fedivon_app.core.errors import RunError
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.wire_settings import WireSettings

CODEC = Compact(WireSettings(codec="compact"), (40,))


def broadcast(seed: int):
    rng = np.random.default_rng(seed)
    extras = {"z": rng.standard_normal(40), "a": rng.standard_normal(3)}
    return CODEC.broadcast(Payload(Posterior(rng.standard_normal(40)), rng.random(5), extras))


def keep(received: Received, number: int):
    """Keep a payload as of this second."""
    sent = broadcast(number)
    received.keep(sent.digest, sent.payload)
    path = received.folder / f"{sent.digest}.safetensors"
    os.utime(path, (number, number))
    return sent


def test_a_payload_is_recalled_by_its_digest(tmp_path):
    received = Received(tmp_path, 2)
    sent = keep(received, 1)
    assert digest(received.recall(sent.digest)) == sent.digest
    assert received.recall("another") is None


def test_the_oldest_are_forgotten(tmp_path):
    received = Received(tmp_path, 2)
    kept = [keep(received, number) for number in (1, 2, 3)]
    assert [received.recall(sent.digest) is not None for sent in kept] == [False, True, True]
    assert len(list(tmp_path.iterdir())) == 2


def test_without_a_digest_nothing_is_kept(tmp_path):
    Received(tmp_path / "none", 2).keep(None, broadcast(1).payload)
    assert not (tmp_path / "none").exists()


def damage(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 64
    path.write_bytes(data)


@pytest.mark.parametrize(
    "harm", [damage, lambda path: path.unlink(), lambda path: path.write_bytes(b"{}")]
)
def test_a_client_that_lost_what_it_held_says_so(tmp_path, harm):
    received = Received(tmp_path, 2)
    held = keep(received, 1)
    sent = broadcast(2)
    told = Instructions(round=2, sent=sent.digest, held=held.digest)
    arrays = sent.change(held.payload)
    assert digest(decoded(arrays, told, CODEC, received)) == sent.digest
    harm(tmp_path / f"{held.digest}.safetensors")
    with pytest.raises(RunError, match="is gone or damaged.*the next one comes whole"):
        decoded(arrays, told, CODEC, received)


def test_what_is_decoded_to_other_numbers_is_not_used(tmp_path):
    told = Instructions(round=1, sent=broadcast(2).digest)
    with pytest.raises(RunError, match="decoded to other numbers here than there"):
        decoded(broadcast(1).whole, told, CODEC, Received(tmp_path, 2))


def test_raw_needs_nothing(tmp_path):
    payload = broadcast(1).payload
    found = decoded(Raw().encode(payload), Instructions(round=1), Raw(), Received(tmp_path, 1))
    assert digest(found) == digest(payload)
