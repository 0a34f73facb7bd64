"""``wire fit`` and ``wire simulate``: what a cluster grows to, from runs or from a network."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from advisors.scaling.curve import LAWS, LEVEL, CurveFit, fit_curve
from helpers.errors import UserError, cut, show

_THROUGHPUTS = {"throughput_mb_per_s": 1e6, "throughput_gb_per_s": 1e9}  # bytes per second
_COLUMNS = ("n_workers", "seconds", *_THROUGHPUTS, "n_chunks", "nbytes")


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
    found = describe(fit_curve(*given, cores, of_link, nbytes), sizes, chunks, nbytes)
    click.echo(json.dumps(_finite(found), indent=2) if is_json else "\n".join(_format(found)))


def read_runs(path: str) -> dict[str, list[float]]:
    """Read the columns of a CSV file that a fit uses; a throughput becomes seconds."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise UserError(f"{cut(path)}: not read: {reason}; allowed: a CSV file") from error
    reader = csv.DictReader(io.StringIO(text))
    names = [name for name in _COLUMNS if name in (reader.fieldnames or ())]
    of_time = [name for name in names if name == "seconds" or name in _THROUGHPUTS]
    if "n_workers" not in names or len(of_time) != 1:
        raise UserError(
            f"{cut(path)}: columns {show(reader.fieldnames or [])}; allowed: n_workers and one of"
            f" seconds, {', '.join(_THROUGHPUTS)}"
        )
    rows = [{name: _number(reader.line_num, name, row[name]) for name in names} for row in reader]
    runs = {name: [row[name] for row in rows] for name in names}
    if of_time[0] in _THROUGHPUTS:  # without bytes, the seconds of 1 GB have the same shape
        unit, rates = _THROUGHPUTS[of_time[0]], runs.pop(of_time[0])
        nbytes = runs.get("nbytes", [1e9] * len(rates))
        runs["seconds"] = [n / (rate * unit) for n, rate in zip(nbytes, rates, strict=True)]
    return runs


def _number(line: int, name: str, text: str | None) -> float:
    """Read a number above 0, or name its line."""
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UserError(f"line {line}: {name}: {show(text)}; allowed: numbers above 0, and finite")
    return value


def describe(
    fitted: CurveFit, sizes: Sequence[float], n_chunks: float | None, nbytes: float | None
) -> dict[str, Any]:
    """Gather what a fit says, as plain numbers; of an unseen knee only what was measured."""
    sizes = sizes or (fitted.largest, 2 * fitted.largest, 4 * fitted.largest)
    others = {law: fitted.predict_by(law, sizes, n_chunks=n_chunks) for law in LAWS[1:]}
    seconds, gain = fitted.predict(sizes, n_chunks=n_chunks), fitted.double()
    mb = None if nbytes is None else nbytes / fitted.n_chunks / 1e6
    return {
        "level": LEVEL,
        "predictions": [
            {"n_workers": n, "seconds": asdict(one), **{law: others[law][i] for law in others}}
            for i, (n, one) in enumerate(zip(sizes, seconds, strict=True))
        ],
        "unit": "chunk" if fitted.has_chunks else "read",
        "largest": fitted.largest,
        "is_slower": fitted.is_slower,
        "speedup_of_doubling": asdict(gain) if gain else None,
        "cycle_s": fitted.cycle_s,
        "start_s": fitted.start_s,
        "is_knee_seen": fitted.is_knee_seen,
        "ceiling_per_s": asdict(fitted.ceiling) if fitted.is_knee_seen else None,
        "knee_workers": asdict(fitted.knee_workers) if fitted.is_knee_seen else None,
        "largest_measured_per_s": fitted.most_per_s,
        "mb_per_chunk": mb,
    }


def _format(found: dict[str, Any]) -> list[str]:
    """Write what a fit says as lines of text, intervals first."""
    n, gain, unit = found["largest"], found["speedup_of_doubling"], found["unit"]
    rate = (
        found["ceiling_per_s"]["value"]
        if found["is_knee_seen"]
        else found["largest_measured_per_s"]
    )
    of_bytes = f", {rate * found['mb_per_chunk']:.3g} MB/s" if found["mb_per_chunk"] else ""
    lines = [
        f"{'workers':>8}  {'seconds, ' + str(LEVEL) + ' % of runs':22} {'middle':>8} {'Amdahl':>8} {'USL':>8}"
    ]
    for row in found["predictions"]:
        one = row["seconds"]
        span = f"{one['low']:.3g} to {one['high']:.3g}"
        lines.append(
            f"{row['n_workers']:8g}  {span:22} {one['value']:8.3g} {row['amdahl']:8.3g} {row['usl']:8.3g}"
        )
    if found["is_slower"]:
        lines += [
            "",
            f"not faster any more at {n:g} workers, the largest cluster that was measured",
        ]
    else:
        lines += [
            "",
            f"{n:g} to {2 * n:g} workers: {gain['low']:.3g} to {gain['high']:.3g} times as fast",
        ]
    if found["is_knee_seen"]:
        knee = found["knee_workers"]
        lines += [
            f"ceiling: {rate:.3g} {unit}s/s{of_bytes}, reached with {knee['low']:.3g} to {knee['high']:.3g} workers"
        ]
    else:
        lines += [f"ceiling: not seen; the largest measured rate is {rate:.3g} {unit}s/s{of_bytes}"]
    if found["cycle_s"]:
        lines.append(
            f"a slot takes {found['cycle_s']:.3g} s for a {unit}; {found['start_s']:.3g} s no worker shortens"
        )
    return lines  # fmt: skip


