"""What the study of chunk shapes alone needs: layouts, contenders, predictions, figures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import xxhash
import zarr
from matplotlib.axes import Axes
from numpy.typing import NDArray

from helpers import chunking, study
from helpers.chunking import Access
from helpers.measurement.measure import CheckError, Contender
from helpers.models.accesses import Observation, Store, access_seconds, fit_store
from helpers.paths import ROOT, cache_folder
from helpers.storage import chunkings, layout
from helpers.storage.chunkings import Box, Chunking, Medium
from helpers.storage.data import SampleArray
from helpers.storage.layout import Shape
from helpers.storage.network import Profile
from helpers.storage.reads import count_requests
from helpers.storage.wires import Wire

FULL_SHAPE = (98128, 277, 349)
"""The reanalysis variable of Rew (2013): time, y, x."""

PUBLISHED_NBYTES = (2**22, 2**20, 2**13, 2**12)
_PAGE_NBYTES = 4096  # what a seek brings at least
_N_CONNECTIONS = 10  # zarr's default
SHARD_BY = 4
"""Chunks of a shard in each dimension."""

_MAX_CHUNKS = 1000  # in an object store, at laptop scale: a request each

CALIBRATION = ("balanced 4096 KiB", "zarr auto", "square", "balanced 4 KiB", "a time step")
"""Layouts that calibrate; the others are held out."""


def scale_shape(factor: float) -> Shape:
    """Divide each extent of the reanalysis by one factor.

    Examples
    --------
    >>> scale_shape(10)
    (9813, 28, 35)
    """
    return tuple(max(1, round(n / factor)) for n in FULL_SHAPE)


def make_accesses(shape: Shape) -> list[Access]:
    """List the five accesses: a tenth of each dimension is a box, a sixth across a region."""
    t, y, x = shape
    return [
        Access("series", (t, 1, 1)),
        Access("slice", (1, y, x)),
        Access("box", (max(1, t // 10), max(1, y // 10), max(1, x // 10))),
        Access("region", (t, max(1, y // 6), max(1, x // 6))),
        Access("whole", shape),
    ]


def make_chunkings(shape: Shape, factor: float, best: Mapping[str, Shape]) -> list[Chunking]:
    """List the layouts that are compared.

    Published chunk bytes are divided by `factor`, as each dimension is, so
    that chunks stay many where they were many.
    """
    balanced = {}
    for nbytes in PUBLISHED_NBYTES:
        scaled = min(max(4, int(nbytes / factor)), 4 * math.prod(shape))
        balanced[f"balanced {nbytes // 1024} KiB"] = layout.balanced_chunk_shape(shape, 4, scaled)
    side = max(1, round((PUBLISHED_NBYTES[1] / factor / 4) ** (1 / 3)))
    auto = da.core.normalize_chunks("auto", shape, dtype="float32")  # type: ignore[no-untyped-call]
    named: dict[str, Shape] = {
        **balanced,
        "netcdf-4 default": netcdf_default(shape),
        "a time step": (1, *shape[1:]),
        "square": tuple(min(side, n) for n in shape),
        "dask auto": tuple(int(part[0]) for part in auto),
        "zarr auto": _zarr_auto(shape),
        **best,
    }
    first = [
        Chunking("contiguous, time slowest", None),
        Chunking("contiguous, time fastest", None, True),
    ]
    return first + [Chunking(name, chunk) for name, chunk in named.items()]


def _zarr_auto(shape: Shape) -> Shape:
    store = zarr.storage.MemoryStore()
    return tuple(zarr.create_array(store, shape=shape, dtype="float32", chunks="auto").chunks)


def netcdf_default(shape: Shape) -> Shape:
    """Ask the netCDF library for the chunks that it would choose, time unlimited no."""
    import netCDF4

    with netCDF4.Dataset("default.nc", "w", diskless=True) as file:
        names = ("t", "y", "x")
        for name, n in zip(names, shape, strict=True):
            file.createDimension(name, n)
        variable = file.createVariable("v", "f4", names, zlib=True)
        return tuple(int(c) for c in variable.chunking())


@dataclass(slots=True)
class BoxRead:
    """Boxes of one access read from one layout, each timed.

    Parameters
    ----------
    medium : {"hdf5", "zarr", "sharded"}
        What is read.
    chunks : Chunking
        The layout.
    access : Access
        What is asked.
    boxes : list of tuple of slice
        Where; the first `n_apart` share no chunk.
    n_apart : int
        Boxes without a common chunk.
    expected : list of int
        Checksums of what was written.
    opener : callable
        Opens the array anew.
    forget : callable
        Drops what may be cached, before each box.
    wire : Wire or None
        What traces, if anything does.
    """

    medium: Medium
    chunks: Chunking
    access: Access
    boxes: list[Box]
    n_apart: int
    expected: list[int]
    opener: Callable[[], Any]
    forget: Callable[[], None] = lambda: None
    wire: Wire | None = None
    seconds: list[float] = field(default_factory=list)

    def prepare(self) -> None:
        """Empty caches and the trace."""
        self.seconds = []
        if self.wire is not None:
            self.wire.take_trace()
            self.wire.set_tag("open")

    def open(self) -> Any:
        """Open the array."""
        array = self.opener()
        if self.wire is not None:
            self.wire.set_tag("read")
        return array

    def read(self, array: Any) -> list[int]:
        """Read each box, cold, and keep its checksum and its seconds."""
        sums = []
        for box in self.boxes:
            self.forget()
            start = time.perf_counter()
            values = chunkings.read_box(array, box, is_time_fastest=self.chunks.is_time_fastest)
            self.seconds.append(time.perf_counter() - start)
            sums.append(_checksum(values))
        return sums

    def check(self, sums: list[int]) -> str:
        """Compare what was read with what was written."""
        if sums != self.expected:
            raise CheckError(f"{self.chunks.name}: {self.access.name} read other values")
        return f"xxh3 of {len(sums)} boxes"

    def collect(self) -> dict[str, float]:
        """Count requests, and tell the quantiles of the boxes' times."""
        times = np.asarray(self.seconds)
        later = times[1:] if len(times) > 1 else times
        told = {
            "first_s": float(times[0]),
            "p50_s": float(np.median(later)),
            "p95_s": float(np.quantile(later, 0.95)),
            "n_boxes": len(times),
            "n_apart": self.n_apart,
        }
        if self.wire is None:
            return told
        return {**count_requests(self.wire.take_trace(), _N_CONNECTIONS), **told}


