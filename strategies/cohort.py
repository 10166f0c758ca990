"""The replies of a round side by side, a block of the vector at a time.

The replies stay on their shelf: of each only the block at hand is in memory. The coordinates in
which Gaussians are compared see both of their parts. With (m_o, s_o) the server's posterior and s
the median of the clients' precisions, they are sqrt(s) (m_k - m_o) and log(s_k / s) / sqrt(2): the
squared distance of two Gaussians is then twice their divergence KL, to second order. Of points they
are the changes m_k - m_o.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedivon_app.core.dense import Dense
from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.base import Reply

_BYTES = 1 << 24  # of one array of a block: all replies, float64


@dataclass(frozen=True, eq=False)
class Block:
    """A block of all replies, a row each: means, and precisions where there are any.

    `part` is where it lies in the vector, and `server` are the means that the clients were sent.
    """

    part: slice
    server: np.ndarray
    means: np.ndarray
    precisions: np.ndarray | None

    @property
    def changes(self) -> np.ndarray:
        """Return m_k - m_o."""
        moved: np.ndarray = self.means - self.server
        return moved


def blocks(replies: Sequence[Reply], sent: Posterior) -> Iterator[Block]:
    """Yield all replies of a round, block by block."""
    width = max(1, _BYTES // (8 * len(replies)))
    for start in range(0, len(sent), width):
        part = slice(start, min(start + width, len(sent)))
        means = np.empty((len(replies), part.stop - part.start))
        precisions = None if sent.precision is None else np.empty_like(means)
        for row, reply in enumerate(replies):
            posterior = reply.posterior
            means[row] = posterior.mean[part]
            if precisions is not None:
                precisions[row] = diagonal(posterior)[part]
        server = sent.mean[part].astype(np.float64)
        yield Block(part=part, server=server, means=means, precisions=precisions)


def diagonal(posterior: Posterior) -> np.ndarray:
    """Return the precision of each weight; of a matrix, its diagonal."""
    precision = posterior.known_precision
    return precision.diagonal() if isinstance(posterior, Dense) else precision


def coordinates(block: Block) -> np.ndarray:
    """Return a block of the replies in the coordinates in which they are compared."""
    if block.precisions is None:
        return block.changes
    typical = np.median(block.precisions, axis=0)
    moved = block.changes * np.sqrt(typical)
    scaled = np.log(block.precisions / typical) / np.sqrt(2)
    return np.hstack([moved, scaled])
