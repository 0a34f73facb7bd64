"""Stored files: a granule in every layout asked for, made once, named by what made it."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import obstore

from helpers.arrays import prepared
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from studies.hdf5_drivers import granule as granules
from studies.hdf5_drivers.file_layouts import (
    CONVERSIONS,
    FILE_LAYOUTS,
    FileProperties,
    arrange,
    convert,
    read_properties,
)
from studies.hdf5_drivers.tasks import Answer, MappingTree, Task, run_task

_PART_NBYTES = 16 * 2**20  # of an upload
_N_PARTS = 2  # in memory at a time


class Maker:
    """What makes the layouts of one granule, each of which must answer tasks as the original does.

    They are made in a folder on local disk, and then stored.
    """

    def __init__(
        self,
        granule: granules.Granule,
        target: Location,
        folder: Path,
        tasks: Mapping[str, Task],
    ) -> None:
        self.granule, self.target, self.folder, self.tasks = granule, target, folder, tasks
        self.original = folder / "original.h5"
        granules.write_granule(granule, self.original)
        self.answers = self._read(self.original)

    def make(self, layout: str) -> dict[str, Any]:
        """Make a layout, check it and upload it; return what is told of it."""
        if layout in CONVERSIONS:
            made_by = convert(layout, self.original, self.target)
            facts: dict[str, Any] = {"properties": None}
        else:
            path, made_by = self._arrange(layout)
            with h5py.File(path) as file:
                facts = {"properties": asdict(read_properties(file))}
            store = self.target.obstore()
            key, n = f"{layout}.h5", _N_PARTS
            obstore.put(store, key, path, chunk_size=_PART_NBYTES, max_concurrency=n)
            if path != self.original:
                path.unlink()
        answers = {name: asdict(answer) for name, answer in self.answers.items()}
        return {**facts, "made_by": made_by, "answers": answers}

    def _arrange(self, layout: str) -> tuple[Path, str]:
        if layout == "original":
            return self.original, f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}"
        path = self.folder / f"{layout}.h5"
        made_by = arrange(self.original, path, FILE_LAYOUTS[layout])
        if self._read(path) != self.answers:
            raise UserError(f"layouts: {layout} made by {made_by} reads back other values")
        return path, made_by

    def _read(self, path: Path) -> dict[str, Answer]:
        with h5py.File(path) as file:
            return {name: run_task(MappingTree(file), task) for name, task in self.tasks.items()}


LAYOUTS = (*FILE_LAYOUTS, *CONVERSIONS)
"""Arrangements of the file, then conversions of it."""

_SUFFIXES = {"references": ".json"} | dict.fromkeys(FILE_LAYOUTS, ".h5")
_GENERATION = 3  # raise it when the same arguments make other bytes

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a store, in one or more layouts, and what it must read as."""

    location: Location  # folder that holds the layouts
    tasks: Mapping[str, Task]  # what can be asked of it
    # what each task must answer, as computed from the original on local disk
    answers: Mapping[str, Answer]
    properties: Mapping[str, FileProperties]  # what each file says of itself; conversions have none
    stored_nbytes: Mapping[str, int]  # bytes that each layout takes in the store
    made_by: Mapping[str, str]  # tool that made each layout, with its version

    def at(self, layout: str) -> Location:
        """Return where a layout lies: an object, or the folder of a Zarr group."""
        return self.location / f"{layout}{_SUFFIXES.get(layout, '')}"

    def seen_from(self, location: Location) -> StoredFile:
        """Return the same file, reached as `location` is."""
        return replace(self, location=self.location.through(location.endpoint_url))

    def needed_nbytes(self, layout: str) -> int:
        """Count the stored bytes of the variables that are read whole, without metadata.

        A conversion has those of the original.
        """
        found = self.properties.get(layout, self.properties["original"])
        return sum(found.stored_nbytes[name] for name in self.tasks["variables"].variables)


def make_tasks(granule: granules.Granule, *, group: str) -> dict[str, Task]:
    """Choose what is asked of a granule: three photon variables, and a tenth of their track."""
    n = granule.photons_of("gt1l")
    bounds = (n // 2, n // 2 + n // 10)
    names = granules.THREE_VARIABLES
    return {
        "variables": Task("variables", names, bounds),
        "subset": Task("subset", names, bounds),
        "tree": Task("tree", names, bounds, group),
        "attributes": Task("attributes", names, bounds, group),
    }


def prepare_granule(
    granule: granules.Granule,
    location: Location,
    *,
    layouts: Sequence[str],
    group: str = "",
    progress: Progress = lambda message: None,
) -> StoredFile:
    """Store a granule in each layout asked for, unless it is there already.

    Every layout is read back whole from local disk and compared with the original before
    its entry is written, which comes last.

    Parameters
    ----------
    granule : Granule
        What to store.
    location : Location
        Where files are kept; this one gets a folder of its own below.
    layouts : sequence of str
        Of `LAYOUTS`; the original is always there.
    group : str
        Group that is listed in the tasks on metadata; empty for the whole file.
    progress : callable
        Told in one line what is being made.

    Returns
    -------
    StoredFile
        Where it lies, and what a read must answer.

    Raises
    ------
    UserError
        If a layout is unknown, or one reads back other values than the original.
    """
    if unknown := [name for name in layouts if name not in LAYOUTS]:
        raise UserError(f"layouts: {', '.join(unknown)}; allowed: {', '.join(LAYOUTS)}")
    made_by = [_GENERATION, granules.GENERATION, asdict(granule), group]
    target = location / f"granule-{prepared.name_of(made_by)}"
    wanted = [name for name in LAYOUTS if name in {"original", *layouts}]
    tasks = make_tasks(granule, group=group)
    entries: dict[str, prepared.Entry] = {}
    with tempfile.TemporaryDirectory() as folder:
        start = functools.cache(lambda: Maker(granule, target, Path(folder), tasks))
        for name in wanted:
            # references hold places in the original, and go with it
            of = entries["original"].files if name == "references" else None

            def write(_place: Location, name: str = name) -> dict[str, Any]:
                progress(f"writing a granule of {granule.n_photons} photons as {name}")
                return start().make(name)

            entries[name] = prepared.prepare(
                target, [made_by, of], write, name=f"{name}.entry", under=[_key(name)]
            )
    return _describe(target, tasks, entries)


def _key(layout: str) -> str:
    """Return how the keys of a layout's objects begin."""
    return f"{layout}{_SUFFIXES.get(layout, '/')}"


def _describe(
    target: Location, tasks: Mapping[str, Task], entries: Mapping[str, prepared.Entry]
) -> StoredFile:
    properties = {
        name: _properties(entry.facts["properties"])
        for name, entry in entries.items()
        if entry.facts["properties"]
    }
    first = next(iter(entries.values()))
    return StoredFile(
        target,
        tasks,
        {name: Answer(**answer) for name, answer in first.facts["answers"].items()},
        properties,
        {name: entry.nbytes for name, entry in entries.items()},
        {name: entry.facts["made_by"] for name, entry in entries.items()},
    )


def _properties(entry: dict[str, Any]) -> FileProperties:
    shapes = {name: tuple(shape) for name, shape in entry["chunk_shapes"].items()}
    return FileProperties(**{**entry, "chunk_shapes": shapes})
