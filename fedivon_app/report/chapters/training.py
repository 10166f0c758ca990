"""The chapter on training: the loss and the range of the posterior's precision, by round."""

from __future__ import annotations

from fedivon_app.report import html, plots
from fedivon_app.report.html import Chapter
from fedivon_app.report.tracks import line_by_round
from fedivon_app.report.view import PageView, Predictor, bands_note, keys_of

TRACKS = {  # the places in a round's record, and what is there
    ("train_loss",): "Training loss",
    ("posterior", "largest_precision"): "Largest precision",
    ("posterior", "smallest_precision"): "Smallest precision",
}
LOSS = "Mean loss of the round's clients, by data size"
EXTREMES = "extremes of the global posterior's precision over all weights, on logarithmic axes"


def chapter(view: PageView) -> Chapter | None:
    """Draw the training loss, and the largest and the smallest precision where there are any."""
    drawn = []
    longest: list[Predictor] = []
    for path, title in TRACKS.items():
        predictors = _tracked(view, path)
        if predictors:
            figure = plots.curves(
                title=title,
                x="round",
                y="",
                lines=[
                    line_by_round(one, [run.track(*path) for run in one.results])
                    for one in predictors
                ],
                log=len(path) > 1,
            )
            drawn.append(
                view.pictures(
                    name=path[-1].replace("_", "-"),
                    figure=figure,
                    title=f"{title} by round",
                    legend=keys_of(predictors),
                )
            )
            longest = max(longest, predictors, key=len)
    if not drawn:
        return None
    several = len(drawn) > 1
    said = [LOSS] if _tracked(view, ("train_loss",)) else []  # private clients do not tell it
    note = "; ".join([*said, EXTREMES] if several else said)
    note = f"{note[0].upper()}{note[1:]}."
    legend = html.legend(keys_of(longest))
    body = html.paragraph(f"{note} {bands_note(longest)}") + legend + html.grid(drawn)
    return Chapter("training", "Training and posterior" if several else "Training", body)


def _tracked(view: PageView, path: tuple[str, ...]) -> list[Predictor]:
    """Return a line a group; training knows no ways of predicting."""
    return view.predictors(lambda results, way: len(results.track(*path)) if way == "mean" else 0)