def _checksum(values: NDArray[np.float32]) -> int:
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(values).data)


def prepare_boxes(
    values: NDArray[np.float32], one: Chunking, access: Access, *, n_boxes: int, seed: int
) -> tuple[list[Box], int, list[int]]:
    """Draw the boxes of an access and compute what they must read as."""
    chunk = one.chunk_shape or (values.shape if access.name == "whole" else (1, 1, 1))
    n = 1 if access.name == "whole" else n_boxes
    boxes, n_apart = chunkings.draw_boxes(
        values.shape, access.extent, tuple(chunk), n_boxes=n, seed=seed
    )
    return boxes, n_apart, [_checksum(values[box]) for box in boxes]


def contend(way: BoxRead, **more: Any) -> Contender:
    """Make a contender of a layout and an access."""
    nbytes = 4 * math.prod(way.access.extent) * len(way.boxes)
    return Contender(
        name=way.chunks.name,
        point={"access": way.access.name, "medium": way.medium},
        group=way.access.name,
        settings={
            "layout": way.medium,
            "codec": "deflate" if way.medium == "hdf5" and way.chunks.chunk_shape else "none",
            "concurrency": 1 if way.medium == "hdf5" else _N_CONNECTIONS,
            "cache_state": "cold pages" if way.medium == "hdf5" else "new client, warm server",
            "chunk_shape": "x".join(map(str, way.chunks.chunk_shape or ())),
        },
        open=way.open,
        read=way.read,
        check=way.check,
        prepare=way.prepare,
        collect=way.collect,
        array_nbytes=nbytes,
        stored_nbytes=nbytes,
        **more,
    )


@dataclass(frozen=True, slots=True)
class Load:
    """What an access asks of a layout, on average: chunks, their bytes, and shards or seeks."""

    n_chunks: float
    chunk_nbytes: float
    n_shards: float = 0.0


def load_of(
    shape: Shape,
    one: Chunking,
    access: Access,
    shard_shape: Shape | None = None,
    *,
    is_file: bool = True,
) -> Load:
    """Count what an access touches; without chunks, its seeks and what each brings."""
    if one.chunk_shape is None:
        order = (1, 2, 0) if one.is_time_fastest else (0, 1, 2)
        box = [slice(0, access.extent[i]) for i in order]
        n_runs = layout.contiguous_runs(box, [shape[i] for i in order])
        nbytes = 4 * math.prod(access.extent) / n_runs
        return Load(n_runs, max(nbytes, _PAGE_NBYTES))
    n_chunks = layout.expected_chunks(shape, access.extent, one.chunk_shape)
    n_apart = (
        layout.expected_chunks(shape, access.extent, tuple(map(min, shard_shape, shape)))
        if shard_shape
        else count_seeks(shape, access.extent, one.chunk_shape)
        if is_file
        else 0.0
    )
    return Load(n_chunks, 4 * math.prod(one.chunk_shape), n_apart)


