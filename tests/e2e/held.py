"""A network that lets a test hold a run between two rounds.

Flower's processes import it from this folder.
"""

from pathlib import Path
from time import sleep

from torch import nn

from fedivon_app.core.models import build


def mlp(shape: tuple[int, ...], num_classes: int, runs: str, go_on: str, rounds: int) -> nn.Module:
    """Return the usual `mlp`, but not before there is a file `go_on`.

    It is only held back once a run in the folder `runs` has so many rounds behind it.
    """
    while rounds_behind(Path(runs)) >= rounds and not Path(go_on).exists():
        sleep(0.05)
    return build("mlp", shape, num_classes)


def mlp_here(shape: tuple[int, ...], num_classes: int, runs: str) -> nn.Module:
    """Return the usual `mlp`, but not while there is a file `hold` in the working directory.

    That is the node's own. Nobody is held before a run in the folder `runs` has a round behind it.
    """
    while rounds_behind(Path(runs)) and Path("hold").exists():
        sleep(0.05)
    return build("mlp", shape, num_classes, sizes=[16])


def rounds_behind(runs: Path) -> int:
    """Return how many rounds the runs in a folder have behind them."""
    return sum(file.read_text().count("\n") for file in runs.glob("*/metrics.jsonl"))
