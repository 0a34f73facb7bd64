"""A tree of radar sweeps and a flat dataset with many coordinates in the store, and each call that opens one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
import xxhash
from zarr.storage import ObjectStore

from helpers.arrays.readers import expected_warning, forget_clients, put_folder
from helpers.benchmark.contender import CheckError, Contender, Steps, Traced
from helpers.session import Session
from studies.opening_trees.openings import BASELINE, OPENINGS, SWEEP, Layout, Opening
from wire.bed.locations import Location
from wire.bed.requests import RequestRow
from wire.bed.testbed import Testbed
from wire.ledger.counting import count_requests

CONTROL = "control"
FIELD = "DBZH"
"""Variable that is read after the opening: the reflectivity of a sweep, in dBZ."""


@dataclass(frozen=True, slots=True)
class StoredTrees:
    """The layouts below a location, and what reading from them must return."""

    location: Location
    stored_nbytes: Mapping[str, int]  # by layout
    groups: Mapping[str, str]  # group to read, by layout; empty for a flat dataset
    expected: Mapping[str, tuple[int, int]]  # bytes and hash of what is read, by layout


def make_sweep(number: int, n_azimuths: int, n_ranges: int, rng: np.random.Generator) -> xr.Dataset:
    """Make a radar sweep: two fields, azimuth and range as indexes, and the times of its rays."""
    shape = (n_azimuths, n_ranges)
    start = np.datetime64("2026-06-01T00:00:00", "ns") + np.timedelta64(20 * number, "s")
    fields = {
        name: (("azimuth", "range"), rng.normal(20, 10, shape).astype(np.float32).round(1))
        for name in (FIELD, "VRADH")
    }
    times = start + (np.arange(n_azimuths) * 50).astype("timedelta64[ms]")
    return xr.Dataset(
        fields,
        {
            "azimuth": np.arange(n_azimuths) + 0.5,
            "range": 250.0 * np.arange(n_ranges),
            "time": ("azimuth", times),
        },
    )


def make_flat(n_coordinates: int, rng: np.random.Generator) -> xr.Dataset:
    """Make a dataset of which every variable has a coordinate of its own."""
    names = [f"{number:02d}" for number in range(n_coordinates)]
    variables = {f"v{name}": (f"x{name}", rng.random(64)) for name in names}
    return xr.Dataset(
        {FIELD: ("x00", rng.random(64)), **variables}, {f"x{name}": np.arange(64) for name in names}
    )


def write_trees(near: Location, settings: Mapping[str, Any]) -> StoredTrees:
    """Write the tree, consolidated and not, and the flat dataset, a chunk for each variable."""
    rng = np.random.default_rng(settings["seed"])
    extents = settings["n_azimuths"], settings["n_ranges"]
    sweeps = {
        f"/sweep_{number:02d}": make_sweep(number, *extents, rng)
        for number in range(settings["n_sweeps"])
    }
    group = SWEEP if f"/{SWEEP}" in sweeps else "sweep_00"
    tree, flat = xr.DataTree.from_dict(sweeps), make_flat(settings["n_coordinates"], rng)
    location = near / "opening-trees"
    location.clear()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with expected_warning("Consolidated metadata is currently not part"):
            tree.to_zarr(folder / "tree", zarr_format=3, consolidated=True)
            tree.to_zarr(folder / "tree-unconsolidated", zarr_format=3, consolidated=False)
            flat.to_zarr(folder / "coordinates", zarr_format=3, consolidated=True)
        put_folder(folder, location)
        layouts = [path.name for path in folder.iterdir()]
        stored_nbytes = {
            layout: sum(path.stat().st_size for path in (folder / layout).rglob("*") if path.is_file())
            for layout in layouts
        }  # fmt: skip
    expected = {layout: hash_values(sweeps[f"/{group}"]) for layout in layouts}
    expected["coordinates"] = hash_values(flat)
    groups = {layout: "" if layout == "coordinates" else group for layout in layouts}
    return StoredTrees(location, stored_nbytes, groups, expected)


def hash_values(dataset: xr.Dataset) -> tuple[int, int]:
    """Return the bytes and the XXH3 hash of a field and its coordinates, times in nanoseconds."""
    content = bytearray()
    for name in (FIELD, *sorted(map(str, dataset[FIELD].coords))):
        values = dataset[name].values
        is_time = np.issubdtype(values.dtype, np.datetime64)
        content += (values.astype("datetime64[ns]") if is_time else values).tobytes()
    return len(content), xxhash.xxh3_64_intdigest(bytes(content))


def summarise_trace(trace: Sequence[RequestRow], *, with_times: bool) -> dict[str, Traced]:
    """Count the requests of the opening and of the read after it; `with_times` keeps when each began and ended.

    Times are milliseconds since the first request of the opening began.
    """
    opening = [request for request in trace if request.tag == "open"]
    counts = count_requests(opening)
    summary: dict[str, Traced] = {
        "n_requests": counts["n_requests"],
        "wire_nbytes": counts["wire_nbytes"],
        "n_waits": counts["n_waits"],
        "n_in_flight": counts["n_in_flight"],
        "n_failed": counts["n_failed"],
        "n_read_requests": len(trace) - len(opening),
    }
    if with_times and opening:
        origin_s = min(request.start_s for request in opening)
        ordered = sorted(opening, key=lambda request: request.start_s)
        summary["start_ms"] = [round(1e3 * (row.start_s - origin_s), 1) for row in ordered]
        summary["end_ms"] = [round(1e3 * (row.end_s - origin_s), 1) for row in ordered]
    return summary


@dataclass(slots=True)
class TreeOpening(Steps):
    """One call that opens a layout, and the read of one field after it."""

    opening: Opening
    stored: StoredTrees
    testbed: Testbed
    _is_first: bool = field(default=False, init=False)

    @property
    def group(self) -> str:
        """Group that is read after the opening; empty for a flat dataset."""
        return self.stored.groups[self.opening.layout]

    def settings(self) -> Mapping[str, Any]:
        """Declare the options of the call and the state of the caches."""
        return {"call": self.opening.code, "cache_state": "new client, warm server"}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the field that is read with its coordinates, and of the layout in the store."""
        layout = self.opening.layout
        return self.stored.expected[layout][0], self.stored.stored_nbytes[layout]

    def enter_block(self, block: int) -> None:
        """Keep the times of the requests in the first block alone."""
        self._is_first = block == 0

    def prepare(self) -> None:
        """Forget every client and empty the trace."""
        forget_clients({})
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> Any:
        """Open the layout through obstore as the call has it."""
        place = self.stored.location.through(self.testbed.far.endpoint_url) / self.opening.layout
        opening = self.opening
        if self.group and "group" in opening.options:
            opening = replace(opening, options={**opening.options, "group": self.group})
        opened = opening.open(ObjectStore(place.obstore(), read_only=True))
        self.testbed.set_tag("read")
        return opened

    def check(self, dataset: xr.Dataset) -> str:
        """Compare the field, its coordinates and its decoded times with what was written."""
        if hash_values(dataset) != self.stored.expected[self.opening.layout]:
            raise CheckError(f"{self.opening.code}: other values than were written")
        return f"xxh3 of {FIELD} with its coordinates"

    def collect(self) -> Mapping[str, Traced]:
        """Count the requests of the opening, and those of the read apart."""
        return summarise_trace(self.testbed.take_trace(), with_times=self._is_first)


Read = Callable[[Any, str], xr.Dataset]
"""What is timed after the opening: it takes what was opened and the name of a group."""


def make_contenders(session: Session, read: Read) -> list[Contender]:
    """Write the layouts and make a contender of each opening of the case, with a second copy of the default."""
    stored = write_trees(session.testbed.near, session.settings)
    contenders = []
    for name in session.settings["openings"]:
        steps = TreeOpening(OPENINGS[name], stored, session.testbed)
        contenders.append(_make_contender(name, steps, read))
    steps = TreeOpening(OPENINGS[BASELINE], stored, session.testbed)
    return [*contenders, replace(_make_contender(CONTROL, steps, read), control_of=BASELINE)]


def _make_contender(name: str, steps: TreeOpening, read: Read) -> Contender:
    return Contender(name, steps, read=lambda opened: read(opened, steps.group))


def list_calls(names: Sequence[str]) -> pd.DataFrame:
    """Tabulate the calls that are compared, as a program has them."""
    lines = {OPENINGS[name].label: OPENINGS[name].code for name in names}
    return pd.DataFrame({"call": lines}).rename_axis("opening")


__all__ = ["CONTROL", "Layout", "list_calls", "make_contenders", "write_trees"]
