"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from fedivon_app.core.client_scores import PLACES
from fedivon_app.federation.sites import Site
from fedivon_app.runs.catalogue import PARTS as SCORED
from fedivon_app.runs.catalogue import Found, last_scores
from fedivon_app.runs.plan import Plan, Step, duration

MEASURES = {"accuracy": "accuracy %", "nll": "NLL", "ece": "ECE", "brier": "Brier"}
WAYS = ("mean", "mc")
PARTS = {"test": "", **dict.fromkeys(PLACES.values(), ", clients' test parts")}
ENDED = ("completed", "stopped")
KINDS = ("entropy", "aleatoric", "epistemic")


def layout(rows: Sequence[Sequence[str]], words: int) -> str:
    """Rows under a heading, the first: `words` columns to the left, then numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(w) if i < words else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * (sum(widths) + 2 * len(widths) - 2), *lines[1:]])


def table(summaries: Iterable[dict[str, Any]]) -> str:
    """A line for every run and way of predicting: at the mean, by Monte Carlo, and both at the best held-out round."""
    rows = [("experiment", "strategy", "seed", "round", "model", *MEASURES.values())]
    for summary in summaries:
        ends = [(summary["rounds"], summary["final"], "")]
        if summary["best"] and summary["best"]["round"] != summary["rounds"]:
            ends.append((summary["best"]["round"], summary["best"]["gm"], ", best held-out"))
        ends = [(*end, "GM") for end in ends] + [
            (summary["rounds"], summary.get("personal"), "", "PM")
        ]
        for server_round, scores, note, whose in ends:
            who = (
                summary["experiment"],
                summary["strategy"],
                str(summary["seed"]),
                str(server_round),
            )
            for part, where in PARTS.items():
                for way, values in (scores or {}).get(part, {}).items():
                    if way in WAYS:
                        rows.append(
                            (*who, f"{_way(way, values, whose)}{where}{note}", *_cells(values))
                        )
    return layout(rows, words=5)


def sweep_table(results: Iterable[tuple[Plan, Found]]) -> str:
    """A line for every combination of values and way of predicting; mean and standard deviation over the seeds."""
    results = list(results)
    keys = list(dict.fromkeys(key for plan, _ in results for key in plan.values if key != "seed"))
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for plan, found in results:
        part = next((found.scores[part] for part in SCORED if (found.scores or {}).get(part)), {})
        groups.setdefault(tuple(plan.values.get(key, "-") for key in keys), []).append(part)
    rows = [(*keys, "seeds", "model", *MEASURES.values())]
    for values, runs in groups.items():
        for way in WAYS:
            if scores := [run[way] for run in runs if way in run]:
                rows.append((*values, str(len(scores)), _way(way, scores[0]), *_spread(scores)))
    return layout(rows, words=len(keys) + 2) if len(rows) > 1 else ""


def sweep_lines(steps: Iterable[Step]) -> list[str]:
    """What a sweep has to show at its end: the table of the runs that ended well, and a line for each other one."""
    good = [(step.plan, step.found) for step in steps if step.found and step.found.status in ENDED]
    lines = ["", sweep_table(good), ""] if good else []
    for step in steps:
        status = step.found.status if step.found else "not run"
        if status not in ENDED:
            detail = (
                f": {step.found.detail.splitlines()[0]}" if step.found and step.found.detail else ""
            )
            lines.append(f"{step.plan.label} {status}{detail}".strip())
    return lines


def list_table(there: Iterable[Found]) -> str:
    """A line for every run: how far it is, and its last scores."""
    rows = [("folder", "strategy", "status", "rounds", *list(MEASURES.values())[:3], "time")]
    reasons = []
    for found in there:
        scores = last_scores(found.scores)
        cells = _cells(scores)[:3] if scores else ["-"] * 3
        strategy, of = (
            (found.run.settings.strategy, found.run.settings.rounds) if found.run else ("-", "-")
        )
        rounds = f"{found.rounds}/{of}" if found.run else "-"
        time = duration(found.seconds) if found.run else "-"
        rows.append((str(found.folder), strategy, found.status, rounds, *cells, time))
        if found.detail:
            reasons.append(f"{found.folder} {found.status}: {found.detail.splitlines()[0]}")
    return "\n".join([layout(rows, words=3), *([""] if reasons else []), *reasons])


def uncertainty_table(result: Mapping[str, Any]) -> str:
    """The scores of each way of predicting, and how well each kind of uncertainty tells data from others (AUROC)."""
    ways = {way: values for way in WAYS if (values := result["ways"].get(way))}
    told = any("ood" in values for values in ways.values())
    rows = [("model", *MEASURES.values(), *((f"AUROC {kind}" for kind in KINDS) if told else ()))]
    for way, values in ways.items():
        aurocs = values.get("ood", {}).get("auroc", {})
        cells = (
            [f"{aurocs[kind]:.4f}" if aurocs.get(kind) is not None else "-" for kind in KINDS]
            if told
            else []
        )
        rows.append((_way(way, values), *_cells(values["scores"]), *cells))
    return layout(rows, words=1)


def prediction_table(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """A line for every picture: what it shows, unless the model abstains, and how sure that is."""
    shown = [["file", "class", "probability", "entropy", "epistemic"]]
    for name, said in rows:
        numbers = [f"{said[key]:.4f}" for key in shown[0][2:]]
        shown.append([name, "abstains" if said["abstained"] else str(said["class"]), *numbers])
    return layout(shown, words=2)


def personal_table(scores: Mapping[str, Mapping[str, Mapping[str, float]]], samples: int) -> str:
    """A newcomer's PM beside the GM that it came from, on the same test examples."""
    rows = [("model", *MEASURES.values())]
    for whose, ways in scores.items():
        rows += [
            (_way(way, {"samples": samples}, whose.upper()), *_cells(values))
            for way, values in ways.items()
        ]
    return layout(rows, words=1)


