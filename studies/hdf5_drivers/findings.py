"""Rows chosen and tables made of them; what pages claim is judged on the pages themselves."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from fsspec.caching import BlockCache

from helpers.benchmark import statistics
from helpers.benchmark.record import read_published
from helpers.netem.profiles import Profile, network_of
from helpers.plotting.tables import trace_of
from studies.hdf5_drivers.drivers import DRIVERS, Driver
from studies.hdf5_drivers.file_layouts import FILE_LAYOUTS
from studies.hdf5_drivers.files import LAYOUTS, StoredFile

DEFAULT, UNTUNED, TUNED, WHOLE = "fsspec-readahead", "fsspec-none", "fsspec-tuned", "obstore-whole"
ORIGINAL = "original"

ROS3_PAIRS = (
    ("ros3-none", UNTUNED),
    ("ros3-none", TUNED),
    ("ros3", UNTUNED),
    ("ros3", TUNED),
    ("ros3-tuned", TUNED),
)
"""ROS3 and a file object of fsspec: both without a cache, both tuned, and crossed with defaults."""

TODAY_PAIRS = tuple((TUNED, name) for name in (DEFAULT, "xarray", WHOLE))
"""Tuned settings, and what people use who set nothing, or fetch the whole file."""

_PUBLISHED_LAYOUTS = {
    "original": "original",
    "page-only-4mb": "paged-4mib",
    "page-only-8mb": "paged-8mib",
    "rechunked-4mb": "rechunked-4mib",
    "rechunked-8mb": "rechunked-8mib",
}


def describe_layouts(stored: StoredFile, profile: Profile) -> pd.DataFrame:
    """Tabulate what each file says of itself, and how long reading the variables takes at least.

    Two ends of one request at a time: a request for each chunk and nothing else, and all bytes
    in one request.
    """
    network, task = network_of(profile), stored.tasks["variables"]
    first_byte_s, n_photons = network.first_byte_mean_s, 10 * (task.bounds[1] - task.bounds[0])
    lines: dict[str, dict[str, Any]] = {}
    for layout, nbytes in stored.stored_nbytes.items():
        lines[layout] = {"stored_mb": nbytes / 1e6, "made by": stored.made_by[layout]}
        if found := stored.properties.get(layout):
            chunks = [found.chunk_shapes[name][0] for name in task.variables]
            n_chunks = sum(-(-n_photons // length) for length in chunks)
            stream_s = stored.needed_nbytes(layout) / network.stream_nbytes_per_s
            lines[layout] |= {
                "page (MiB)": found.page_nbytes / 2**20,
                "photons a chunk": chunks[0],
                "metadata_mb": found.metadata_nbytes / 1e6,
                "chunks": n_chunks,
                "request a chunk (s)": n_chunks * first_byte_s + stream_s,
                "one_request_s": first_byte_s + stream_s,
            }
    return pd.DataFrame(lines).T.rename_axis("layout")


def describe_drivers(
    drivers: Sequence[Driver], absent: Mapping[str, str], versions: Mapping[str, str]
) -> pd.DataFrame:
    """Tabulate drivers, settings and versions, and those that are not here, with the reason."""
    lines = {
        driver.name: {
            "reads": driver.description,
            "settings": " ".join(f"{name}={value}" for name, value in driver.settings.items())
            or "defaults",
            "in flight, at most": driver.in_flight,
            "by": ", ".join(f"{name} {versions.get(name, '')}" for name in driver.client.libraries),
        }
        for driver in drivers
    }
    lines |= {name: {"reads": reason} for name, reason in absent.items()}
    return pd.DataFrame(lines).T.rename_axis("driver")


def measured(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """Choose the measured rows of a task, without the control, with the time of both steps.

    They come in the order of drivers and layouts, not in the random one of the blocks.
    """
    part = rows[(rows["phase"] == "measured") & (rows["task"] == task)]
    part = part[part["control_of"] == ""]
    order = {"contender": [*DRIVERS], "layout": [*LAYOUTS]}
    places = {name: part[name].map(known.index) for name, known in order.items()}
    ordered = part.assign(**{f"{name}_place": at for name, at in places.items()})
    ordered = ordered.sort_values(["contender_place", "layout_place", "block"])
    return ordered.assign(
        total_s=ordered["open_s"] + ordered["read_s"],
        converted=ordered["layout"].where(ordered["layout"].isin(FILE_LAYOUTS), "converted"),
    )


def tabulate_times(rows: pd.DataFrame, tasks: Sequence[str]) -> pd.DataFrame:
    """Tabulate median times of the tasks that were asked: a row a driver, a column a layout."""
    asked = {task: measured(rows, task) for task in tasks if task in set(rows["task"])}
    tables = {
        task: part.pivot_table(
            index="contender", columns="converted", values="total_s", aggfunc="median", sort=False
        )
        for task, part in asked.items()
    }
    return pd.concat(tables, names=["task"])


def tabulate_traces(rows: pd.DataFrame, layouts: Sequence[str]) -> pd.DataFrame:
    """Tabulate what the trace says of each driver on layouts: medians over blocks."""
    part = measured(rows, "variables")
    part = part[part["layout"].isin(layouts)]
    trace = trace_of(part)
    columns = {
        "requests to open": trace["n_open_requests"],
        "requests": trace["all_requests"],
        "MB": trace["all_nbytes"] / 1e6,
        "over-read": trace["over_read"],
        "MB fetched again": trace["repeated_nbytes"] / 1e6,
        "critical path": trace["dependency_depth"],
        "in flight, most": trace["all_max_in_flight"],
        "in flight, allowed": part["settings"].map(lambda text: json.loads(text)["concurrency"]),
    }
    keys = [part["layout"], part["contender"]]
    return pd.DataFrame(columns).groupby(keys, sort=False).median().loc[[*layouts]]


def name_read(driver: str, layout: str) -> str:
    """Name a read by its driver and its layout."""
    return f"{driver} on {layout}"


def select_reads(rows: pd.DataFrame) -> pd.DataFrame:
    """Choose the measured reads of the variables of HDF5 files, each named by driver and layout.

    The control stays, as a copy of the read that it repeats; `total_s` is what is judged, the
    time to open and read.
    """
    part = rows[(rows["phase"] == "measured") & (rows["task"] == "variables")]
    part = part[part["layout"].isin(FILE_LAYOUTS)]
    is_copy = part["control_of"] != ""
    names, copied = (part[one] + " on " + part["layout"] for one in ("contender", "control_of"))
    return part.assign(
        contender=part["contender"].where(is_copy, names),
        control_of=copied.where(is_copy, ""),
        total_s=part["open_s"] + part["read_s"],
    )


def compare_pairs(
    reads: pd.DataFrame, pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str, str], statistics.Comparison]:
    """Compare pairs of drivers, named beforehand, on each layout that both of them read."""
    there = {*reads["contender"]}
    named = {
        (layout, a, b): (name_read(a, layout), name_read(b, layout))
        for layout in FILE_LAYOUTS
        for a, b in pairs
    }
    return {
        key: statistics.compare(reads, *pair, control="control", value="total_s")
        for key, pair in named.items()
        if {*pair} <= there
    }


def find_repacked(reads: pd.DataFrame) -> str:
    """Name the layout other than the original on which tuned settings have the shortest median.

    Chosen after looking. Where tuned settings read none, any driver counts; empty where no other
    layout was read.
    """
    anew = reads[reads["layout"] != ORIGINAL]
    tuned = anew[anew["contender"].str.startswith(f"{TUNED} on ")]
    chosen = anew if tuned.empty else tuned
    medians = chosen.groupby("layout")["total_s"].median()
    return "" if medians.empty else str(medians.idxmin())


def compare_published(rows: pd.DataFrame) -> pd.DataFrame:
    """Put published ratios next to ours: untuned over tuned, and original over arranged anew.

    Published times are of opening and reading three variables of one granule, one run each.
    """
    times = read_published("hdf5_driver_access_times")
    times = times[times["file_set"] == "h5py-atl03-benchmarks.csv"]
    known = times.groupby(["driver", "optimised_io", "format"])["time_s"].median()
    reads, lines = select_reads(rows), []
    there = {*reads["contender"]}
    is_none = any(name.startswith("ros3-none on ") for name in there)
    ours = {
        ("fsspec", "no"): UNTUNED,
        ("fsspec", "yes"): TUNED,
        ("ros3", "no"): "ros3-none" if is_none else "ros3",
        ("ros3", "yes"): "ros3-tuned",
    }
    for driver, tuned, layout in list[tuple[str, str, str]](known.index):
        over = name_read(ours[driver, "no"], ORIGINAL)
        under = ours[driver, tuned], _PUBLISHED_LAYOUTS[layout]
        if over != name_read(*under) and {over, name_read(*under)} <= there:
            found = statistics.paired_ratio(reads, over, name_read(*under), value="total_s")
            gain = known[driver, "no", "original"] / known[driver, tuned, layout]
            lines.append((*under, gain, found.centre, found.low, found.high))
    columns = ["contender", "layout", "published", "ours", "low", "high"]
    return pd.DataFrame(lines, columns=columns)


def block_cache_nbytes() -> int:
    """Count what the block cache of the tuned file object keeps."""
    n_blocks = int(inspect.signature(BlockCache).parameters["maxblocks"].default)
    return n_blocks * int(DRIVERS[TUNED].settings["block_size"])
