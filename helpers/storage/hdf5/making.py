"""How the layouts of a granule are made, compared and stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import h5py
import obstore

from helpers.errors import UserError
from helpers.storage.drivers.tasks import Answer, Task, run_task
from helpers.storage.drivers.trees import MappingTree
from helpers.storage.hdf5 import granule as granules
from helpers.storage.hdf5.conversions import CONVERSIONS, convert
from helpers.storage.hdf5.layouts import FILE_LAYOUTS, arrange
from helpers.storage.hdf5.properties import read_properties
from helpers.storage.locations import Location

_PART_NBYTES = 16 * 2**20  # of an upload
_N_PARTS = 2  # in memory at a time


class Maker:
    """What makes the layouts of one granule, on local disk first.

    Parameters
    ----------
    granule : Granule
        What to write.
    target : Location
        Where layouts go.
    folder : Path
        On local disk.
    tasks : mapping of str to Task
        What each layout must answer as the original does.
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
            self._upload(path, f"{layout}.h5")
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

    def _upload(self, path: Path, name: str) -> None:
        obstore.put(
            self.target.obstore(),
            name,
            path,
            chunk_size=_PART_NBYTES,
            max_concurrency=_N_PARTS,
        )
        if path != self.original:
            path.unlink()
