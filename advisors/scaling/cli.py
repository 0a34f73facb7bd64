"""``wire fit``: what a cluster grows to, from runs."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from advisors.scaling.curve import LAWS, LEVEL, CurveFit, fit_curve
from helpers.errors import UserError, cut, say, show

_THROUGHPUTS = {"throughput_mb_per_s": 1e6, "throughput_gb_per_s": 1e9}  # bytes per second
_COLUMNS = ("n_workers", "seconds", *_THROUGHPUTS, "n_chunks", "nbytes")
_MOST_NBYTES, _MOST_RUNS = 10_000_000, 10_000  # of a file


@click.command()
@click.argument("path", metavar="FILE.csv")
@click.option("--workers", "sizes", multiple=True, type=float, help="A cluster size to predict.")
@click.option("--chunks", type=float, help="Chunks of the predicted reads; else as measured.")
@click.option("--cores", default=1.0, show_default=True, help="Chunks at once in a worker.")
@click.option("--link", type=float, help="MB/s that all workers share at most, if known.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def fit(
    path: str,
    sizes: Sequence[float],
    chunks: float | None,
    cores: float,
    link: float | None,
    is_json: bool,
) -> None:
    """Fit a scaling curve: one row a run, with n_workers and seconds or a throughput.

    Columns: n_workers; seconds, throughput_mb_per_s or throughput_gb_per_s; n_chunks and nbytes of
    a run, if known. Rows may have any order, and runs of one size stay runs.
    """
    runs = read_runs(path)
    nbytes = statistics.median(runs["nbytes"]) if "nbytes" in runs else None
    of_link = None if link is None else link * 1e6
    given = (runs["n_workers"], runs["seconds"], runs.get("n_chunks"))
    found = describe(fit_curve(*given, cores, of_link, nbytes), sizes, chunks)
    say(json.dumps(found, indent=2) if is_json else "\n".join(_format(found)))


def read_runs(path: str) -> dict[str, list[float]]:
    """Read the columns of a CSV file that a fit uses; a throughput becomes seconds."""
    file, reason = Path(path), ""
    try:
        if not file.is_file():
            reason = "it is no file"
        elif not file.stat().st_size:  # nor has what the kernel never ends
            reason = "it is empty"
        elif file.stat().st_size > _MOST_NBYTES:
            reason = f"it has more than {_MOST_NBYTES / 1e6:g} MB"
        else:
            reader = csv.DictReader(io.StringIO(file.read_text(encoding="utf-8-sig")), strict=True)
            header, lines = [*(reader.fieldnames or ())], [*reader]
            reason = f"it has more than {_MOST_RUNS} runs" * (len(lines) > _MOST_RUNS)
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is no CSV in UTF-8"
    if reason:
        raise UserError(f"{cut(path)}: not read: {reason}; allowed: a CSV file of runs")
    names = [name for name in _COLUMNS if name in header]
    of_time = [name for name in names if name == "seconds" or name in _THROUGHPUTS]
    if "n_workers" not in names or len(of_time) != 1:
        raise UserError(
            f"{cut(path)}: columns {show(header)}; allowed: n_workers and one of"
            f" seconds, {', '.join(_THROUGHPUTS)}"
        )
    runs = {name: [_number(i, name, row[name]) for i, row in enumerate(lines, 1)] for name in names}
    if of_time[0] in _THROUGHPUTS:  # without bytes, the seconds of 1 GB have the same shape
        unit, rates = _THROUGHPUTS[of_time[0]], runs.pop(of_time[0])
        nbytes = runs.get("nbytes", [1e9] * len(rates))
        runs["seconds"] = [n / (rate * unit) for n, rate in zip(nbytes, rates, strict=True)]
    return runs


def _number(row: int, name: str, text: str | None) -> float:
    """Read a number that may be divided by, or name its row."""
    try:
        value = float(text or "")
    except ValueError:
        value = 0.0
    if not 1e-15 < value < 1e30:
        raise UserError(f"row {row}: {name}: {show(text)}; allowed: numbers above 0, and finite")
    return value


def describe(fitted: CurveFit, sizes: Sequence[float], n_chunks: float | None) -> dict[str, Any]:
    """Gather what a fit says, as plain numbers."""
    sizes = sizes or (fitted.largest, 2 * fitted.largest, 4 * fitted.largest)
    others = {law: fitted.predict_by(law, sizes, n_chunks=n_chunks) for law in LAWS}
    seconds = fitted.predict(sizes, n_chunks=n_chunks)
    return {
        "level": LEVEL,
        "predictions": [
            {"n_workers": n, "seconds": asdict(one), **{law: others[law][i] for law in others}}
            for i, (n, one) in enumerate(zip(sizes, seconds, strict=True))
        ],
        "n_chunks": (n_chunks or fitted.n_chunks) if fitted.has_chunks else None,
        "largest": fitted.largest,
        "is_slower": fitted.is_slower,
        "cycle_s": fitted.cycle_s,
        "start_s": fitted.start_s,
    }


def _format(found: dict[str, Any]) -> list[str]:
    """Write what a fit says as lines of text, intervals first."""
    span = f"{found['level']} % of runs (s)"
    of = f"a read of {found['n_chunks']:g} chunks" if found["n_chunks"] else "the read"
    lines = [
        f"seconds of {of}",
        f"{'workers':>8}  {span:22} {'middle':>8} {'Amdahl':>8} {'USL':>8}",
    ]
    for row in found["predictions"]:
        one = row["seconds"]
        ends = f"{one['low']:.3g} to {one['high']:.3g}"
        laws = f"{one['value']:8.3g} {row['amdahl']:8.3g} {row['usl']:8.3g}"
        lines.append(f"{row['n_workers']:8g}  {ends:22} {laws}")
    if found["is_slower"]:
        return [
            *lines,
            "",
            f"not faster any more at {found['largest']:g} workers, the most measured",
        ]
    unit = "chunk" if found["n_chunks"] else "read"
    start = f"{found['start_s']:.3g} s no worker shortens"
    return [*lines, "", f"a slot takes {found['cycle_s']:.3g} s for a {unit}; {start}"]
