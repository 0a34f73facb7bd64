"""The simulated cluster against what was measured: records of this book, and published curves.

Nothing here is fitted to what it is compared with. Of a record, the client comes from its
calibration without a network. Of a published curve, cycle and start come from the smaller half of
its cluster sizes, and so does a ceiling where one was seen; the larger half is predicted.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from advisors.scaling.cluster import Cluster, simulate_cluster
from advisors.scaling.curve import CurveFit, fit_curve
from advisors.scaling.scheduler import read_costs
from advisors.scaling.score import DEVELOPMENT, Kind, halve, read_curves, tell_curve
from helpers.arrays.chunks import count_chunks
from helpers.errors import UserError
from helpers.models.transfer import Client, read_client
from helpers.netem.profiles import FirstByte, Profile, get_profile, get_recorded_profile

_BEYOND = 3  # times the calibrated cluster, from where on a prediction is beyond it
_TARGETS = (10.0, 25.0)  # of a record: median and 90th percentile of errors, at most, in percent
_LARGEST_DILATED = 64  # workers up to which time-dilated clusters are to be compared
_N_SEEDS = 1  # of a read; the medians below are over many reads
_N_CHUNKS = 400  # of a published read that states none: enough to divide among its few workers
_KNEE = "abernathey2020, GCS Zarr"
_KNEE_CORES = 150  # where that study saw its growth slow down
_TASKS_PER_CHUNK = 2  # of a Dask array that is stored: one reads, one throws away
# Of the documentation of Dask: what each task costs at most, "from 200 µs to 1 ms".
DOCUMENTED_TASK_S = 1e-3


@dataclass(frozen=True, slots=True)
class Check:
    """One prediction beside its measurement."""

    case: str
    contender: str
    n_workers: int
    predicted_s: float
    measured_s: float  # median
    dilation: float = 1.0  # of what was measured

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1


@cache
def check_records(folder: Path, *, is_beyond: bool = False) -> list[Check]:
    """Predict every contender and cluster size of every record in a folder."""
    paths = sorted(folder.glob("*.csv"))
    return [check for path in paths for check in check_record(path, is_beyond=is_beyond)]


def check_record(path: Path, *, is_beyond: bool = False) -> list[Check]:
    """Predict every contender and cluster size of one record.

    Or only clusters of three times as many workers as were calibrated with, and more: then the
    smallest cluster alone is the calibration.
    """
    from helpers.arrays.readers import READERS
    from helpers.benchmark.record import read_records

    rows = read_records([path])
    rows = rows[rows["control_of"] == ""]
    asked = json.loads(rows["parameters"].iloc[0])
    n_cores = json.loads(rows["machine"].iloc[0])["n_cores"]
    n_chunks = count_chunks(asked["array_shape"], asked["chunk_shape"])
    profile, found = get_recorded_profile(asked["profile"]), []
    dilation = float(rows["dilation"].max())  # a calibration that chose it is in real time
    rows = rows.assign(read_s=rows["read_s"] * rows["dilation"] / dilation)
    for name, part in rows.groupby("contender", sort=True):
        calibrated = part[part["phase"] == "calibration"]
        measured = part[part["phase"] == "measured"].groupby("n_workers")["read_s"].median()
        if is_beyond:
            smallest = calibrated["n_workers"].min()
            calibrated = calibrated[calibrated["n_workers"] == smallest]
            measured = measured[measured.index >= _BEYOND * smallest]
        reader = READERS.get(str(name))
        client = read_client(
            calibrated.to_dict("records"),  # type: ignore[arg-type]
            n_chunks=n_chunks,
            n_cores=n_cores,
            connections_per_worker=1
            if reader and reader.is_serial
            else asked["threads_per_worker"],
            is_overlapped=reader is None or reader.is_batched,
        )
        for n, seconds in measured.items():
            cluster = Cluster(int(str(n)), np.inf, n_cores, rtt_s=0.0)  # its clients are connected
            predicted_s = _median_s(profile, client, cluster, n_chunks)
            found.append(Check(path.stem, str(name), int(str(n)), predicted_s, float(seconds), dilation))  # fmt: skip
    return found


def check_growth(path: Path) -> list[Check]:
    """Predict the clusters that grow with what they read, of which none may be measured yet.

    Time is dilated as many times as there are workers there, and `processors` is the share of a
    read that it takes without a network.
    """
    import pandas as pd

    from helpers.arrays.readers import READERS

    if not path.exists():
        return []
    rows, found = pd.read_csv(path), []
    rows = rows[rows["dilation"] == rows["n_workers"]]
    rows = rows.assign(free_s=rows["processors"] * rows["read_s"])
    for (name, _), part in rows.groupby(["contender", "n_workers"], sort=True):
        one, reader = part.median(numeric_only=True), READERS.get(str(name))
        n, n_chunks, n_cores = int(one["n_workers"]), int(one["n_chunks"]), float(one["n_cores"])
        calibrated = one.to_dict() | {"read_s": one["free_s"]}
        client = read_client(
            [calibrated],  # type: ignore[list-item]
            n_chunks=n_chunks,
            n_cores=n_cores,
            connections_per_worker=1 if reader and reader.is_serial else round(one["threads"] / n),
            is_overlapped=reader is None or reader.is_batched,
        )
        cluster = Cluster(n, np.inf, n_cores, rtt_s=0.0)
        seconds = _median_s(get_recorded_profile(part["profile"].iloc[0]), client, cluster, n_chunks)
        found.append(Check(path.stem, str(name), n, seconds, one["read_s"], one["dilation"]))
    return found


def _median_s(profile: Profile, client: Client, cluster: Cluster, n_chunks: int) -> float:
    """Take the median of several simulated reads."""
    return statistics.median(
        simulate_cluster(profile, client, cluster, n_chunks, seed=seed).seconds
        for seed in range(_N_SEEDS)
    )


KEPT = Path(__file__).with_name("simulated.json")


@cache
def read_kept() -> Mapping[str, list[dict[str, Any]]]:
    """Read what is simulated for pages, and kept: `wire simulate --derive` does it anew."""
    kept: dict[str, list[dict[str, Any]]] = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept


def check_published() -> Mapping[str, list[Check]]:
    """Predict the larger half of every published curve that was not looked at."""
    checks = [Check(**row) for row in read_kept()[PUBLISHED]]
    return {check.case: [one for one in checks if one.case == check.case] for check in checks}


PUBLISHED = "published curves"


def list_curves() -> dict[Kind, Mapping[float, Sequence[float]]]:
    """List the published curves that nobody looked at while the model was made."""
    curves = read_curves().items()
    return {kind: runs for kind, runs in curves if not kind.name.startswith(DEVELOPMENT)}


def check_curve(kind: Kind, runs: Mapping[float, Sequence[float]]) -> list[Check]:
    """Fit the smaller half of a curve's sizes, and simulate the larger."""
    fitted, scored = halve(runs)
    sizes = [n for n in fitted for _ in runs[n]]
    fit = fit_curve(
        sizes, [s for n in fitted for s in runs[n]], kind.n_chunks, kind.cores_per_worker
    )
    profile, client, n_chunks = _take_fit(fit)
    found = []
    for n in scored:
        seconds = simulate_cluster(profile, client, Cluster(round(n), rtt_s=0.0), n_chunks).seconds
        found.append(Check(kind.name, "", round(n), seconds, statistics.median(runs[n])))
    return found


