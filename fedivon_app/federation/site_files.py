"""The parts of a common data set as files, one for each site of a deployment that is to be tried.

The command `fedivon deal` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.files import written_aside
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.loading import division
from fedivon_app.datasets.npz import located
from fedivon_app.datasets.sources import default_root
from fedivon_app.datasets.table_file import TableFile
from fedivon_app.plurals import counted

NAME = "site.npz"
TABLE = "site.csv"


@dataclass(frozen=True)
class SiteFile:
    """A site's file, and what was done about it."""

    path: Path
    text: str


def check_names(sites: Iterable[str]) -> None:
    """Raise a SettingsError for a name that cannot be that of a site's folder."""
    for site in sites:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", site):
            raise SettingsError(
                f"the site's name {site!r} becomes a folder's: use letters, digits, '.', '_' "
                "and '-'"
            )


def write_site_files(
    settings: AnySettings, folder: Path, sites: Sequence[str]
) -> Iterator[SiteFile]:
    """Write folder/SITE/site.npz for every site, in the format of the source `npz`.

    A table with a client column becomes folder/SITE/site.csv, with the rows of one client. Each
    file is yielded when it is there. One that was there before is left as it is.
    """
    if settings.data.source == "nodes":
        raise SettingsError(
            "data.source is `nodes`: the data of such an experiment are at its sites already"
        )
    check_names(sites)
    if len(set(sites)) < len(sites):
        raise SettingsError(f"a site is named twice: {', '.join(sites)}")
    divided = division(settings.data, len(sites), settings.seed, settings.task)
    source = divided.source
    if source.table is not None:
        yield from _write_tables(settings, folder, sites)
        return
    for number, site in enumerate(sites):
        path = folder / site / NAME
        if path.exists():
            yield SiteFile(path, "kept as it is")
            continue
        train = divided.split.train[number]
        test = divided.split.test[number]
        with written_aside(path) as aside, open(aside, "wb") as file:
            np.savez_compressed(
                file,
                x_train=source.x_train[train],
                y_train=source.y_train[train],
                x_test=source.x_test[test],
                y_test=source.y_test[test],
            )
        examples = counted(len(train), "example")
        yield SiteFile(path, f"{examples} to train with, {len(test):,} to test with")


def _write_tables(settings: AnySettings, folder: Path, sites: Sequence[str]) -> Iterator[SiteFile]:
    """Write the rows of each client of a table, in the order of the clients' names."""
    data = settings.data
    if data.client_column is None or data.path is None:
        raise SettingsError(
            "a table is dealt to sites by the column that says whose a row is: "
            "set data.client_column"
        )
    file = TableFile(located(Path(data.path), Path(data.root or default_root())))
    names = division(data, len(sites), settings.seed, settings.task).source.client_names or ()
    owners = file.texts(data.client_column)
    for name, site in zip(names, sites, strict=True):
        path = folder / site / TABLE
        if path.exists():
            yield SiteFile(path, "kept as it is")
            continue
        rows = [owner == name for owner in owners]
        with written_aside(path) as aside:
            file.write_rows(rows, aside)
        yield SiteFile(path, f"{counted(sum(rows), 'row')} of {name}")
