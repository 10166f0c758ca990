"""The chapter on attacks: what a lie costs under each defence, and who was not trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedivon_app.core.settings import AnySettings
from fedivon_app.report import html
from fedivon_app.report.grouping import Group
from fedivon_app.report.heat_plot import Heat, heat_map
from fedivon_app.report.html import Cell, Chapter
from fedivon_app.report.results import RunResults, number
from fedivon_app.report.view import PageView

COLUMNS = ["Client", "Lies", "Merged", "Cut back", "Dropped", "Not chosen", "Left out since"]
RECORD = (
    "Merged: in how many rounds. Cut back: in how many the guard bounded what the client claimed. "
    "Dropped: in how many its reply was not merged at all, for a fault, for a bound or for what "
    "its history says. Not chosen: in how many the robust merge took others. Who is left out is "
    "not asked any more."
)
MAPS = "Accuracy in % and expected calibration error, when models were last scored; dark is bad."


@dataclass
class Kept:
    """What became of one client's replies."""

    merged: int = 0
    bounded: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    not_chosen: int = 0
    left_out: int = 0


def chapter(view: PageView) -> Chapter | None:
    """Show heat maps of attacks and defences, or of a lone run the record of its clients."""
    if view.alone and not view.compares:
        body = _record(view.results[0]) if view.results else ""
    else:
        body = _maps(view)
    return Chapter("attacks", "Attacks and trust", body) if body else None


def _record(results: RunResults) -> str:
    """Return the table of all clients, where anybody lied or was not trusted."""
    settings = results.settings
    liars = settings.attack.liars(settings.data.clients or 0, settings.seed)
    kept: dict[int, Kept] = {partition: Kept() for partition in liars}

    def of(partition: int) -> Kept:
        return kept.setdefault(partition, Kept())

    for record in results.rounds:
        for client in record.get("clients") or ():
            one = of(client["partition"])
            one.merged += 1
            one.bounded.update(list(client.get("bounded") or ()))
        for dropped in record.get("dropped") or ():
            of(dropped["partition"]).dropped += 1
        for partition in record.get("not_chosen") or ():
            of(partition).not_chosen += 1
        for partition in record.get("left_out") or ():
            one = of(partition)
            one.left_out = one.left_out or record["round"]
    trusted = all(
        not (one.bounded or one.dropped or one.not_chosen or one.left_out) for one in kept.values()
    )
    if trusted and not liars:
        return ""
    rows = [_row(partition, kept[partition], partition in liars) for partition in sorted(kept)]
    attack = settings.attack
    said = f"{len(liars)} clients lie: {attack.kind}. " if liars else ""
    return html.paragraph(said + RECORD) + html.table(COLUMNS, rows, 2)


def _row(partition: int, kept: Kept, lies: bool) -> list[Cell]:
    beyond = ", ".join(f"{what} {times}" for what, times in sorted(kept.bounded.items()))
    return [
        Cell(str(partition), float(partition)),
        Cell("yes" if lies else html.NOTHING),
        Cell(str(kept.merged), float(kept.merged)),
        Cell(beyond or html.NOTHING),
        Cell(str(kept.dropped), float(kept.dropped)),
        Cell(str(kept.not_chosen), float(kept.not_chosen)),
        Cell(f"round {kept.left_out}" if kept.left_out else html.NOTHING, float(kept.left_out)),
    ]


def _maps(view: PageView) -> str:
    """Return heat maps of all groups, attacks by defences; nothing where nobody attacks."""
    groups = [group for group in view.groups if group.members]
    if all(group.settings.attack.kind == "none" for group in groups):
        return ""
    columns = list(dict.fromkeys(_defence(group.settings, groups) for group in groups))
    rows = list(dict.fromkeys(_attack(group.settings) for group in groups))
    figures = []
    for name, title, digits in (("accuracy", "Accuracy %", 1), ("ece", "ECE", 3)):
        values = np.full((len(rows), len(columns)), np.nan)
        for group in groups:
            place = (
                rows.index(_attack(group.settings)),
                columns.index(_defence(group.settings, groups)),
            )
            values[place] = _last(group, name) * (100 if name == "accuracy" else 1)
        if np.isfinite(values).any():
            heat = Heat(
                title=f"{title} under attack",
                rows=rows,
                columns=columns,
                values=values,
                digits=digits,
                high_is_bad=name == "ece",
            )
            picture = view.pictures(f"attacks-{name}", heat_map(heat), heat.title)
            figures.append(picture)
    return html.paragraph(MAPS) + html.grid(figures) if figures else ""


def _last(group: Group, name: str) -> float:
    """Return the mean over seeds of a score on the test set, by Monte Carlo where there is any."""
    values = []
    for run in group.results:
        scored = run.scores("test", "mc") or run.scores("test", "mean")
        if scored:
            values.append(number(list(scored.values())[-1].get(name)))
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else float("nan")


def _attack(settings: AnySettings) -> str:
    """Return what a row is called."""
    attack = settings.attack
    if attack.kind == "none":
        return "no attack"
    who = f"{attack.share:.0%}" if not attack.clients else f"{len(attack.clients)} clients"
    strength = "" if attack.strength is None else f", {attack.strength}"
    return f"{attack.kind}{strength}, {who}"


def _defence(settings: AnySettings, groups: Sequence[Group]) -> str:
    """Return what a column is called: the strategy, where there are several, and the defence."""
    several = len({group.settings.strategy for group in groups}) > 1
    merge = settings.merge
    server = settings.server
    guards = [server.precision_bound, server.change_bound, server.size_bound]
    besides = {
        "mixing": merge.robust_mixing,
        "natural": merge.robust_space == "natural",
        "guard": any(bound is not None for bound in guards),
    }
    more = ", ".join(name for name, there in besides.items() if there)
    lines = [settings.strategy] * several + [merge.robust] + [f"with {more}"] * bool(more)
    return "\n".join(lines)
