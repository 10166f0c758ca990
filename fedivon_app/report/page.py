"""The sections of a page. A run's page has a line for each way of predicting, a comparison's one for each group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedivon_app.report import html, page_crossing, page_personal, plots
from fedivon_app.report.grouping import Group, Outcome
from fedivon_app.report.html import NOTHING, Cell, Section, number

WAYS = {"mc": "Monte Carlo", "mean": "at the mean"}
PARTS = {
    "test": "central test set",
    "clients_before_training": "clients' test parts",
    "holdout": "held-out examples",
}
MEASURES = {"accuracy": "Accuracy %", "nll": "NLL", "ece": "ECE", "brier": "Brier"}
UNCERTAINTIES = {"entropy": "Entropy", "aleatoric": "Aleatoric part", "epistemic": "Epistemic part"}
TRACKS = {
    ("train_loss",): "Training loss",
    ("posterior", "largest_precision"): "Largest precision",
    ("posterior", "smallest_precision"): "Smallest precision",
}


@dataclass(frozen=True, eq=False)
class Series:
    """What one line of a figure stands for: runs that differ in the seed alone, predicting in one way."""

    label: str
    style: int
    way: str
    outcomes: list[Outcome]


def sections(groups: Sequence[Group], named_by: str, pictures: plots.Pictures) -> list[Section]:
    """Scores and figures; a section for which the runs have nothing is left out, or says why it is empty."""
    assessed = _series(groups, lambda outcome, way: bool(_assessed(outcome, way)))
    found = [_scores(groups, named_by), _learning(groups, pictures)]
    if assessed:
        found += [_calibration(groups, assessed, pictures), _retention(assessed, pictures)]
        found += [_detection(groups, assessed, pictures)]
    else:
        why = "No uncertainty.json is there; fedivon uncertainty RUN writes it, for a run that kept a checkpoint."
        found.append(Section("uncertainty", "Uncertainty", html.paragraph(why)))
    found += [page_crossing.by_setting(groups, pictures), page_personal.personal(groups, pictures)]
    found += [_clients(groups, pictures), _training(groups, pictures)]
    return [section for section in found if section]


def _series(groups: Sequence[Group], count: Callable[[Outcome, str], int]) -> list[Series]:
    """Of one group, every way of predicting that has something; of several, the one that has most, samples first."""
    if len(groups) == 1:
        ways = [way for way in WAYS if any(count(o, way) for o in groups[0].outcomes)]
        chosen = [(WAYS[way], place, way, groups[0]) for place, way in enumerate(ways)]
    else:
        ways = [
            max(WAYS, key=lambda way, g=g: sum(count(o, way) for o in g.outcomes)) for g in groups
        ]
        chosen = [
            (group.label, group.style, way, group) for group, way in zip(groups, ways, strict=True)
        ]
    series = [
        Series(label, style, way, [o for o in g.outcomes if count(o, way)])
        for label, style, way, g in chosen
    ]
    return [one for one in series if one.outcomes]


def _alone(groups: Sequence[Group]) -> bool:
    return len(groups) == 1 and len(groups[0].outcomes + groups[0].left_out) == 1


def _scores(groups: Sequence[Group], named_by: str) -> Section:
    """The last scores of every group and way; of one run those at the best held-out round too."""
    alone = _alone(groups)
    several = any(len(group.outcomes) > 1 for group in groups)
    note = " ".join(
        [
            *([named_by] if named_by else []),
            *(["Mean ± standard deviation over seeds."] if several else []),
        ]
    )
    body = html.paragraph(note) if note else ""
    parts = [
        p
        for p in PARTS
        if any(o.scores(p, way) for g in groups for o in g.outcomes for way in WAYS)
    ]
    if not parts:
        return Section("scores", "Scores", body + html.paragraph("No round was scored."))
    heads = [
        "Scored on" if alone else "Group",
        "Prediction",
        *MEASURES.values(),
        *([] if alone else ["Runs"]),
        "Round",
    ]
    found = {
        part: [(group, row) for group in groups for row in _score_rows(group, part, alone)]
        for part in parts
    }
    for rows in found.values():
        alike = [(group.settings.data.source, group.settings.data.path) for group, _ in rows]
        for column, measure in enumerate(MEASURES, 2):
            html.mark_best([row for _, row in rows], column, measure == "accuracy", alike)
    if alone:
        body += html.table(heads, [row for rows in found.values() for _, row in rows], 2)
    for part, rows in found.items() if not alone else ():
        body += f"<h3>On the {PARTS[part]}</h3>" + html.table(heads, [row for _, row in rows], 2)
    return Section("scores", "Scores", body)


def _score_rows(group: Group, part: str, alone: bool) -> list[list[Cell]]:
    rows = []
    for way in reversed(WAYS):
        lasts = [
            list(o.scores(part, way).items())[-1] for o in group.outcomes if o.scores(part, way)
        ]
        ends = [(lasts, "")] if lasts else []
        best = (group.outcomes[0].summary.get("best") or {}) if alone else {}
        scores = ((best.get("gm") or {}).get(part) or {}).get(way)
        if scores and best["round"] not in [server_round for server_round, _ in lasts]:
            ends.append(([(best["round"], scores)], ", best held-out round"))
        for found, note in ends:
            samples = sorted({scores["samples"] for _, scores in found if scores.get("samples")})
            how = f"MC, {'/'.join(map(str, samples))} samples" if samples else WAYS[way]
            at = Cell(", ".join(map(str, sorted({r for r, _ in found}))), float(found[0][0]))
            who = Cell(PARTS[part] if alone else group.label), Cell(how + note)
            cells = [
                html.score([number(s.get(m)) for _, s in found], m == "accuracy") for m in MEASURES
            ]
            rows.append(
                [*who, *cells, *([] if alone else [Cell(str(len(found)), float(len(found)))]), at]
            )
    if not rows and not alone:
        why = "no scores" if group.outcomes else group.left_out[0].status
        rows.append(
            [
                Cell(group.label),
                Cell(why),
                *[Cell(NOTHING)] * len(MEASURES),
                Cell("0", 0.0),
                Cell(NOTHING),
            ]
        )
    return rows


def _learning(groups: Sequence[Group], pictures: plots.Pictures) -> Section | None:
    """Accuracy, NLL and ECE, against rounds and against bytes."""
    lines = []
    part = ""
    for part in PARTS:
        lines = _series(groups, lambda outcome, way, part=part: len(outcome.scores(part, way)))
        if lines:
            break
    if not lines:
        return None
    unit, factor = html.unit(max(outcome.sent for one in lines for outcome in one.outcomes))
    sides = []
    for side, axis, scale in (
        ("rounds", "round", None),
        ("bytes", f"{unit} sent, both directions", factor),
    ):
        drawn = []
        for measure, title in list(MEASURES.items())[:3]:
            tracks = [[_measured(o, part, one.way, measure) for o in one.outcomes] for one in lines]
            curves = [_line(one, values, scale) for one, values in zip(lines, tracks, strict=True)]
            figure = plots.curves(title, axis, "", curves)
            drawn.append(
                pictures(f"{measure}-{side}", figure, f"{title} against {side}", _keys(lines))
            )
        sides.append((f"by {side}", html.grid(drawn)))
    note = html.paragraph(f"Scores on the {PARTS[part]}. {_ways(lines, groups)}{_bands(lines)}")
    return Section(
        "curves", "Learning curves", note + html.legend(_keys(lines)) + html.switch("axis", sides)
    )


def _calibration(
    groups: Sequence[Group], lines: list[Series], pictures: plots.Pictures
) -> Section | None:
    bins = [(one, pooled) for one in lines if (pooled := _pooled(one))]
    if not bins:
        return None
    keys = _keys([one for one, _ in bins])
    right = [
        plots.Line(one.label, one.style, confidence, accuracy)
        for one, (_, confidence, accuracy, _) in bins
    ]
    often = [
        plots.Line(one.label, one.style, centres, 100 * share)
        for one, (centres, _, _, share) in bins
    ]
    reliability = plots.curves("Reliability", "confidence", "accuracy", right, diagonal=True)
    confidence = plots.curves("How sure it is", "confidence", "% of the examples", often)
    drawn = [pictures("reliability", reliability, "Reliability: accuracy against confidence", keys)]
    drawn += [pictures("confidence", confidence, "Share of the examples by confidence", keys)]
    texts = {_assessment(outcome) for one in lines for outcome in one.outcomes}
    lacking = [
        g.label for g in groups if not any(_assessed(o, way) for o in g.outcomes for way in WAYS)
    ]
    note = "On the diagonal a model is right as often as it says; below it, it is too sure. "
    note += f"{'; '.join(sorted(texts))}. {_ways(lines, groups)}"
    note += f"Not assessed: {'; '.join(lacking)}." if lacking else ""
    return Section(
        "calibration", "Calibration", html.paragraph(note) + html.legend(keys) + html.grid(drawn)
    )


def _retention(lines: list[Series], pictures: plots.Pictures) -> Section | None:
    drawn = []
    for kind, word in UNCERTAINTIES.items():
        curves = [curve for one in lines if (curve := _retained(one, kind))]
        if curves:
            figure = plots.curves(
                f"By {word.lower()}", "% of the examples kept", "accuracy %", curves
            )
            title = f"Accuracy of the most certain examples, by {word.lower()}"
            drawn.append(pictures(f"retention-{kind}", figure, title, _keys(lines)))
    note = "Accuracy on the most certain part of the test set: the steeper it rises to the left, the better the "
    note += f"uncertainty tells which predictions are wrong. {_bands(lines)}"
    body = html.paragraph(note) + html.legend(_keys(lines)) + html.grid(drawn)
    return Section("retention", "Retention", body) if drawn else None


def _detection(
    groups: Sequence[Group], lines: list[Series], pictures: plots.Pictures
) -> Section | None:
    """Histograms of the uncertainties, in against out of distribution, and how well they tell the two apart."""
    drawn = []
    for kind, word in UNCERTAINTIES.items():
        if rows := [shares for one in lines if (shares := _shares(one, kind))]:
            drawn.append(
                pictures(
                    f"histogram-{kind}",
                    plots.ridges(word, word.lower(), rows),
                    f"{word}, histogram",
                )
            )
    tests = []
    for group, way in ((group, way) for group in groups for way in reversed(WAYS)):
        if found := [ood for o in group.outcomes if (ood := _assessed(o, way).get("ood"))]:
            against = ", ".join(
                sorted({f"{ood['source']}, {ood['num_in']} / {ood['num_out']}" for ood in found})
            )
            areas = [
                html.score([number((ood.get("auroc") or {}).get(k)) for ood in found])
                for k in UNCERTAINTIES
            ]
            tests.append((group, [*map(Cell, (group.label, WAYS[way], against)), *areas]))
    if not drawn and not tests:
        return None
    note = "Filled: the test set. " + (
        "Dashed: the other data set, which it should find less certain. " if tests else ""
    )
    note += (
        "Each is drawn to its own height."
        if tests
        else "No other data set was given to compare it with."
    )
    body = html.paragraph(note) + html.grid(drawn)
    if tests:
        alike = [(group.settings.data.source, row[2].text) for group, row in tests]
        for column in range(3, 3 + len(UNCERTAINTIES)):
            html.mark_best([row for _, row in tests], column, True, alike)
        heads = [
            "Group",
            "Prediction",
            "Against, in / out",
            *(f"AUROC, {word}" for word in UNCERTAINTIES),
        ]
        first = 1 if _alone(groups) else 0
        body += "<h3>Out-of-distribution detection</h3>"
        body += html.paragraph(
            "Area under the ROC curve of telling the two apart by the uncertainty; 0.5 is chance."
        )
        body += html.table(heads[first:], [row[first:] for _, row in tests], 3 - first)
    return Section("ood", "Uncertainty in and out of distribution", body)


def _clients(groups: Sequence[Group], pictures: plots.Pictures) -> Section | None:
    """Accuracy of the global model by client, merge weight and training loss, where the metrics have them."""
    drawn = []
    notes = []
    for kind, (title, axis, values_of, level) in CLIENTS.items():
        found = [(g, [v for o in g.outcomes for v in values_of(o)[0].values()]) for g in groups]
        if _alone(groups) and found[0][1]:
            figure = plots.dots(title, axis, *values_of(groups[0].outcomes[0]), level)
        elif rows := [(group.label, group.style, values) for group, values in found if values]:
            figure = plots.boxes(title, axis, rows)
        else:
            continue
        drawn.append(pictures(f"clients-{kind}", figure, title))
        notes.append(CLIENT_NOTES[kind])
    notes += (
        []
        if _alone(groups)
        else ["Boxes: median, quartiles and extremes of the clients, all seeds together."]
    )
    return (
        Section("clients", "Clients", html.paragraph(" ".join(notes)) + html.grid(drawn))
        if drawn
        else None
    )


def _accuracies(outcome: Outcome) -> tuple[dict[int, float], float]:
    scored = outcome.last_clients("gm")
    values = {
        c["partition"]: 100 * number(c.get("accuracy")) for c in scored.get("by_client") or ()
    }
    return _finite(values), 100 * number((scored.get("mean") or {}).get("accuracy"))


def _merged(name: str, outcome: Outcome) -> tuple[dict[int, float], float]:
    """What is noted of clients when they are merged, such as `weight`, over the rounds; equal parts as the level."""
    given: dict[int, list[float]] = {}
    merges = [
        [(c["partition"], c[name]) for c in r.get("clients") or () if name in c]
        for r in outcome.rounds
    ]
    for partition, weight in (pair for merge in merges for pair in merge):
        given.setdefault(partition, []).append(number(weight))
    equal = [1 / len(merge) for merge in merges if merge]
    return _finite({p: float(np.mean(given[p])) for p in sorted(given)}), float(
        np.mean(equal)
    ) if equal else np.nan


def _losses(outcome: Outcome) -> tuple[dict[int, float], float]:
    clients = [client for record in outcome.rounds for client in record.get("clients") or ()]
    last = _finite({client["partition"]: number(client.get("loss")) for client in clients})
    return last, float(np.mean(list(last.values()))) if last else np.nan


def _finite(values: dict[int, float]) -> dict[int, float]:
    return {key: value for key, value in values.items() if np.isfinite(value)}


CLIENTS = {  # title, axis, values, the level that they are seen against
    "accuracy": ("Accuracy by client", "accuracy %", _accuracies, "all clients together"),
    "weight": (
        "Merge weight by client",
        "mean weight",
        partial(_merged, "weight"),
        "equal weights",
    ),
    "share": (
        "Precision by client",
        "mean share",
        partial(_merged, "precision_share"),
        "equal shares",
    ),
    "loss": ("Training loss by client", "last loss", _losses, "mean"),
}
CLIENT_NOTES = {
    "accuracy": "Accuracy: the global model's on each client's own test part, before the client trains.",
    "weight": "Merge weight: mean over the rounds that the client took part in.",
    "share": "Precision: the client's share of the merged precision, likewise, after the guard against large claims.",
    "loss": "Training loss: in the last round that the client took part in.",
}


def _training(groups: Sequence[Group], pictures: plots.Pictures) -> Section | None:
    """Training loss, and the range of the posterior's precision, by round."""
    drawn = []
    longest = []
    for path, title in TRACKS.items():
        lines = _series(
            groups, lambda o, way, path=path: len(o.track(*path)) if way == "mean" else 0
        )
        if lines:
            curves = [_line(one, [o.track(*path) for o in one.outcomes]) for one in lines]
            figure = plots.curves(title, "round", "", curves, log=len(path) > 1)
            drawn.append(
                pictures(path[-1].replace("_", "-"), figure, f"{title} by round", _keys(lines))
            )
            longest = max(longest, lines, key=len)
    note = "Mean loss of the round's clients, by data size"
    note += (
        "; extremes of the global posterior's precision over all weights, on logarithmic axes."
        if drawn[1:]
        else "."
    )
    body = (
        html.paragraph(f"{note} {_bands(longest)}") + html.legend(_keys(longest)) + html.grid(drawn)
    )
    return (
        Section("training", "Training and posterior" if drawn[1:] else "Training", body)
        if drawn
        else None
    )


