"""Jumps of the ledger's records: accesses in each release, and what the page and the feed say of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path

import pandas as pd

from helpers.benchmark.record import read_records
from helpers.findings import Claim
from helpers.paths import ROOT
from helpers.plotting.tables import trace_of
from studies.request_ledger import environments as of_chunks
from wire.ledger import environments as of_accesses
from wire.ledger.environments import Environment
from wire.ledger.jumps import (
    LEAST,
    NETWORKS,
    Jump,
    MeasuredAccess,
    explain_jump,
    find_jumps,
    read_dates,
    read_explanations,
)

REFERENCE = ROOT / "results" / "reference"
RECORDS = (
    REFERENCE / "request-jumps" / "file-objects.csv",
    REFERENCE / "request-jumps" / "groups-and-arrays.csv",
    REFERENCE / "request-jumps" / "earthaccess.csv",
    REFERENCE / "request-ledger" / "versions.csv",
)
"""Records of the ledger, whichever of them is there."""
KEY = ["client", "layout", "operation", "environment"]
DETAIL = ("n_head", "n_get", "n_list", "n_put", "unique_nbytes")
"""Counts beside those of the rule, where a record has them."""
YEARS = "year"
"""Package of a stack of a day, which has several."""


@cache
def list_environments() -> dict[str, tuple[int, Environment]]:
    """List the environments of all records by name, with their place in the order of releases."""
    listed = [*of_chunks.read_environments()[1:], *of_accesses.read_environments()[1:]]
    releases = sorted(listed, key=lambda environment: _order(environment.version))
    return {environment.name: (i, environment) for i, environment in enumerate(releases)}


@cache
def list_dates() -> dict[tuple[str, str], date]:
    """List the day of each release, and of each stack of a day."""
    stacks = {
        (YEARS, name): date.fromisoformat(environment.until)
        for name, (_, environment) in list_environments().items()
        if environment.is_stack
    }
    return stacks | read_dates()


def _order(version: str) -> tuple[int, ...]:
    """Order versions by their numbers; a stack of a day, which has none, stays where it is listed."""
    return tuple(int(part) for part in version.replace("post", "").split(".") if part.isdigit())


def tabulate(rows: pd.DataFrame) -> pd.DataFrame:
    """Make a table of a record, a line for each access of each run."""
    columns = [*KEY, "phase", "block", "n_requests", "wire_nbytes"]
    table = rows.rename(columns={"contender": "client"}).reindex(columns=columns)
    trace = trace_of(rows)
    return table.join(trace.drop(columns=[*table.columns.intersection(trace.columns)]))


def read_tables(paths: Sequence[Path] = RECORDS) -> pd.DataFrame:
    """Read the records that are there into one table."""
    tables = [tabulate(read_records([path])) for path in paths if path.exists()]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=KEY)


def list_accesses(table: pd.DataFrame) -> list[MeasuredAccess]:
    """List what each access requested with each release, of the runs that were measured.

    Left out is what a client lacks, and what made no request at all.
    """
    if not len(table):
        return []
    is_there = (table["absent"] == "") & (table["phase"] == "measured") & (table["n_requests"] > 0)
    environments = list_environments()
    accesses = []
    for key, part in table[is_there].groupby(KEY, sort=False):
        client, layout, access, name = map(str, key)
        if name not in environments:
            continue
        place, environment = environments[name]
        counts = [name for name in (*LEAST, *DETAIL) if name in part]
        first = part.sort_values("block").iloc[0]
        accesses.append(
            MeasuredAccess(
                client,
                layout,
                access,
                environment.package or YEARS,
                environment.version or environment.name,
                place,
                tuple(
                    {count: float(row[count]) for count in counts}
                    for _, row in part.sort_values("block").iterrows()
                ),
                _pair_steps(first["steps"], first["n_requests"]),
            )
        )
    return accesses


def _pair_steps(steps: Sequence[float], n_requests: float) -> tuple[float, ...]:
    """Return requests ended before and bytes, in turn; a record of the chunks has thinking between them."""
    if len(steps) == 3 * n_requests:
        pairs = zip(steps[::3], steps[2::3], strict=True)
        return tuple(number for pair in pairs for number in pair)
    return tuple(steps)


FILE = "hdf5-scattered", "three variables"
"""Layout and access of the file objects that a page quotes."""


def find_access(
    accesses: Sequence[MeasuredAccess], client: str, layout: str, access: str, version: str = ""
) -> MeasuredAccess | None:
    """Find an access with a release, or with the newest one."""
    releases = [
        entry
        for entry in accesses
        if (entry.client, entry.layout, entry.access) == (client, layout, access)
        and version in ("", entry.version)
    ]
    return max(releases, key=lambda entry: entry.place, default=None)


def count_requests(
    accesses: Sequence[MeasuredAccess], client: str, layout: str, access: str, version: str = ""
) -> float:
    """Count the requests of an access with a release, the fewest of its blocks; NaN if it is not there."""
    entry = find_access(accesses, client, layout, access, version)
    return entry.bounds("n_requests")[0] if entry else math.nan


def summarize(accesses: Sequence[MeasuredAccess]) -> dict[str, float]:
    """Summarize what prose quotes; what a case did not measure is NaN."""
    before = find_access(accesses, "gcsfs-file", *FILE, "2026.7.0")
    newest = find_access(accesses, "gcsfs-file", *FILE)
    blocks = find_access(accesses, "gcsfs-file-blocks", *FILE)
    numbers = {
        "n-client-versions": float(
            len({(entry.client, entry.package, entry.version) for entry in accesses})
        ),
        "n-jumps": float(sum(jump.is_worse for jump in find_jumps(accesses))),
        "tree-consolidated": count_requests(accesses, "xarray-tree-obstore", "tree", "open tree"),
        "tree-plain": count_requests(
            accesses, "xarray-tree-obstore", "tree-unconsolidated", "open tree"
        ),
        "tree-written": count_requests(accesses, "xarray-tree-s3fs", "written-tree", "write tree"),
        "coordinates-opened": count_requests(
            accesses, "xarray-tree-obstore", "coordinates", "open"
        ),
    }
    for name, entry in {"before": before, "newest": newest, "blocks": blocks}.items():
        numbers[f"file-{name}"] = entry.bounds("n_requests")[0] if entry else math.nan
        numbers[f"file-{name}-s"] = entry.seconds("in-region") if entry else math.nan
    return numbers


def list_claims(numbers: Mapping[str, float]) -> dict[str, Claim]:
    """List the claims that the numbers of a case bear."""
    claims = {
        "reads-one-by-one": Claim(
            numbers["file-newest"] > 3 * numbers["file-before"], of=("file-before", "file-newest")
        ),
        "blocks-take-back": Claim(
            numbers["file-blocks"] < numbers["file-before"], of=("file-blocks", "file-before")
        ),
        "consolidation-helps": Claim(
            numbers["tree-plain"] > 3 * numbers["tree-consolidated"],
            of=("tree-plain", "tree-consolidated"),
        ),
    }
    return claims


def tabulate_jumps(jumps: Sequence[Jump]) -> pd.DataFrame:
    """Tabulate jumps, newest first: counts before and after, seconds on four networks, the line that takes it back."""
    explanations, dates = read_explanations(), list_dates()
    lines = []
    for jump in jumps:
        after = jump.after
        explanation = explain_jump(jump, explanations)
        line: dict[str, object] = {
            "released": str(dates.get((after.package, after.version), "")),
            "release": f"{after.package} {after.version}",
            "client": after.client,
            "access": f"{after.access} of {after.layout}",
        }
        for count, name in zip(LEAST, ("requests", "in a chain", "MB"), strict=True):
            scale = 1e6 if count == "wire_nbytes" else 1
            values = [entry.bounds(count)[0] / scale for entry in (jump.before, after)]
            line[name] = " → ".join(f"{value:,.{1 if scale > 1 else 0}f}" for value in values)
        for network in NETWORKS:
            values = [entry.seconds(network) for entry in (jump.before, after)]
            line[f"s, {network}"] = " → ".join(f"{value:.2g}" for value in values)
        line["take it back"] = explanation.line if explanation else ""
        lines.append(line)
    table = pd.DataFrame(lines)
    return table.sort_values("released", ascending=False) if lines else table


def choose_newest(accesses: Sequence[MeasuredAccess]) -> list[MeasuredAccess]:
    """Choose each access with its newest release, the longest chain first."""
    newest: dict[tuple[str, str, str], MeasuredAccess] = {}
    for entry in sorted(accesses, key=lambda entry: entry.place):
        newest[entry.client, entry.layout, entry.access] = entry
    return sorted(newest.values(), key=lambda entry: -entry.bounds("n_waits")[0])


def tabulate_newest(accesses: Sequence[MeasuredAccess]) -> pd.DataFrame:
    """Tabulate what each client requests with the newest release: kinds of requests, bytes moved and unique."""
    lines = []
    for entry in choose_newest(accesses):
        counts = entry.blocks[0]
        lines.append(
            {
                "client": entry.client,
                "release": f"{entry.package} {entry.version}",
                "access": f"{entry.access} of {entry.layout}",
                **{name[2:].upper(): counts[name] for name in DETAIL[:4]},
                "in a chain": counts["n_waits"],
                "MB moved": counts["wire_nbytes"] / 1e6,
                "MB unique": counts["unique_nbytes"] / 1e6,
            }
        )
    return pd.DataFrame(lines)