def _take_fit(fit: CurveFit) -> tuple[Profile, Client, int]:
    """Turn a fitted curve into a network with its ceiling, where one was seen, and a client."""
    n_chunks = round(fit.n_chunks) if fit.has_chunks else _N_CHUNKS
    parts = 1 if fit.has_chunks else n_chunks
    ceiling = fit.ceiling.value * parts if fit.is_knee_seen else None
    profile, client = _make(fit.cycle_s.value / parts, fit.cores_per_worker, ceiling)
    return profile, replace(client, start_s=fit.start_s.value), n_chunks


def _make(cycle_s: float, slots: float, ceiling: float | None) -> tuple[Profile, Client]:
    """Make chunks of one unit, as slow as a cycle: a first byte of a region, and the stream's rest."""
    first = get_profile("in-region").first_byte_s
    if first is None:  # no region is without
        raise UserError("profile: in-region has no first byte; allowed: one that has")
    shrink = min(1.0, cycle_s / 2 / first.median_s)
    first = FirstByte(first.median_s * shrink, first.p95_s * shrink)
    sigma = math.log(first.p95_s / first.median_s) / NormalDist().inv_cdf(0.95)
    mean_s = first.median_s * math.exp(sigma**2 / 2)
    stream = 1 / max(cycle_s - mean_s, cycle_s / 10)
    profile = Profile("published", first, stream_mb_per_s=stream, aggregate_mb_per_s=ceiling)
    client = Client(1e6, connections_per_worker=max(1, round(slots)), task_s=read_costs().task_s)
    return profile, client


