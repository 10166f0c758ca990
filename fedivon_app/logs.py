"""One line an event.

On stdout, marked to be told from Flower's own, and in the run's folder with the time.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MARK = "fedivon | "


def to_stdout() -> logging.Logger:
    log = logging.getLogger("fedivon")
    log.setLevel(logging.INFO)
    log.propagate = False
    if not log.handlers:  # a process may serve several runs
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter(f"{MARK}%(message)s"))
        log.addHandler(handler)
    return log


@contextmanager
def also_in(path: Path) -> Iterator[None]:
    """Inside, every line is added to the file too."""
    log = logging.getLogger("fedivon")
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.close()
