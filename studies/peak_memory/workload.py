"""An array in three layouts in the store, and a process of its own for each read of it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import xxhash
import zarr

from helpers.arrays.readers import put_folder
from helpers.benchmark.contender import CheckError, Contender, Steps, Traced
from helpers.paths import ROOT
from helpers.session import Session
from studies.peak_memory.ways import FILE, SHARDS, VARIABLE, WAYS, ZARR, Asked, Values, Way
from wire.bed.locations import Location
from wire.bed.testbed import Testbed
from wire.ledger.counting import count_requests

CONTROL = "control"
SHARD_STEPS = 8
_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class StoredArray:
    """The layouts below a location, and what each read of them must return."""

    location: Location
    nbytes: int  # of the values, decoded
    stored_nbytes: Mapping[str, int]  # by layout
    expected: Mapping[Asked, tuple[int, int]]  # bytes and hash of what is read


def make_values(n_steps: int, side: int, seed: int) -> Values:
    """Make an array (step, y, x) of temperatures in degrees, which a codec makes about half as large."""
    rng = np.random.default_rng(seed)
    return rng.normal(15, 10, (n_steps, side, side)).astype(np.float32).round(1)


def write_layouts(near: Location, *, n_steps: int, side: int, seed: int) -> StoredArray:
    """Write the array in chunks of a step, in shards of eight of them, and as a file of HDF5."""
    values = make_values(n_steps, side, seed)
    chunk = (1, side, side)
    location = near / "peak-memory"
    location.clear()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for layout, shards in ((ZARR, None), (SHARDS, (SHARD_STEPS, side, side))):
            array = zarr.create_array(
                folder / layout, shape=values.shape, dtype="f4", chunks=chunk, shards=shards
            )
            array[:] = values
        with h5py.File(folder / FILE, "w", libver="latest") as file:
            file.create_dataset(VARIABLE, data=values, chunks=chunk, compression="gzip", compression_opts=1, shuffle=True)  # fmt: skip
        put_folder(folder, location)
        stored_nbytes = {
            layout: sum(path.stat().st_size for path in _list_files(folder / layout))
            for layout in (ZARR, SHARDS, FILE)
        }
    step = describe(values[0])
    expected: dict[Asked, tuple[int, int]] = {
        "the whole array": describe(values),
        "its maximum": describe(values.max(axis=0)),
        "one chunk": step,
        "one chunk of a file": step,
    }
    return StoredArray(location, values.nbytes, stored_nbytes, expected)


def _list_files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [below for below in path.rglob("*") if below.is_file()]


def describe(values: Values) -> tuple[int, int]:
    """Return the bytes of values and their XXH3 hash."""
    return values.nbytes, xxhash.xxh3_64_intdigest(np.ascontiguousarray(values))


Run = Callable[[str, Location], dict[str, int]]
"""What is measured: it takes the name of a way and where the layouts are, and returns a report."""


def run_reader(way: str, place: Location) -> dict[str, int]:
    """Read in a new process, and return what it reports: peak bytes, open files, and what it read."""
    asked = json.dumps({"way": way, "location": asdict(place)})
    completed = subprocess.run(
        [sys.executable, "-m", "studies.peak_memory.reader"],
        input=asked + "\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )
    if completed.returncode:
        raise RuntimeError(f"{way}: {completed.stderr[-500:]}")
    report: dict[str, int] = json.loads(completed.stdout.splitlines()[-1])
    return report


@dataclass(slots=True)
class PeakRead(Steps):
    """A read in a process of its own, which reports the memory that it took."""

    name: str  # of the way
    stored: StoredArray
    testbed: Testbed
    run: Run = run_reader
    _answer: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def way(self) -> Way:
        """The way to read."""
        return WAYS[self.name]

    def settings(self) -> Mapping[str, Any]:
        """Declare the call and the state of the caches."""
        return {"call": self.way.code, "cache_state": "new process, warm server"}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the values that are asked for, and of the layout in the store."""
        return self.stored.expected[self.way.asked][0], self.stored.stored_nbytes[self.way.layout]

    def prepare(self) -> None:
        """Empty the trace."""
        self.testbed.take_trace()

    @property
    def place(self) -> Location:
        """Where the layouts are, over the network."""
        return self.stored.location.through(self.testbed.far.endpoint_url)

    def read(self, _opened: Any) -> dict[str, int]:
        """Read in a new process, and keep and return what it reports."""
        self._answer = self.run(self.name, self.place)
        return self._answer

    def check(self, answer: Mapping[str, int]) -> str:
        """Compare the values with what was written."""
        expected = self.stored.expected[self.way.asked]
        if (answer["values_nbytes"], answer["digest"]) != expected:
            raise CheckError(f"{self.name}: other values than were written")
        return f"xxh3 of {self.way.asked}"

    def collect(self) -> Mapping[str, Traced]:
        """Count the requests, and pass on the peak and the open files."""
        counts = count_requests(self.testbed.take_trace())
        return {
            "n_requests": counts["n_requests"],
            "wire_nbytes": counts["wire_nbytes"],
            "peak_nbytes": self._answer.get("peak_nbytes", 0),
            "n_files": self._answer.get("n_files", 0),
        }


def make_contenders(session: Session, run: Run) -> list[Contender]:
    """Write the layouts and make a contender of each way of the case, with a second copy of the first."""
    settings = session.settings
    sizes = {name: settings[name] for name in ("n_steps", "side", "seed")}
    stored = write_layouts(session.testbed.near, **sizes)
    first = settings["ways"][0]
    contenders = [
        Contender(name, PeakRead(name, stored, session.testbed, run)) for name in settings["ways"]
    ]
    return [*contenders, replace(contenders[0], name=CONTROL, control_of=first)]


def list_ways(names: list[str]) -> pd.DataFrame:
    """Tabulate the ways that are compared: what each is asked for, and its call."""
    lines = {WAYS[name].label: (WAYS[name].asked, WAYS[name].code) for name in names}
    table = pd.DataFrame.from_dict(lines, orient="index", columns=["asked for", "call"])
    return table.rename_axis("way")


__all__ = ["CONTROL", "list_ways", "make_contenders", "run_reader", "write_layouts"]