def _line(series: Series, tracks: list[dict[int, float]], scale: float | None = None) -> plots.Line:
    """Mean and standard deviation over runs, at the rounds that all have; with `scale`, against bytes in its units."""
    rounds = sorted(set.intersection(*map(set, tracks)))
    x = np.array(rounds, float)
    if scale:
        x = (
            np.mean([[outcome.bytes[r] for r in rounds] for outcome in series.outcomes], axis=0)
            / scale
        )
    return plots.Line.mean(
        series.label, series.style, x, [[track[r] for r in rounds] for track in tracks]
    )


def _measured(outcome: Outcome, part: str, way: str, measure: str) -> dict[int, float]:
    factor = 100 if measure == "accuracy" else 1
    return {
        r: factor * number(scores.get(measure)) for r, scores in outcome.scores(part, way).items()
    }


def _assessed(outcome: Outcome, way: str) -> dict[str, Any]:
    return (outcome.uncertainty.get("ways") or {}).get(way) or {}


def _assessment(outcome: Outcome) -> str:
    number_of = outcome.uncertainty.get("num_examples")
    checkpoint = outcome.uncertainty.get("checkpoint")
    return f"Round {outcome.uncertainty.get('round')} ({checkpoint} checkpoint), {number_of} test examples"


def _pooled(series: Series) -> tuple[np.ndarray, ...] | None:
    """Bin centres, confidence, accuracy and share of the calibration bins, of all runs' examples together."""
    found = [bins for o in series.outcomes if (bins := _assessed(o, series.way).get("reliability"))]
    if not found:
        return None
    counts, *means = (
        [[number(v) for v in b[key]] for b in found] for key in ("count", "confidence", "accuracy")
    )
    total = np.sum(counts, axis=0)
    with np.errstate(invalid="ignore"):  # an empty bin has neither confidence nor accuracy
        pooled = [
            np.sum(np.multiply(counts, np.nan_to_num(mean)), axis=0) / total for mean in means
        ]
        return (np.arange(len(total)) + 0.5) / len(total), *pooled, total / total.sum()