@dataclass(frozen=True, slots=True)
class Knee:
    """What makes the largest cluster of 2020 slower than a line through the smaller ones says."""

    n_cores: int
    measured_s: float
    linear_s: float  # every slot as busy as below the knee
    waves_s: float  # and first bytes that differ, and slots idle in the last wave
    scheduled_s: float  # and a scheduler as it was measured here
    documented_s: float  # and a scheduler as slow as is documented

    def share(self, name: str) -> float:
        """Compute the part of what is missing that is explained, up to and with one cause."""
        return (float(getattr(self, name)) - self.linear_s) / (self.measured_s - self.linear_s)


@cache
def explain_knee() -> Knee:
    """Say what part of the knee of 2020 waves of chunks and the scheduler can explain."""
    (kind, runs), = ((k, r) for k, r in read_curves().items() if k.name == _KNEE)  # fmt: skip
    slots, n_chunks = kind.cores_per_worker, kind.n_chunks or _N_CHUNKS
    small = [n for n in runs if n * slots <= _KNEE_CORES]
    cycle_s = statistics.median(n * slots * s for n in small for s in runs[n]) / n_chunks
    (profile, client), largest = _make(cycle_s, slots, None), max(runs)
    costs = read_costs()

    def simulate(task_s: float, graph_s: float) -> float:
        # a task that reads and one that throws away pass the scheduler for each chunk
        one = replace(client, task_s=_TASKS_PER_CHUNK * task_s)
        cluster = Cluster(round(largest), rtt_s=0.0, graph_s=_TASKS_PER_CHUNK * graph_s)
        return _median_s(profile, one, cluster, n_chunks)

    return Knee(
        n_cores=round(largest * slots),
        measured_s=statistics.median(runs[largest]),
        linear_s=n_chunks * cycle_s / (largest * slots),
        waves_s=simulate(0.0, 0.0),
        scheduled_s=simulate(costs.task_s, costs.graph_s),
        documented_s=simulate(DOCUMENTED_TASK_S, costs.graph_s),
    )


