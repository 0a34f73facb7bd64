"""What stands beside a recommendation: the answer that costs least, and what other tools pick."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from advisors.chunks.candidates import predict_costs, predict_seconds
from advisors.chunks.problem import AccessPattern, Prices, Recommendation
from advisors.chunks.search import MODEL_ERROR, best_chunk_shape
from helpers.arrays.chunks import Shape, count_chunks

_MB = 1e6


def tell_aims(
    pattern: AccessPattern, found: Recommendation, prices: Prices
) -> dict[str, dict[str, Any]]:
    """Put the answer of least time beside that of least price; each tells its time and its price."""
    cheapest = best_chunk_shape(replace(pattern, prices=prices), tolerance=MODEL_ERROR)
    speed, cost = (
        _tell_aim(pattern, prices, each.best.chunk_shape, each.shard_shape)
        for each in (found, cheapest)
    )
    # the squarest of the cheapest may cost a little more than the fastest
    return {"speed": speed, "cost": min(cost, speed, key=lambda aim: aim["usd_per_million_reads"])}


def _tell_aim(
    pattern: AccessPattern, prices: Prices, chunk_shape: Shape, shard_shape: Shape | None
) -> dict[str, Any]:
    chunks, shards = np.asarray([chunk_shape]), np.asarray([shard_shape]) if shard_shape else None
    seconds = predict_seconds(pattern, chunks, shard_shapes=shards)[0]
    usd = predict_costs(pattern, prices, chunks, shard_shapes=shards)[0]
    names = [access.name for access in pattern.accesses]
    return {
        "chunk_shape": chunk_shape,
        "shard_shape": shard_shape,
        "n_objects": count_chunks(pattern.shape, shard_shape or chunk_shape),
        "seconds": dict(zip(names, map(float, seconds), strict=True)),
        "mean_s": float(pattern.shares @ seconds),
        "usd_per_million_reads": 1e6 * float(pattern.shares @ usd),
    }


def explain_aims(aims: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say in words which answer is which."""
    lines = [f"{aim.capitalize()} answer: {_explain_aim(each)}" for aim, each in aims.items()]
    if aims["cost"] == aims["speed"]:
        lines[1] = "Cost answer: the same."
    return lines


def _explain_aim(aim: Mapping[str, Any]) -> str:
    chunks, shards = (",".join(map(str, aim[f"{what}_shape"] or ())) for what in ("chunk", "shard"))
    return (
        f"chunks {chunks}{f' in shards {shards}' if shards else ''}, {aim['n_objects']} objects:"
        f" {aim['mean_s']:.3g} s a read on average,"
        f" {aim['usd_per_million_reads']:.3g} USD a million reads."
    )


Pick = Callable[[Shape, np.dtype[Any]], Sequence[int]]


def _pick_by_dask(shape: Shape, dtype: np.dtype[Any]) -> Sequence[int]:
    from dask.array.core import normalize_chunks

    return [max(extents) for extents in normalize_chunks("auto", shape=shape, dtype=dtype)]  # type: ignore[no-untyped-call]


def _pick_by_zarr(shape: Shape, dtype: np.dtype[Any]) -> Sequence[int]:
    import zarr

    store = zarr.storage.MemoryStore()
    return zarr.create_array(store, shape=shape, dtype=dtype, chunks="auto").chunks


def _pick_by_netcdf(shape: Shape, dtype: np.dtype[Any], *, is_open: bool = False) -> Sequence[int]:
    """Let netCDF-C choose, as it does for nccopy where nothing is asked; the file is none on disk."""
    import hdf5plugin  # noqa: F401  # before netCDF4, whose own HDF5 would keep filters out of h5py
    import netCDF4

    with netCDF4.Dataset("none.nc", "w", diskless=True) as file:
        for place, n in enumerate(shape):
            file.createDimension(f"d{place}", None if is_open and not place else n)
        names = tuple(f"d{place}" for place in range(len(shape)))
        found = file.createVariable("x", dtype, names, zlib=True).chunking()
        return shape if found == "contiguous" else [*found]


_PICKS: Mapping[str, Pick] = {
    "Dask's auto": _pick_by_dask,
    "Zarr's guess": _pick_by_zarr,
    "netCDF-C and nccopy": _pick_by_netcdf,
    "netCDF-C with an unlimited first dimension": lambda shape, dtype: _pick_by_netcdf(
        shape, dtype, is_open=True
    ),
}


def pick_by_tools(shape: Shape, dtype: np.dtype[Any]) -> dict[str, Shape]:
    """Ask the tools that are installed, and that have the type, for the chunks of their choice.

    rechunker is none of them: it takes its target from its user.
    """
    found: dict[str, Shape] = {}
    for tool, pick in _PICKS.items():
        with suppress(ImportError, TypeError, ValueError, RuntimeError, NotImplementedError):
            picked = zip(pick(shape, dtype), shape, strict=True)
            found[tool] = tuple(min(int(c), n) for c, n in picked)
    return found


def compare_tools(
    pattern: AccessPattern, found: Recommendation, dtype: np.dtype[Any]
) -> list[dict[str, Any]]:
    """Predict the same accesses in the chunks that other tools pick, each chunk an object."""
    names, rows = [access.name for access in pattern.accesses], []
    for tool, shape in pick_by_tools(pattern.shape, dtype).items():
        seconds = predict_seconds(pattern, np.asarray([shape]))[0]
        rows.append(
            {
                "tool": tool,
                "chunk_shape": shape,
                "chunk_nbytes": math.prod(shape) * pattern.itemsize,
                "n_objects": count_chunks(pattern.shape, shape),
                "seconds": dict(zip(names, map(float, seconds), strict=True)),
                "costs": float(pattern.score(seconds)) / found.best.score,
            }
        )
    return rows


def explain_tools(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say in words what other tools pick, and how much longer it takes."""
    return [
        f"{row['tool']}: {','.join(map(str, row['chunk_shape']))}, {row['chunk_nbytes'] / _MB:.3g} MB"
        f" a chunk, {row['n_objects']} objects: {row['costs']:.3g} times as long ("
        + ", ".join(f"{name} {seconds:.3g} s" for name, seconds in row["seconds"].items())
        + ")."
        for row in rows
    ]
