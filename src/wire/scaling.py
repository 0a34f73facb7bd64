"""A scaling curve as the cycle of a chunk, a start and a ceiling; ``wire fit`` asks for it.

The law is a sum of columns with weights of at least 0 once the knee is fixed, so `scipy.optimize.nnls`
fits it; the knee is tried at many sizes of cluster, and each is weighed by how well the runs agree.
"""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy.optimize import nnls  # it ships no types

from wire.errors import UserError, cut, describe_system_error, say, show

Floats = np.ndarray[Any, np.dtype[np.float64]]
LEVEL = 90  # percent of runs that lie in an interval

# What each number of a run may be: clusters and reads that somebody could have.
BOUNDS = {
    "n_workers": (1.0, 1e6),
    "seconds": (1e-6, 1e9),
    "n_chunks": (1.0, 1e12),
    "cores_per_worker": (1e-3, 1e4),
    "nbytes": (1.0, 1e18),
    "link": (1.0, 1e15),
}

_CORNER = 4  # exponent of the law: with 2 the published curves bend too early
# Of the logarithm of seconds: scatter of a run, and degrees of freedom of Student's distribution.
_SCATTER, _FREEDOM = 0.05, 2.0
_REACH, _N_KNEES = 10, 60  # a knee is sought up to so many times the largest cluster
# By how much, in logarithms, an interval is wider than what the knees leave open: at the largest
# measured cluster, and more for each doubling from there. Chosen on half of the curves in
# abernathey2020_figure_digitised, green2022_figures_digitised and green2022_throughput_tables.
_WIDTH, _WIDTH_PER_DOUBLING = 0.12, 0.10
_SMALLER = 0.8  # times the largest cluster: what is nearer says nothing of growth
# Waves of some run over those of another below which the scatter of runs hides which part of their
# time is a start: it would have to be told from a tenth of the cycles.
_LEAST_SPREAD = 1.5


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval of 90 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CurveFit:
    """What was fitted to a curve; `predict` asks it for other clusters and chunk counts."""

    cycle_s: float  # seconds that a slot takes for a chunk, while nothing else limits it
    start_s: float  # seconds that no worker shortens
    is_slower: bool  # whether the largest cluster was not faster than a smaller one
    largest: float  # workers of the largest measured cluster
    largest_s: float  # median seconds of its runs
    n_chunks: float  # of a measured read, the median
    has_chunks: bool  # whether chunks were counted; without, the whole read is one, cut at will
    cores: float  # chunks that a worker has in the making at once
    curves: Floats  # cycle, start, and seconds of a chunk at the ceiling; one for each knee
    weights: Floats  # likelihood of each curve, 1 in sum

    def predict(
        self, n_workers: Sequence[float], *, n_chunks: float | None = None
    ) -> list[Estimate]:
        """Predict the seconds of a read, each with the interval in which 90 % of runs are expected.

        Beyond the largest measured cluster an interval widens with each doubling. Where the largest
        was not faster any more, no law of growth has its time: the interval holds that time too.
        """
        if n_chunks is not None and not self.has_chunks:
            raise UserError("n_chunks", show(n_chunks), "only after a fit with n_chunks")
        (chunks,) = _check("n_chunks", [self.n_chunks if n_chunks is None else n_chunks])
        sizes = _check("n_workers", n_workers)
        waves = _count_waves(sizes, chunks, self.cores, self.has_chunks)
        cycle_s, start_s, least_s = self.curves.T[:, :, None]
        seconds = np.log(start_s + _round_corner(cycle_s * waves, chunks * least_s))
        predictions = []
        for n, column in zip(sizes, seconds.T, strict=True):
            order = np.argsort(column)
            reached = np.cumsum(self.weights[order])
            ends = np.searchsorted(reached, [0.05, 0.95]).clip(max=len(order) - 1)
            low, high = column[order][ends]
            value = float(self.weights @ column)
            if self.is_slower and n >= self.largest:
                last = math.log(self.largest_s * chunks / self.n_chunks)
                low, value, high = min(low, last), (value + last) / 2, max(high, last)
            half = _WIDTH + _WIDTH_PER_DOUBLING * max(0.0, math.log2(n / self.largest))
            predictions.append(Estimate(*(math.exp(x) for x in (value, low - half, high + half))))
        return predictions


