"""Tables, claims and verdicts of the study, and what pages quote."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd
from fsspec.caching import BlockCache

from helpers.benchmark import ranking as rankings
from helpers.benchmark import statistics
from helpers.benchmark.record import read_published
from helpers.netem.profiles import Profile, network_of
from helpers.plotting.tables import describe_profile, digits, tell_measuring, trace_of
from studies.hdf5_drivers.drivers import DRIVERS, Driver
from studies.hdf5_drivers.file_layouts import FILE_LAYOUTS
from studies.hdf5_drivers.files import LAYOUTS, StoredFile

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
    ("ros3", "no"): "ros3-none",  # where it is not measured: ros3
    ("ros3", "yes"): "ros3-tuned",
}


def describe_layouts(stored: StoredFile, profile: Profile) -> pd.DataFrame:
    """Tabulate what each file says of itself, and how long reading the variables takes at least.

    Two ends of one request at a time: a request for each chunk and nothing else, and all bytes
    in one request.
    """
    network, name = network_of(profile), stored.tasks["variables"].variables[0]
    per_request_s = network.first_byte_mean_s
    lines: dict[str, dict[str, Any]] = {}
    for layout, nbytes in stored.stored_nbytes.items():
        lines[layout] = {"stored (MB)": round(nbytes / 1e6, 3), "made by": stored.made_by[layout]}
        if found := stored.properties.get(layout):
            n_chunks = _count_chunks(stored, layout)
            stream_s = stored.needed_nbytes(layout) / network.stream_nbytes_per_s
            lines[layout] |= {
                "file-space strategy": found.strategy,
                "page (MiB)": found.page_nbytes / 2**20,
                "photons a chunk": found.chunk_shapes[name][0],
                "no data (MB)": round(found.metadata_nbytes / 1e6, 3),
                "chunks": n_chunks,
                "a request a chunk (s)": round(n_chunks * per_request_s + stream_s, 2),
                "one request (s)": round(per_request_s + stream_s, 3),
            }
    return pd.DataFrame(lines).T.rename_axis("layout")


def describe_drivers(
    drivers: Sequence[Driver], absent: Mapping[str, str], versions: Mapping[str, str]
) -> pd.DataFrame:
    """Tabulate drivers, settings and versions, and those that are not here, with the reason.

    The column of requests in flight says what settings or defaults let be; the trace says what is.
    """
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


def head_of(layout: str) -> str:
    """Name a layout in tables and figures: conversions, which drivers of their own read, as one."""
    return layout if layout in FILE_LAYOUTS else "converted"


def tabulate_times(rows: pd.DataFrame, *, task: str) -> pd.DataFrame:
    """Tabulate the median time to open and do a task, a row a driver, a column a layout."""
    part = measured(rows, task)
    part = part.assign(layout=part["layout"].map(head_of))
    table = part.pivot_table(
        index="contender", columns="layout", values="total_s", aggfunc="median", sort=False
    )
    return table.map(lambda value: float(f"{value:.3g}"))


def tabulate_tasks(rows: pd.DataFrame, tasks: Sequence[str]) -> pd.DataFrame:
    """Tabulate median times as `tabulate_times`, for those of several tasks that were asked."""
    asked = {task: tabulate_times(rows, task=task) for task in tasks if task in set(rows["task"])}
    return pd.concat(asked, names=["task"]) if asked else pd.DataFrame(columns=["not asked"])


def tabulate_traces(rows: pd.DataFrame, layouts: Sequence[str]) -> pd.DataFrame:
    """Tabulate what the trace says of each driver on layouts: medians over blocks."""
    part = measured(rows, "variables")
    part = part[part["layout"].isin(layouts)]
    trace = trace_of(part)
    if "all_requests" not in trace:
        return pd.DataFrame(columns=["not traced"])
    names = {
        "n_open_requests": "requests to open",
        "all_requests": "requests",
        "all_nbytes": "MB",
        "over_read": "over-read",
        "repeated_nbytes": "MB fetched again",
        "dependency_depth": "critical path",
        "all_max_in_flight": "in flight, most",
        "concurrency": "in flight, allowed",
    }
    table = trace[[name for name in names if name in trace]]
    settings = part["settings"].map(json.loads)
    table = table.assign(concurrency=[each["concurrency"] for each in settings])
    scale = {name: 1e-6 if "nbytes" in str(name) else 1.0 for name in table}
    keys = [part["layout"], part["contender"]]
    medians = (table * pd.Series(scale)).groupby(keys, sort=False).median().round(2)
    measured_on = [name for name in dict.fromkeys(layouts) if name in set(part["layout"])]
    return medians.loc[measured_on].rename(columns=names)


def compare_reads(reads: pd.DataFrame, over: str, under: str) -> statistics.Interval | None:
    """Compare two reads that `select_reads` named, paired within blocks; None where one is absent."""
    if over == under or not {over, under} <= {*reads["contender"]}:
        return None
    return statistics.paired_ratio(reads, over, under, value="total_s")


def compare_published(rows: pd.DataFrame) -> pd.DataFrame:
    """Put published ratios beside ours: untuned over tuned, and original over arranged anew.

    Published times are of opening and reading three variables of one granule, one run each.
    """
    times = read_published("hdf5_driver_access_times")
    times = times[times["file_set"] == "h5py-atl03-benchmarks.csv"]
    known = times.groupby(["driver", "optimised_io", "format"])["time_s"].median()
    reads, lines = select_reads(rows), []
    names = {split_read(name)[0] for name in reads["contender"]}  # a calibration asks others too
    names_of = {pair: name if name in names else "ros3" for pair, name in _OURS.items()}
    for driver, tuned, layout in list[tuple[str, str, str]](known.index):
        base = known.get((driver, "no", "original"))
        ours = names_of[driver, tuned], _PUBLISHED_LAYOUTS[layout]
        untuned = name_read(names_of[driver, "no"], ORIGINAL)
        found = compare_reads(reads, untuned, name_read(*ours))
        if base and found:
            gain = base / known[driver, tuned, layout]
            lines.append((*ours, gain, found.centre, found.low, found.high))
    columns = ["contender", "layout", "published", "ours", "low", "high"]
    return pd.DataFrame(lines, columns=columns).round(2)


_Pairs = Sequence[tuple[str, str]]

Claim = tuple[str, str, str]
"""A layout, a driver and another against which it is judged."""
Judged = Mapping[Claim, statistics.Comparison]
Way = Literal["settings", "layout"]
"""What is changed alone: the settings of the driver, or the layout of the file."""

UNTUNED, TUNED, WHOLE, ORIGINAL = "fsspec-none", "fsspec-tuned", "obstore-whole", "original"
NOT_MEASURED = "not measured"
_WAYS: tuple[Way, ...] = ("settings", "layout")
_TARGET_GAIN, _TARGET_REQUESTS = 20, 5
_UNSTABLE = 0.1
DEFAULT = "fsspec-readahead"
CLAIMS: _Pairs = (
    ("ros3-none", UNTUNED),
    ("ros3-none", TUNED),
    ("ros3", UNTUNED),
    ("ros3", TUNED),
    ("ros3-tuned", TUNED),
)
"""ROS3 and a file object of fsspec: both without a cache, both tuned, and crossed with defaults."""

TODAY: _Pairs = tuple((TUNED, name) for name in (DEFAULT, "xarray", WHOLE))
"""Tuned settings, and what people use who set nothing, or fetch the whole file."""


def name_read(driver: str, layout: str) -> str:
    """Name a read by its driver and its layout."""
    return f"{driver} on {layout}"


def split_read(name: str) -> tuple[str, str]:
    """Split the name of a read into its driver and its layout."""
    driver, _, layout = name.partition(" on ")
    return driver, layout


def select_reads(rows: pd.DataFrame) -> pd.DataFrame:
    """Choose the measured reads of the variables of HDF5 files, each named by driver and layout.

    The control stays, as a copy of the read that it repeats; `total_s` is what is judged, the
    time to open and read.
    """
    part = rows[(rows["phase"] == "measured") & (rows["task"] == "variables")]
    part = part[part["layout"].isin(FILE_LAYOUTS)]
    is_copy = part["control_of"] != ""
    names = [name_read(*pair) for pair in zip(part["contender"], part["layout"], strict=True)]
    copied = [name_read(*pair) for pair in zip(part["control_of"], part["layout"], strict=True)]
    return part.assign(
        contender=part["contender"].where(is_copy, pd.Series(names, part.index)),
        control_of=pd.Series(copied, part.index).where(is_copy, ""),
        total_s=part["open_s"] + part["read_s"],
    )


def list_claims(reads: pd.DataFrame, pairs: _Pairs) -> dict[Claim, tuple[str, str]]:
    """List the pairs of drivers, named beforehand, that were measured on a layout."""
    there = {*reads["contender"]}
    named = {
        (layout, a, b): (name_read(a, layout), name_read(b, layout))
        for layout in FILE_LAYOUTS
        for a, b in pairs
    }
    return {claim: pair for claim, pair in named.items() if {*pair} <= there}


def find_claims(judged: Judged) -> dict[str, str]:
    """Say with which settings ROS3 is faster than fsspec, and with which slower."""

    def where(verdict: str) -> str:
        layouts: dict[tuple[str, str], list[str]] = {}
        for (layout, a, b), found in judged.items():
            if found.verdict == verdict:
                layouts.setdefault((a, b), []).append(layout)
        told = [f"{a} over {b} on {', '.join(same)}" for (a, b), same in layouts.items()]
        nowhere = "with none of these settings" if judged else NOT_MEASURED
        return "; ".join(told) or nowhere

    n_even = sum(found.verdict == "indistinguishable" for found in judged.values())
    return {
        "ros3-faster": where("faster"),
        "ros3-slower": where("slower"),
        "ros3-undecided": str(n_even),
        "claims-judged": str(len(judged)),
    }


def find_today(judged: Judged) -> dict[str, str]:
    """Say how tuned settings compare with those that people have who set nothing."""
    told = [
        f"{found.verdict} than {b} on {layout}"
        f" ({found.ratio.centre:.2f} [{found.ratio.low:.2f}, {found.ratio.high:.2f}] of its time)"
        for (layout, _, b), found in judged.items()
    ]
    text = "; ".join(told).replace("indistinguishable than", "indistinguishable from")
    return {"tuned-against-today": text or NOT_MEASURED}


def _read_medians(part: pd.DataFrame) -> dict[tuple[str, str], pd.Series[float]]:
    """Compute the median time and trace of each driver and layout."""
    numbers = trace_of(part).assign(total_s=part["total_s"])
    groups = numbers.groupby([part["contender"], part["layout"]])
    return {key: one.median(numeric_only=True) for key, one in groups}  # type: ignore[misc]


def find_targets(rows: pd.DataFrame, both: tuple[str, str], profile: Profile) -> dict[str, str]:
    """Say whether `both`, settings and repack, gain the target, and if not, why not."""
    reads, medians = select_reads(rows), _read_medians(measured(rows, "variables"))
    opening = NOT_MEASURED
    if both in medians:
        n_open = medians[both]["n_open_requests"]
        opening = f"{n_open:.0f}, {'met' if n_open <= _TARGET_REQUESTS else 'missed'}"
    ratio = compare_reads(reads, name_read(UNTUNED, ORIGINAL), name_read(*both))
    if ratio is None:
        over = compare_reads(reads, name_read(DEFAULT, ORIGINAL), name_read(*both))
        told = f"{digits(over.centre)} times over s3fs as it is" if over else NOT_MEASURED
        targets = {"target-gain": NOT_MEASURED, "target-requests-to-open": opening}
        return {**targets, "headline": told}
    slow, fast, gain = medians[UNTUNED, ORIGINAL], medians[both], ratio.centre
    why = f"no: {name_read(*both)} takes {_explain(slow, fast, profile)}"
    return {
        "target-gain": "yes" if gain >= _TARGET_GAIN else why,
        "target-requests-to-open": opening,
        "headline": f"{digits(gain)} times, tuned and repacked",
    }


def _explain(slow: pd.Series[float], fast: pd.Series[float], profile: Profile) -> str:
    """Say where the time of a read goes, and what one stream could gain at most."""
    network = network_of(profile)
    first_byte_s = network.first_byte_mean_s
    moved_s = fast["all_nbytes"] / network.stream_nbytes_per_s
    needed_s = moved_s / fast["over_read"]
    n_waits = fast["dependency_depth"]
    return (
        f"{digits(fast['total_s'])} s, of which it waits {digits(n_waits * first_byte_s)} s"
        f" for {n_waits:.0f} answers one after the other, and its"
        f" {digits(fast['all_nbytes'] / 1e6)} MB take {digits(moved_s)} s of one stream;"
        f" one request for what is needed takes {digits(needed_s + first_byte_s)} s, so that one stream gains at most"
        f" {digits(slow['total_s'] / (needed_s + first_byte_s))} times"
    )


def find_repacked(reads: pd.DataFrame) -> str:
    """Name the layout, of those that are not the original, that suits tuned settings best.

    The tuned file object has its shortest median on it: chosen after looking. Where that was not
    asked, any driver counts; empty where no other layout was read.
    """
    anew = reads[reads["layout"] != ORIGINAL]
    tuned = anew[anew["contender"].isin([name_read(TUNED, at) for at in FILE_LAYOUTS])]
    chosen = anew if tuned.empty else tuned
    medians = chosen.groupby(["layout", "contender"])["total_s"].median()
    return "" if medians.empty else str(medians.idxmin()[0])  # type: ignore[index]


def list_ways(reads: pd.DataFrame) -> dict[Way, tuple[str, str]]:
    """Pair new settings on `find_repacked` with new settings alone, and with the layout alone.

    What was not measured is left out.
    """
    there, layout = {*reads["contender"]}, find_repacked(reads)
    together = name_read(TUNED, layout)
    alone: dict[Way, str] = {
        "settings": name_read(TUNED, ORIGINAL),
        "layout": name_read(UNTUNED, layout),
    }
    return {way: (together, one) for way, one in alone.items() if {together, one} <= there}


def find_decision(
    reads: pd.DataFrame,
    ways: Mapping[Way, tuple[str, str]],
    judged: Mapping[Way, statistics.Comparison],
) -> dict[str, str]:
    """Say what gains how much: settings alone, a new layout alone, both, and the whole file at once.

    That both are needed is said where both are judged faster than either alone. Gains are over the
    untuned driver on the original; where that was not read, over s3fs at its defaults.
    """
    if not ways:
        return {"decision": NOT_MEASURED}

    def gain(name: str, over: str) -> str:
        found = compare_reads(reads, over, name)
        return digits(found.centre) if found else NOT_MEASURED

    untuned, default = name_read(UNTUNED, ORIGINAL), name_read(DEFAULT, ORIGINAL)
    there, together = {*reads["contender"]}, next(iter(ways.values()))[0]
    over_default = {"gain-over-default": gain(together, default)}
    base = next((name for name in (untuned, default) if name in there), "")
    if not base:
        return {"decision": NOT_MEASURED, **over_default}
    alone = {way: gain(pair[1], base) for way, pair in ways.items()}
    told = [f"{each} by {way} alone" for way, each in alone.items()]
    if (whole := name_read(WHOLE, ORIGINAL)) in there:
        told.append(f"{gain(whole, base)} by fetching the whole original at once")
    word = f"both, more than {' or '.join(ways)} alone"
    if enough := [way for way in ways if judged[way].verdict != "faster"]:
        word = f"{' or '.join(enough)} alone, which cannot be told apart from both"
    elif len(ways) == len(_WAYS):
        word = "settings and layout together"
    as_fast = "times as fast" if base == untuned else "times as fast as s3fs.open at its defaults"
    text = f"{word}: {gain(together, base)} {as_fast} with both, {', '.join(told)}"
    if base == default:
        return {"decision": text, **over_default}
    return {
        "decision-layout": split_read(together)[1],
        "gain-settings-alone": alone.get("settings", NOT_MEASURED),
        "gain-layout-alone": alone.get("layout", NOT_MEASURED),
        "gain-both": gain(together, base),
        **over_default,
        "decision": text,
    }


def tell_worst_control(reads: pd.DataFrame) -> str:
    """Say by how much the control differs from what it repeats, in the block where it does most.

    A case is called unstable where that is above 10 %, pyperf's limit of a standard deviation.
    """
    is_copy = reads["control_of"] != ""
    copied = reads["contender"].isin(reads.loc[is_copy, "control_of"])
    pair = [reads[part].set_index("block")["total_s"] for part in (is_copy, copied)]
    worst = math.exp((pair[0] / pair[1]).map(math.log).abs().max()) - 1
    return f"{digits(100 * worst)} %" + (", unstable" if worst > _UNSTABLE else "")


def block_cache_nbytes() -> int:
    """Count what the block cache of the tuned file object keeps."""
    n_blocks = int(inspect.signature(BlockCache).parameters["maxblocks"].default)
    return n_blocks * int(DRIVERS[TUNED].settings["block_size"])


def tell_cache(stored_nbytes: float) -> str:
    """Compare a file with what the block cache of the tuned file object keeps."""
    nbytes = block_cache_nbytes()
    fits = "it fits whole" if stored_nbytes <= nbytes else "it does not fit"
    return f"{digits(stored_nbytes / nbytes)} of {digits(nbytes / 1e6)} MB: {fits}"


def find_all(
    rows: pd.DataFrame, profile: Profile, versions: Mapping[str, str], *, ranking: rankings.Ranking
) -> dict[str, str]:
    """Put the findings of a case into words, by the key under which pages quote them.

    What is said of the best is said of the read with the shortest median; that it is the fastest,
    or among them, is the ranking's word. Targets are of tuned settings on the best repack.
    """
    part, reads = measured(rows, "variables"), select_reads(rows)
    medians = _read_medians(part)
    files = {at: one["total_s"] for at, one in medians.items() if at[1] in FILE_LAYOUTS}
    best = split_read(ranking.best)
    worst = max(files, key=files.__getitem__)
    ratio = compare_reads(reads, name_read(UNTUNED, ORIGINAL), ranking.best)
    stored_nbytes = part.loc[part["layout"] == ORIGINAL, "stored_nbytes"].median()
    noise = statistics.noise_ratio(reads, "control", value="total_s")
    return {
        "profile": describe_profile(profile),
        "best-driver": ranking.tell(),
        "best-layout": best[1],
        "best-throughput": f"{digits(part['array_nbytes'].iloc[0] / files[best] / 1e6)} MB/s",
        "best-time": f"{digits(files[best])} s",
        "worst-driver": worst[0],
        "worst-layout": worst[1],
        "worst-time": f"{digits(files[worst])} s",
        "ratio-untuned-original-to-best": digits(ratio.centre) if ratio else NOT_MEASURED,
        "requests-to-open-best": digits(medians[best]["n_open_requests"]),
        "ros3": "built in" if versions["ros3"] == "True" else "not built in",
        "hdf5-version": versions["hdf5"],
        "file-nbytes": f"{digits(stored_nbytes / 1e6)} MB",
        "file-over-cache": tell_cache(stored_nbytes),
        **tell_measuring(part, noise),
        "aa-noise-worst": tell_worst_control(reads),
        **find_targets(rows, (TUNED, find_repacked(reads)), profile),
    }
