"""A table with what was measured for it: numbers, verdicts, and how old they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedivon_app.tables.conditions import Place, chosen, places
from fedivon_app.tables.outcome import Outcome
from fedivon_app.tables.quantities import QUANTITIES
from fedivon_app.tables.result_file import Measured, ResultFiles, changed_since
from fedivon_app.tables.table_file import SCALES, Block, Row, ScaleName, Table
from fedivon_app.tables.verdicts import Entry, Judged, Number, Order, State, judge, orders, state_of

MOST_NAMED = 3  # of what has changed since a row was measured


@dataclass(frozen=True)
class Age:
    """When a row was measured, by which commits, with how many seeds, and what changed since."""

    dates: tuple[str, ...]
    commits: tuple[str, ...]
    seeds: int
    changed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """Return a mark for numbers that are older than the code; nothing for those that fit."""
        if not self.changed:
            return ""
        named = ", ".join(self.changed[:MOST_NAMED])
        more = len(self.changed) - MOST_NAMED
        rest = f" and {more} more" if more > 0 else ""
        return f"measured before {named}{rest} changed, not since"

    @property
    def words(self) -> str:
        """Return the day, the commit and the mark, if there is one, in a line."""
        days = " to ".join(dict.fromkeys([min(self.dates), max(self.dates)]))
        known = [commit for commit in dict.fromkeys(self.commits) if commit]
        said = ", ".join([days, *(known or ["commit unknown"])])
        again = [commit for commit in dict.fromkeys(self.checked) if commit]
        checks = f"; first rounds checked at {', '.join(again)}" if again else ""
        return said + checks + (f"; {self.note}" if self.note else "")


@dataclass(frozen=True)
class Filled:
    """A table at a scale, with the outcomes of its runs by block and row."""

    table: Table
    scale: ScaleName
    entries: Sequence[Entry]
    outcomes: Mapping[tuple[str, str], Sequence[Outcome]]
    ages: Mapping[tuple[str, str], Age]

    @cached_property
    def orders(self) -> list[Order]:
        """The order of rows in every column of every block."""
        return orders(self.entries)

    @cached_property
    def claims(self) -> list[Judged]:
        """The paper's claims, judged by our numbers."""
        return [judge(claim, self.entries) for claim in self.table.claims]

    @property
    def number_measured(self) -> int:
        """Return how many numbers there are of ours."""
        return sum(entry.ours is not None for entry in self.entries)

    @property
    def measured(self) -> bool:
        """Whether there is any number of ours."""
        return self.number_measured > 0

    @property
    def state(self) -> State:
        """Return what the table has come to."""
        if self.table.illustration or self.table.draws == "labels":
            return State.DRAWN
        state = state_of(self.entries, self.claims)
        if state is State.NOT_RUN and self.cannot:
            return State.CANNOT
        return state

    @property
    def cannot(self) -> str:
        """Return why no row can be run at any scale but the paper's, if that is so."""
        table = self.table
        for scale in ("here", "quick"):
            sizes = [table.scale(scale, block, row) for block in table.blocks for row in block.rows]
            if not all(size.cannot for size in sizes):
                return ""
        return sizes[0].cannot

    @property
    def stale(self) -> bool:
        """Whether any row is older than the code or the settings that it depends on."""
        return any(age.changed for age in self.ages.values())

    @property
    def counts(self) -> str:
        """Return in a phrase how many numbers, orders and claims agree."""
        compared = [entry.agrees for entry in self.entries if entry.agrees is not None]
        judged = [claim for claim in self.claims if claim.holds or claim.fails]
        parts = []
        if compared:
            total = sum(entry.paper is not None for entry in self.entries)
            run = f" (of {total})" if total > len(compared) else ""
            parts.append(f"{sum(compared)} of {_count(len(compared), 'number')}{run} agree")
        if self.orders:
            agreeing = sum(order.agrees for order in self.orders)
            parts.append(f"the order in {agreeing} of {_count(len(self.orders), 'column')}")
        if judged:
            holding = sum(not claim.fails for claim in judged)
            parts.append(f"{holding} of {_count(len(judged), 'claim')} hold")
        return ", ".join(parts)

    def row_age(self, block: Block, row: Row) -> Age | None:
        """Return when a row was measured, if it was."""
        return self.ages.get((block.name, row.name))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def fill(table: Table, scale: ScaleName, results: ResultFiles, rows: Sequence[str] = ()) -> Filled:
    """Return a table, or some of its rows, with what was measured at a scale."""
    entries = []
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    ages: dict[tuple[str, str], Age] = {}
    for place in places(table, scale):
        if not chosen(place, table, rows):
            continue
        measured = results.find(place.condition)
        runs = list(measured.runs.values()) if measured else []
        entries.append(_entry(table, place, runs))
        if measured is not None and runs:
            key = (place.block.name, place.row.name)
            if key not in outcomes:
                outcomes[key] = runs
                ages[key] = _age(measured)
    return Filled(table, scale, entries, outcomes, ages)


def best_scale(table: Table, results: ResultFiles) -> Filled:
    """Return a table at the scale at which most of it was measured.

    Of two that are as good it is the larger; `quick` counts only where there is nothing else.
    """
    paper, here, quick = (fill(table, scale, results) for scale in SCALES)
    if paper.measured or here.measured:
        return paper if paper.number_measured >= here.number_measured else here
    return quick if quick.measured else here


def _entry(table: Table, place: Place, runs: Iterable[Outcome]) -> Entry:
    assert place.cell.score is not None
    quantity = QUANTITIES[place.cell.score]
    factor = place.column.factor * (100 if quantity.percent else 1)
    read = [quantity.read(run, place.cell) for run in runs if not run.failed]
    values = tuple(factor * value for value in read if value is not None)
    column = [one.name for one in table.columns].index(place.column.name)
    return Entry(
        block=place.block.name,
        row=place.row.name,
        column=place.column.name,
        quantity=quantity,
        ours=Number(values) if values else None,
        paper=place.row.paper[column] if place.row.paper else None,
    )


def _age(measured: Measured) -> Age:
    runs = list(measured.runs.values())
    names = [name for run in runs for name in changed_since(measured, run)]
    return Age(
        dates=tuple(run.date for run in runs),
        commits=tuple(run.commit for run in runs),
        seeds=sum(not run.failed for run in runs),
        changed=tuple(dict.fromkeys(names)),
        checked=tuple(run.checked for run in runs),
        failed=tuple(f"seed {run.seed}: {run.failed}" for run in runs if run.failed),
    )
