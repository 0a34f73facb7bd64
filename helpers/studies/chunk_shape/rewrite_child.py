"""Rewrite a variable of a netCDF file as Zarr, in a process of its own, and tell the seconds."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import h5py


def rewrite_with_dask(source: Path, target: Path, chunk_shape: Sequence[int]) -> float:
    """Rewrite with Dask's threads; return the seconds without imports."""
    import dask.array as da
    import zarr

    start = time.perf_counter()
    with h5py.File(source, "r") as file:
        variable = file["v"]
        steps = max(1, chunk_shape[0])
        array = da.from_array(variable, chunks=(steps, *variable.shape[1:]))  # type: ignore[no-untyped-call]
        made = zarr.create_array(
            target,
            shape=variable.shape,
            chunks=tuple(chunk_shape),
            dtype="float32",
            config={"write_empty_chunks": True},
        )
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
        cubed.to_zarr(array.rechunk(tuple(chunk_shape)), str(target))
    return time.perf_counter() - start


def main(arguments: Sequence[str]) -> None:
    """Run the tool that is asked for, and write its seconds."""
    tool, source, target, shape = arguments
    chosen = {"dask": rewrite_with_dask, "cubed": rewrite_with_cubed}[tool]
    seconds = chosen(Path(source), Path(target), [int(n) for n in shape.split(",")])
    sys.stdout.write(f"{seconds}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
