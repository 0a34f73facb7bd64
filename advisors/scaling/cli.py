"""``wire fit``, ``wire simulate``, ``wire scheduler`` and ``wire stores``: what a cluster or an array grows to."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from advisors.scaling.curve import CurveFit, fit_curve
from helpers.cli import read_numbers
from helpers.errors import UserError, cut, show
from helpers.models.transfer import check_count

_THROUGHPUTS = {"throughput_mb_per_s": 1e6, "throughput_gb_per_s": 1e9}  # bytes per second
_COLUMNS = ("n_workers", "seconds", *_THROUGHPUTS, "n_chunks", "nbytes")
# whose versions a record of a scheduler or of stores names
_PACKAGES = ("python", "dask", "distributed", "fsspec", "icechunk", "obstore", "pyarrow", "zarr")


@click.command()
@click.argument("path", metavar="FILE.csv")
@click.option("--workers", "sizes", multiple=True, type=float, help="A cluster size to predict.")
@click.option("--chunks", type=float, help="Chunks of the predicted reads; else as measured.")
@click.option("--cores", default=1.0, show_default=True, help="Chunks at once in a worker.")
@click.option("--link", type=float, help="MB/s that all workers shared at most, if known.")
@click.option("--other-link", type=float, help="MB/s of another link to predict.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def fit(path: str, sizes: Sequence[float], link: float | None, is_json: bool, **given: Any) -> None:
    """Fit a scaling curve: one row a run, with n_workers and seconds or a throughput.

    Columns: n_workers; seconds, throughput_mb_per_s or throughput_gb_per_s; n_chunks and nbytes of
    a run, if known. Rows may have any order, and runs of one size stay runs.
    """
    runs = read_runs(path)
    nbytes = statistics.median(runs["nbytes"]) if "nbytes" in runs else None
    if nbytes is None and (link or given["other_link"]):
        raise UserError("--link: the file has no nbytes; allowed: only with that column")
    fitted = fit_curve(
        runs["n_workers"],
        runs["seconds"],
        runs.get("n_chunks"),
        given["cores"],
        None if link is None else link * 1e6,
        nbytes,
    )
    other_link = None if given["other_link"] is None else given["other_link"] * 1e6
    found = describe(fitted, sizes, n_chunks=given["chunks"], link=other_link)
    if is_json:
        click.echo(json.dumps(_finite(found), indent=2))
    else:
        click.echo("\n".join(render(found)))


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
        runs.setdefault("nbytes", [1e9] * len(rates))
        pairs = zip(runs["nbytes"], rates, strict=True)
        runs["seconds"] = [nbytes / (rate * unit) for nbytes, rate in pairs]
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
    fitted: CurveFit, sizes: Sequence[float], *, n_chunks: float | None, link: float | None
) -> dict[str, Any]:
    """Gather what a fit says, as plain numbers."""
    largest = fitted.largest
    sizes = sizes or (largest, 2 * largest, 4 * largest)
    ours = fitted.predict(sizes, n_chunks=n_chunks, link=link)
    laws = {law: fitted.predict(sizes, n_chunks=n_chunks, law=law) for law in ("amdahl", "usl")}
    speedup, ceiling, mb = fitted.double(largest), asdict(fitted.ceiling), None
    if fitted.chunk_nbytes:
        mb = {name: value * fitted.chunk_nbytes / 1e6 for name, value in ceiling.items()}
    return {
        "unit": "chunk" if fitted.has_chunks else "read",
        "cycle_s": asdict(fitted.cycle_s),
        "start_s": asdict(fitted.start_s),
        "ceiling_per_s": ceiling,
        "ceiling_mb_per_s": mb,
        "knee_workers": asdict(fitted.knee_workers),
        "is_knee_seen": fitted.is_knee_seen,
        "ends_growth": tell_end(fitted),
        "doubling": {"n_workers": largest, "speedup": asdict(speedup), "cost": 2 / speedup.value},
        "predictions": [
            {"n_workers": n, "seconds": asdict(one), **{law: laws[law][i].value for law in laws}}
            for i, (n, one) in enumerate(zip(sizes, ours, strict=True))
        ],
    }  # fmt: skip


def tell_end(fitted: CurveFit) -> str:
    """Say in words what ends the growth at the largest measured cluster."""
    largest, unit = fitted.largest, "chunk" if fitted.has_chunks else "read"
    share = fitted.start_s.value / fitted.predict([largest])[0].value
    if fitted.has_chunks and largest * fitted.cores_per_worker >= fitted.n_chunks:
        return f"the chunks: {fitted.n_chunks:g} of them leave slots of {largest:g} workers idle"
    if fitted.is_knee_seen:
        return f"a ceiling of {fitted.ceiling.value:.3g} {unit}s/s, as wide as {fitted.knee_workers.value:.3g} workers"
    if fitted.start_s.low > 0 and share > 1 / 3:
        return f"a start of {fitted.start_s.value:.2g} s, {100 * share:.0f} % of the time with {largest:g} workers"
    return f"nothing up to {largest:g} workers; the knee was not seen, and lies above {fitted.knee_workers.low:.3g}"


def render(found: dict[str, Any]) -> list[str]:
    """Write what a fit says as lines of text."""
    unit, seen = found["unit"], found["is_knee_seen"]
    ceiling = _tell(found["ceiling_per_s"], seen) + f" {unit}s/s"
    if found["ceiling_mb_per_s"]:
        ceiling += f"; {_tell(found['ceiling_mb_per_s'], seen)} MB/s"
    gain, n = found["doubling"], found["doubling"]["n_workers"]
    return [
        f"{unit + ' cycle':12} {_tell(found['cycle_s'])} s in one slot",
        f"{'start':12} {_tell(found['start_s'])} s that no worker shortens",
        f"{'ceiling':12} {ceiling}",
        f"{'knee':12} {_tell(found['knee_workers'], seen)} workers",
        f"what ends the growth: {found['ends_growth']}",
        f"one more doubling, {n:g} to {2 * n:g} workers: {_tell(gain['speedup'])} times as fast,"
        f" for {gain['cost']:.3g} times the worker-seconds",
        "",
        f"{'workers':>8}  {'seconds':28} {'Amdahl':>9} {'USL':>9}",
        *(
            f"{row['n_workers']:8g}  {_tell(row['seconds']):28} {row['amdahl']:9.3g} {row['usl']:9.3g}"
            for row in found["predictions"]
        ),
        "",
        "[ ]: profile likelihood, 95 %; Amdahl and USL: fitted to the same runs by the same rule",
    ]


def _tell(estimate: dict[str, float], is_seen: bool = True) -> str:
    """Write an estimate with its interval, or its lower end alone if nothing was seen of it."""
    if not is_seen:
        return f"knee not seen: at least {estimate['low']:.3g}"
    return f"{estimate['value']:.3g} [{estimate['low']:.3g}, {estimate['high']:.3g}]"


def _finite(value: Any) -> Any:
    """Put null where JSON has no number."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@click.command()
