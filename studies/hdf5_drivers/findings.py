"""Rows chosen and tables made of them; what pages claim is judged on the pages themselves."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pandas as pd
from fsspec.caching import BlockCache

from helpers.benchmark import statistics
from helpers.findings import Claim, Finding, as_finding
from helpers.plotting.tables import trace_of
from studies.hdf5_drivers.drivers import DRIVERS, ONE_VARIABLE, VARIABLES
from studies.hdf5_drivers.files import StoredFile

DEFAULT = "fsspec-readahead on original"
READ_AHEAD_MB = DRIVERS["fsspec-readahead"].method.block_nbytes / 1e6

KEYS: Mapping[str, str] = {
    "xarray on original": "xarray",
    "earthaccess on original": "earthaccess",
    "fsspec-tuned on original": "settings",
    "fsspec-none on original": "uncached",
    "obstore-whole on original": "whole",
    "references on original": "references",
    "references on rechunked-8mib": "references-rechunked",
    "fsspec-tuned on rechunked-8mib": "both",
}
"""Short names of reads under which pages quote them; the others go by their own."""


def make_key(read: str) -> str:
    """Name a read as pages quote it."""
    return KEYS.get(read, read.replace(" ", "-"))


def list_layouts(reads: Iterable[str]) -> list[str]:
    """Name the layouts of each "driver on layout" once, the file as it was written first."""
    return list(dict.fromkeys(["original", *(read.partition(" on ")[2] for read in reads)]))


def describe_drivers(reads: Sequence[str]) -> pd.DataFrame:
    """Tabulate drivers and their settings."""
    names = dict.fromkeys(read.partition(" on ")[0] for read in reads)
    lines = {
        name: {
            "reads": DRIVERS[name].description,
            "settings": " ".join(f"{k}={v}" for k, v in DRIVERS[name].settings.items()) or "none",
            "in flight, at most": DRIVERS[name].concurrency,
        }
        for name in names
    }
    return pd.DataFrame(lines).T.rename_axis("driver")


def measured(rows: pd.DataFrame) -> pd.DataFrame:
    """Choose the measured rows without the control, in the order of the registry of drivers.

    `total_s` is what is judged, the time to open and read; `read` is driver and layout.
    """
    reads = rows[(rows["phase"] == "measured") & (rows["control_of"] == "")]
    place = reads["contender"].map([*DRIVERS].index)
    return reads.assign(
        place=place,
        total_s=reads["open_s"] + reads["read_s"],
        read=reads["contender"] + " on " + reads["layout"],
    ).sort_values(["place", "layout", "block"])


def select_reads(rows: pd.DataFrame, task: str = VARIABLES) -> pd.DataFrame:
    """Choose the measured reads of a task, each named by driver and layout.

    The control stays, as a copy of the read that it repeats; `total_s` is what is judged, the
    time to open and read.
    """
    part = rows[(rows["phase"] == "measured") & (rows["task"] == task)]
    is_copy = part["control_of"] != ""
    names, copied = (
        part[column] + " on " + part["layout"] for column in ("contender", "control_of")
    )
    return part.assign(
        contender=part["contender"].where(is_copy, names),
        control_of=copied.where(is_copy, ""),
        total_s=part["open_s"] + part["read_s"],
    )


_OF_THE_OTHER = {"slower": "faster", "faster": "slower"}


def compare_all(rows: pd.DataFrame) -> dict[str, Finding]:
    """Compare each other read of three variables with the default on the file as written.

    The number is how many times as fast it is, the verdict is of it.
    """
    reads = select_reads(rows)
    other_reads = dict.fromkeys(reads.loc[reads["control_of"] == "", "contender"].sort_values())
    other_reads.pop(DEFAULT)
    compared = {}
    for read in other_reads:
        of_default = statistics.compare_contenders(
            reads, DEFAULT, read, control="control", value="total_s"
        )
        verdict = _OF_THE_OTHER.get(of_default.verdict, of_default.verdict)
        compared[read] = replace(as_finding(of_default), verdict=verdict)
    return compared


def compare_one(rows: pd.DataFrame) -> dict[str, statistics.Interval]:
    """Compare the default with each other read of one variable alone."""
    reads = select_reads(rows, ONE_VARIABLE)
    other_reads = dict.fromkeys(reads["contender"].sort_values())
    other_reads.pop(DEFAULT, None)
    return {
        read: statistics.paired_ratio(reads, DEFAULT, read, value="total_s") for read in other_reads
    }


def tabulate_traces(rows: pd.DataFrame, stored: StoredFile) -> pd.DataFrame:
    """Tabulate what was asked for and what the trace says: medians over blocks.

    Bytes asked for are those of the variables as they are stored.
    """
    part = measured(rows)
    trace = trace_of(part)
    requested = [
        stored.needed_nbytes(layout, task)
        for layout, task in zip(part["layout"], part["task"], strict=True)
    ]
    columns = {
        "seconds": part["total_s"],
        "MB of values": part["array_nbytes"] / 1e6,
        "MB asked for": pd.Series(requested, part.index) / 1e6,
        "MB moved": trace["all_nbytes"] / 1e6,
        "requests": trace["all_requests"],
        "one after the other": trace["dependency_depth"],
        "in flight, most": trace["all_max_in_flight"],
    }
    keys = [part["task"], part["contender"], part["layout"]]
    medians = pd.DataFrame(columns).groupby(keys, sort=False).median()
    return medians.sort_index(level="task", ascending=False, sort_remaining=False)


def tabulate_gains(
    gains: Mapping[str, Finding], gains_of_one: Mapping[str, statistics.Interval]
) -> pd.DataFrame:
    """Tabulate over the default: of three variables, with verdicts, then of one."""
    lines = {(VARIABLES, *name.split(" on ")): finding for name, finding in gains.items()}
    lines |= {
        (ONE_VARIABLE, *name.split(" on ")): as_finding(interval)
        for name, interval in gains_of_one.items()
    }
    names = ["task", "driver", "layout"]
    cells = [
        (finding.value, finding.low, finding.high, finding.verdict) for finding in lines.values()
    ]
    columns = ["times as fast as the default", "low", "high", "verdict"]
    return pd.DataFrame(cells, pd.MultiIndex.from_tuples(lines, names=names), columns)


def find_traced(traced: pd.DataFrame) -> dict[str, Finding]:
    """Find seconds, bytes and requests of each read in a table of traces, and what was asked for."""
    findings = {}
    keys = {DEFAULT: "default", **KEYS}
    for place, line in traced.iterrows():
        task, driver, layout = cast(tuple[str, str, str], place)
        prefix = "one-" if task == ONE_VARIABLE else ""
        read = f"{driver} on {layout}"
        key = prefix + keys.get(read, make_key(read))
        findings[f"{key}-s"] = Finding(line["seconds"], unit="s")
        findings[f"{key}-mb"] = Finding(line["MB moved"], unit="MB")
        findings[f"{key}-requests"] = Finding(line["requests"])
        if read == DEFAULT:
            findings[f"{prefix}asked-mb"] = Finding(line["MB asked for"], unit="MB")
    return findings


def find_larger(larger: pd.DataFrame) -> dict[str, Finding]:
    """Find what is predicted of larger files: the default, and gains over it."""
    findings = {}
    for n, part in larger.groupby("times"):
        by_read = part.set_index(part["driver"] + " on " + part["layout"])
        default: Any = by_read.loc[DEFAULT]
        findings[f"larger-{n}-gb"] = Finding(default["file_gb"], unit="GB")
        findings[f"larger-{n}-default-s"] = Finding(default["predicted_s"], unit="s")
        findings[f"larger-{n}-default-gb"] = Finding(default["predicted_mb"] / 1e3, unit="GB")
        for read, seconds in by_read["predicted_s"].drop(DEFAULT).items():
            gain = default["predicted_s"] / float(seconds)
            findings[f"larger-{n}-gain-{make_key(str(read))}"] = Finding(gain)
    return findings


REFERENCES = "references on original"


def find_processors(rows: pd.DataFrame) -> dict[str, Finding]:
    """Find which read of three variables keeps the processors of this machine busiest.

    And what they take of a read of references to the file as it was written, where there is one:
    the seconds of its client, and the least that these take on all processors of the machine.
    """
    part = measured(rows)
    part = part[part["task"] == VARIABLES]
    n_cores = pd.Series([json.loads(text)["n_cores"] for text in part["machine"]], part.index)
    busy_percent = 100 * statistics.busy_share(part) / n_cores
    shares = busy_percent.groupby(part["read"]).median().dropna()
    findings = {}
    if len(shares):
        busiest = str(shares.idxmax())
        findings["busiest"] = Finding(shares[busiest], unit="%", verdict=busiest)
    client_s = part.loc[part["read"] == REFERENCES, "client_s"].dropna()
    if len(client_s):
        least_s = (client_s / n_cores[client_s.index]).median()
        findings["references-cpu-s"] = Finding(client_s.median(), unit="s")
        findings["references-cpu-least-s"] = Finding(least_s, unit="s")
    return findings


_NO_SLOWER = {  # what a sentence of each may quote
    "whole": ("gain-whole", "whole-s"),
    "both": ("gain-both",),
    "references": ("gain-references-rechunked", "references-rechunked-s"),
}


def judge_claims(findings: Mapping[str, Any], traced: pd.DataFrame) -> dict[str, Claim]:
    """Judge what pages say, as far as the reads that it is about are there."""
    claims = {
        f"{key}-no-slower": Claim(findings[of[0]].verdict != "slower", of=of)
        for key, of in _NO_SLOWER.items()
        if of[0] in findings
    }
    if (settings := findings.get("gain-settings")) is not None:
        is_large = findings["file-over-cache"] > 1
        holds = is_large or settings.verdict != "faster"
        claims["settings-gain-above-the-cache"] = Claim(holds, of="gain-settings")
    moved_mb = traced.loc[(VARIABLES, *DEFAULT.split(" on ")), "MB moved"]
    file_mb = findings["file-mb"].value
    is_small = file_mb < READ_AHEAD_MB
    claims["moves-more-than-the-file"] = Claim(
        is_small or moved_mb > 2 * file_mb, of=("default-mb", "default-s", "file-mb")
    )
    of_both = "gain-whole", "gain-references"
    if {*of_both} <= {*findings}:
        whole, references = (findings[key] for key in of_both)
        claims["whole-beats-references"] = Claim(whole.low > references.high, of=of_both)
    error = findings["replay-error-time"].value
    claims["predicted"] = Claim(error <= 25, of=("replay-error-time", "replay-error-requests"))
    return claims


def block_cache_nbytes() -> int:
    """Count what the block cache of the tuned file object keeps."""
    n_blocks = int(inspect.signature(BlockCache).parameters["maxblocks"].default)
    return n_blocks * int(DRIVERS["fsspec-tuned"].settings["block_size"])