def render_validation(records: Path) -> str:
    """Write how far predictions are off, by record and cluster size, and on published curves."""
    lines = [
        "| record | workers | median error (%) | largest (%) | contender of the largest |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    checks = [*check_records(records), *check_growth(records.parent / "growth.csv")]
    for case, n in sorted({(each.case, each.n_workers) for each in checks}):
        part = [each for each in checks if (each.case, each.n_workers) == (case, n)]
        worst = max(part, key=lambda each: abs(each.error))
        lines.append(
            f"| {case} | {n} | {_median_error(part):.1f} | {100 * worst.error:+.1f} | {worst.contender} |"
        )
    curves = check_published()
    errors = [_median_error(each) for each in curves.values()]
    lines += ["", f"All {len(checks)} of them: median {_median_error(checks):.1f} %,"
              f" 90th percentile {100 * float(np.quantile([abs(c.error) for c in checks], 0.9)):.1f} %.", ""]  # fmt: skip
    lines += [_tell_dilated(checks), "", *_tell_beyond(records), ""]
    lines += [
        "| published curve | workers predicted | median error (%) | at the largest cluster (%) |"
    ]
    lines += ["| --- | ---: | ---: | ---: |"]
    for name, part in curves.items():
        sizes = f"{part[0].n_workers} to {part[-1].n_workers}"
        lines.append(
            f"| {tell_curve(name)} | {sizes} | {_median_error(part):.1f} | {100 * part[-1].error:+.1f} |"
        )
    tail = float(np.quantile(errors, 0.9))
    told = f"All {len(errors)} curves: median {statistics.median(errors):.1f} %, 90th percentile {tail:.1f} %."
    return "\n".join([*lines, "", told, ""])


def _tell_beyond(records: Path) -> Iterator[str]:
    """Say how far predictions are off at several times the cluster that was calibrated with."""
    checks = check_records(records, is_beyond=True)
    yield f"With the smallest cluster as the only calibration, and {_BEYOND} times as many workers or more:"
    yield ""
    yield "| record | workers | median error (%) | 90th percentile (%) |"
    yield "| --- | ---: | ---: | ---: |"
    missed = []
    for case in dict.fromkeys(each.case for each in checks):
        part = [each for each in checks if each.case == case]
        middle, tail = (
            _median_error(part),
            100 * float(np.quantile([abs(c.error) for c in part], 0.9)),
        )
        missed += [case] if middle > _TARGETS[0] or tail > _TARGETS[1] else []
        sizes = ", ".join(map(str, sorted({each.n_workers for each in part})))
        yield f"| {case} | {sizes} | {middle:.1f} | {tail:.1f} |"
    told = f"missed for {', '.join(missed)}" if missed else "kept for each"
    yield ""
    yield f"Our targets are a median of at most {_TARGETS[0]:g} % and a 90th percentile of at most {_TARGETS[1]:g} %: {told}."


def _tell_dilated(checks: Iterable[Check]) -> str:
    """Hold the simulation to its target on clusters whose time is dilated."""
    part = [each for each in checks if each.dilation > 1]
    if not part:
        return "No cluster of dilated time is among them."
    middle, sizes = _median_error(part), [each.n_workers for each in part]
    so_far = (
        ""
        if max(sizes) >= _LARGEST_DILATED
        else f", as far as it was measured; the target is for up to {_LARGEST_DILATED}"
    )
    return (
        f"On time-dilated clusters of {min(sizes)} to {max(sizes)} workers the median is {middle:.1f} %;"
        f" our target of {_TARGETS[0]:g} % is {'kept' if middle <= _TARGETS[0] else 'missed'}{so_far}."
    )


def _median_error(checks: Iterable[Check]) -> float:
    return 100 * statistics.median(abs(check.error) for check in checks)


def render_knee() -> str:
    """Write what part of the knee of 2020 the scheduler explains."""
    knee = explain_knee()
    waves, scheduled, documented = (
        100 * knee.share(name) for name in ("waves_s", "scheduled_s", "documented_s")
    )
    left = sorted({f"{100 - share:.0f}" for share in (documented, scheduled)}, key=float)
    return (
        f"With {knee.n_cores} cores that study read in {knee.measured_s:.1f} s what a line through its clusters of up to"
        f" {_KNEE_CORES} cores puts at {knee.linear_s:.1f} s.\n"
        f"Of the {knee.measured_s - knee.linear_s:.1f} s between, first bytes that differ and idle slots in the last wave explain {waves:.0f} %.\n"
        f"A scheduler as measured here adds {scheduled - waves:.0f} %;"
        f" one that takes {1e3 * DOCUMENTED_TASK_S:g} ms a task, the upper end of what Dask documents, {documented - waves:.0f} %.\n"
        f"What is left, {' to '.join(left)} %, is neither: links, the store, or stragglers that nobody recorded.\n"
    )
