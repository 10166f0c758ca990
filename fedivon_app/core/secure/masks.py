"""Keys of one sum, and masks made of them: streams of uniform integers that cancel in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
_BLOCK = 1 << 18  # bytes of a mask that are made at once: they stay in the processor's cache


class KeyPair(NamedTuple):
    """The private and the public half of an X25519 key."""

    private: bytes
    public: bytes


def key_pair() -> KeyPair:
    """Return a fresh pair, by the operating system's random numbers."""
    private = X25519PrivateKey.generate()
    return KeyPair(private.private_bytes_raw(), private.public_key().public_bytes_raw())


def public_of(private: bytes) -> bytes:
    """Return the public half that belongs to a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed(private: bytes, public: bytes, purpose: bytes) -> bytes:
    """Return the key that the owners of two pairs have in common, for one purpose.

    A public half with which no secret can be agreed on is a ValueError.
    """
    own = X25519PrivateKey.from_private_bytes(private)
    shared = own.exchange(X25519PublicKey.from_public_bytes(public))
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose).derive(shared)


def add_mask(arrays: Sequence[np.ndarray], key: bytes, sign: Literal[1, -1]) -> None:
    """Add the mask of a key to unsigned integers, in place and modulo their size; or take it off.

    The mask is the stream of AES-256 in counter mode, which goes on from one array to the next. A
    key is used for one mask alone, so that the counter may begin at 0.
    """
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    zeros = bytes(_BLOCK)
    buffer = bytearray(_BLOCK + 15)
    operation = np.add if sign > 0 else np.subtract
    for array in arrays:
        step = _BLOCK // array.dtype.itemsize
        for start in range(0, len(array), step):
            part = array[start : start + step]
            stream.update_into(memoryview(zeros)[: part.nbytes], buffer)
            operation(part, np.frombuffer(buffer, array.dtype, len(part)), out=part)
