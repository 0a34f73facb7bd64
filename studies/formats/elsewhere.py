"""Arrays of others, read where they are: the stores of 2020, each a map of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from helpers.arrays import readers, stores
from helpers.benchmark import statistics
from helpers.benchmark.contender import CheckError, Steps
from helpers.objectstore.locations import CREDENTIALS, environment
from helpers.paths import CATALOG
from studies.formats.formats import digest

ENTRIES = (
    "cm26-temperature",
    "osn-precipitation",
    "wasabi-temperature",
    "jetstream-temperature",
    "ecco-temperature",
    "esgf-opendap",
    "noaa-opendap",
)
"""Entries of the catalogue that are read where they are; tests hold them to it."""


def describe(names: Sequence[str], path: Path = CATALOG) -> pd.DataFrame:
    """Open entries lazily, and tabulate what each holds or the reason why it does not open from here."""
    columns = ["variable", "shape", "chunks", "type", "reason"]
    if not names:
        return pd.DataFrame(columns=columns)
    told = stores.describe_entries(names, path).set_index("entry")
    return told.reindex(columns=columns, fill_value="")


@dataclass(frozen=True, slots=True)
class EntryRead(Steps):
    """A map of an entry, the last two dimensions at the first place of all others, through Intake."""

    name: str
    path: Path
    nbytes_of_map: int
    digest_of_map: str  # of the first reading, to which each later one is held
    # the user's own credentials: while formats are read, those of their store are in the environment
    who: Mapping[str, str | None] = field(repr=False)

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to declare: nothing is equal to another entry."""
        reader = type(stores.open_entry(self.name, self.path)).__name__
        return {"cache_state": "no data cached, clients connected", "reader": reader}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the map; how many are stored for it, nobody tells."""
        return self.nbytes_of_map, self.nbytes_of_map

    def prepare(self) -> None:
        """Forget data and listings."""
        readers.forget_data({})

    def open(self) -> xr.DataArray:
        """Open the entry by its metadata."""
        with environment(self.who):
            return _choose_map(self.name, self.path)

    def read(self, opened: xr.DataArray) -> Any:
        """Read the map into memory."""
        with environment(self.who):
            return opened.to_numpy()

    def check(self, result: Any) -> str:
        """Refuse other values than those of the first reading."""
        if digest(result) != self.digest_of_map:
            raise CheckError(f"{self.name} reads other values than at first")
        return f"xxh3 of {result.size} values"


def _choose_map(name: str, path: Path) -> xr.DataArray:
    entry = stores.open_entry(name, path)
    # a source decodes as it likes: what is compared is its own first reading
    array: xr.DataArray = entry.read()[entry.metadata["variable"]]
    return array.isel(dict.fromkeys(array.dims[:-2], 0))


def list_reads(described: pd.DataFrame, path: Path = CATALOG) -> dict[str, EntryRead]:
    """Read the map of each entry that opens, once, and list the reads that have to give the same.

    Each goes on with the credentials that are in the environment now.
    """
    who = {name: os.environ.get(name) for name in CREDENTIALS}
    found = {}
    for name in map(str, described.index[described["reason"] == ""]):
        values = np.asarray(_choose_map(name, path).to_numpy())
        found[name] = EntryRead(name, path, values.nbytes, digest(values), who)
    return found


def tabulate(rows: pd.DataFrame, described: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the maps: seconds to open and to read, MB and MB/s, or why there are none."""
    maps = rows[(rows["phase"] == "measured") & (rows["access"] == "map")]
    medians = {
        column: statistics.summarise(maps, ["contender"], value=column).set_index("contender")
        for column in ("open_s", "read_s", "throughput_mb_per_s")
        if len(maps)
    }
    table = described[["reason"]].rename_axis("entry")
    for column, found in medians.items():
        table.insert(len(table.columns) - 1, column, found["median"].reindex(table.index))
    return table