def _count_waves(sizes: Floats, n_chunks: Floats | float, cores: float, has_chunks: bool) -> Floats:
    """Count the chunks that a slot reads one after another.

    Waves of equal chunks are `ceil(n_chunks / slots)`; chunks that differ smear the steps, and half
    a wave is what the ceiling adds in the mean.
    """
    slots = sizes * cores
    waves = n_chunks / slots
    return np.maximum(1.0, waves + 0.5 * np.maximum(0.0, 1 - 1 / slots)) if has_chunks else waves


def _round_corner(slots_s: Floats, ceiling_s: Floats | float) -> Floats:
    return np.asarray((slots_s**_CORNER + ceiling_s**_CORNER) ** (1 / _CORNER))


def _solve(columns: Floats, seconds: Floats) -> tuple[Floats, float]:
    """Fit coefficients of at least 0 by relative errors with long tails, so that no bad run decides."""
    weights = 1 / seconds
    for _ in range(8):  # more changes nothing
        solution, _ = nnls(columns * weights[:, None], seconds * weights)
        errors = np.log(seconds / np.maximum(columns @ solution, 1e-300)) / _SCATTER
        weights = 1 / (seconds * np.sqrt(1 + errors**2 / _FREEDOM))
    return solution, float(-(_FREEDOM + 1) / 2 * np.log1p(errors**2 / _FREEDOM).sum())


def fit_curve(
    n_workers: Sequence[float],
    seconds: Sequence[float],
    n_chunks: float | Sequence[float] | None = None,
    cores_per_worker: float = 1,
    link: float | None = None,
    nbytes: float | None = None,
) -> CurveFit:
    """Fit a scaling curve: the cycle of a chunk, a start, a ceiling.

    A read takes `start + n_chunks * ((cycle / slots)**4 + (1 / ceiling)**4)**(1/4)`.

    Parameters
    ----------
    n_workers, seconds : sequence of float
        Cluster size and duration of each run, in any order; runs of one size stay runs.
    n_chunks : float or sequence of float, optional
        Chunks of all runs, or of each. Without it the read is taken to divide at will.
    cores_per_worker : float
        Chunks that a worker has in the making at once.
    link : float, optional
        Bytes per second that all workers share at most, if that is known.
    nbytes : float, optional
        Bytes of one run, as the link carries them; with several chunk counts, of their median.

    Raises
    ------
    UserError
        Of fewer than two cluster sizes, of runs that have as many waves of chunks each, of a value
        out of `BOUNDS`, or of a link that is slower than a measured read.

    Examples
    --------
    A hundred chunks of 2 s and a second of start, without a ceiling:

    >>> fit = fit_curve([1, 2, 4, 8], [201, 101, 51, 26], 100)
    >>> round(fit.cycle_s, 1)
    2.0
    """
    sizes, times = _check("n_workers", n_workers), _check("seconds", seconds)
    (cores,), has_chunks = _check("cores_per_worker", [cores_per_worker]), n_chunks is not None
    chunk_counts: Any = n_chunks if np.ndim(n_chunks or 0) else [1.0 if n_chunks is None else n_chunks] * len(sizes)  # fmt: skip
    chunks = _check("n_chunks", chunk_counts)
    for name, values in (("seconds", times), ("n_chunks", chunks)):
        if len(values) != len(sizes):
            raise UserError(name, f"{len(values)} values", f"{len(sizes)}, as n_workers")
    if len(np.unique(sizes)) < 2:
        raise UserError("n_workers", show(sorted({*n_workers})), "two or more sizes")
    waves = _count_waves(sizes, chunks, cores, has_chunks)
    _check_waves(sizes, chunks, cores, waves, has_chunks=has_chunks)

    usual, largest = float(np.median(chunks)), sizes.max()
    least_s = _find_least_s(link, nbytes, usual, float((chunks / times).max()))
    knees = np.append(np.geomspace(sizes.min(), _REACH * largest, _N_KNEES), math.inf)
    candidates = []
    for knee in knees:
        cap = 1 / (knee * cores)  # of a cycle
        for _ in range(4 if least_s else 1):  # the link is in seconds, the cycle not known yet
            columns = np.stack([_round_corner(waves, chunks * cap), np.ones_like(sizes)], axis=1)
            (cycle_s, start_s), fit = _solve(columns, times)
            cap = max(1 / (knee * cores), least_s / max(cycle_s, 1e-300))
        candidates.append((cycle_s, start_s, max(cycle_s / (knee * cores), least_s), fit))
    curves, fits = np.array(candidates)[:, :3], np.array(candidates)[:, 3]
    weights = np.exp(fits - fits.max())
    weights /= weights.sum()
    each_s = {n: float(np.median((times / chunks)[sizes == n])) for n in np.unique(sizes)}
    before_s = [chunk_time_s for n, chunk_time_s in each_s.items() if n <= _SMALLER * largest]
    return CurveFit(
        cycle_s=float(weights @ curves[:, 0]),
        start_s=float(weights @ curves[:, 1]),
        is_slower=bool(before_s and each_s[largest] >= min(before_s)),
        largest=float(largest),
        largest_s=each_s[largest] * usual,
        n_chunks=usual,
        has_chunks=has_chunks,
        cores=cores,
        curves=curves,
        weights=weights,
    )


