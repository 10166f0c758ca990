"""What a search says while it goes on, in which no test score is."""

from __future__ import annotations

import re
import shutil
import sys

TEST_SCORES = re.compile(r"  (mean|mc): (acc|rmse) \S+ nll \S+ (ece|crps) \S+")
CLEARED = "\r\x1b[2K"  # the beginning of a terminal's line that is empty again


class Telling:
    """Prints lines; below them, in a terminal, a line that changes with the rounds of a run.

    Where it is `verbose`, all lines of the runs are printed.
    """

    def __init__(self, verbose: bool, several: bool = False):
        self.verbose = verbose
        self.live = sys.stdout.isatty() and not verbose and not several

    def say(self, line: str) -> None:
        """Print a line of the search."""
        print(f"{CLEARED if self.live else ''}{line}", flush=True)

    def follow(self, line: str) -> None:
        """Take the next line of a run."""
        told = without_test_scores(line)
        if self.verbose:
            print(told, flush=True)
        elif self.live and told.startswith("round "):
            width = shutil.get_terminal_size().columns - 1
            print(f"{CLEARED}{f'  {told}'[:width]}", end="", flush=True)


def without_test_scores(line: str) -> str:
    """Return a line of a run without the scores on the test set, which a search does not see."""
    return TEST_SCORES.sub("", line)
