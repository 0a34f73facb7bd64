"""The study of Rew as it was made: six chunk sizes and shapes, two accesses, and rewriting by two tools."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from helpers.arrays.stores import checksum
from helpers.benchmark import statistics
from helpers.benchmark.contender import CheckError, Contender, Steps
from helpers.benchmark.record import read_published
from helpers.benchmark.statistics import Interval
from helpers.findings import Finding, FindingLike
from helpers.plotting import tables
from helpers.plotting.figures import number_axis
from helpers.plotting.palette import CHARCOAL
from studies.chunk_shape import layouts
from studies.chunk_shape.findings import list_biases, tabulate
from studies.chunk_shape.layouts import FILTERS, ChunkLayout, drop_pages
from studies.chunk_shape.workload import HyperslabRead, leave_first, make_contender
from wire.errors import UserError
from wire.models.access import Shape, balanced_chunk_shape

CONTIGUOUS = ("contiguous, time fastest", "contiguous, time slowest")
KIB = (4096, 1024, 16, 8, 4)
"""Chunk bytes of the tables, in KiB; the study has 16 on SSD alone, and no rewrite to it."""
LARGEST, COPIED = "balanced 4096 KiB", "balanced 1024 KiB"
ORDER = [*CONTIGUOUS, *(f"balanced {kib} KiB" for kib in KIB)]


def list_layouts(shape: Shape) -> list[ChunkLayout]:
    """List the layouts of the study, in files as netCDF-4 wrote them then, with B-trees as index."""
    layouts = [
        ChunkLayout(CONTIGUOUS[0], None, (1, 2, 0), "earliest"),
        ChunkLayout(CONTIGUOUS[1], None, libver="earliest"),
    ]
    for kib in KIB:
        chunk = balanced_chunk_shape(shape, 4, 1024 * kib)
        layouts.append(ChunkLayout(f"balanced {kib} KiB", chunk, libver="earliest"))
    return layouts


def _with_nccopy(source: Path, target: Path, chunk: Shape) -> None:
    shape = ",".join(map(str, chunk))
    # else chunks below 8 KiB are not made
    _run(["nccopy", "-M0", "-d", "1", "-s", "-c", f"t:{shape}", source, target])


def _with_h5repack(source: Path, target: Path, chunk: Shape) -> None:
    shape = "x".join(map(str, chunk))
    _run(["h5repack", "-l", f"t:CHUNK={shape}", "-f", "t:SHUF", "-f", "t:GZIP=1", source, target])


def _with_dask(source: Path, target: Path, chunk: Shape) -> None:
    """Store slabs of the array, each some chunks thick, so that each chunk is written once."""
    with h5py.File(source) as old, h5py.File(target, "w") as new:
        slab = (-(-1000 // chunk[0]) * chunk[0], *old["t"].shape[1:])
        array: Any = da.from_array(old["t"], slab, lock=True)  # type: ignore[no-untyped-call]
        dataset = new.create_dataset("t", array.shape, "f4", chunks=chunk, **FILTERS)
        da.store(array, dataset, lock=True, scheduler="threads")


TOOLS: Mapping[str, Callable[[Path, Path, Shape], None]] = {
    "nccopy": _with_nccopy,
    "h5repack": _with_h5repack,
    "dask": _with_dask,
}
"""What rewrites a file in other chunks: the two tools of the study, and Dask of today."""

PACKAGES = {"nccopy": "netcdf-bin", "h5repack": "hdf5-tools"}


def find_absent() -> dict[str, str]:
    """Find the tools that are not installed, each with how to get it."""
    return {
        tool: f"not installed; allowed: apt install {package}, or conda-forge"
        for tool, package in PACKAGES.items()
        if shutil.which(tool) is None
    }


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = (done.stderr.strip() or "no answer").splitlines()[-1]
        raise UserError(str(command[0]), message)


@dataclass(slots=True)
class Rewrite(Steps):
    """A file rewritten in other chunks by a tool, from a source whose pages are dropped."""

    tool: str
    source: Path
    layout: ChunkLayout  # which the target gets
    expected: int  # checksum of the values

    @property
    def target(self) -> Path:
        """Where it is written."""
        return self.source.with_name(f"rewritten-by-{self.tool}.h5")

    def settings(self) -> dict[str, Any]:
        """Declare what a comparison has to hold equal."""
        chunk = "x".join(map(str, self.layout.chunk_shape or ()))
        return {"codec": "shuffle, deflate", "cache_state": "pages dropped", "chunks": chunk}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the array."""
        return (self.source.stat().st_size,) * 2

    def prepare(self) -> None:
        """Remove what was written before."""
        self.target.unlink(missing_ok=True)
        drop_pages(self.source)

    def read(self, _opened: None) -> None:
        """Rewrite; nothing says that it is on the disk by then."""
        TOOLS[self.tool](self.source, self.target, self.layout.chunk_shape or ())

    def check(self, _result: None) -> str:
        """Compare chunks and values with those asked for, and remove the file."""
        with h5py.File(self.target) as file:
            written = file["t"].chunks, checksum(file["t"][...])
        self.target.unlink()
        if written != (self.layout.chunk_shape, self.expected):
            raise CheckError(f"{self.tool}: {self.layout.name} has chunks or values of its own")
        return "xxh3 of the rewritten array"

    def versions(self) -> dict[str, str]:
        """Ask the tool for its version; Dask's is named without being asked."""
        command = [self.tool, "--version"] if self.tool in PACKAGES else ["true"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        match = re.search(r"[Vv]ersion (\S+)", done.stdout + done.stderr)
        return {f"library of {self.tool}": match[1]} if match else {}


def plan_rewrites(
    values: NDArray[np.float32], chosen: Sequence[ChunkLayout], absent: Container[str]
) -> list[Rewrite]:
    """List the rewrites: each tool that is here, to each target of the study, from one without chunks."""
    source = layouts.prepare_hdf5(values, ChunkLayout(CONTIGUOUS[1], None, libver="earliest"))
    expected = checksum(values)
    targets = [
        layout for layout in chosen if layout.name in read_rewrites().index.get_level_values(0)
    ]
    return [
        Rewrite(tool, source, target, expected)
        for target in targets
        for tool in TOOLS
        if tool not in absent
    ]


def make_contenders(reads: Sequence[HyperslabRead], rewrites: Sequence[Rewrite]) -> list[Contender]:
    """Make a contender of each series and slice, a second copy of one layout's, and each rewrite."""
    unboxed = [read for read in reads if read.access.name != "box"]
    copied = [replace(read) for read in unboxed if read.layout.name == COPIED]
    contenders = [
        *map(make_contender, unboxed),
        *(make_contender(read, "control", COPIED) for read in copied),
    ]
    for rewrite in rewrites:
        point = {"access": "rewrite", "medium": "hdf5", "target": rewrite.layout.name}
        contenders.append(
            Contender(rewrite.tool, rewrite, point=point, group=f"rewrite {rewrite.layout.name}")
        )
    return contenders


def count_stored(reads: Sequence[HyperslabRead]) -> pd.Series[float]:
    """Count the bytes of all chunks as they are stored, without their index, by layout."""
    nbytes = {}
    for read in reads:
        if read.layout.chunk_shape is not None:
            with read.opener().file as file:
                nbytes[read.layout.name] = float(file["t"].id.get_storage_size())
    return pd.Series(nbytes)


def compare_first(rows: pd.DataFrame) -> pd.Series[float]:
    """Compute each first read after opening over the mean of the later ones, by layout, access and block."""
    part = rows[(rows["phase"] == "measured") & (rows["control_of"] == "")]
    part = part.join(tables.trace_of(part).reindex(columns=["box_s"])).dropna(subset="box_s")
    box_s = part.set_index(["contender", "access", "block"])["box_s"]
    return box_s.sort_index().map(lambda times_s: times_s[0] / np.mean(leave_first(times_s)))


def compare_tools(rows: pd.DataFrame) -> dict[tuple[str, str], Interval]:
    """Compute the time of each rewrite over that of nccopy, by target and tool, paired within blocks."""
    ratios = {}
    for target, part in rows[rows["access"] == "rewrite"].groupby("target"):
        tools = [tool for tool in TOOLS if {tool, "nccopy"} <= {*part["contender"]}]
        for tool in tools[1:]:
            ratios[str(target), tool] = statistics.paired_ratio(part, tool, "nccopy")
    return ratios


def compare_shapes(blocks: pd.DataFrame) -> Interval:
    """Compute the slower access without chunks over that of the slowest chunks: shape, sizes apart."""
    part = blocks[blocks["control_of"] == ""].set_index(["block", "contender"])
    slower = part[["series", "slice"]].max(axis=1).unstack()
    over = slower[[*CONTIGUOUS]].max(axis=1) / slower.drop(columns=[*CONTIGUOUS]).max(axis=1)
    quantity = "slower access, without chunks over slowest chunks"
    return replace(statistics.ratio_interval(np.log(over.to_numpy(np.float64))), quantity=quantity)


def read_study() -> pd.DataFrame:
    """Read the published tables, by layout: seconds of each access and bias, of 16 KiB on SSD."""
    rows = read_published("rew2013_access_times").replace(
        {"spatial_slice": "slice", "time_series": "series"}
    )
    sizes = rows["chunk_kb_nominal"].fillna(0).map("balanced {:.0f} KiB".format)
    whole = rows["layout"].str.replace("contiguous", "contiguous,")
    rows = rows.assign(contender=sizes.where(rows["layout"] == "chunked", whole))
    rows = rows.drop_duplicates(["contender", "access"])  # disk stands before SSD
    wide: Any = rows.pivot(index="contender", columns="access")
    table = wide["time_s"].rename(columns=lambda name: f"theirs, {name} (s)")
    table["theirs, bias"] = wide["time_s"].max(axis=1) / wide["time_s"].min(axis=1)
    first = wide["first_read_time_s"]["series"] / wide["time_s"]["series"]
    return pd.DataFrame(table.assign(**{"theirs, first over later": first}))


def read_rewrites() -> pd.DataFrame:
    """Read the published minutes of h5repack over those of nccopy, by target and tool."""
    rows = read_published("rew2013_rechunking_minutes")
    target = rows["chunk_kb_nominal"].map("balanced {:.0f} KiB".format)
    wide: Any = rows.assign(target=target).pivot(index=["target", "medium"], columns="tool")
    over = wide["time_min"]["h5repack"] / wide["time_min"]["nccopy"]
    table = over.unstack("medium").assign(contender="h5repack")
    return pd.DataFrame(table.set_index("contender", append=True).add_prefix("theirs, "))


def tabulate_rewrites(
    rows: pd.DataFrame, over: Mapping[tuple[str, str], Interval], absent: Mapping[str, str]
) -> pd.DataFrame:
    """Tabulate each rewrite: seconds, how many times nccopy's, and those published; else why not."""
    part = statistics.measured(rows[rows["access"] == "rewrite"])
    seconds = part.groupby(["target", "contender"])["read_s"].median()
    ratios = tabulate(over).rename(columns={"median": "over nccopy"})
    ratios.index = pd.MultiIndex.from_tuples(ratios.index, names=seconds.index.names)
    table = seconds.to_frame("seconds").join(ratios).join(read_rewrites())
    why = {("every target", tool): reason for tool, reason in absent.items()}
    lacking = pd.DataFrame({"absent": pd.Series(why, dtype=object)})
    ordered = [
        table.loc[[target_name]]
        for target_name in ORDER
        if target_name in table.index.get_level_values(0)
    ]
    return pd.concat([*ordered, lacking] if why else ordered)


def draw_study(axes: Sequence[Axes], biases: pd.DataFrame, rewrites: pd.DataFrame) -> None:
    """Draw the bias of each layout, and each rewrite over nccopy; what is published is hollow."""
    hollow: dict[str, Any] = {"markerfacecolor": "none", "color": CHARCOAL, "linestyle": "none"}
    by_tool = {str(tool): part.droplevel(1) for tool, part in rewrites.groupby(level=1)}
    drawn = {"ours": (biases, "bias")}
    drawn |= {tool: (part, "over nccopy") for tool, part in by_tool.items() if tool != "nccopy"}
    for name, (table, column) in drawn.items():
        ends: Any = [table[column] - table["low"], table["high"] - table[column]]
        axes[int(name != "ours")].errorbar(
            _shorten_names(table.index), table[column], ends, fmt="o", label=name
        )
    published = read_study().reindex(biases.index)["theirs, bias"]
    axes[0].plot(_shorten_names(published.index), published, "D", label="published", **hollow)
    for column, marker in {"theirs, disk": "D", "theirs, ssd": "s"}.items():
        published_over = read_rewrites()[column].droplevel(1)
        axes[1].plot(
            _shorten_names(published_over.index),
            published_over,
            marker,
            label=column.replace("theirs", "h5repack, published"),
            **hollow,
        )
    for ax, title in zip(axes, ("slower over faster access", "rewrite over nccopy"), strict=True):
        ax.set(yscale="log", title=title)
        ax.tick_params(axis="x", rotation=60)
        number_axis(ax.yaxis)
        ax.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.4), frameon=False)


