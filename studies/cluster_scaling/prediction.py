"""Predicted reads of each contender at each number of workers, and how far off they are.

`python -m studies.cluster_scaling.prediction RECORD [SHARE]` prints the smallest dilation at which
processors have no more than that share of the slowest reader's time.
"""

from __future__ import annotations

import json
import math
import statistics as plain
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd

from advisors.scaling.curve import CurveFit
from helpers.arrays.readers import READERS, Reader
from helpers.arrays.stores import StoredArray
from helpers.benchmark import statistics
from helpers.benchmark.provenance import n_cores
from helpers.benchmark.record import read_records
from helpers.book.studies import AUTO, write_table
from helpers.errors import UserError, show
from helpers.models import transfer
from helpers.netem.profiles import Profile, get_profile, network_of
from helpers.plotting.tables import trace_of
from studies.cluster_scaling import STUDY


def read_clients(
    calibrated: pd.DataFrame, readers: Mapping[str, Reader], *, n_chunks: int
) -> dict[str, transfer.Client]:
    """Learn from a calibration how each contender reads, the ceiling included.

    Where nothing traces, a chunk is taken for one request of its stored bytes.
    """
    rows = calibrated[calibrated["phase"] == "calibration"]
    rows = rows.assign(
        n_requests=rows["n_requests"].fillna(n_chunks),
        wire_nbytes=rows["wire_nbytes"].fillna(rows["stored_nbytes"]),
        n_new_connections=trace_of(rows).get("n_new_connections", 0.0),
    ).fillna({"n_new_connections": 0.0})
    threads = int((rows["concurrency"] / rows["n_workers"]).iloc[0])
    cores = _cores_of(rows) if "machine" in rows else n_cores()

    def read_one(name: str, part: pd.DataFrame) -> transfer.Client:
        reader = readers.get(name)
        return transfer.read_client(
            part.to_dict("records"),  # type: ignore[arg-type]
            n_chunks=n_chunks,
            n_cores=cores,
            connections_per_worker=1 if reader and reader.is_serial else threads,
            is_overlapped=reader is None or reader.is_batched,
        )

    return {
        str(name): read_one(str(name), part) for name, part in rows.groupby("contender", sort=False)
    }


def _cores_of(rows: pd.DataFrame) -> int:
    """Count the cores of the machine that measured."""
    return int(json.loads(rows["machine"].iloc[0])["n_cores"])


def predict(
    clients: Mapping[str, transfer.Client],
    profile: Profile,
    n_workers: Sequence[int],
    stored: StoredArray,
) -> pd.DataFrame:
    """Predict the read of each contender at each number of workers, and the bottleneck."""
    lines = []
    for name, client in clients.items():
        for n in n_workers:
            network = network_of(profile, streams_per_worker=client.connections_per_worker)
            counts = {"n_chunks": stored.n_chunks, "n_workers": n}
            found = transfer.predict(network, client, **counts, n_cores=n_cores())
            lines.append((name, n, found.seconds, stored.nbytes / found.seconds / 1e6, found.limit))
    names = ["contender", "n_workers", "read_s", "throughput_mb_per_s", "limit"]
    return pd.DataFrame(lines, columns=names)


