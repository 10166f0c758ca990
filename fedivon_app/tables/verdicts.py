"""Whether what we measured agrees with a paper, in words that are defined here.

- A number *agrees* if it is within a tolerance of the paper's: the largest of both deviations and a
  point. A point is 1 where numbers are in percent, and 0.01 elsewhere.
- The *order agrees* in a column if any two rows of a block that the paper sets apart by more than
  the larger of their deviations and a point stand in the same order here.
- A *claim holds* if every row that the paper calls better is better here than every one that it
  calls worse, in every column and block that the claim is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from statistics import fmean, stdev

from fedivon_app.tables.quantities import Quantity
from fedivon_app.tables.table_file import Claim, Published

POINT = 0.01


@dataclass(frozen=True)
class Number:
    """What we measured for a cell, in the unit of the table: a value for each seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the mean over the seeds."""
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Return the standard deviation of the sample, where there are two seeds at the least."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Entry:
    """A cell of a table with what we have and what the paper has, if either has anything."""

    block: str
    row: str
    column: str
    quantity: Quantity
    ours: Number | None
    paper: Published | None

    @property
    def difference(self) -> float | None:
        """Return ours less the paper's."""
        return (
            None if self.ours is None or self.paper is None else self.ours.mean - self.paper.value
        )

    @property
    def agrees(self) -> bool | None:
        """Tell whether the number agrees, or None where there is nothing to compare."""
        if self.ours is None or self.paper is None:
            return None
        allowed = max(self.ours.deviation or 0, self.paper.deviation or 0, point(self.quantity))
        return abs(self.ours.mean - self.paper.value) <= allowed


@dataclass(frozen=True)
class Order:
    """The order of the rows in a column of a block: pairs in the paper's order, and pairs not."""

    block: str
    column: str
    right: tuple[tuple[str, str], ...]
    wrong: tuple[tuple[str, str], ...]

    @property
    def agrees(self) -> bool:
        """Tell whether all pairs stand in the paper's order."""
        return not self.wrong


@dataclass(frozen=True)
class Judged:
    """A claim, and where it holds, where it does not, and where nothing was measured."""

    claim: Claim
    holds: tuple[str, ...]
    fails: tuple[str, ...]
    open: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """Return the verdict in words."""
        if self.fails:
            return f"does not hold ({'; '.join(self.fails)})"
        if not self.holds:
            return "was not measured"
        places = len(self.holds) + len(self.open)
        rest = f" in {len(self.holds)} of {places} places; the others were not measured"
        return "holds" + (rest if self.open else "")


class State(StrEnum):
    """What has become of a table."""

    AGREES = "agrees"
    ORDER = "order agrees"
    DIFFERS = "does not agree"
    PARTLY = "partly run"
    NOT_RUN = "not run"
    CANNOT = "cannot run here"
    DRAWN = "drawn"


def point(quantity: Quantity) -> float:
    """Return what a point is for a quantity."""
    return 1.0 if quantity.percent else POINT


def orders(entries: Sequence[Entry]) -> list[Order]:
    """Return the order of the rows in every column of every block where two can be compared."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.block, entry.column), []).append(entry)
    return [
        order
        for (block, column), group in groups.items()
        if (order := _order(block, column, group)).right or order.wrong
    ]


def _order(block: str, column: str, group: Sequence[Entry]) -> Order:
    right: list[tuple[str, str]] = []
    wrong: list[tuple[str, str]] = []
    for better, worse, ours in _apart(group):
        (right if ours > 0 else wrong).append((better, worse))
    return Order(block, column, tuple(right), tuple(wrong))


def _apart(group: Sequence[Entry]) -> Iterator[tuple[str, str, float]]:
    """The pairs that the paper sets apart, the better first, and by how much it is better here."""
    for one, other in combinations(group, 2):
        if None in (one.ours, other.ours, one.paper, other.paper):
            continue
        assert one.paper and other.paper and one.ours and other.ours
        sign = 1 if one.quantity.higher_is_better else -1
        theirs = sign * (one.paper.value - other.paper.value)
        deviations = (one.paper.deviation or 0, other.paper.deviation or 0)
        if abs(theirs) <= max(*deviations, point(one.quantity)):
            continue
        ours = sign * (one.ours.mean - other.ours.mean)
        yield (one.row, other.row, ours) if theirs > 0 else (other.row, one.row, -ours)


def judge(claim: Claim, entries: Sequence[Entry]) -> Judged:
    """Return where a claim holds."""
    groups: dict[tuple[str, str], dict[str, Entry]] = {}
    for entry in entries:
        mentioned = entry.row in (*claim.better, *claim.worse)
        if mentioned and _about(entry.column, claim.columns) and _about(entry.block, claim.blocks):
            groups.setdefault((entry.block, entry.column), {})[entry.row] = entry
    found: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for (block, column), rows in groups.items():
        found[_holds(claim, rows)].append(f"{block}, {column}")
    return Judged(claim, tuple(found[True]), tuple(found[False]), tuple(found[None]))


def _about(name: str, names: Sequence[str]) -> bool:
    return not names or name in names


def _holds(claim: Claim, rows: Mapping[str, Entry]) -> bool | None:
    better = [rows[name] for name in claim.better if name in rows]
    worse = [rows[name] for name in claim.worse if name in rows]
    if not better or not worse:
        return None
    pairs = [(one.ours, other.ours) for one in better for other in worse]
    sign = 1 if better[0].quantity.higher_is_better else -1
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if any(sign * (one.mean - other.mean) <= 0 for one, other in known):
        return False
    return True if len(known) == len(pairs) else None


def state_of(entries: Sequence[Entry], claims: Sequence[Judged]) -> State:
    """Return what a table has come to, by its numbers if the paper has any, else by its claims.

    Where neither can be compared yet, although something was measured, it is partly run.
    """
    measured = [entry for entry in entries if entry.ours is not None]
    if not measured:
        return State.NOT_RUN
    compared = [entry.agrees for entry in measured if entry.agrees is not None]
    if not compared:
        judged = [claim for claim in claims if claim.holds or claim.fails]
        if not judged:
            return State.PARTLY
        return State.DIFFERS if any(claim.fails for claim in judged) else State.ORDER
    if all(compared):
        return State.AGREES
    ordered = orders(entries)
    return State.ORDER if ordered and all(order.agrees for order in ordered) else State.DIFFERS