def _check_waves(
    sizes: Floats, chunks: Floats, cores: float, waves: Floats, *, has_chunks: bool
) -> None:
    """Refuse runs of one number of waves, in which a start looks like a longer cycle."""
    least, most = waves.min(), waves.max()
    if most >= _LEAST_SPREAD * least:
        return
    cannot = "so that a start cannot be told from a longer cycle"
    allowed = "runs that differ, such as one of"
    if not has_chunks:
        ends = f"{sizes.min():g} to {sizes.max():g}"
        raise UserError("n_workers", f"{ends}, {cannot}", f"{allowed} {3 * sizes.max():g} workers")
    n, wanted = sizes.max(), chunks[sizes.argmin()]
    if wanted * _LEAST_SPREAD > chunks[sizes.argmax()]:
        n, wanted = sizes.min(), float(f"{3 * most * cores * sizes.min():.2g}")
    ends = f"{least:.3g} to {most:.3g} chunks in turn for a slot in every run"
    raise UserError(
        "n_chunks", f"{ends}, {cannot}", f"{allowed} {n:g} workers with {wanted:g} chunks"
    )


def _find_least_s(
    link: float | None, nbytes: float | None, n_chunks: float, most_per_s: float
) -> float:
    """Compute the seconds of a chunk on a link that it has for itself; 0 without a link."""
    if link is None:
        return 0.0
    if nbytes is None:
        raise UserError("link", show(link), "only with nbytes, the bytes that cross it")
    (total,), (rate,) = _check("nbytes", [nbytes]), _check("link", [link])
    read = total / n_chunks * most_per_s
    if rate < 0.999 * read:
        problem = f"{rate / 1e6:g} MB/s, of which {read / 1e6:.4g} were read"
        raise UserError("link", problem, "at least what a run read")
    return float(total / n_chunks / rate)


def _check(name: str, values: Sequence[float] | Floats) -> Floats:
    """Take numbers, or name the first that nobody could have."""
    least, most = BOUNDS[name]
    for value in values:
        if not least <= value <= most:
            raise UserError(name, show(value), f"numbers from {least:g} to {most:g}")
    return np.asarray(values, dtype=float)


_THROUGHPUTS = {"throughput_mb_per_s": 1e6, "throughput_gb_per_s": 1e9}  # bytes per second
_COLUMNS = ("n_workers", "seconds", *_THROUGHPUTS, "n_chunks", "nbytes")
_MOST_NBYTES = 1_000_000  # of a file


