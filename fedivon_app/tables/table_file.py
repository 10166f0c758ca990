"""conf/table/<paper>-<table>.yaml: a table or figure of a paper, how it is made and what it says.

A table has blocks of rows, and columns. A number in it is a cell, which says what is run and what
is read off the run: the cell of the table, overlaid by those of the block, the column and the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from fedivon_app.core.compose import CONF
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.section import Section
from fedivon_app.core.text import did_you_mean, one_line
from fedivon_app.core.yaml_reading import read_yaml
from fedivon_app.tables.quantities import QUANTITIES

Drawing = Literal["curves", "labels", "reliability", "retention", "sizes", "illustration"]
ScaleName = Literal["paper", "here", "quick"]
SCALES: tuple[ScaleName, ...] = ("paper", "here", "quick")
PUBLISHED = re.compile(r"(-?[\d.]+)(?:\s*±\s*([\d.]+))?")


@dataclass(frozen=True)
class Published:
    """A number as a paper prints it, with its deviation if it has one."""

    value: float
    deviation: float | None = None

    @classmethod
    def read(cls, given: object) -> Published | None:
        """Read `70.4 ± 0.9`, `70.4`, or nothing, which a dash stands for too."""
        if given is None or given == "-":
            return None
        match = PUBLISHED.fullmatch(str(given).strip())
        if match is None:
            raise ValueError(f"{given!r} is not of the form 70.4 ± 0.9, 70.4 or -")
        value, deviation = match.groups()
        return cls(float(value), None if deviation is None else float(deviation))


class Cell(Section):
    """What is run for a number, and what is read off the run. What is not given is another's."""

    experiment: str | None = Field(None, description="of conf/experiment")
    strategy: str | None = Field(None, description="the method")
    set: tuple[str, ...] = Field((), description="overrides; those of all layers are joined")
    score: str | None = Field(None, description="a score or a cost, see tables/quantities.py")
    model: Literal["gm", "pm"] | None = Field(None, description="whose: the global or personal one")
    way: Literal["mean", "mc"] | None = Field(
        None, description="at the mean, or by weight samples, where there are any"
    )
    over: Literal["test", "clients", "pooled"] | None = Field(
        None,
        description="the central test set, the mean over the clients, or all clients' examples",
    )
    rounds: tuple[int, ...] | None = Field(
        None,
        description="rounds whose mean is taken; none: the last; a negative one is from the end",
    )

    @field_validator("score")
    @classmethod
    def _is_known(cls, score: str | None) -> str | None:
        if score is not None and score not in QUANTITIES:
            raise ValueError(f"there is no such quantity: {did_you_mean(score, QUANTITIES)}")
        return score

    def under(self, other: Cell) -> Cell:
        """Return this cell with what the other one says laid over it."""
        given = {key: value for key, value in other if value is not None and key != "set"}
        return self.model_copy(update={**given, "set": (*self.set, *other.set)})


class Scale(Section):
    """How large the runs are: what is set besides, how many seeds, and what that means in words."""

    set: tuple[str, ...] = ()
    seeds: int | None = Field(None, ge=1)
    words: str = Field("", description="what differs from the paper, in so many words")
    cannot: str = Field("", description="why it cannot be run at this scale on the machine at hand")

    def under(self, other: Scale) -> Scale:
        """Return this scale with what the other one says laid over it."""
        return Scale(
            set=(*self.set, *other.set),
            seeds=other.seeds or self.seeds,
            words=" ".join(text for text in (self.words, other.words) if text),
            cannot=other.cannot or self.cannot,
        )


class Column(Section):
    """A column: its heading, what is special to its cells, and the unit of the paper's numbers."""

    name: str
    cell: Cell = Field(default_factory=Cell)
    factor: float = Field(1.0, description="ours times this is in the paper's unit")


class Row(Section):
    """A row: its name, what is special to its cells, and the paper's numbers, one a column."""

    name: str
    cell: Cell = Field(default_factory=Cell)
    paper: tuple[Any, ...] = ()
    scales: dict[ScaleName, Scale] = Field(default_factory=dict)

    @field_validator("paper")
    @classmethod
    def _numbers(cls, given: tuple[Any, ...]) -> tuple[Published | None, ...]:
        return tuple(Published.read(one) for one in given)


