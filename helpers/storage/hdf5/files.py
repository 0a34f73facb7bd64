"""Stored files: a granule in every layout asked for, made once, named by what made it."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from helpers.errors import UserError
from helpers.storage import prepared
from helpers.storage.drivers.tasks import Answer, Task
from helpers.storage.hdf5 import granule as granules
from helpers.storage.hdf5.conversions import CONVERSIONS
from helpers.storage.hdf5.layouts import FILE_LAYOUTS
from helpers.storage.hdf5.making import Maker
from helpers.storage.hdf5.properties import FileProperties
from helpers.storage.locations import Location

LAYOUTS = (*FILE_LAYOUTS, *CONVERSIONS)
"""Arrangements of the file, then conversions of it."""

_SUFFIXES = {"references": ".json"} | dict.fromkeys(FILE_LAYOUTS, ".h5")
_GENERATION = 3  # raise it when the same arguments make other bytes

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a store, in one or more layouts, and what it must read as.

    Parameters
    ----------
    location : Location
        Folder that holds the layouts.
    tasks : mapping of str to Task
        What can be asked of it.
    answers : mapping of str to Answer
        What each task must answer, as computed from the original on local disk.
    properties : mapping of str to FileProperties
        What each file says of itself; conversions have none.
    stored_nbytes : mapping of str to int
        Bytes that each layout takes in the store.
    made_by : mapping of str to str
        Tool that made each layout, with its version.
    """

    location: Location
    tasks: Mapping[str, Task]
    answers: Mapping[str, Answer]
    properties: Mapping[str, FileProperties]
    stored_nbytes: Mapping[str, int]
    made_by: Mapping[str, str]

    def at(self, layout: str) -> Location:
        """Return where a layout lies: an object, or the folder of a Zarr group.

        Parameters
        ----------
        layout : str
            One of `LAYOUTS`.

        Returns
        -------
        Location
            Place to open.
        """
        return self.location / f"{layout}{_SUFFIXES.get(layout, '')}"

    def seen_from(self, location: Location) -> StoredFile:
        """Return the same file, reached as `location` is.

        Parameters
        ----------
        location : Location
            Any place in the same store.

        Returns
        -------
        StoredFile
            With the endpoint of `location`.
        """
        return replace(self, location=self.location.through(location.endpoint_url))

    def needed_nbytes(self, layout: str) -> int:
        """Count the stored bytes of the variables that are read whole.

        Parameters
        ----------
        layout : str
            One of `LAYOUTS`; a conversion has the bytes of the original.

        Returns
        -------
        int
            What a reader that fetches nothing in vain must fetch, without metadata.
        """
        found = self.properties.get(layout, self.properties["original"])
        return sum(found.stored_nbytes[name] for name in self.tasks["variables"].variables)


def make_tasks(granule: granules.Granule, *, group: str) -> dict[str, Task]:
    """Choose what is asked of a granule: three photon variables, and a tenth of their track.

    Parameters
    ----------
    granule : Granule
        What is read.
    group : str
        Group whose variables are listed; empty for the whole file.

    Returns
    -------
    dict of str to Task
        By name.
    """
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
