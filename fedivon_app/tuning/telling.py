"""What a search says while it goes on, in which no test score is."""

from __future__ import annotations

import re

from fedivon_app.progress import Line, RunLines

TEST_SCORES = re.compile(r"  (mean|mc): (acc|rmse) \S+ nll \S+ (ece|crps) \S+")


class Telling:
    """Prints lines; below them, in a terminal, a line that changes with the rounds of a run.

    Where it is `verbose`, all lines of the runs are printed. Of `several` runs at a time none has a
    line of its own.
    """

    def __init__(self, line: Line, verbose: bool, several: bool = False):
        self.line = line
        self.verbose = verbose
        self._rounds = None if several or verbose else RunLines(line, brief=True)

    def say(self, line: str) -> None:
        """Print a line of the search."""
        self.line.say(line)

    def follow(self, line: str) -> None:
        """Take the next line of a run."""
        told = without_test_scores(line)
        if self.verbose:
            self.line.say(told)
        elif self._rounds is not None and self.line.live:
            self._rounds(told)


def without_test_scores(line: str) -> str:
    """Return a line of a run without the scores on the test set, which a search does not see."""
    return TEST_SCORES.sub("", line)
