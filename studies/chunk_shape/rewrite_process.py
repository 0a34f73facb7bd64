"""Rewrite a variable of a netCDF file as Zarr, in a process of its own, and tell the seconds."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr
from zarr.codecs import GzipCodec


def rewrite_with_dask(source: Path, target: Path, chunk_shape: Sequence[int]) -> float:
    """Rewrite with Dask's threads; return the seconds without imports."""
    import dask.array as da

    start = time.perf_counter()
    with h5py.File(source, "r") as file:
        variable = file["v"]
        array = da.from_array(variable, chunks=(chunk_shape[0], *variable.shape[1:]))  # type: ignore[no-untyped-call]
        made = create_target(target, variable.shape, chunk_shape)
        array.rechunk(tuple(chunk_shape)).store(made, lock=False)
    return time.perf_counter() - start


def rewrite_with_cubed(source: Path, target: Path, chunk_shape: Sequence[int]) -> float:
    """Rewrite with cubed, whose memory is bounded, on its default executor; return the seconds."""
    import cubed

    start = time.perf_counter()
    with h5py.File(source, "r") as file, tempfile.TemporaryDirectory() as folder:
        variable = file["v"]
        spec = cubed.Spec(work_dir=folder, allowed_mem="500MB", reserved_mem="100MB")
        array = cubed.from_array(variable, chunks=(chunk_shape[0], *variable.shape[1:]), spec=spec)
        made = create_target(target, variable.shape, chunk_shape)
        cubed.store(array.rechunk(tuple(chunk_shape)), made)
    return time.perf_counter() - start


def create_target(
    target: Path, shape: Sequence[int], chunk_shape: Sequence[int]
) -> zarr.Array[Any]:
    """Make an empty array with the codec that the tools of the formats write."""
    return zarr.create_array(
        target,
        shape=tuple(shape),
        chunks=tuple(chunk_shape),
        dtype="float32",
        compressors=GzipCodec(level=1),
        config={"write_empty_chunks": True},
    )


def list_modules() -> dict[str, str]:
    """List the packages that are imported, with their files: whose they are the owner finds out."""
    tops = {name: module for name, module in sys.modules.items() if "." not in name}
    return {
        name: getattr(module, "__file__", None) or ""
        for name, module in tops.items()
        if name not in sys.stdlib_module_names
    }


def main(arguments: Sequence[str]) -> None:
    """Run the tool that is asked for, and write its seconds and what it imported."""
    tool, source, target, shape = arguments
    chosen = {"dask": rewrite_with_dask, "cubed": rewrite_with_cubed}[tool]
    with tempfile.TemporaryDirectory() as folder:  # a first time, for what is imported late
        few = Path(folder) / "few.h5"
        with h5py.File(few, "w") as file:
            file.create_dataset("v", data=np.zeros((4, 2, 2), np.float32), chunks=(1, 2, 2))
        chosen(few, Path(folder) / "few.zarr", (2, 2, 2))
    seconds = chosen(Path(source), Path(target), [int(n) for n in shape.split(",")])
    library = {"HDF5 of h5py": h5py.version.hdf5_version}
    told = {"seconds": seconds, "modules": list_modules(), "libraries": library}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
