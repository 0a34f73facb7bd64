"""One process, many requests: clients by the bytes of a chunk, and what parts of a network cost.

`python -m studies.cluster_scaling.one_process in-flight` reads an array in chunks of several sizes
with 128 requests in flight, through four clients, as a published study did on S3;
`... effects` reads one over networks that differ in one thing: connections that have to be set up,
first bytes drawn one by one, a tail of late ones, requests refused above a rate.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import pandas as pd
import xxhash
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store
from zarr.storage import FsspecStore, ObjectStore

from helpers.arrays.readers import forget_clients
from helpers.arrays.reads import WrongValuesError
from helpers.benchmark import statistics
from helpers.benchmark.loop import timed
from helpers.benchmark.provenance import machine, n_cores
from helpers.benchmark.record import read_published
from helpers.book.published import compare_order, tell_order
from helpers.book.studies import write_table
from helpers.errors import UserError
from helpers.models import transfer
from helpers.netem.profiles import FirstByte, Profile, Tail, network_of
from helpers.netem.proxy import Request
from helpers.objectstore.locations import Location, credentials
from helpers.objectstore.testbed import Testbed
from helpers.paths import ROOT, replace_file
from helpers.plotting.tables import digits, tell_interval
from studies.cluster_scaling.validity import open_testbeds

FOLDER = ROOT / "results" / "reference"
Client = Literal["obstore", "s3fs", "icechunk", "tensorstore"]

IN_REGION = Profile("in region", FirstByte(0.03, 0.1), stream_mb_per_s=90)
ONE_MACHINE = replace(IN_REGION, name="one machine", aggregate_mb_per_s=1875)
"""In region as `in-region`, with the 15 Gb/s that Amazon tells of an m8g.8xlarge."""


@dataclass(frozen=True, slots=True)
class Read:
    """An array of random bytes, read whole by one process."""

    name: str
    client: Client
    profile: Profile
    chunk_nbytes: int
    n_chunks: int
    n_requests: int = 128  # in flight, as zarr's `async.concurrency` has it
    dilation: float = 1.0

    @property
    def key(self) -> str:
        """Folder of the array, the same for all that read it as it lies there."""
        kind = "-icechunk" if self.client == "icechunk" else ""
        return f"one-process-{self.chunk_nbytes}-{self.n_chunks}{kind}"

    def predict_s(self) -> float:
        """Predict the read by the model, for a client whose own work takes no time."""
        client = transfer.Client(
            self.chunk_nbytes,
            connections_per_worker=self.n_requests,
            new_connections=1,
            is_overlapped=True,
        )
        given = network_of(self.profile), client, self.n_chunks
        counts = {"n_workers": 1, "n_cores": n_cores()}
        return median(transfer.simulate(*given, **counts, seed=seed) for seed in range(25))  # type: ignore[arg-type]


_SIZES = ((781_250, 1024), (3_125_000, 512), (12_500_000, 128), (50_000_000, 32), (200_000_000, 16))
_CLIENTS: tuple[tuple[Client, float], ...] = (
    ("obstore", 4.0),
    ("s3fs", 1.0),
    ("icechunk", 4.0),
    ("tensorstore", 4.0),
    ("s3fs", 4.0),
)
IN_FLIGHT = tuple(
    Read(f"{client} x{k:g}", client, ONE_MACHINE, nbytes, n, dilation=k)
    for nbytes, n in _SIZES
    for client, k in _CLIENTS
)
"""s3fs computes in one thread, which a dilation would make as many times faster than any is: at 1
it has its own speed. The others compute beside, on processors that are more on the published
machine, so they are dilated; s3fs is too, to show what that hides."""

_FAR = Profile("other region", FirstByte(0.09, 0.2), stream_mb_per_s=50)
_EFFECTS: Mapping[str, Profile] = {
    "set-up and slow start": replace(
        _FAR, round_trip_s=0.06, setup_round_trips=2, initial_window_nbytes=14_600
    ),
    "first bytes drawn one by one": replace(_FAR, is_stratified=False),
    "one in a hundred a second late": replace(_FAR, tail=Tail(0.01, 1.0)),
    "refused above 100 requests a second": replace(_FAR, requests_per_s=100),
}
_PLAIN = "without"
EFFECTS = (
    Read(_PLAIN, "obstore", _FAR, 250_000, 640, n_requests=32),
    *(
        Read(name, "obstore", profile, 250_000, 640, n_requests=32)
        for name, profile in _EFFECTS.items()
    ),
)
"""Twenty waves of chunks, in real time, because a client waits so before it asks again."""

PLANS: Mapping[str, Sequence[Read]] = {"in-flight": IN_FLIGHT, "effects": EFFECTS}


def measure(plan: Sequence[Read], *, n_rounds: int = 5) -> pd.DataFrame:
    """Read everything once a round, in an order that turns, with values checked and clients new."""
    if not plan or n_rounds < 1:
        raise UserError(f"reads, n_rounds: {len(plan)}, {n_rounds}; allowed: one or more of each")
    networks = [*dict.fromkeys((one.profile, one.dilation) for one in plan)]
    arrays = {one.key: one for one in plan}
    needed = sum(one.chunk_nbytes * one.n_chunks for one in arrays.values())
    lines: list[dict[str, Any]] = []
    with open_testbeds(networks, needed_nbytes=needed) as opened:
        beds = dict(zip(networks, opened, strict=True))
        sums = {key: _write(one, opened[0].near) for key, one in arrays.items()}
        for one in plan[:3]:  # a client's first read pays for imports
            _read_once(one, beds[one.profile, one.dilation], sums[one.key])
        for i in range(n_rounds):
            for at in (*range(len(plan))[i % len(plan) :], *range(i % len(plan))):
                one = plan[at]
                line = _read_once(one, beds[one.profile, one.dilation], sums[one.key])
                lines.append({"round": i, "predicted_s": one.predict_s(), **line})
    here = machine()
    told = {"machine": f"{here['n_cores']} cores, {here['cpu']}"}
    return pd.DataFrame(lines).assign(**told, measured=datetime.now(UTC).date().isoformat())


def _write(one: Read, near: Location) -> int:
    """Write random bytes, as incompressible as those that were published; return their checksum."""
    values = np.random.default_rng(2025).integers(
        0, 2**63, one.chunk_nbytes * one.n_chunks // 8, dtype=np.int64
    )
    session = None
    store: Store = ObjectStore((near / one.key).obstore())
    if one.client == "icechunk":
        import icechunk  # an extra that not everyone has

        storage = (near / one.key).icechunk_storage()
        session = icechunk.Repository.create(storage).writable_session("main")
        store = session.store
    zarr.create_array(
        store,
        data=values,
        chunks=(one.chunk_nbytes // 8,),
        compressors=zarr.codecs.ZstdCodec(level=3),
        overwrite=True,
    )
    if session:
        session.commit("written")
    return xxhash.xxh3_64_intdigest(values.data)


def _open(one: Read, location: Location) -> Callable[[], Any]:
    """Open an array, with new connections, and tell how it is read whole."""
    if one.client == "tensorstore":
        import tensorstore  # an extra that not everyone has

        place = {"bucket": location.bucket, "path": f"{location.prefix}/"}
        place |= {"aws_region": location.region, "endpoint": str(location.endpoint_url)}
        context: dict[str, Any] = {"s3_request_concurrency": {"limit": one.n_requests}}
        context["aws_credentials"] = {"type": "environment"}
        spec = {"driver": "zarr3", "kvstore": {"driver": "s3", **place}, "context": context}
        opened = tensorstore.open(spec, open=True, read=True).result()
        return lambda: opened.read().result()
    store: Store
    if one.client == "icechunk":
        import icechunk  # an extra that not everyone has

        repository = icechunk.Repository.open(location.icechunk_storage())
        store = repository.readonly_session("main").store
    elif one.client == "obstore":
        store = ObjectStore(location.obstore(), read_only=True)
    else:
        options = {
            **location.fsspec_options(),
            "max_concurrency": 1,
        }  # one request a chunk, as then
        store = FsspecStore.from_url(location.url, storage_options=options, read_only=True)
    return partial(zarr.open_array(store, mode="r").__getitem__, slice(None))


def _read_once(one: Read, bed: Testbed, checksum: int) -> dict[str, Any]:
    """Open anew and read whole, in the time of the network, and count what passed."""
    forget_clients({"async.concurrency": one.n_requests})
    with credentials(bed.far):
        read = _open(one, bed.far / one.key)
        bed.take_trace()
        values, seconds = timed(read, dilation=one.dilation)
    found: NDArray[np.int64] = np.asarray(values)
    if xxhash.xxh3_64_intdigest(found.data) != checksum:
        raise WrongValuesError(f"{one.name}: other values than were written")
    facts = {"name": one.name, "client": one.client, "dilation": one.dilation}
    facts |= {"chunk_nbytes": one.chunk_nbytes, "nbytes": found.nbytes, "read_s": seconds}
    return facts | count(bed.take_trace(), seconds)


def count(trace: Sequence[Request], seconds: float) -> dict[str, float]:
    """Count requests of a read, those refused, those in flight, and the times of an answer."""
    waits = [one.first_byte_s - one.start_s for one in trace if one.first_byte_s]
    busy_s = sum(one.end_s - one.start_s for one in trace)
    return {
        "n_requests": len(trace),
        "n_refused": sum(one.status == 503 for one in trace),
        "in_flight": busy_s / seconds,
        "first_byte_p50_s": float(np.percentile(waits, 50)),
        "first_byte_p99_s": float(np.percentile(waits, 99)),
    }


def _pair(rows: pd.DataFrame, over: str, under: str) -> statistics.Interval:
    sides = (
        rows[rows["name"] == name].rename(columns={"round": "block"}) for name in (over, under)
    )
    return statistics.paired_between(*sides)


def render_in_flight(path: Path = FOLDER / "in-flight.csv") -> str:
    """Write the lead of obstore over s3fs by chunk bytes beside the published one."""
    if not path.exists():
        return _tell_missing("in-flight")
    rows, theirs = pd.read_csv(path), read_published("earthmover_tensor_storage_s3")
    theirs = theirs[theirs["operation"] == "read"]
    leads = theirs.pivot_table(
        index="chunk_bytes", columns="method", values="throughput_mb_per_s", aggfunc="median"
    )
    published = leads["zarr-obstore"] / leads["zarr-s3fs"]
    lines, n_near, n_dilated = [], 0, 0
    for nbytes in sorted({*map(int, rows["chunk_nbytes"])}):
        part = rows[rows["chunk_nbytes"] == nbytes]
        lead, hidden = _pair(part, *_LEAD), _pair(part, "s3fs x4", "obstore x4")
        factor = lead.centre / published[nbytes]
        n_near += bool(1 / _NEAR <= factor <= _NEAR)
        n_dilated += bool(1 / _NEAR <= hidden.centre / published[nbytes] <= _NEAR)
        rate = (part["nbytes"] / part["read_s"] / 1e6).groupby(part["name"]).median()
        flight = part.groupby("name")["in_flight"].median()
        lines.append(
            (
                digits(nbytes / 1e6, n=3),
                digits(published[nbytes], n=3),
                tell_interval(lead),
                digits(factor, n=3),
                tell_interval(hidden),
                *(f"{digits(rate[one], n=3)}, {digits(flight[one])}" for one in reversed(_LEAD)),
            )
        )
    names = [
        "chunk (MB)",
        "lead on S3, 2025",
        "lead here",
        "ours over theirs",
        "were s3fs dilated too",
        "obstore: MB/s, in flight",
        "s3fs: MB/s, in flight",
    ]
    kept, alike = ("met" if n >= _OF_SIZES else "missed" for n in (n_near, n_dilated))
    told = (
        f"Within a factor of {_NEAR:g} lie {n_near} of {len(lines)} sizes (target {_OF_SIZES}: {kept}),"
        f" and {n_dilated} ({alike}) where s3fs is dilated as obstore is."
    )
    return f"{write_table(names, lines)}\n{told}\n\n{_render_order(rows)}\n{_tell_run(rows)}"


def _render_order(rows: pd.DataFrame) -> str:
    """Write the published order of clients at each size beside ours, where theirs stand apart."""
    theirs = read_published("earthmover_tensor_storage_s3").query("operation == 'read'")
    n_rounds = rows["round"].nunique()
    rows = rows[rows["name"].isin(_THEIRS)].rename(columns={"round": "block", "read_s": "seconds"})
    frames = []
    for nbytes in sorted({*map(int, rows["chunk_nbytes"])}):
        part = rows[rows["chunk_nbytes"] == nbytes].rename(columns={"name": "cell"})
        rate = theirs[theirs["chunk_bytes"] == nbytes].groupby("method")["throughput_mb_per_s"]
        told = {name: rate.median()[_THEIRS[name]] for name in {*part["cell"]}}
        pairs = compare_order(part, told)
        flight = part.groupby("cell")["in_flight"].median()
        frames.append(pairs.assign(chunk_mb=nbytes / 1e6, flight=pairs["slower"].map(flight)))
    pairs = pd.concat(frames, ignore_index=True)
    pairs = pairs[pairs["theirs"] >= _APART]
    lines = [
        (
            digits(one["chunk_mb"], n=3),
            _CALLED[one["faster"]],
            _CALLED[one["slower"]],
            digits(one["theirs"], n=3),
            tell_interval(statistics.Interval(one["ours"], one["low"], one["high"], n_rounds)),
            "opposite" if one["agrees"] == "no" else one["agrees"],
            digits(one["flight"]),
        )
        for one in pairs[pairs["agrees"] != "yes"].to_dict("records")
    ]
    names = [
        "chunk (MB)",
        "faster on S3",
        "slower on S3",
        "ratio on S3",
        "ratio here",
        "order here",
        "in flight here, slower on S3",
    ]
    table = f" The others:\n\n{write_table(names, lines)}" if lines else "\n"
    return f"Of the clients whose speed on S3 differs by {100 * (_APART - 1):.0f} % at least: {tell_order(pairs)}.{table}"


_LEAD = "s3fs x1", "obstore x4"
_CALLED = {f"{name} x4": name for name in ("obstore", "icechunk", "tensorstore")} | {
    "s3fs x1": "s3fs"
}
_THEIRS = {
    name: "tensorstore" if called == "tensorstore" else f"zarr-{called}"
    for name, called in _CALLED.items()
}  # by what they are called in the published table
_APART = 1.1  # how far published throughputs differ where their order says something
_NEAR, _OF_SIZES = 1.3, 4  # how near the published lead ours is to be, and at how many sizes


def find_answers(path: Path = FOLDER / "in-flight.csv") -> dict[str, dict[str, Any]]:
    """Find what this record answers to the claims of that study, by claim."""
    if not path.exists():
        return {}
    rows, sizes = pd.read_csv(path), {"small": 781_250, "medium": 3_125_000, "large": 12_500_000}
    return {
        f"obstore-over-s3fs-{size}": {
            "one process, 128 in flight": _pair(rows[rows["chunk_nbytes"] == n], *_LEAD)
        }
        for size, n in sizes.items()
    }


def render_effects(path: Path = FOLDER / "effects.csv") -> str:
    """Write what each part of a network costs the same read, beside what the model says."""
    if not path.exists():
        return _tell_missing("effects")
    rows = pd.read_csv(path)
    plain, lines = rows[rows["name"] == _PLAIN], []
    for name in dict.fromkeys(["without", *rows["name"]]):
        part = rows[rows["name"] == name]
        seconds, predicted = part["read_s"].median(), part["predicted_s"].iloc[0]
        waits = [digits(1000 * part[f"first_byte_p{p}_s"].median()) for p in (50, 99)]
        scatter = 100 * (part["read_s"].max() / part["read_s"].min() - 1)
        lines.append(
            (
                name,
                digits(seconds, n=3),
                digits(scatter, n=2),
                "" if name == _PLAIN else tell_interval(_pair(rows, str(name), _PLAIN)),
                digits(predicted / plain["predicted_s"].iloc[0], n=3),
                " and ".join(waits),
                f"{part['n_refused'].median():g}",
            )
        )
    names = ["network", "read (s)", "slowest over fastest (%)", "over without", "predicted", "first byte, p50 and p99 (ms)",
             "refused"]  # fmt: skip
    return f"{write_table(names, lines)}\n{_tell_run(rows)}"


def _tell_missing(name: str) -> str:
    return f"Not measured yet; `python -m studies.cluster_scaling.one_process {name}` does it.\n"


def _tell_run(rows: pd.DataFrame) -> str:
    told, n_rounds = rows.iloc[0], rows["round"].nunique()
    return f"Measured on {told['measured']} in {n_rounds} rounds, on {told['machine']}.\n"


RENDER: Mapping[str, Callable[[], str]] = {"in-flight": render_in_flight, "effects": render_effects}


def main(names: Sequence[str]) -> None:
    """Measure what is named, or both, and write the records."""
    if unknown := [name for name in names if name not in PLANS]:
        raise UserError(f"plan: {unknown[0]}; allowed: {', '.join(PLANS)}")
    for name in names or PLANS:
        rows = measure(PLANS[name])
        text = rows.to_csv(index=False, lineterminator="\n", float_format="%.6g")
        replace_file(FOLDER / f"{name}.csv", text)
        print(RENDER[name]())


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as refused:
        sys.exit(str(refused))
