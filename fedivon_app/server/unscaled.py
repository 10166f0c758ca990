"""Whether inputs are of a scale that a network can learn from: what a run that diverged is told."""

from __future__ import annotations

import numpy as np

APART = 100.0  # a factor between the scales of two features that counts
LARGE = 100.0  # and a scale: a network's first weights expect numbers of about 1
LOOKED_AT = 10_000  # examples at most

REMEDY = (
    "floats reach the network as they are: with data.standardise=true, the features of a table are "
    "standardised by their mean and deviation over all clients (data.scaling is for pictures of "
    "bytes)"
)


def unscaled(x: np.ndarray, scaling: str) -> str:
    """Return what is wrong with the scale of inputs, and what to do; nothing where it is well.

    The scale of a feature is the root of its mean square, sqrt(mean x^2). Features of a table are
    compared with each other; those of a picture are alike, and only their common scale counts.
    """
    if x.dtype == np.uint8:
        far = scaling == "raw"
        return "pixels reach the network as 0 to 255: try data.scaling=unit" if far else ""
    if not len(x):
        return ""
    features = x[:LOOKED_AT].reshape(len(x[:LOOKED_AT]), -1).astype(np.float64)
    scales = np.sqrt((features**2).mean(axis=0))
    if x.ndim > 2:
        scales = np.sqrt((scales**2).mean(keepdims=True))
    known = scales[scales > 0]
    if not len(known):
        return ""
    low = known.min()
    high = known.max()
    if high / low > APART:
        ends = f"from {low:.2g} to {high:.2g}"
        return f"features differ by a factor of {high / low:.2g} in scale ({ends}); {REMEDY}"
    return f"inputs have a scale of {high:.2g}, not of about 1; {REMEDY}" if high > LARGE else ""
