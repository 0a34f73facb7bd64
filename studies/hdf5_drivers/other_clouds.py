"""The same file on S3, Google Cloud and Azure: each default, blocks, and the download, over equal networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from helpers.benchmark import statistics
from helpers.findings import Claim, Finding, as_finding
from studies.hdf5_drivers.findings import DEFAULT, measured, select_reads

PROVIDERS: Mapping[str, Mapping[str, str]] = {
    "s3fs": {
        "default": DEFAULT,
        "blocks": "fsspec-tuned on original",
        "whole": "obstore-whole on original",
    },
    "gcsfs": {
        "default": "gcsfs on original",
        "blocks": "gcsfs-blocks on original",
        "whole": "google-whole on original",
    },
    "adlfs": {
        "default": "adlfs on original",
        "blocks": "adlfs-blocks on original",
        "whole": "azure-whole on original",
    },
}
"""Of each client of fsspec: its default, blocks of 8 MiB, and a download of the whole file from the same store."""


def name_reads(reads: pd.Index) -> dict[str, str]:
    """Name each read that was measured as findings do, such as `gcsfs-blocks`."""
    return {
        read: f"{client}-{way}"
        for client, ways in PROVIDERS.items()
        for way, read in ways.items()
        if read in reads
    }


def find_traced(traced: pd.DataFrame) -> dict[str, Finding]:
    """Find seconds, megabytes and requests of each read in the table of `findings.tabulate_traces`."""
    by_read = traced.droplevel("task")
    by_read.index = pd.Index([" on ".join(place) for place in by_read.index])
    findings = {}
    for read, name in name_reads(by_read.index).items():
        line: Any = by_read.loc[read]
        findings[f"{name}-s"] = Finding(line["seconds"], unit="s")
        findings[f"{name}-mb"] = Finding(line["MB moved"], unit="MB")
        findings[f"{name}-requests"] = Finding(line["requests"])
    return findings


def compare_ways(rows: pd.DataFrame) -> dict[str, Finding]:
    """Compute the time of each default over that of blocks and of the download, and over that of s3fs.

    The verdict is of the default; what was not measured is left out.
    """
    reads = select_reads(rows)
    names = {*measured(rows)["read"]}
    pairs = {
        f"{client}-over-s3fs": (ways["default"], DEFAULT) for client, ways in PROVIDERS.items()
    }
    del pairs["s3fs-over-s3fs"]
    for client, ways in PROVIDERS.items():
        pairs |= {
            f"{client}-over-{way}": (ways["default"], ways[way]) for way in ("blocks", "whole")
        }
    return {
        key: as_finding(
            statistics.compare_contenders(reads, *pair, control="control", value="total_s")
        )
        for key, pair in pairs.items()
        if {*pair} <= names
    }


def tabulate_ways(ratios: Mapping[str, Finding]) -> pd.DataFrame:
    """Tabulate ratios with their intervals; the verdict is of the first of each pair."""
    cells = [(ratio.value, ratio.low, ratio.high, ratio.verdict) for ratio in ratios.values()]
    index = pd.Index([key.replace("-", " ") for key in ratios], name="time of a default")
    return pd.DataFrame(cells, index, ["ratio", "low", "high", "verdict"])


def judge_claims(findings: Mapping[str, Finding]) -> dict[str, Claim]:
    """Judge what pages say of each client, as far as the reads that it is about are there."""
    claims = {}
    for client in PROVIDERS:
        blocks, whole = f"{client}-over-blocks", f"{client}-over-whole"
        if blocks in findings:
            holds = findings[blocks].verdict == "slower"
            claims[f"{client}-blocks-gain"] = Claim(holds, of=blocks)
        if whole in findings:
            claims[f"{client}-whole-gains"] = Claim(
                findings[whole].verdict == "slower", of=(whole, f"{client}-whole-s")
            )
    if (gcsfs := findings.get("gcsfs-over-s3fs")) is not None:
        counts = ("gcsfs-default-requests", "s3fs-default-requests")
        claims["gcsfs-slower"] = Claim(gcsfs.verdict == "slower", of="gcsfs-over-s3fs")
        n_gcsfs, n_s3fs = (findings[key].value for key in counts)
        claims["gcsfs-asks-more"] = Claim(n_gcsfs > 5 * n_s3fs, of=counts)
    return claims