@click.option(
    "--profile", default="in-region", show_default=True, help="Network and store."
)
@click.option("--workers", default="1,10,100,1000,10000", show_default=True, help="Cluster sizes.")
@click.option("--chunks", default=1_000_000, show_default=True, help="Chunks of the array.")
@click.option("--chunk-mb", default=100.0, show_default=True, help="MB of a chunk as stored.")
@click.option("--chunks-per-task", default=1, show_default=True, help="Chunks that a task reads.")
@click.option("--slots", default=2, show_default=True, help="Chunks at once in a worker.")
@click.option("--cores", default=2.0, show_default=True, help="Cores of a worker.")
@click.option("--decode-ms", type=float, help="Of a core, for a chunk; else 4 ms a MB.")
@click.option("--task-ms", type=float, help="Of the scheduler, for a task; else as measured.")
@click.option("--graph-ms", type=float, help="Of submission, for a task; else as measured.")
@click.option("--hedge-after", type=float, help="ms without a byte until a second request.")
@click.option("--tail", type=float, help="Exponent of a power law beyond the 95th percentile.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="A figure of the profile, as in aggregate_mb_per_s=0 for no shared link.",
)
@click.option("--leaves-region", is_flag=True, help="Pay for the bytes as data out.")
@click.option("--seed", default=0, show_default=True, help="Of first bytes and back-offs.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@click.option("--derive", is_flag=True, help="Simulate anew what the page on scaling out shows.")
def simulate(workers: str, seed: int, is_json: bool, derive: bool, **given: Any) -> None:
    """Simulate a read by clusters of several sizes: time, price, tails, and what limits it.

    For each number of workers: the time of the whole read, its throughput of stored bytes, the
    median, 95th and 99th percentile of a chunk, what it costs, and where most slot time goes.
    """
    if derive:
        from advisors.scaling.scale_out import derive as simulate_all
        from advisors.scaling.validation import KEPT

        click.echo(f"{KEPT.name}: {simulate_all()} reads")
        return
    from advisors.scaling.latency import Tail
    from advisors.scaling.outlook import describe as describe_plan
    from advisors.scaling.outlook import make_plan, read_sizes
    from advisors.scaling.outlook import render as render_plan

    for name in ("chunks", "chunks_per_task", "slots"):
        check_count(f"--{name.replace('_', '-')}", given[name])
    hedge_ms, alpha = given.pop("hedge_after"), given.pop("tail")
    plan = make_plan(
        n_chunks=given.pop("chunks"),
        changes=read_numbers("set", given.pop("changes")),
        hedge_after_s=math.inf if hedge_ms is None else hedge_ms / 1e3,
        tail=Tail() if alpha is None else Tail(alpha=alpha),
        **given,
    )
    found = describe_plan(plan, read_sizes(workers), seed=seed)
    click.echo(json.dumps(_finite(found), indent=2) if is_json else "\n".join(render_plan(found)))


@click.command()
@click.option("--tasks", multiple=True, type=int, help="Length of a graph; else 10^3 to 10^6.")
@click.option("--repetitions", default=3, show_default=True, help="Runs of each graph.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="CSV file to write.")
def scheduler(tasks: Sequence[int], repetitions: int, out: Path | None) -> None:
    """Measure what the Dask scheduler of this machine takes for a task, and fit it.

    Graphs of trivial tasks, small and large; seven minutes or so. Graphs of more than 20,000 are
    submitted whole, and their first 20,000 tasks waited for. What `wire simulate` assumes unless
    told otherwise is such a record.
    """
    from advisors.scaling.scheduler import fit_scheduler, measure_scheduler

    rows = []
    measured = measure_scheduler(tasks or (10**3, 10**4, 10**5, 10**6), n_repetitions=repetitions)
    for row in _keep(measured, out):
        rows.append(row)
        click.echo(
            f"{row['n_tasks']:>8} tasks of {row['task_nbytes']:>5} B: {row['graph_cpu_s']:.2f} s before the first, {row['run_cpu_s']:.2f} s for {row['n_run']}, of processors"
        )
    costs = fit_scheduler(rows)
    click.echo(
        f"a task takes {1e3 * costs.graph_s:.3f} ms before the first runs, and {1e3 * costs.task_s:.3f} ms from then on"
    )


def _keep[Row: Mapping[str, object]](
    rows: Iterable[Row], out: Path | None, others: Sequence[Mapping[str, object]] = ()
) -> Iterator[Row]:
    """Hand rows on, and write those that there are when the last one came or somebody stopped.

    `others` are of the file as it was, and go before them.
    """
    kept: list[Row] = []
    try:
        for row in rows:
            kept.append(row)
            yield row
    finally:
        if out is not None and kept:
            from helpers.benchmark.provenance import write_rows

            write_rows(out, [*others, *kept], _PACKAGES)


@click.command()
@click.option("--kind", "kinds", multiple=True, help="A kind of store; else all.")
@click.option("--chunks", "numbers", multiple=True, type=int, help="Chunks; else 10^5, 10^6, 10^7.")
@click.option("--memory-gb", default=4.0, show_default=True, help="Memory of each process.")
@click.option("--limit", default=120.0, show_default=True, help="Seconds of each process.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="CSV file to write.")
def stores(kinds: Sequence[str], numbers: Sequence[int], out: Path | None, **limits: float) -> None:
    """Measure what libraries take to open and list stores of many chunks, whose data are absent.

    Of a file that is there, what is measured anew is replaced and all else stays.
    """
    from advisors.scaling.synthetic import KINDS, measure_stores, read_rows

    kinds, numbers = kinds or [*KINDS], numbers or (10**5, 10**6, 10**7)
    others = [
        {name: "" if value != value else value for name, value in row.items()}
        for row in (read_rows(out) if out and out.exists() else [])
        if row["kind"] not in kinds or row["n_chunks"] not in numbers
    ]
    asked = {"memory_gb": limits["memory_gb"], "limit_s": limits["limit"]}
    for row in _keep(measure_stores(kinds, numbers, **asked), out, others):
        told = (
            f"ended by {row['ended_by']}"
            if row["ended_by"]
            else f"{row['step']:5} {row['seconds']:9.3f} s {row['memory_mb']:8.0f} MB"
        )
        click.echo(f"{row['kind']:24} {row['n_chunks']:>10,} {told}")
