"""Rewrite a variable of a netCDF file as Zarr with Dask, in a process of its own, and print its seconds."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import dask.array as da
import h5py
import numpy as np
import zarr
from zarr.codecs import GzipCodec


def rewrite(source: Path, target: Path, chunk_shape: Sequence[int]) -> float:
    """Rewrite with Dask's threads; return the seconds without imports."""
    start = time.perf_counter()
    with h5py.File(source, "r") as file:
        variable = file["v"]
        array = da.from_array(variable, chunks=(chunk_shape[0], *variable.shape[1:]))  # type: ignore[no-untyped-call]
        made = zarr.create_array(
            target,
            shape=variable.shape,
            chunks=tuple(chunk_shape),
            dtype="float32",
            compressors=GzipCodec(level=1),  # as the programs of the formats write
            config={"write_empty_chunks": True},
        )
        array.rechunk(tuple(chunk_shape)).store(made, lock=False)
    return time.perf_counter() - start


def main(source: str, target: str, *chunk_shape: str) -> None:
    """Rewrite, and print the seconds and the files of what was imported: whose, the caller finds."""
    with tempfile.TemporaryDirectory() as folder:  # a first time, for what is imported late
        few = Path(folder) / "few.h5"
        with h5py.File(few, "w") as file:
            file.create_dataset("v", data=np.zeros((4, 2, 2), np.float32), chunks=(1, 2, 2))
        rewrite(few, Path(folder) / "few.zarr", (2, 2, 2))
    seconds = rewrite(Path(source), Path(target), [*map(int, chunk_shape)])
    modules = {
        name: getattr(module, "__file__", None) or ""
        for name, module in sys.modules.items()
        if "." not in name and name not in sys.stdlib_module_names
    }
    libraries = {"HDF5 of h5py": h5py.version.hdf5_version}
    answer = {"seconds": seconds, "modules": modules, "libraries": libraries}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
