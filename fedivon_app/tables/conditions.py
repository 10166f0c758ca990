"""What a table asks to be run: an experiment, a method and overrides, with as many seeds.

Tables that rest on the same runs name the same conditions, and share their results.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.text import did_you_mean
from fedivon_app.methods import settings_of
from fedivon_app.tables.table_file import Block, Cell, Column, Row, ScaleName, Table


@dataclass(frozen=True)
class Condition:
    """An experiment, a method, and the overrides in their order."""

    experiment: str
    strategy: str
    set: tuple[str, ...]

    @property
    def words(self) -> str:
        """Return the condition as a person would give it to `fedivon run`."""
        overrides = f" --set {shlex.join(self.set)}" if self.set else ""
        return f"{self.experiment} --strategy {self.strategy}{overrides}"

    def settings(self, seed: int = 0) -> AnySettings:
        """Return the settings of a run under this condition."""
        overrides = [*self.set, f"seed={seed}"]
        return compose(settings_of, self.experiment, self.strategy, overrides)


@dataclass(frozen=True)
class Place:
    """A cell of a table by its block, row and column, with what it says in the end."""

    block: Block
    row: Row
    column: Column
    cell: Cell
    condition: Condition


@dataclass(frozen=True)
class Wanted:
    """A condition that a table needs, with so many seeds, and whether its FLOPs are counted."""

    condition: Condition
    seeds: int
    flops: bool = False


def places(table: Table, scale: ScaleName) -> Iterator[Place]:
    """Yield all cells of a table at a scale, those that cannot be run there too."""
    for block in table.blocks:
        for row in block.rows:
            for column in table.columns:
                cell = table.at(block, row, column)
                yield Place(block, row, column, cell, _condition(table, scale, block, row, cell))


def _condition(table: Table, scale: ScaleName, block: Block, row: Row, cell: Cell) -> Condition:
    where = f"conf/table/{table.name}.yaml: {block.name}, {row.name}"
    if cell.experiment is None or cell.strategy is None or cell.score is None:
        raise SettingsError(f"{where}: a cell needs an experiment, a strategy and a score")
    overrides = (*cell.set, *table.scale(scale, block, row).set)
    return Condition(cell.experiment, cell.strategy, overrides)


def wanted(
    table: Table,
    scale: ScaleName,
    rows: Sequence[str] = (),
    seeds: int | None = None,
    anyway: bool = False,
) -> list[Wanted]:
    """Return the conditions that a table, or some of its rows, needs at a scale.

    Rows that two cores cannot run at it are left out, unless they are to be run `anyway`.
    """
    found: dict[Condition, Wanted] = {}
    for place in places(table, scale):
        size = table.scale(scale, place.block, place.row)
        if (size.cannot and not anyway) or not chosen(place, table, rows):
            continue
        number = seeds or size.seeds or 1
        one = found.setdefault(place.condition, Wanted(place.condition, number))
        flops = one.flops or place.cell.score == "gigaflops"
        found[place.condition] = replace(one, seeds=max(number, one.seeds), flops=flops)
    return list(found.values())


def left_out(table: Table, scale: ScaleName, rows: Sequence[str] = ()) -> dict[str, str]:
    """Return the blocks of which some rows are left out at a scale, and why."""
    return {
        place.block.name: size.cannot.strip()
        for place in places(table, scale)
        if chosen(place, table, rows)
        and (size := table.scale(scale, place.block, place.row)).cannot
    }


def chosen(place: Place, table: Table, rows: Sequence[str]) -> bool:
    """Tell whether these names, or patterns, mean the cell.

    Names of blocks say which blocks are meant, and those of rows and methods which rows of them.
    """
    blocks = [one for one in rows if any(fnmatchcase(block.name, one) for block in table.blocks)]
    others = [one for one in rows if one not in blocks]
    own = (place.row.name, place.condition.strategy)
    in_block = not blocks or any(fnmatchcase(place.block.name, one) for one in blocks)
    return in_block and (not others or any(fnmatchcase(n, one) for n in own for one in others))


def check_rows(table: Table, rows: Sequence[str]) -> None:
    """Raise a SettingsError for a name that means no row of the table."""
    for given in rows:
        if not any(chosen(place, table, [given]) for place in places(table, "paper")):
            known = [block.name for block in table.blocks]
            known += [row.name for block in table.blocks for row in block.rows]
            raise SettingsError(
                f"--rows {given}: {table.name} has no such block, row or method: "
                f"{did_you_mean(given, set(known))}"
            )