def _shorten_names(names: Iterable[Any]) -> list[str]:
    """Spell layouts as short as an axis has room."""
    return [re.sub("balanced |contiguous, ", "", name) for name in names]


def find_all(
    rows: pd.DataFrame, blocks: pd.DataFrame, biases: pd.DataFrame, stored: pd.Series[float]
) -> dict[str, FindingLike]:
    """Find what the page prints, as far as its tools were there."""
    part: Any = compare_first(rows)["balanced 4 KiB", "series"]
    first = np.log(part.to_numpy(np.float64))
    quantity = "first read over later ones, series, balanced 4 KiB"
    results: dict[str, FindingLike] = {
        **list_biases(biases, ["hdf5"], {f"bias-{n}-kib": f"balanced {n} KiB" for n in (8, 4)}),
        "shape-over-size": compare_shapes(blocks),
        "first-read-4-kib": replace(statistics.ratio_interval(first), quantity=quantity),
    }
    for (target, tool), ratio in compare_tools(rows).items():
        results[f"{tool}-over-nccopy-{target.split()[1]}-kib"] = ratio
    quantity = "stored bytes, balanced 4 KiB over 4096 KiB"
    over = stored["balanced 4 KiB"] / stored[LARGEST]
    return results | {"stored-smallest-over-largest": Finding(over, quantity=quantity)}
