"""Robust merges: what a minority of liars among K replies cannot move far, whatever it sends.

A reply is a point x_k, or a Gaussian in coordinates in which distances mean something
(strategies/cohort.py). Rules that go by distances need no more than the matrix of inner products
G_ij = <x_i, x_j>, and say how much each reply counts: what they return are weights, so that any
merge can follow. Rules that go coordinate by coordinate return the merged values themselves. f is
the number of liars that a rule is to withstand, less than half of K.
"""

from __future__ import annotations

from math import ceil

import numpy as np

ROUNDS = 100  # of Weiszfeld's iteration at most
CONVERGED = 1e-10  # change of the weights that ends it
NEAREST = 1e-9  # a distance to the median counts as this share of the median distance at least


def most_liars(count: int, share: float) -> int:
    """Return f for so many replies: a share of them, rounded up, but less than half."""
    return max(0, min(ceil(share * count), (count - 1) // 2))


def squared_distances(gram: np.ndarray) -> np.ndarray:
    """Return |x_i - x_j|^2 for all pairs."""
    squares = np.diag(gram)
    distances = squares[:, None] + squares[None, :] - 2 * gram
    np.fill_diagonal(distances, 0.0)
    clipped: np.ndarray = np.maximum(distances, 0.0)
    return clipped


def mixing(gram: np.ndarray, liars: int) -> np.ndarray:
    """Return the matrix of nearest-neighbour mixing (Allouah et al. 2023, NNM).

    Each reply becomes the average of the K - f that are nearest to it, itself included.
    """
    count = len(gram)
    kept = count - liars
    nearest = np.argsort(squared_distances(gram), axis=1, kind="stable")[:, :kept]
    matrix = np.zeros((count, count))
    np.put_along_axis(matrix, nearest, 1 / kept, axis=1)
    return matrix


def krum_scores(gram: np.ndarray, liars: int) -> np.ndarray:
    """Return the mean square distance of each reply to its K - f - 1 nearest others."""
    count = len(gram)
    ordered = np.sort(squared_distances(gram), axis=1)
    nearest = ordered[:, 1 : max(count - liars, 2)]
    scores: np.ndarray = nearest.mean(axis=1) if count > 1 else np.zeros(1)
    return scores


def krum(gram: np.ndarray, liars: int) -> np.ndarray:
    """Return weights that are 1 for the reply nearest to its neighbours (Blanchard et al. 2017)."""
    weights = np.zeros(len(gram))
    weights[np.argmin(krum_scores(gram, liars))] = 1.0
    return weights


def multi_krum(gram: np.ndarray, liars: int) -> np.ndarray:
    """Return equal weights for the K - f replies that are nearest to their neighbours."""
    count = len(gram)
    kept = np.argsort(krum_scores(gram, liars), kind="stable")[: count - liars]
    weights = np.zeros(count)
    weights[kept] = 1 / len(kept)
    return weights


def geometric_median(gram: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weights under which the replies' average minimises sum w_k |x_k - z|.

    Weiszfeld's iteration: z is the average with weights w_k / |x_k - z|, from w_k on.
    """
    now: np.ndarray = weights / weights.sum()
    for _ in range(ROUNDS):
        away = _distances_from(gram, now)
        typical = float(np.median(away))
        if typical == 0:  # half of all replies are at one place, which is the median
            at_it = np.where(away <= NEAREST * max(float(away.max()), 1e-300), weights, 0.0)
            found: np.ndarray = at_it / at_it.sum()
            return found
        pull = weights / np.maximum(away, NEAREST * typical)
        after: np.ndarray = pull / pull.sum()
        if np.abs(after - now).max() < CONVERGED:
            return after
        now = after
    return now


def centred_clipping(
    gram: np.ndarray, weights: np.ndarray, radius: float | None = None, rounds: int = 3
) -> np.ndarray:
    """Return how much of each reply's way from the centre is gone (Karimireddy et al. 2021).

    The centre v is the origin of the coordinates, and moves in each round by the average of the
    x_k - v, cut to the radius; None: to the median of |x_k - v|. The weights that are returned sum
    to 1 at most: what is left is the centre's.
    """
    own = weights / weights.sum()
    now = np.zeros(len(gram))
    for _ in range(rounds):
        away = _distances_from(gram, now)
        reach = float(np.median(away)) if radius is None else radius
        share = own * np.minimum(1.0, reach / np.maximum(away, 1e-300))
        now = now + share - share.sum() * now
    return now


def median_cosines(gram: np.ndarray) -> np.ndarray:
    """Return the median cosine of each reply with the others; of one without length it is 0."""
    lengths = np.sqrt(np.diag(gram))
    products = np.outer(lengths, lengths)
    cosines = np.divide(gram, products, out=np.zeros_like(gram), where=products > 0)
    others = cosines[~np.eye(len(gram), dtype=bool)].reshape(len(gram), -1)
    middle: np.ndarray = np.median(others, axis=1)
    return middle


def voices(gram: np.ndarray, alike: float) -> np.ndarray:
    """Return the share of a voice that each reply has: those that say the same have one together.

    Where n replies say the same, each has 1/n.
    """
    shares: np.ndarray = 1 / (1 + echoes(gram, alike).sum(axis=1))
    return shares


def echoes(gram: np.ndarray, alike: float) -> np.ndarray:
    """Tell of each pair of replies whether both say the same; of one and itself it is not told.

    They do if what sets them apart from the average, lengths aside, has a cosine above `alike`.
    Who is not set apart by anything says the same as nobody.
    """
    lengths = np.sqrt(np.diag(gram))
    products = np.outer(lengths, lengths)
    ways = np.divide(gram, products, out=np.zeros_like(gram), where=products > 0)
    apart = ways - ways.mean(axis=0) - ways.mean(axis=1)[:, None] + ways.mean()
    sizes = np.sqrt(np.maximum(np.diag(apart), 0.0))
    same: np.ndarray = apart > alike * np.maximum(np.outer(sizes, sizes), 1e-6)
    np.fill_diagonal(same, False)
    return same


def _distances_from(gram: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return |x_k - z| for z = sum_j weights_j x_j."""
    inner = gram @ weights
    squares = np.diag(gram) - 2 * inner + weights @ inner
    away: np.ndarray = np.sqrt(np.maximum(squares, 0.0))
    return away


def trimmed_mean(values: np.ndarray, liars: int) -> np.ndarray:
    """Return for each column the mean without its f smallest and its f largest values."""
    count = len(values)
    if liars:
        values = np.partition(values, (liars, count - liars - 1), axis=0)
    kept: np.ndarray = values[liars : count - liars].mean(axis=0)
    return kept


def median(values: np.ndarray) -> np.ndarray:
    """Return the median of each column."""
    middle: np.ndarray = np.median(values, axis=0)
    return middle


def trimmed_range(values: np.ndarray, liars: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for each column the smallest and the largest value without the f outermost ones.

    What lies between them is vouched for by an honest reply on either side.
    """
    count = len(values)
    ordered = np.partition(values, (liars, count - liars - 1), axis=0)
    return ordered[liars], ordered[count - liars - 1]