def count_seeks(shape: Shape, extent: Shape, chunk_shape: Shape) -> float:
    """Count the runs of chunks that lie one after the other in a file, and are read so.

    Examples
    --------
    A slice of a file of time steps is one run; a series, one a step.

    >>> count_seeks((10, 4, 4), (1, 4, 4), (1, 2, 2)), count_seeks((10, 4, 4), (10, 1, 1), (1, 2, 2))
    (1.0, 10.0)
    """
    grid = [-(-n // c) for n, c in zip(shape, chunk_shape, strict=True)]
    triples = zip(extent, chunk_shape, shape, strict=True)
    touched = [layout.expected_touched(*triple) for triple in triples]
    while len(touched) > 1 and touched[-1] >= grid[len(touched) - 1] - 1e-9:
        touched.pop()
    return float(math.prod(touched[:-1]))


def shards_of(way: BoxRead, shape: Shape, shard_by: int) -> Load:
    """Tell what a contender asks of its medium."""
    sharded = way.medium == "sharded" and way.chunks.chunk_shape is not None
    shard = shard_of(shape, way.chunks.chunk_shape or shape, shard_by) if sharded else None
    return load_of(shape, way.chunks, way.access, shard, is_file=way.medium == "hdf5")


def calibrate(rows: pd.DataFrame, loads: Mapping[tuple[str, str], Load], **store: Any) -> Store:
    """Fit the costs of a reader to the rows of its calibration."""
    medians = times_of(rows).groupby(["contender", "access"])["p50_s"].median()
    seen = [
        Observation(float(seconds), load.n_chunks, load.chunk_nbytes, load.n_shards)
        for at, seconds in medians.items()
        for load in [loads[at]]  # type: ignore[index]
    ]
    return fit_store(Store(**store), seen)


def times_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Put the numbers of the boxes beside their rows."""
    return rows.join(study.trace_of(rows)[["first_s", "p50_s", "p95_s", "n_boxes", "n_apart"]])


def predict(store: Store, loads: Mapping[tuple[str, str], Load]) -> pd.DataFrame:
    """Predict the median time of each access to each layout."""
    lines = []
    for (name, access), load in loads.items():
        shards = load.n_shards or None
        seconds = access_seconds(store, load.n_chunks, load.chunk_nbytes, n_shards=shards)
        lines.append((name, access, float(seconds), load.n_chunks))
    return pd.DataFrame(lines, columns=["contender", "access", "predicted_s", "n_chunks"])


def compare(rows: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """Put predicted beside measured medians; those that calibrated are marked."""
    found = times_of(rows[rows["phase"] == "measured"])
    names = ["medium", "contender", "access"]
    columns = ["first_s", "p50_s", "p95_s", "n_boxes", "n_apart"]
    medians = found.groupby(names)[columns].median().reset_index()
    table = predicted.merge(medians, on=names)
    table["is_held_out"] = ~table["contender"].isin(CALIBRATION)
    return table.assign(relative_error=table["predicted_s"] / table["p50_s"] - 1)


def judge(table: pd.DataFrame) -> pd.DataFrame:
    """Compute the two bars of the prediction on what was held out, for each medium."""
    lines = {
        medium: {
            "median error": part["relative_error"].abs().median(),
            "rank correlation": part["predicted_s"].corr(part["p50_s"], method="spearman"),
            "pairs of layout and access": len(part),
        }
        for medium, part in table[table["is_held_out"]].groupby("medium")
    }
    return pd.DataFrame(lines).T


def bias(table: pd.DataFrame) -> pd.DataFrame:
    """Compute the slower of series and slice over the faster, for each layout."""
    times = table.pivot(index=["medium", "contender"], columns="access", values="p50_s")
    ratio = times[["series", "slice"]].max(axis=1) / times[["series", "slice"]].min(axis=1)
    return times.assign(bias=ratio).sort_values("bias")


def draw_front(ax: Axes, table: pd.DataFrame, published: pd.DataFrame) -> None:
    """Draw the time of a series against that of a slice, a point a layout."""
    for frame, value, marker, color in (
        (table, "p50_s", "o", "#0073b1"),
        (table, "predicted_s", "x", "#767676"),
    ):
        times = frame.pivot(index="contender", columns="access", values=value)
        ax.plot(times["slice"], times["series"], marker, color=color)
        if value == "p50_s":
            for name, line in times.iterrows():
                ax.annotate(str(name), (line["slice"], line["series"]), xytext=(4, 3),
                            textcoords="offset points", fontsize=7)  # fmt: skip
    keys = ["medium", "layout", "chunk_kb_nominal"]
    theirs = published.pivot_table(index=keys, columns="access", values="time_s", dropna=False)
    ax.plot(theirs["spatial_slice"], theirs["time_series"], "s", color="#841900", markersize=3)
    ax.set(xscale="log", yscale="log", xlabel="time of a slice (s)", ylabel="time of a series (s)")


def best_shapes(
    shape: Shape, store: Store, mixes: Mapping[str, Sequence[float]]
) -> dict[str, Shape]:
    """Choose our shape for each mix of series and slice, as worst access and as mean."""
    pair = make_accesses(shape)[:2]
    return {
        name: chunking.best_chunk_shape(
            shape, 4, pair, weights, store, criterion="worst" if name.endswith("worst") else "mean"
        ).best.chunk_shape
        for name, weights in mixes.items()
    }


def hdf5_ways(
    folder: Path,
    values: NDArray[np.float32],
    layouts: Sequence[Chunking],
    *,
    n_boxes: int,
    seed: int,
) -> list[BoxRead]:
    """Write each layout as HDF5 and make its accesses."""
    ways = []
    for one in layouts:
        name = f"{'x'.join(map(str, one.chunk_shape or ('c', one.is_time_fastest)))}.h5"
        path = folder / name
        chunkings.write_hdf5(path, values, one)
        for access in make_accesses(values.shape):
            boxes, n_apart, sums = prepare_boxes(values, one, access, n_boxes=n_boxes, seed=seed)
            ways.append(BoxRead("hdf5", one, access, boxes, n_apart, sums,
                                partial(chunkings.open_hdf5, path),
                                partial(chunkings.drop_pages, path)))  # fmt: skip
    return ways


def zarr_ways(
    wire: Wire, prefix: str, values: NDArray[np.float32], layouts: Sequence[Chunking],
    *, n_boxes: int, seed: int, shard_by: int = 0,
) -> list[BoxRead]:  # fmt: skip
    """Write each chunked layout as Zarr, sharded by a factor or not, and make its accesses."""
    ways = []
    medium: Medium = "sharded" if shard_by else "zarr"
    for one in layouts:
        if one.chunk_shape is None or not is_stored_as_objects(values.shape, one):
            continue
        shard = shard_of(values.shape, one.chunk_shape, shard_by)
        place = f"{prefix}/{'x'.join(map(str, one.chunk_shape))}-{shard_by}"
        chunkings.write_zarr(wire.near / place, values, one, shard_shape=shard)
        for access in make_accesses(values.shape):
            boxes, n_apart, sums = prepare_boxes(values, one, access, n_boxes=n_boxes, seed=seed)
            ways.append(BoxRead(medium, one, access, boxes, n_apart, sums,
                                partial(chunkings.open_zarr, wire.far / place), wire=wire))  # fmt: skip
    return ways


def is_stored_as_objects(shape: Shape, one: Chunking) -> bool:
    """Tell whether a layout has chunks, and not so many that writing them takes minutes."""
    return (
        one.chunk_shape is not None and layout.count_chunks(shape, one.chunk_shape) <= _MAX_CHUNKS
    )


def shard_of(shape: Shape, chunk_shape: Shape, shard_by: int) -> Shape | None:
    """Take as many chunks in each dimension to a shard, where there are as many."""
    if not shard_by:
        return None
    return tuple(c * min(shard_by, -(-n // c)) for c, n in zip(chunk_shape, shape, strict=True))


def make_sample(shape: Shape, seed: int) -> NDArray[np.float32]:
    """Make the array (time, y, x), or load it if it was made before."""
    path = cache_folder() / "chunkings" / f"{'x'.join(map(str, shape))}-{seed}.npy"
    if not path.exists():
        source = ROOT / "data" / "ocean-temperature.nc"
        sample = SampleArray(source, "temperature", (shape[0], 1, *shape[1:]), seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, chunkings.make_values(sample))
    return np.asarray(np.load(path), np.float32)


def choose_layouts(shape: Shape, factor: float, profile: Profile) -> list[Chunking]:
    """List all layouts, ours chosen before anything is measured, by guessed costs of a chunk."""
    store = Store(study.network_of(profile), 1 if profile.first_byte_s is None else _N_CONNECTIONS,
                  start_s=1e-3, chunk_s=5e-5, decode_s_per_nbyte=5e-9)  # fmt: skip
    mixes = {"ours 50:50": (1, 1), "ours 80:20": (8, 2), "ours, worst access": (8, 2)}
    return make_chunkings(shape, factor, best_shapes(shape, store, mixes))


def describe(shape: Shape, layouts: Sequence[Chunking]) -> pd.DataFrame:
    """Tabulate layouts: chunk shape, bytes, count."""
    lines = {
        one.name: (
            " x ".join(map(str, one.chunk_shape)) if one.chunk_shape else "none",
            4 * math.prod(one.chunk_shape) / 1000 if one.chunk_shape else np.nan,
            layout.count_chunks(shape, one.chunk_shape) if one.chunk_shape else 1,
        )
        for one in layouts
    }
    return pd.DataFrame.from_dict(lines, orient="index", columns=["chunk shape", "kB", "chunks"])


def make_ways(
    media: Sequence[str], wire: Wire, values: NDArray[np.float32], layouts: Sequence[Chunking],
    *, n_boxes: int, seed: int,
) -> list[BoxRead]:  # fmt: skip
    """Write every layout to every medium, and make its accesses."""
    name = f"{'x'.join(map(str, values.shape))}-{seed}"
    unique = {(one.chunk_shape, one.is_time_fastest): one for one in reversed(layouts)}
    kept = [one for one in layouts if one in unique.values()]
    draw = {"n_boxes": n_boxes, "seed": seed}
    ways: list[BoxRead] = []
    if "hdf5" in media:
        ways += hdf5_ways(cache_folder() / "chunkings" / name, values, kept, **draw)
    for medium, shard_by in (("zarr", 0), ("sharded", SHARD_BY)):
        if medium in media:
            ways += zarr_ways(wire, f"chunkings-{name}", values, kept, shard_by=shard_by, **draw)
    return ways


def predict_all(
    rows: pd.DataFrame, ways: Sequence[BoxRead], shape: Shape, profile: Profile
) -> pd.DataFrame:
    """Calibrate each medium, and predict all of its layouts over the imposed network."""
    tables = []
    for medium in dict.fromkeys(way.medium for way in ways):
        mine = [way for way in ways if way.medium == medium]
        loads = {(w.chunks.name, w.access.name): shards_of(w, shape, SHARD_BY) for w in mine}
        seen = rows[(rows["phase"] == "calibration") & (rows["medium"] == medium)]
        fitted = calibrate(seen, loads)
        if medium != "hdf5":
            fitted = replace(
                fitted, network=study.network_of(profile), n_connections=_N_CONNECTIONS
            )
        tables.append(predict(fitted, loads).assign(medium=medium))
    return pd.concat(tables, ignore_index=True)


def draw_fronts(axes: Sequence[Axes], table: pd.DataFrame, published: pd.DataFrame) -> None:
    """Draw a panel a medium."""
    for ax, (medium, part) in zip(axes, table.groupby("medium"), strict=True):
        draw_front(ax, part, published)
        ax.annotate(str(medium), (0.03, 0.03), xycoords="axes fraction")


def compare_with_rule(table: pd.DataFrame) -> dict[str, float]:
    """Compute what our shapes gain over the balance rule at 4 MiB, by measured medians."""
    times = table.pivot_table(index="contender", columns="access", values="p50_s")[
        ["series", "slice"]
    ]
    means, slowest = times.mean(axis=1).to_dict(), times.max(axis=1).to_dict()
    rule = "balanced 4096 KiB"
    gains = {}
    if "ours 50:50" in times.index:
        gains["mean at 50:50"] = float(means[rule] / means["ours 50:50"])
    for name in ("ours, worst access", "ours 50:50"):
        if name in times.index:
            gains["worst access"] = float(slowest[rule] / slowest[name])
            break
    return gains


def find_all(table: pd.DataFrame, judged: pd.DataFrame) -> dict[str, str]:
    """Put the findings of a case into words, by the key under which pages quote them."""
    found: dict[str, str] = {}
    errors, ranks = judged["median error"].to_dict(), judged["rank correlation"].to_dict()
    for medium, part in table.groupby("medium"):
        gains = compare_with_rule(part)
        told = bias(part)["bias"]
        found |= {
            f"{medium}-median-error": f"{100 * errors[medium]:.2g} %",
            f"{medium}-rank-correlation": f"{ranks[medium]:.2g}",
            f"{medium}-least-bias": f"{told.min():.2g}",
            f"{medium}-largest-bias": f"{told.max():.2g}",
            **{f"{medium}-gain-{k.replace(' ', '-')}": f"{v:.2g} times" for k, v in gains.items()},
        }
    first = next(iter(found.items()))
    return {"best-throughput": f"error {first[1]}", **found}
