"""One line an event on stdout, marked so that it can be told from Flower's own."""

import logging
import sys

MARK = "fedivon | "


def to_stdout() -> logging.Logger:
    log = logging.getLogger("fedivon")
    log.setLevel(logging.INFO)
    log.propagate = False
    if not log.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter(f"{MARK}%(message)s"))
        log.addHandler(handler)
    return log