def _retained(series: Series, kind: str) -> plots.Line | None:
    found = [
        curve
        for o in series.outcomes
        if (curve := _assessed(o, series.way).get("retention")) and kind in curve
    ]
    found = [curve for curve in found if curve["fractions"] == found[0]["fractions"]]
    if not found:
        return None
    x = 100 * np.array(found[0]["fractions"])
    values = [[100 * number(v) for v in curve[kind]] for curve in found]
    return plots.Line.mean(series.label, series.style, x, values)


def _shares(series: Series, kind: str) -> plots.Shares | None:
    found = [
        h
        for o in series.outcomes
        if (h := (_assessed(o, series.way).get("histograms") or {}).get(kind))
    ]
    return plots.Shares.mean(series.label, series.style, found) if found else None


def _keys(lines: Sequence[Series]) -> list[tuple[str, int]]:
    return [(one.label, one.style) for one in lines]


def _ways(lines: Sequence[Series], groups: Sequence[Group]) -> str:
    """Which way of predicting the lines of several groups are of."""
    if len(groups) == 1:
        return ""
    means = [one.label for one in lines if one.way == "mean"]
    if len(means) == len(lines):
        return "Predictions at the mean. "
    return f"Predictions by Monte Carlo{'; at the mean: ' if means else ''}{'; '.join(means)}. "


def _bands(lines: Sequence[Series]) -> str:
    return (
        "Bands: one standard deviation over seeds."
        if any(len(one.outcomes) > 1 for one in lines)
        else ""
    )