def _finite(value: Any) -> Any:
    """Put null where JSON has no number."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_COUNT, _AMOUNT = click.IntRange(1, 10**12), click.FloatRange(0, 1e12)


@click.command()
@click.option("--profile", default="in-region", show_default=True, help="Network and store.")  # fmt: skip
@click.option("--workers", default="1,10,100,1000,10000", show_default=True, help="Cluster sizes.")
@click.option("--chunks", "n_chunks", type=_COUNT, default=1_000_000, show_default=True, help="Chunks of the array.")  # fmt: skip
@click.option("--chunk-mb", type=click.FloatRange(0, 1e6, min_open=True), default=100.0, show_default=True, help="MB of a chunk as stored.")  # fmt: skip
@click.option("--chunks-per-task", type=_COUNT, default=1, show_default=True, help="Chunks that a task reads.")  # fmt: skip
@click.option("--slots", type=_COUNT, default=2, show_default=True, help="Chunks at once in a worker.")  # fmt: skip
@click.option("--cores", type=click.FloatRange(0, 1e6, min_open=True), default=2.0, show_default=True, help="Cores of a worker.")  # fmt: skip
@click.option("--decode-ms", type=_AMOUNT, help="Of a core, for a chunk; else 4 ms a MB.")
@click.option("--task-ms", type=_AMOUNT, help="Of the scheduler, for a task; else as measured.")
@click.option("--graph-ms", type=_AMOUNT, help="Of submission, for a task; else as measured.")
@click.option("--link", type=_AMOUNT, help="MB/s that all workers share; 0 for no such link.")
@click.option("--leaves-region", is_flag=True, help="Pay for the bytes as data out.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def simulate(profile: str, workers: str, is_json: bool, **given: Any) -> None:
    """Compute a read by clusters of several sizes: time, throughput, price, and what limits it.

    A closed form, printed with the answer: predicted, not measured.
    """
    from advisors.scaling.cluster import DECODE_S_PER_MB, FORMULA, GRAPH_S, TASK_S, Plan
    from helpers.netem.profiles import get_profile
    from helpers.prices import get_prices

    network, link, chunk_mb = get_profile(profile), given.pop("link"), given.pop("chunk_mb")
    if link is not None:
        network = replace(network, aggregate_mb_per_s=link or None)
    assumed = {"decode": DECODE_S_PER_MB * chunk_mb, "task": TASK_S, "graph": GRAPH_S}
    for name, seconds in assumed.items():
        ms = given.pop(f"{name}_ms")
        given[f"{name}_s"] = seconds if ms is None else ms / 1e3
    plan, prices = Plan(profile=network, chunk_nbytes=1e6 * chunk_mb, **given), get_prices()
    rows = [
        {
            "n_workers": n,
            "seconds": plan.read_s(n),
            "mb_per_s": plan.n_chunks * chunk_mb / plan.read_s(n),
            "usd": plan.price(n, prices),
            "limit": plan.find_limit(n),
        }
        for n in _read_sizes(workers)
    ]
    if is_json:
        asked = asdict(plan) | {"profile": network.name, "cycle_s": plan.cycle_s}
        click.echo(
            json.dumps(_finite({"formula": FORMULA, "plan": asked, "sizes": rows}), indent=2)
        )
        return
    click.echo(f"{'workers':>8} {'seconds':>10} {'MB/s':>9} {'USD':>9}  limited by")
    for row in rows:
        click.echo(
            f"{row['n_workers']:8,} {row['seconds']:10,.4g} {row['mb_per_s']:9,.4g} {row['usd']:9,.4g}  {row['limit']}"
        )
    click.echo(
        f"\npredicted: {FORMULA}\n{plan.n_chunks:,} chunks of {chunk_mb:g} MB over {network.name}; cycle {plan.cycle_s:.3g} s,"
        f" decode {1e3 * plan.decode_s:.3g} ms, task {1e3 * plan.task_s:.3g} ms, graph {1e3 * plan.graph_s:.3g} ms a task"
    )


def _read_sizes(text: str) -> list[int]:
    """Read numbers of workers, as in ``1,10,100``."""
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or not all(1 <= size <= 100_000 for size in sizes):
        raise UserError(f"--workers {show(text)}; allowed: whole numbers from 1 to 100000, as in 1,10,100")  # fmt: skip
    return sizes