class Claim(Section):
    """What a paper says of its numbers, or shows in a figure without printing them."""

    says: str = Field(description="the claim, in a sentence of our own")
    better: tuple[str, ...] = Field(description="names of rows")
    worse: tuple[str, ...] = Field(description="names of rows, each worse than each of `better`")
    columns: tuple[str, ...] = Field((), description="names of columns; none: all")
    blocks: tuple[str, ...] = Field((), description="names of blocks; none: all that have these")


class Block(Section):
    """Rows under the same conditions, which are compared with each other."""

    name: str
    cell: Cell = Field(default_factory=Cell)
    rows: tuple[Row, ...] = Field(min_length=1)
    scales: dict[ScaleName, Scale] = Field(default_factory=dict)


class Table(Section):
    """A table or figure of a paper."""

    name: str
    paper: Literal["fedivon", "pfedhb", "fischer", "bayes-admm"]
    title: str = Field(description="what it shows, in a line of our own")
    place: str = Field(description="such as Table 1 or Figure 3a")
    notes: str = Field("", description="readings of ours, and what the numbers stand for")
    cell: Cell = Field(default_factory=Cell)
    columns: tuple[Column, ...] = ()
    blocks: tuple[Block, ...] = ()
    claims: tuple[Claim, ...] = ()
    draws: Drawing | None = Field(None, description="how it is drawn, if it is a figure")
    illustration: str | None = Field(None, description="one of `fedivon illustrate`")
    scales: dict[ScaleName, Scale]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name in SCALES:
            if name not in self.scales:
                raise ValueError(f"the scale {name} is missing")
        if (self.illustration is None) == (not self.blocks):
            raise ValueError("a table has blocks with rows, or it is an illustration")
        _unlike([column.name for column in self.columns], "column")
        _unlike([block.name for block in self.blocks], "block")
        for block in self.blocks:
            _unlike([row.name for row in block.rows], f"row of the block {block.name}")
            for row in block.rows:
                if row.paper and len(row.paper) != len(self.columns):
                    raise ValueError(
                        f"{block.name}, {row.name}: {len(row.paper)} numbers of the paper for "
                        f"{len(self.columns)} columns"
                    )
        for claim in self.claims:
            self._claim_fits(claim)
        return self

    def _claim_fits(self, claim: Claim) -> None:
        rows = {row.name for block in self.blocks for row in block.rows}
        columns = {column.name for column in self.columns}
        blocks = {block.name for block in self.blocks}
        for names, known, what in (
            ((*claim.better, *claim.worse), rows, "row"),
            (claim.columns, columns, "column"),
            (claim.blocks, blocks, "block"),
        ):
            for name in names:
                if name not in known:
                    raise ValueError(f"a claim names no {what}: {did_you_mean(name, known)}")

    def scale(self, name: ScaleName, block: Block, row: Row) -> Scale:
        """Return the scale of a row's runs: the table's, the block's and its own together."""
        empty = Scale()
        inside = block.scales.get(name, empty).under(row.scales.get(name, empty))
        return self.scales[name].under(inside)

    def at(self, block: Block, row: Row, column: Column) -> Cell:
        """Return the whole cell of a row and a column."""
        return self.cell.under(block.cell).under(column.cell).under(row.cell)


def table_names(conf: Path = CONF) -> list[str]:
    """Return the names of all tables and figures."""
    return sorted(path.stem for path in (conf / "table").glob("*.yaml"))


def read_table(name: str, conf: Path = CONF) -> Table:
    """Read a table's file; a SettingsError names what is wrong in it."""
    path = conf / "table" / f"{name}.yaml"
    where = f"conf/table/{name}.yaml"
    if not path.is_file():
        raise SettingsError(
            f"there is no table {name!r} ({where}): {did_you_mean(name, table_names(conf))}"
        )
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise SettingsError(f"{where} is not valid YAML: {one_line(error)}") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{where} must hold names and values")
    try:
        return Table.model_validate({**values, "name": name})
    except ValidationError as error:
        lines = [f"{where}: {_complaint(one)}" for one in error.errors()]
        raise SettingsError("\n".join(lines)) from None


def _complaint(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    message = error["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def _unlike(names: Sequence[str], what: str) -> None:
    twice = _repeated(names)
    if twice is not None:
        raise ValueError(f"there are two of the {what} {twice!r}")


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
