"""How well a law extrapolates curves that others published: which were looked at, which were not.

The form of the law, its corner, its scatter and its waves were chosen on the curves of
`DEVELOPMENT` alone. All other published curves are the test set: they were scored once, after
these choices were made, and nothing was changed afterwards. A curve has at least four cluster
sizes; the smaller half of them is fitted, the larger half is scored.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from advisors.scaling.curve import LAWS, LawName, fit_curve
from helpers.paths import ROOT

DEVELOPMENT = frozenset(
    {
        "abernathey2020, GCS Zarr",
        "abernathey2020, GCS NetCDF",
        "abernathey2020, Wasabi Zarr",
        "abernathey2020, ECCO Data Portal",
        "green2022 speeds.png, CSV",
        "green2022 speeds.png, NetCDF",
        "green2022 speeds.png, Partitioned CSV",
        "green2022 speeds.png, Partitioned Parquet",
        "green2022 speeds.png, Zarr Array",
        "green2022 speeds.png, Zarr Group",
        "green2022 speedTest1.png, CSV",
        "green2022 speedTest1.png, NetCDF",
        "green2022 speedTest1.png, Partitioned CSV",
        "green2022 speedTest1.png, Partitioned Parquet",
        "green2022 speedTest1.png, Zarr Array",
        "green2022 speedTest1.png, Zarr Group",
        "green2022 aws_slurm, NetCDF",
        "green2022 local_cluster, Zarr Array",
    }
)
"""Published curves that were looked at while the law was chosen."""

RIVALS = ("amdahl", "usl", "amdahl, least squares", "usl, least squares")
"""What ours is compared with: both laws by our rule, and both as they are usually fitted."""

_FEWEST_SIZES = 4
_N_CHUNKS_2020, _NBYTES_2020 = 2400, 466.56e9


@dataclass(slots=True)
class PublishedCurve:
    """Runs of one curve."""

    n_chunks: float | None  # where the source states bytes and chunk bytes
    cores_per_worker: float  # threads of a worker
    n_workers: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, n_workers: float, seconds: float) -> None:
        """Add a run."""
        self.n_workers.append(n_workers)
        self.seconds.append(seconds)

    def select(self, sizes: set[float]) -> tuple[list[float], list[float]]:
        """Take the runs of some cluster sizes."""
        pairs = zip(self.n_workers, self.seconds, strict=True)
        chosen = [(n, seconds) for n, seconds in pairs if n in sizes]
        return [n for n, _ in chosen], [seconds for _, seconds in chosen]


@dataclass(frozen=True, slots=True)
class Score:
    """How one curve was extrapolated."""

    is_development: bool
    # of ours and of `RIVALS`: median over cluster sizes of |predicted / measured seconds - 1|
    errors: Mapping[str, float]
    covered: tuple[bool, ...]  # whether each scored size lies in the interval of our law


def read_curves() -> dict[str, PublishedCurve]:
    """Read every published scaling curve of enough cluster sizes; without warm-up runs."""
    curves: dict[str, PublishedCurve] = {}
    for row in _rows("abernathey2020_figure_digitised"):
        curve = curves.setdefault(
            f"abernathey2020, {row['panel']}", PublishedCurve(_N_CHUNKS_2020, 2)
        )
        mb_per_s = float(row["throughput_mb_per_s"])
        curve.add(float(row["nworkers"]), _NBYTES_2020 / 1e6 / mb_per_s)
    for row in _rows("green2022_figures_digitised"):
        name = f"green2022 {row['figure']}, {row['format']}"
        curve = curves.setdefault(name, PublishedCurve(None, 2))
        # bytes are not stated, and seconds of 1 GB have the same shape
        curve.add(float(row["nworkers"]), 1e3 / float(row["mean_throughput_mb_per_s"]))
    for row in _rows("green2022_throughput_tables"):
        if row["first_row_is_warm_up"] != "yes" and row["chunk_bytes"]:
            n_chunks = round(float(row["nbytes"]) / float(row["chunk_bytes"]))
            threads = float(row["nthreads"]) / float(row["nworkers"])
            name = f"green2022 {row['run']}, {row['format']}"
            curve = curves.setdefault(name, PublishedCurve(n_chunks, threads))
            curve.add(float(row["nworkers"]), float(row["mean_runtime_s"]))
    return {name: c for name, c in curves.items() if len({*c.n_workers}) >= _FEWEST_SIZES}


def _rows(name: str) -> Iterator[dict[str, str]]:
    path = ROOT / "results" / "published" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def score_curve(curve: PublishedCurve, *, is_development: bool) -> Score:
    """Fit the smaller half of the cluster sizes (the middle one included), and score the rest."""
    sizes = sorted({*curve.n_workers})
    n_fitted = (len(sizes) + 1) // 2
    fitted, scored = sizes[:n_fitted], sizes[n_fitted:]
    runs = curve.select({*fitted})
    fit = fit_curve(*runs, curve.n_chunks, curve.cores_per_worker)
    measured = [statistics.median(curve.select({size})[1]) for size in scored]
    predicted = {law: [one.value for one in fit.predict(scored, law=law)] for law in LAWS}
    usual = {f"{law}, least squares": _fit_least_squares(law, *runs, scored) for law in LAWS[1:]}
    return Score(
        is_development,
        {name: _find_error(values, measured) for name, values in (predicted | usual).items()},
        tuple(
            bool(found.low <= seconds <= found.high)
            for found, seconds in zip(fit.predict(scored), measured, strict=True)
        ),
    )


def _find_error(predicted: Sequence[float], measured: Sequence[float]) -> float:
    pairs = zip(predicted, measured, strict=True)
    return statistics.median(abs(value / seconds - 1) for value, seconds in pairs)


def _fit_least_squares(
    law: LawName, n_workers: Sequence[float], seconds: Sequence[float], scored: Sequence[float]
) -> list[float]:
    """Predict by the one best curve of a law, fitted to the logarithms of seconds."""
    n, measured = np.asarray(n_workers), np.log(seconds)
    alone_s = math.log(seconds[0] * n_workers[0])
    most = [math.inf, 1.0, math.inf if law == "usl" else 1e-12]  # Amdahl's law has no coherence

    def compute(parameters: Sequence[float], n: Any) -> Any:
        log_s, contention, coherence = parameters
        return log_s + np.log((1 + contention * (n - 1) + coherence * n * (n - 1)) / n)

    first = (alone_s, 0.01, most[2] / 2 if law == "amdahl" else 1e-4)
    found = least_squares(
        lambda parameters: compute(parameters, n) - measured,
        first,
        bounds=([-math.inf, 0, 0], most),
        x_scale=(1, 0.01, 1e-4),
    )
    return [float(value) for value in np.exp(compute(found.x, np.asarray(scored)))]


@cache
def score_published() -> Mapping[str, Score]:
    """Score every published curve, by its name."""
    curves = read_curves()
    return {
        name: score_curve(curve, is_development=name in DEVELOPMENT)
        for name, curve in curves.items()
    }


def summarise(scores: Mapping[str, Score]) -> dict[str, dict[str, float]]:
    """Summarise over curves, in percent: median, 90th percentile, and how often ours errs less.

    `ours better` is the share of curves on which ours errs less than a rival; of ours itself it
    is the share on which it errs less than both laws fitted by our rule.
    """
    ours = [score.errors["transfer"] for score in scores.values()]
    table = {}
    for name in ("transfer", *RIVALS):
        errors = [score.errors[name] for score in scores.values()]
        rivals = errors
        if name == "transfer":
            rivals = [min(score.errors["amdahl"], score.errors["usl"]) for score in scores.values()]
        wins = [one < rival for one, rival in zip(ours, rivals, strict=True)]
        table[name] = {
            "median": 100 * statistics.median(errors),
            "90th percentile": 100 * float(np.quantile(errors, 0.9)),
            "ours better": 100 * statistics.mean(wins),
        }
    return table


def count_covered(scores: Mapping[str, Score]) -> float:
    """Compute the percentage of scored cluster sizes that lie within the interval of ours."""
    return 100 * statistics.mean(is_in for score in scores.values() for is_in in score.covered)


_NAMES = {
    "transfer": "cycle, start and ceiling",
    "amdahl": "Amdahl's law",
    "usl": "Universal Scalability Law",
    "amdahl, least squares": "Amdahl's law, least squares",
    "usl, least squares": "Universal Scalability Law, least squares",
}


def render_score() -> str:
    """Write the score as tables, for the page."""
    scores = score_published()
    parts = {
        "Test curves": {name: s for name, s in scores.items() if not s.is_development},
        "Development curves": {name: s for name, s in scores.items() if s.is_development},
    }
    return "\n".join(_render_part(heading, part) for heading, part in parts.items())


def _render_part(heading: str, scores: Mapping[str, Score]) -> str:
    rows = [
        f"| {_NAMES[name]} | {row['median']:.1f} | {row['90th percentile']:.1f} |"
        f" {row['ours better']:.0f}{' (than both below)' if name == 'transfer' else ''} |"
        for name, row in summarise(scores).items()
    ]
    head = (
        "| law | median error (%) | 90th percentile of curves (%) | ours errs less (% of curves) |"
    )
    covered = f"{count_covered(scores):.0f} % of the scored sizes lie within the interval of ours."
    return "\n".join(
        [f"**{heading}** ({len(scores)}).", covered, "", head, "| --- | ---: | ---: | ---: |", *rows, ""]
    )  # fmt: skip