def compare_predictions(rows: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Put predicted beside measured times: `relative_error` is predicted over measured, less 1."""
    found = statistics.summarise(rows, ["contender", "n_workers"])
    table = expected.merge(found, on=["contender", "n_workers"])
    return table.assign(relative_error=table["read_s"] / table["median"] - 1)


def tabulate_fit(fit: CurveFit | None) -> pd.DataFrame:
    """Tabulate what was fitted to a curve, with intervals; empty without a fit.

    Of a ceiling that was not seen only the lower end is known.
    """
    if fit is None:
        return pd.DataFrame(columns=["value", "low", "high"])
    found = {
        "chunk cycle (s)": fit.cycle_s,
        "start (s)": fit.start_s,
        "ceiling (chunks/s)": fit.ceiling,
        "knee (workers)": fit.knee_workers,
        f"gain of {fit.largest:g} to {2 * fit.largest:g} workers": fit.double(fit.largest),
    }
    table = pd.DataFrame({name: asdict(one) for name, one in found.items()}).T
    if not fit.is_knee_seen:  # what is above the lower end is anybody's guess
        table.loc[["ceiling (chunks/s)", "knee (workers)"], ["value", "high"]] = math.nan
    return table.map(lambda value: float(f"{value:.3g}"))


MOST_SHARE = 0.05
"""Share of the slowest reader's time that processors may have where a network is to decide."""

_MOST_DILATION = 10_000  # as a case may have at most


@dataclass(frozen=True, slots=True)
class ProcessorShare:
    """What processors have of the slowest reader's time, at the size of a cluster where it is most."""

    dilation: float
    contender: str
    n_workers: int
    share: float


def _slow_down(client: transfer.Client, factor: float) -> transfer.Client:
    costs = {
        name: factor * getattr(client, name) for name in ("cpu_s_per_chunk", "wait_s_per_chunk")
    }
    return replace(client, **costs)


def find_share(
    clients: Mapping[str, transfer.Client],
    profile: Profile,
    n_workers: Sequence[int],
    n_chunks: int,
    *,
    dilation: float,
    cores: float | None = None,
) -> ProcessorShare:
    """Find the processors' share at a dilation, for clients whose costs are in real seconds.

    It is the part of the predicted time that would be saved if processing and its waiting took
    none.
    """

    def time_s(client: transfer.Client, n: int, faster: float) -> float:
        network = network_of(profile, streams_per_worker=client.connections_per_worker)
        given = network, _slow_down(client, 1 / faster), n_chunks
        return plain.median(
            transfer.simulate(*given, n_workers=n, n_cores=cores or n_cores(), seed=seed)
            for seed in range(9)
        )

    found = []
    for n in n_workers:
        times_s = {name: time_s(client, n, dilation) for name, client in clients.items()}
        slowest = max(times_s, key=times_s.__getitem__)
        saved = 1 - time_s(clients[slowest], n, math.inf) / times_s[slowest]
        found.append(ProcessorShare(dilation, slowest, n, saved))
    return max(found, key=lambda one: one.share)


def choose_dilation(
    clients: Mapping[str, transfer.Client],
    profile: Profile,
    n_workers: Sequence[int],
    n_chunks: int,
    *,
    most_share: float = MOST_SHARE,
    cores: float | None = None,
) -> ProcessorShare:
    """Choose the smallest whole dilation at which processors have at most a share of the time."""
    if not 0 < most_share < 1:
        raise UserError(f"share: {most_share!r}; allowed: above 0 and below 1")

    def find(k: int) -> ProcessorShare:
        return find_share(clients, profile, n_workers, n_chunks, dilation=k, cores=cores)

    low, high = 0, 1
    while (found := find(high)).share > most_share:
        low, high = high, 2 * high
        if high > _MOST_DILATION:
            raise UserError(
                f"share: {most_share:g}; processors have {found.share:.0%} of the time of"
                f" {found.contender} even at a dilation of {low}; allowed: more than that"
            )
    # of those between, the first with so little
    found_at = bisect_left(range(high), True, lo=low + 1, key=lambda k: find(k).share <= most_share)
    return find(found_at)


def settle_dilation(
    asked: float | str,
    clients: Mapping[str, transfer.Client],
    profile: Profile,
    n_workers: Sequence[int],
    n_chunks: int,
) -> tuple[float, Mapping[str, transfer.Client]]:
    """Choose the dilation where it was left open; tell it, and clients in the network's seconds.

    What was left open was calibrated in real time, and what was given in the time of its network.
    """
    if asked != AUTO:
        return float(asked), clients
    k = choose_dilation(clients, profile, n_workers, n_chunks).dilation
    return k, {name: _slow_down(one, 1 / k) for name, one in clients.items()}


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What a record tells of its case: the network, and how each reader read without it."""

    profile: Profile
    n_workers: Sequence[int]
    n_chunks: int
    dilation: float
    n_cores: int  # of the machine that measured
    clients: Mapping[str, transfer.Client]  # costs are in the network's seconds

    def clients_in_real_time(self) -> dict[str, transfer.Client]:
        """Tell the costs of clients in real seconds."""
        return {name: _slow_down(one, self.dilation) for name, one in self.clients.items()}


def read_calibrated(path: Path) -> Calibrated:
    """Read the calibration in a record of a case."""
    everything = read_records([path])
    rows = everything[(everything["phase"] == "calibration") & ~everything["is_ceiling"]]
    if rows.empty:
        raise UserError(f"{path.name}: no row of a calibration; allowed: a record that has some")
    case = json.loads(rows["parameters"].iloc[0])
    sizes = zip(case["array_shape"], case["chunk_shape"], strict=True)
    n_chunks = math.prod(math.ceil(n / chunk) for n, chunk in sizes)
    k = float(everything["dilation"].max())  # one that was chosen came after the calibration
    rows = rows.assign(read_s=rows["read_s"] * rows["dilation"] / k)
    found = read_clients(rows, READERS, n_chunks=n_chunks)
    given = get_profile(case["profile"]), case["n_workers"], n_chunks
    return Calibrated(*given, k, _cores_of(rows), found)


def choose_for_record(path: Path, most_share: float = MOST_SHARE) -> ProcessorShare:
    """Choose the dilation of a case from the calibration in a record of it, whatever its own is."""
    case = read_calibrated(path)
    clients, given = case.clients_in_real_time(), (case.profile, case.n_workers, case.n_chunks)
    return choose_dilation(clients, *given, most_share=most_share, cores=case.n_cores)


def render_choice(path: Path) -> str:
    """Say what share processors have in a record of dilated time, and which dilation the bound asks for."""
    case, chosen = read_calibrated(path), choose_for_record(path)
    given = case.profile, case.n_workers, case.n_chunks
    now = find_share(
        case.clients_in_real_time(), *given, dilation=case.dilation, cores=case.n_cores
    )
    verdict = "kept" if now.share <= MOST_SHARE else "exceeded"
    return (
        f"Processors have at most {100 * now.share:.1f} % of the time of the slowest reader, by the calibration of this record: of"
        f" `{now.contender}` at {now.n_workers} workers, with the dilation of {case.dilation:g} at which it was measured."
        f" The bound is {100 * MOST_SHARE:g} %, which is {verdict};"
        f" a dilation of {chosen.dilation:g}, as on {chosen.dilation * case.n_cores:g} cores, is the least that keeps it.\n"
    )


_N_SEEDS = 5
_TARGETS = (10.0, 25.0)  # percent, for the median and the 90th percentile of errors
(_OF_A_PAGE,) = (one.bound for one in STUDY.thresholds if one.key == "median-prediction-error")


def _ignore(case: Calibrated) -> Mapping[str, transfer.Client]:
    """Take every reader for one whose own work takes no time."""
    return {name: _slow_down(one, 0.0) for name, one in case.clients.items()}


def _share(case: Calibrated) -> Mapping[str, transfer.Client]:
    """Give every reader the median costs of all."""
    names = ("cpu_s_per_chunk", "wait_s_per_chunk")
    costs = {
        name: plain.median(getattr(one, name) for one in case.clients.values()) for name in names
    }
    return {name: replace(one, **costs) for name, one in case.clients.items()}


def list_errors(paths: Sequence[Path]) -> pd.DataFrame:
    """List the errors of the model and of two null models, in percent, by case, workers and reader."""
    lines = []
    for path in paths:
        case, rows = read_calibrated(path), read_records([path])
        rows = rows[(rows["control_of"] == "") & ~rows["is_ceiling"]]
        found = statistics.summarise(rows, ["contender", "n_workers"])
        models = (case.clients, _ignore(case), _share(case))
        for line in found.to_dict("records"):
            name, n = line["contender"], int(line["n_workers"])
            errors = []
            for clients in models:
                streams = clients[name].connections_per_worker
                network = network_of(case.profile, streams_per_worker=streams)
                given, cores = (network, clients[name], case.n_chunks), case.n_cores
                seconds = plain.median(
                    transfer.simulate(*given, n_workers=n, n_cores=cores, seed=seed)
                    for seed in range(_N_SEEDS)
                )
                errors.append(100 * abs(seconds / line["median"] - 1))
            lines.append((path.stem, n, name, *errors))
    return pd.DataFrame(lines, columns=["case", "n_workers", "contender", *_MODELS])


_MODELS = ("fitted for each reader", "nothing fitted", "one cost for all")


def render_errors(folder: Path) -> str:
    """Write the model's error by case and workers beside two null models, and whether it keeps its targets."""
    errors = list_errors(sorted(folder.glob("*.csv")))
    medians = errors.groupby(["case", "n_workers"])[[*_MODELS]].median()
    lines = [
        (case.replace("-", " "), n, *(f"{one:.0f}" for one in row))
        for (case, n), row in zip(medians.index, medians.to_numpy(), strict=True)
    ]
    table = write_table(["case", "workers", *(f"{name} (%)" for name in _MODELS)], lines)
    fitted = errors[_MODELS[0]]
    told = []
    for quantile, most in zip((0.5, 0.9), _TARGETS, strict=True):
        percent = float(fitted.quantile(quantile))
        told.append(f"{percent:.0f} % (target {most:g}: {'met' if percent <= most else 'missed'})")
    return (
        f"{table}\nOver all readers and sizes of all cases the model's error is {told[0]} in the median"
        f" and {told[1]} at the 90th percentile. {_tell_null_models(medians)}\n\n"
        "These targets are for all cases together. Each page by itself is held to a median of at most"
        f" {_OF_A_PAGE:g} %, the band of its figure, which is the target among the acceptance thresholds.\n"
    )


def _tell_null_models(medians: pd.DataFrame) -> str:
    """Say at how many sizes fitting each reader pays, and where a null model is nearer."""
    ours, *others = _MODELS
    nearer = medians[medians[others].min(axis=1) < medians[ours]]
    told = f"Fitting each reader is the nearest of the three, or as near, at {len(medians) - len(nearer)} of {len(medians)} sizes"
    if nearer.empty:
        return f"{told}."
    best = zip(
        nearer.index, nearer[others].idxmin(axis=1), nearer[others].min(axis=1), nearer[ours],
        strict=True,
    )  # fmt: skip
    where = [
        f"{case.replace('-', ' ')} with {n} workers ({name} {less:.0f} %, fitted {more:.0f} %)"
        for (case, n), name, less, more in best
    ]
    return f"{told}. A null model is nearer {' and '.join(where)}."


def main(arguments: Sequence[str]) -> None:
    """Print the dilation that a record asks for."""
    if len(arguments) not in (1, 2):
        raise UserError(f"arguments: {show([*arguments])}; allowed: RECORD [SHARE]")
    try:
        share = float(arguments[1]) if arguments[1:] else MOST_SHARE
    except ValueError as error:
        raise UserError(f"share: {show(arguments[1])}; allowed: above 0 and below 1") from error
    found = choose_for_record(Path(arguments[0]), share)
    print(
        f"dilation: {found.dilation:g}; processors then have {found.share:.1%} of the time of"
        f" {found.contender}, the slowest reader, at {found.n_workers} workers"
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as refused:
        sys.exit(str(refused))
