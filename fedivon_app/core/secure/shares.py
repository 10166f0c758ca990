"""Shamir's shares: a secret of 32 bytes in parts, of which any `threshold` give it back.

The secret is the value at 0 of a polynomial of the degree threshold - 1 over a prime field, with
random coefficients, and a share its value at another point: fewer shares tell nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache

PRIME = 2**256 + 297  # the least prime above all secrets
SECRET_BYTES = 32
SHARE_BYTES = 33


def threshold_of(clients: int) -> int:
    """Return how many of so many sites have to stay until a sum is known: more than two thirds.

    Two groups of this size have more than a third of the sites in common. So a server that asks
    some sites for one secret of a site, and others for its other secret, never comes to know both.
    """
    return 2 * clients // 3 + 1


def split(secret: bytes, threshold: int, holders: Iterable[int]) -> dict[int, bytes]:
    """Return a share of the secret for each holder, who are numbered from 0."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    coefficients = [int.from_bytes(secret, "big")]
    coefficients += [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    return {holder: _value(coefficients, holder + 1) for holder in holders}


def join(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret of which these are shares, by their holders.

    Fewer of them than the threshold, and shares that are of no one secret, are a ValueError.
    """
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares are fewer than the threshold of {threshold}")
    used = sorted(shares)[:threshold]
    value = sum(
        int.from_bytes(shares[holder], "big") * factor
        for holder, factor in zip(used, _factors(tuple(used)), strict=True)
    )
    value %= PRIME
    if value >> (8 * SECRET_BYTES):
        raise ValueError("these shares do not belong together: they are of no secret")
    return value.to_bytes(SECRET_BYTES, "big")


def _value(coefficients: list[int], point: int) -> bytes:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % PRIME
    return value.to_bytes(SHARE_BYTES, "big")


@lru_cache(maxsize=8)
def _factors(holders: tuple[int, ...]) -> list[int]:
    """Return Lagrange's factors at 0 of the holders' points: of one sum, those of all secrets."""
    factors = []
    for holder in holders:
        above = 1
        below = 1
        for other in holders:
            if other != holder:
                above = above * (other + 1) % PRIME
                below = below * (other - holder) % PRIME
        factors.append(above * pow(below, -1, PRIME) % PRIME)
    return factors
