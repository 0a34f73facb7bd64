"""One read, four ways, on one clock: `python -m studies.own_program.race` runs it, the first page shows it."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import obstore
import pandas as pd

import wire.bed
from helpers.paths import ROOT
from studies.hdf5_drivers.files import (
    THREE_VARIABLES,
    Granule,
    write_granule,
    write_references,
)
from wire.bed.store import EmulatedStore
from wire.errors import format_size

RECORD = ROOT / "results" / "traced" / "race.csv"
NETWORK = "same-region"
PROGRAMS = Path(__file__).with_name("racers")
"""One read, four ways: programs that are run and never imported, so their folder is no package.

Arguments are the URL of the file and the paths of the variables. Each prints when it began to open
the file and when it had the values, in seconds since 1970.
"""

WAYS: Mapping[str, str] = {
    "s3fs_default": "s3fs.open(url)",
    "s3fs_blocks": 's3fs.open(url, cache_type="blockcache", block_size=8 * 2**20)',
    "virtual_zarr": "virtual Zarr, references made before",
    "whole_file": "the whole file, ten ranges at once",
}
"""Programs of the race, by name, and what each calls."""

_N_PHOTONS = 13_600_000  # of the case `hdf5-drivers/granule`
_N_REPEATS = 3  # of each program: the one whose time is the median is kept


def record() -> None:
    """Run each program over the emulated network, and store the requests of the run of median time.

    The table has a row for each request, and for each way one without a request, which says when
    it began to open the file (0) and when it had the values.
    """
    with wire.bed.open_store(NETWORK) as store, TemporaryDirectory() as folder:
        path = Path(folder) / "original.h5"
        write_granule(Granule(_N_PHOTONS), path)
        with h5py.File(path) as file:
            nbytes = sum(file[name].id.get_storage_size() for name in THREE_VARIABLES)
        obstore.put(store.direct.obstore(), "original.h5", path)
        write_references(store.direct, "original")
        runs: dict[str, list[pd.DataFrame]] = {program: [] for program in WAYS}
        for _ in range(_N_REPEATS):
            for program, tables in runs.items():
                tables.append(_run(store, program))
    medians = [sorted(tables, key=_find_end)[len(tables) // 2] for tables in runs.values()]
    pd.concat(medians).assign(needed_nbytes=nbytes).to_csv(RECORD, index=False)


def _run(store: EmulatedStore, program: str) -> pd.DataFrame:
    """Run a program and return its requests, in seconds since it began to open the file."""
    store.requests()
    command = [sys.executable, str(PROGRAMS / f"{program}.py"), f"{store.location.url}/original.h5"]
    completed = subprocess.run(
        [*command, *THREE_VARIABLES], env=store.environment, capture_output=True, text=True
    )
    if completed.returncode:
        raise RuntimeError(
            f"{program} ended with {completed.returncode}: {completed.stderr[-500:]}"
        )
    began_s, ended_s = map(float, completed.stdout.split())
    rows = [
        (program, row.method, row.start_s - began_s, row.first_byte_s - began_s, row.end_s - began_s, row.nbytes)
        for row in sorted(store.requests(), key=lambda row: row.start_s)
    ]  # fmt: skip
    rows.append((program, "", 0.0, 0.0, ended_s - began_s, 0))
    columns = ["way", "method", "start_s", "first_byte_s", "end_s", "nbytes"]
    return pd.DataFrame(rows, columns=columns).round(6)


def _find_end(table: pd.DataFrame) -> float:
    return float(table.loc[table["method"].eq(""), "end_s"].iloc[0])


_WIDTH = 2000  # of a picture, in units of its own: it is stretched to the width of the page
_ROW = 5  # pixels of a request, of which concurrent ones lie below one another
_TICK_S = 5
_CAPTION = (
    "One read, four ways: three variables of a large HDF5 file, over the emulated network of the"
    " same region. A bar is a request. The first two fetch one piece after another, and many bytes"
    " more than once."
)


def write_race() -> str:
    """Write the race for the first page: a picture for each way, on one clock, and a button that plays it."""
    table = pd.read_csv(RECORD, keep_default_na=False)
    until_s = math.ceil(table["end_s"].max())
    lanes = "".join(_write_way(table[table["way"] == program], until_s) for program in WAYS)
    ticks = "".join(
        f'<span style="left:{100 * at_s / until_s:.2f}%">{at_s} s</span>'
        for at_s in range(0, until_s + 1, _TICK_S)
    )
    script = Path(__file__).with_name("race.js").read_text(encoding="utf-8")
    return (
        f'```{{raw}} html\n<figure class="race" data-until="{until_s}">{lanes}'
        f'<div class="race-axis" aria-hidden="true">{ticks}</div>'
        '<p class="race-keys"><span class="wait">waiting for the first byte</span>'
        '<span class="body">receiving</span>'
        '<button type="button" hidden>Play in real time</button></p>'
        f"<figcaption>{_CAPTION}</figcaption></figure>\n"
        f"<script>{script}</script>\n```\n"
    )


def _write_way(table: pd.DataFrame, until_s: float) -> str:
    """Write a way: what it calls and took, and its requests as bars from left to right."""
    requests = table[table["method"] != ""]
    ended_s = _find_end(table)
    facts = f"{len(requests):,} requests, {format_size(int(requests['nbytes'].sum()))} moved"
    call = escape(WAYS[str(table["way"].iloc[0])])
    label = f"<code>{call}</code>" if "(" in call else call
    rows = [*_place(requests)]
    height = _ROW * (1 + max(row for row, _, _, _ in rows))
    unit = _WIDTH / until_s
    waits, bodies = [], []
    for row, start_s, first_byte_s, end_s in rows:
        start, first, end = (round(unit * at_s) for at_s in (start_s, first_byte_s, end_s))
        waits.append(f"M{start} {_ROW * row}h{max(1, first - start)}v{_ROW - 1}H{start}z")
        if end > first:
            bodies.append(f"M{first} {_ROW * row}h{end - first}v{_ROW - 1}H{first}z")
    return (
        f'<div class="race-way" data-end="{ended_s}"><p>{label}: <b>{ended_s:.2g} s</b>, {facts}</p>'
        f'<svg role="img" aria-label="{call}: {ended_s:.2g} seconds, {facts}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}" preserveAspectRatio="none">'
        f'<path class="span" d="M0 {height}H{round(unit * ended_s)}"/>'
        f'<path class="body" d="{"".join(bodies)}"/><path class="wait" d="{"".join(waits)}"/>'
        "</svg></div>"
    )


def _place(requests: pd.DataFrame) -> Iterator[tuple[int, float, float, float]]:
    """Place each request in the first row that is free when it begins; yield the row and its three times."""
    free_s: list[float] = []
    columns = ["start_s", "first_byte_s", "end_s"]
    for start_s, first_byte_s, end_s in requests[columns].to_numpy(np.float64):
        row = next((row for row, until_s in enumerate(free_s) if until_s <= start_s), len(free_s))
        free_s[row:] = [end_s, *free_s[row + 1 :]]
        yield row, start_s, first_byte_s, end_s


if __name__ == "__main__":
    record()
