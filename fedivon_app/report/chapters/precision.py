"""The chapter on what the precision says: its spread over the weights, and its part in merges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import nan

import numpy as np

from fedivon_app.core.curvature import QUANTILES
from fedivon_app.report import html, plots
from fedivon_app.report.html import Chapter
from fedivon_app.report.results import RunResults, number
from fedivon_app.report.spread_plot import Spread, spreads
from fedivon_app.report.tracks import line_by_round
from fedivon_app.report.view import PageView, Predictor, bands_note, keys_of

MOST = 20  # tensors that are drawn
ROWS = "Precision of the global posterior in the round scored last: median, a bar from the 1st to"
RATIO = "Spread: the 99th percentile over the 1st, of all weights."
SHIFT = (
    "Shift of the merge: how far the merged mean lies from the plain average of the clients' "
    "means, in sigmas, as a root mean square over the weights. Where all precisions are alike it "
    "is 0, and the merge is FedAvg's."
)
Track = Callable[[RunResults], dict[int, float]]


def chapter(view: PageView) -> Chapter | None:
    """Draw quantiles of the precision, its spread by round, and the shift of merges by round."""
    rows = _tensors(view.results[0]) if view.alone else _groups(view)
    if not rows:
        return None
    of = "tensor" if view.alone else "run"
    figure = spreads(f"Precision by {of}", "precision, 1/sigma²", rows)
    drawn = [view.pictures("precision-rows", figure, f"Precision by {of}")]
    notes = [f"{ROWS} the 99th percentile, and the ends.{_left_out(view)}", RATIO]
    spread_by_round = _curves(view, "precision-spread", "Spread of the precision", _ratios)
    shift_by_round = _curves(view, "merge-shift", "Shift of the merge, in sigmas", _shifts)
    if shift_by_round:
        notes.append(SHIFT)
    lines = _tracked(view, _ratios)
    text = html.paragraph(" ".join([*notes, bands_note(lines)]))
    legend = "" if view.alone else html.legend(keys_of(lines))
    body = text + legend + html.grid([*drawn, *spread_by_round, *shift_by_round])
    return Chapter("precision", "What the precision says", body)


def _quantiles(results: RunResults) -> Mapping[str, Mapping[str, float]]:
    """Return the quantiles by tensor in the round scored last; nothing where there are none."""
    found = (record.get("precision") for record in reversed(results.rounds))
    return next((quantiles for quantiles in found if quantiles), {})


def _tensors(results: RunResults) -> list[Spread]:
    found = _quantiles(results)
    names = [name for name in found if name != "all"]
    if len(names) > MOST:
        widest = sorted(names, key=lambda name: -_ratio(found[name]))[:MOST]
        names = [name for name in names if name in widest]
    shown = (["all"] if "all" in found else []) + names
    return [
        Spread("all weights" if name == "all" else name, style=0, quantiles=found[name])
        for name in shown
    ]


def _left_out(view: PageView) -> str:
    count = len(_quantiles(view.results[0])) - 1 if view.alone else 0
    return f" Of {count} tensors the {MOST} with the widest bars." if count > MOST else ""


def _groups(view: PageView) -> list[Spread]:
    """Return a row a group: geometric means of the quantiles over its runs."""
    rows = []
    for group in view.groups:
        found = [_quantiles(run)["all"] for run in group.results if _quantiles(run)]
        if found:
            means = {
                name: float(np.exp(np.mean([np.log(one[name]) for one in found])))
                for name in QUANTILES
            }
            rows.append(Spread(group.label, style=group.style, quantiles=means))
    return rows


def _curves(view: PageView, name: str, title: str, track: Track) -> list[str]:
    """Return the picture of a number by round, a line a group; none where no run has it."""
    predictors = _tracked(view, track)
    if not predictors:
        return []
    lines = [line_by_round(one, [track(run) for run in one.results]) for one in predictors]
    figure = plots.curves(title=title, x="round", y="", lines=lines, log=True)
    picture = view.pictures(
        name=name, figure=figure, title=f"{title} by round", legend=keys_of(predictors)
    )
    return [picture]


def _tracked(view: PageView, track: Track) -> list[Predictor]:
    return view.predictors(lambda results, way: len(track(results)) if way == "mean" else 0)


def _ratios(results: RunResults) -> dict[int, float]:
    found = {
        record["round"]: _ratio((record.get("precision") or {}).get("all") or {})
        for record in results.rounds
    }
    return {at: value for at, value in found.items() if np.isfinite(value)}


def _ratio(quantiles: Mapping[str, float]) -> float:
    low = number(quantiles.get("p1"))
    return number(quantiles.get("p99")) / low if low > 0 else nan


def _shifts(results: RunResults) -> dict[int, float]:
    return results.track("merge_shift")