@click.command(
    epilog="\b\n"
    """Examples:
  wire fit runs.csv
  wire fit runs.csv --workers 64 --workers 128 --link 1250"""
)
@click.argument("path", metavar="FILE.csv")
@click.option("--workers", "sizes", multiple=True, type=float, help="Cluster size to predict.")
@click.option("--chunks", type=float, help="Chunks of a predicted read.  [default: as measured]")
@click.option("--cores", default=1.0, show_default=True, help="Concurrent chunks of a worker.")
@click.option("--link", type=float, help="Network bandwidth in MB/s that all workers share.")
@click.option("--json", "is_json", is_flag=True, help="Output as JSON.")
def fit(
    path: str,
    sizes: Sequence[float],
    chunks: float | None,
    cores: float,
    link: float | None,
    is_json: bool,
) -> None:
    """Fit a scaling curve to measured runs, and predict other cluster sizes.

    FILE.csv has a row for each run, with n_workers and seconds or a throughput.

    Columns: n_workers; seconds, throughput_mb_per_s or throughput_gb_per_s; n_chunks and nbytes of
    a run, if known. Rows may have any order, and runs of one size stay runs.
    """
    runs = read_runs(path)
    nbytes = statistics.median(runs["nbytes"]) if "nbytes" in runs else None
    columns = (runs["n_workers"], runs["seconds"], runs.get("n_chunks"))
    fitted = fit_curve(*columns, cores, None if link is None else link * 1e6, nbytes)
    sizes = sizes or (fitted.largest, 2 * fitted.largest, 4 * fitted.largest)
    seconds = fitted.predict(sizes, n_chunks=chunks)
    n_chunks = (chunks or fitted.n_chunks) if fitted.has_chunks else None
    if is_json:
        rows = zip(sizes, map(asdict, seconds), strict=True)
        answer = {
            "level": LEVEL,
            "predictions": [{"n_workers": n, "seconds": interval} for n, interval in rows],
            "n_chunks": n_chunks,
            **{n: getattr(fitted, n) for n in ("largest", "is_slower", "cycle_s", "start_s")},
        }
        say(json.dumps(answer, indent=2))
        return
    say(f"seconds of {f'a read of {n_chunks:g} chunks' if n_chunks else 'the read'}")
    say(f"{'workers':>8}  {f'{LEVEL} % of runs (s)':22} {'middle':>8}")
    for n, seconds_interval in zip(sizes, seconds, strict=True):
        say(
            f"{n:8g}  {f'{seconds_interval.low:.3g} to {seconds_interval.high:.3g}':22} {seconds_interval.value:8.3g}"
        )
    if fitted.is_slower:
        say(f"\nnot faster any more at {fitted.largest:g} workers, the most measured")
        return
    unit = "chunk" if n_chunks else "read"
    cycle = f"a slot takes {fitted.cycle_s:.3g} s for a {unit}"
    say(f"\n{cycle}; {fitted.start_s:.3g} s no worker shortens")


def read_runs(path: str) -> dict[str, list[float]]:
    """Read the columns of a CSV file that a fit uses; a throughput becomes seconds."""
    file, reason = Path(path), ""
    try:
        if not file.is_file():
            reason = "it is no file"
        else:
            with file.open("rb") as opened:  # of what never ends no more than this
                read = opened.read(_MOST_NBYTES + 1)
            reason = f"it has more than {_MOST_NBYTES / 1e6:g} MB" * (len(read) > _MOST_NBYTES)
            reader = csv.DictReader(io.StringIO(read.decode("utf-8-sig")), strict=True)
            header, lines = [*(reader.fieldnames or ())], [*reader]
    except (OSError, ValueError, csv.Error) as error:
        cause = (
            describe_system_error(error) if isinstance(error, OSError) else "it is no CSV in UTF-8"
        )
        reason = reason or cause
    if reason:
        raise UserError(cut(path), f"not read: {reason}", "a CSV file of runs")
    names = [name for name in _COLUMNS if name in header]
    of_time = [name for name in names if name == "seconds" or name in _THROUGHPUTS]
    if "n_workers" not in names or len(of_time) != 1:
        allowed = f"n_workers and one of seconds, {', '.join(_THROUGHPUTS)}"
        raise UserError(cut(path), f"columns {show(header)}", allowed)
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
        raise UserError(f"row {row}", f"{name}: {show(text)}", "numbers above 0, and finite")
    return value
