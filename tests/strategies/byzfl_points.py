"""What byzfl 0.0.11 makes of a few points, as numbers to agree with.

pip install byzfl==0.0.11                      # it brings torchvision and seaborn: not for CI
python -m tests.strategies.byzfl_points write  # writes byzfl_points.json beside this file
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

NUMBERS = Path(__file__).with_name("byzfl_points.json")
LIARS = 3


def points() -> np.ndarray:
    """Eleven points in twenty dimensions, of which three are far away."""
    rng = np.random.default_rng(7)
    cloud = rng.standard_normal((11, 20))
    cloud[:LIARS] = 5 + 0.3 * cloud[:LIARS]
    return cloud


def main() -> None:
    from byzfl import (
        NNM,
        CenteredClipping,
        GeometricMedian,
        Krum,
        Median,
        MultiKrum,
        TrMean,
    )

    cloud = points()
    mixed = NNM(f=LIARS)(cloud)
    found = {
        "median": Median()(cloud),
        "trimmed-mean": TrMean(f=LIARS)(cloud),
        "krum": Krum(f=LIARS)(cloud),
        "multi-krum": MultiKrum(f=LIARS)(cloud),
        "geometric-median": GeometricMedian(nu=1e-12, T=2000)(cloud),
        "centred-clipping": CenteredClipping(L=3, tau=2.0)(cloud),
        "mixing": mixed,
        "mixing, trimmed-mean": TrMean(f=LIARS)(mixed),
        "mixing, multi-krum": MultiKrum(f=LIARS)(mixed),
    }
    text = json.dumps({name: np.asarray(value).tolist() for name, value in found.items()})
    NUMBERS.write_text(text + "\n")


if __name__ == "__main__" and sys.argv[1:] == ["write"]:
    main()
