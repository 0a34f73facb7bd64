"""Tables and findings of the study: computed, formatted, glued."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from helpers.measurement import statistics
from helpers.models.fluid import Network
from helpers.storage.drivers import DRIVERS, Driver
from helpers.storage.hdf5.files import LAYOUTS, StoredFile
from helpers.storage.network import Profile
from helpers.study import network_of, read_published, trace_of

_NORMAL_P95 = 1.6449  # standard deviations
_PUBLISHED_LAYOUTS = {
    "original": "original",
    "page-only-4mb": "paged-4mib",
    "page-only-8mb": "paged-8mib",
    "rechunked-4mb": "rechunked-4mib",
    "rechunked-8mb": "rechunked-8mib",
}
_OURS = {
    ("fsspec", "no"): "fsspec-none",
    ("fsspec", "yes"): "fsspec-tuned",
    ("ros3", "no"): "ros3-none",  # which had no cache then; where it is not measured: ros3
    ("ros3", "yes"): "ros3-tuned",
}


def describe_layouts(stored: StoredFile) -> pd.DataFrame:
    """Tabulate what each file says of itself, and what made it."""
    lines = {}
    for name, nbytes in stored.stored_nbytes.items():
        found = stored.properties.get(name)
        chunk = found.chunk_shapes[stored.tasks["variables"].variables[0]] if found else ("",)
        lines[name] = {
            "strategy": found.strategy if found else "",
            "page (MiB)": found.page_nbytes / 2**20 if found else None,
            "photons a chunk": chunk[0],
            "stored (MB)": round(nbytes / 1e6, 1),
            "no data (MB)": round(found.metadata_nbytes / 1e6, 1) if found else None,
            "made by": stored.made_by[name],
        }
    return pd.DataFrame(lines).T.rename_axis("layout").fillna("")


def describe_drivers(drivers: Sequence[Driver], absent: Mapping[str, str]) -> pd.DataFrame:
    """Tabulate the drivers and their settings, and those that are not here, with the reason."""
    lines = {
        driver.name: {
            "reads": driver.description,
            "settings": " ".join(f"{name}={value}" for name, value in driver.settings.items()),
        }
        for driver in drivers
    }
    lines |= {name: {"reads": reason, "settings": ""} for name, reason in absent.items()}
    return pd.DataFrame(lines).T.rename_axis("driver")


def predict_floor(stored: StoredFile, profile: Profile, layouts: Sequence[str]) -> pd.DataFrame:
    """Predict how long reading the variables takes at least: one request at a time.

    Two ends: a request for each chunk and nothing else, and all bytes in one request.
    """
    network: Network = network_of(profile)
    per_request_s = mean_first_byte_s(network)
    lines = {}
    for layout in [name for name in layouts if name in stored.properties]:
        n_chunks = _count_chunks(stored, layout)
        nbytes = stored.needed_nbytes(layout)
        stream_s = nbytes / network.stream_nbytes_per_s
        lines[layout] = {
            "chunks": n_chunks,
            "needed (MB)": round(nbytes / 1e6, 2),
            "a request a chunk (s)": round(n_chunks * per_request_s + stream_s, 2),
            "one request (s)": round(per_request_s + stream_s, 3),
        }
    return pd.DataFrame(lines).T.rename_axis("layout")


def mean_first_byte_s(network: Network) -> float:
    """Compute the mean of a log-normal delay from its median and 95th percentile."""
    if network.first_byte_median_s == 0:
        return 0.0
    sigma = math.log(network.first_byte_p95_s / network.first_byte_median_s) / _NORMAL_P95
    return network.first_byte_median_s * math.exp(sigma**2 / 2)


def _count_chunks(stored: StoredFile, layout: str) -> int:
    task, found = stored.tasks["variables"], stored.properties[layout]
    n_photons = 10 * (task.bounds[1] - task.bounds[0])
    return sum(-(-n_photons // found.chunk_shapes[name][0]) for name in task.variables)


def measured(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """Choose the measured rows of a task, without the control, with the time of both steps.

    They come in the order of drivers and layouts, not in the random one of the blocks.
    """
    part = rows[(rows["phase"] == "measured") & (rows["task"] == task)]
    part = part[part["control_of"] == ""]
    names = list(DRIVERS)
    keys = zip(part["contender"], part["layout"], part["block"], strict=True)
    places = [(names.index(name), LAYOUTS.index(layout), block) for name, layout, block in keys]
    ordered = part.iloc[sorted(range(len(places)), key=places.__getitem__)]
    return ordered.assign(total_s=ordered["open_s"] + ordered["read_s"])


def tabulate_times(rows: pd.DataFrame, *, task: str) -> pd.DataFrame:
    """Tabulate the median time to open and do a task, a row a driver, a column a layout."""
    part = measured(rows, task)
    table = part.pivot_table(
        index="contender", columns="layout", values="total_s", aggfunc="median", sort=False
    )
    return table.map(lambda value: "" if math.isnan(value) else float(f"{value:.3g}"))


def tabulate_tasks(rows: pd.DataFrame, tasks: Sequence[str]) -> pd.DataFrame:
    """Tabulate median times as `tabulate_times`, for those of several tasks that were asked."""
    asked = {task: tabulate_times(rows, task=task) for task in tasks if task in set(rows["task"])}
    return pd.concat(asked, names=["task"]) if asked else pd.DataFrame(columns=["not asked"])


def tabulate_traces(rows: pd.DataFrame, *, task: str, layout: str) -> pd.DataFrame:
    """Tabulate what the trace says of each driver on a layout: medians over blocks."""
    part = measured(rows, task)
    part = part[part["layout"] == layout]
    trace = trace_of(part)
    if "all_requests" not in trace:
        return pd.DataFrame(columns=["not traced"])
    names = {
        "n_open_requests": "requests to open",
        "all_requests": "requests",
        "all_nbytes": "MB",
        "over_read": "over-read",
        "repeated_nbytes": "MB fetched again",
        "dependency_depth": "depth",
        "all_max_in_flight": "in flight, most",
    }
    table = trace[[name for name in names if name in trace]].assign(contender=part["contender"])
    for name in ("all_nbytes", "repeated_nbytes"):
        table[name] = table[name] / 1e6
    return table.groupby("contender", sort=False).median().round(2).rename(columns=names)


def paired(
    part: pd.DataFrame, over: tuple[str, str], under: tuple[str, str]
) -> statistics.Interval | None:
    """Compare two contenders on two layouts, paired within blocks."""
    keys = list(zip(part["contender"], part["layout"], strict=True))
    if over == under or over not in keys or under not in keys:
        return None
    labels = {over: "over", under: "under"}
    chosen = part.assign(contender=[labels.get(key, "") for key in keys])
    chosen = chosen[chosen["contender"] != ""]
    return statistics.paired_ratio(chosen, "over", "under", value="total_s")


def compare_published(rows: pd.DataFrame) -> pd.DataFrame:
    """Put published ratios beside ours: untuned over tuned, and original over arranged anew.

    Published times are of opening and reading three variables of one granule, one run each.
    """
    times = read_published("hdf5_driver_access_times")
    times = times[times["file_set"] == "h5py-atl03-benchmarks.csv"]
    known = times.groupby(["driver", "optimised_io", "format"])["time_s"].median()
    rows_of_task, lines = measured(rows, "variables"), []
    names = set(rows_of_task["contender"])
    names_of = {pair: name if name in names else "ros3" for pair, name in _OURS.items()}
    for driver, tuned, layout in list[tuple[str, str, str]](known.index):
        time_s = known[driver, tuned, layout]
        base = known.get((driver, "no", "original"))
        ours = names_of[driver, tuned], _PUBLISHED_LAYOUTS[layout]
        found = paired(rows_of_task, (names_of[driver, "no"], "original"), ours)
        if base and found:
            lines.append((*ours, base / time_s, found.centre, found.low, found.high))
    columns = ["contender", "layout", "published", "ours", "low", "high"]
    return pd.DataFrame(lines, columns=columns).round(2)