def clients_table(scored: Mapping[str, Mapping[str, Any]]) -> str:
    """Every client's accuracy at the mean by GM and PM, and what they come to together."""
    models = {whose.upper(): next(iter(places.values())) for whose, places in scored.items()}
    by_client = {
        whose: {c["partition"]: c for c in part["by_client"]} for whose, part in models.items()
    }
    rows = [("client", "examples", *(f"{whose} accuracy %" for whose in models))]
    for partition in sorted(set().union(*by_client.values())):
        held = [clients.get(partition) for clients in by_client.values()]
        size = next(c["num_train"] for c in held if c)
        rows.append(
            (str(partition), str(size), *(f"{100 * c['accuracy']:.2f}" if c else "-" for c in held))
        )
    for name, words in (
        ("mean", "mean"),
        ("weighted", "by size"),
        ("std", "spread"),
        ("worst_decile", "worst tenth"),
    ):
        values = [part["over_clients"]["mean"][name] for part in models.values()]
        rows.append((words, "", *(f"{100 * value:.2f}" for value in values)))
    return layout(rows, words=1)


def sites_table(sites: Iterable[Site]) -> str:
    """A line for every site: its name, its node's number, and since when it is there or not."""
    rows = [("site", "node", "status", "since")]
    rows += [
        (site.name, str(site.node), site.status, site.since[:19].replace("T", " "))
        for site in sites
    ]
    return (
        layout(rows, words=4)
        if len(rows) > 1
        else "no sites: `fedivon sites --admit NAME` admits one"
    )


def _way(way: str, values: Mapping[str, Any], whose: str = "GM") -> str:
    return f"{whose} at the mean" if way == "mean" else f"{whose}, {values['samples']} samples"


def _cells(values: Mapping[str, float]) -> list[str]:
    return [
        f"{100 * values['accuracy']:.2f}",
        *(f"{values[key]:.4f}" for key in list(MEASURES)[1:]),
    ]


def _spread(scores: Sequence[Mapping[str, float]]) -> list[str]:
    if len(scores) == 1:
        return _cells(scores[0])
    columns = {key: [run[key] for run in scores] for key in MEASURES}
    columns["accuracy"] = [100 * value for value in columns["accuracy"]]
    digits = {key: 2 if key == "accuracy" else 3 for key in columns}
    return [f"{mean(c):.{digits[k]}f} ± {stdev(c):.{digits[k]}f}" for k, c in columns.items()]
