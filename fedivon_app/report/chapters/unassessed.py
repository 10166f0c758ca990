"""The chapter that stands in place of those on uncertainty where no run's was assessed."""

from __future__ import annotations

from fedivon_app.report import html
from fedivon_app.report.html import Chapter
from fedivon_app.report.view import PageView

AT_SITES = "The server of this run has no test data, on which uncertainty would be measured."
LATER = (
    "Uncertainty is measured when a run ends. `fedivon uncertainty RUN` measures it at any time, "
    "from the last checkpoint."
)
MISSING = (
    "No uncertainty.json is there; `fedivon uncertainty RUN` writes it, for a run that kept a "
    "checkpoint."
)


def chapter(view: PageView) -> Chapter | None:
    """Say how to get the chapters on uncertainty; None where they are there."""
    if view.assessed:
        return None
    runs = view.results
    if runs and all(run.settings.data.source == "nodes" for run in runs):
        why = AT_SITES
    else:
        why = MISSING if any(run.summary for run in runs) else LATER
    return Chapter("uncertainty", "Uncertainty", html.paragraph(why))
