"""Calls of xarray that open a tree of groups or a dataset: the options, the code, and what they return."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import xarray as xr

Layout = Literal["tree", "tree-unconsolidated", "coordinates"]
SWEEP = "sweep_03"
"""Group that is read after a tree has been opened; a smaller tree has only its first."""

_UNDECODED = {"decode_times": False}
_UNINDEXED = {"create_default_indexes": False}


@dataclass(frozen=True, slots=True)
class Opening:
    """A call of xarray on a layout, with the options that differ from its defaults."""

    label: str  # on pages
    layout: Layout
    function: Literal["open_datatree", "open_groups", "open_dataset"] = "open_datatree"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str:
        """Write the call as a program has it.

        Examples
        --------
        >>> OPENINGS["tree-lazy"].code
        'xr.open_datatree(store, engine="zarr", decode_times=False, create_default_indexes=False)'
        """
        options = {"engine": "zarr"} | dict(self.options)
        written = ", ".join(
            f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}"
            for name, value in options.items()
        )
        return f"xr.{self.function}(store, {written})"

    def count_waits(self, n_sweeps: int, n_coordinates: int) -> float:
        """Count the waits that are expected: the metadata, and each value that xarray reads to open.

        A sweep has two indexes, of which all values are read, and times, of which the first and the
        last are. NaN where metadata are not consolidated: then their requests are partly concurrent.

        Examples
        --------
        >>> [OPENINGS[name].count_waits(24, 40) for name in ("tree", "tree-lazy", "coordinates")]
        [97, 1, 41]
        """
        if self.layout == "tree-unconsolidated":
            return math.nan
        n_indexes = 2 * int(self.options.get("create_default_indexes", True))
        if self.layout == "coordinates":
            return 1 + n_coordinates * n_indexes // 2
        n_times = 2 * int(self.options.get("decode_times", True))
        return 1 + (1 if "group" in self.options else n_sweeps) * (n_indexes + n_times)

    def open(self, store: Any) -> Any:
        """Call xarray; return a tree, a dictionary of datasets or a dataset."""
        with warnings.catch_warnings():  # a page says by its counts what it means
            warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
            return getattr(xr, self.function)(store, engine="zarr", **self.options)


BASELINE = "tree"
OPENINGS: Mapping[str, Opening] = {
    BASELINE: Opening("tree, default", "tree"),
    "tree-undecoded": Opening("tree, times not decoded", "tree", options=_UNDECODED),
    "tree-unindexed": Opening("tree, no indexes", "tree", options=_UNINDEXED),
    "tree-lazy": Opening(
        "tree, times not decoded, no indexes", "tree", options=_UNDECODED | _UNINDEXED
    ),
    "groups": Opening("dictionary of groups, default", "tree", "open_groups"),
    "one-group": Opening("one group, default", "tree", "open_dataset", {"group": SWEEP}),
    "unconsolidated": Opening("tree not consolidated, default", "tree-unconsolidated"),
    "unconsolidated-lazy": Opening(
        "tree not consolidated, times not decoded, no indexes",
        "tree-unconsolidated",
        options=_UNDECODED | _UNINDEXED,
    ),
    "coordinates": Opening("many coordinates, default", "coordinates", "open_dataset"),
    "coordinates-lazy": Opening(
        "many coordinates, no indexes", "coordinates", "open_dataset", _UNINDEXED
    ),
}
"""Every call that is compared, by name."""


def choose_fields(opened: Any, group: str, fields: list[str]) -> xr.Dataset:
    """Return fields of a group of what was opened, a tree, a dictionary or the dataset itself.

    Times that were not decoded are decoded, and indexes that were not made are made, for these fields alone.
    """
    dataset = opened
    if isinstance(opened, xr.DataTree):
        dataset = opened[group].to_dataset()
    elif isinstance(opened, dict):
        dataset = opened[f"/{group}"]
    dataset = xr.decode_cf(dataset[fields])
    for name in map(str, dataset.dims):
        if name in dataset.coords and name not in dataset.xindexes:
            dataset = dataset.set_xindex(name)
    return dataset
