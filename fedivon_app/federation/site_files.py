"""`fedivon deal`: the parts of a common data set as files, one for each site of a deployment that is to be tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedivon_app.core.settings import Settings, SettingsError
from fedivon_app.datasets.loading import division

NAME = "site.npz"


def deal(settings: Settings, folder: Path, sites: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Writes folder/SITE/site.npz in the format of the source `npz`; each path, and how many examples it has."""
    if settings.data.source == "nodes":
        raise SettingsError(
            "data.source is `nodes`: the data of such an experiment are at its sites already"
        )
    if len(set(sites)) < len(sites):
        raise SettingsError(f"a site is named twice: {', '.join(sites)}")
    source, parts = division(settings.data, len(sites), settings.seed)
    for number, site in enumerate(sites):
        path = folder / site / NAME
        if path.exists():
            yield path, "kept as it is"
            continue
        train = parts.train[number]
        test = parts.test[number]
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {"x_train": source.x_train[train], "y_train": source.y_train[train]}
        arrays |= {"x_test": source.x_test[test], "y_test": source.y_test[test]}
        partial = path.with_name(f".{NAME}")
        with open(partial, "wb") as file:
            np.savez_compressed(file, **arrays)
        partial.replace(path)
        yield path, f"{len(train)} examples to train with, {len(test)} to test with"
