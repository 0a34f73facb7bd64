"""Known causes of slow reads, sought in a trace: how often, on what evidence, what changes it, and what that gains."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import yaml

from wire.deadline import deadline
from wire.errors import write_bytes
from wire.models import WORTH
from wire.models.transfer import Network, count_waits
from wire.trace import analysis
from wire.trace.analysis import is_data, is_metadata, kind_of, span_of
from wire.trace.report import Finding, Report
from wire.trace.rows import METADATA_SERVICES
from wire.trace.whatif import HANDSHAKE_ROUND_TRIPS, RETRIED, Asked, Edit, Trace, split

if TYPE_CHECKING:
    from wire.trace.rows import Run, TracedRequest

N_PRINTED = 5
_FEW = 6  # requests of one cause, below which it is none
_JOINED_NBYTES = 8 * 2**20
_GAP_NBYTES = 64 * 1024
_LARGE_NBYTES = 16 * 10**6  # of a body that is worth several streams
_LEAST_S = 0.1  # that a change saves
_LEAST_BUSY_S = 0.5  # of processors, which any client needs for a while
_WASTED = 1.3  # times the bytes that were needed
_BUSY = 0.5  # share of the time from which on processors, or the link, are the cause
_UNSEEN_NBYTES_PER_S = 50e6  # of a stream that no body shows
_SURE = 1.2  # times the time predicted, above which on a slower network the gain is one at most
_FAR_S = 0.02  # a round trip within a region takes a tenth of it
_FEW_IN_FLIGHT, _MORE_IN_FLIGHT = 16, 64


@dataclass(frozen=True, slots=True)
class Cause:
    """What was found in a trace, before its gain is known."""

    rows: Sequence[int]  # places of the requests that it concerns, which tell the client too
    evidence: str
    edit: Edit | None = None  # what would be asked for without it
    saved_s: float = 0.0  # seconds that it takes, where no edit of requests mends it


def _drop(trace: Trace, places: Sequence[int], evidence: str, *, n_kept: int = 0) -> Cause | None:
    """Ask for all but these, of which the first may have to stay."""
    edit = Edit(trace.keep(places[n_kept:]))
    return Cause(places, evidence, edit) if places else None


def _failed(trace: Trace) -> Cause | None:
    """Chunks that were refused and never came, in a program that went on as if they were empty."""
    came = {
        (row.host, row.key) for row in trace.rows if 200 <= row.status < 300 and row.method == "GET"
    }
    failed = trace.places(
        lambda row: (
            row.method == "GET"
            and analysis.is_chunk(row)
            and ((row.status >= 400 and row.status != 404) or not row.status)
            and (row.host, row.key) not in came
        )
    )
    if not failed or trace.run.exit_code:
        return None
    names = {trace.rows[i].key for i in failed}
    status = trace.rows[failed[0]].status or "no answer"
    told = f"{len(names)} chunks never came (the first: {status}), and the program ended well: their values may be fill values"
    return Cause(failed, told)


def _looks(trace: Trace) -> Cause | None:
    """Objects whose size is asked for before they are read."""
    dropped = []
    for group in trace.by_object([*range(len(trace.rows))]):
        for i, j in itertools.pairwise(group):
            row, following = trace.rows[i], trace.rows[j]
            if row.method == "HEAD" and row.status < 300 and following.method == "GET":
                dropped.append(i)
    n_get = len(trace.places(lambda row: row.method == "GET"))
    told = f"before {len(dropped)} of {n_get} GETs a HEAD asked for the size of the object"
    return _drop(trace, dropped, told)


def _repeats(trace: Trace) -> Cause | None:
    """Bytes of an object that had come before."""
    seen, again = set[tuple[object, ...]](), list[int]()
    for i in trace.places(
        lambda row: row.method == "GET" and row.status < 300 and kind_of(row) != "listing"
    ):
        row = trace.rows[i]
        asked = row.host, row.key, row.range_start, row.range_nbytes
        again += [i] * (asked in seen)
        seen.add(asked)
    nbytes = sum(trace.rows[i].nbytes for i in again)
    told = f"{len(again)} requests brought {write_bytes(nbytes)} that had come before"
    return _drop(trace, again, told)


def _overlaps(trace: Trace) -> Cause | None:
    """Ranges that hold bytes of others: a read-ahead that was thrown away."""
    fresh, part = dict[int, int](), list[int]()
    for group in trace.by_object(
        trace.places(lambda row: kind_of(row) == "range" and row.status < 300)
    ):
        spans = [span_of(trace.rows[i]) for i in group]
        fresh |= zip(group, analysis.fresh_nbytes(spans), strict=True)
        seen = set[tuple[int, int]]()
        for i, span in zip(group, spans, strict=True):
            if span not in seen and fresh[i] < trace.rows[i].nbytes:
                part.append(i)
            seen.add(span)
    moved, unique = sum(trace.rows[i].nbytes for i in fresh), sum(fresh.values())
    if not part or moved < _WASTED * unique:
        return None
    asked = [replace(one, nbytes=fresh.get(one.rows[0], one.nbytes)) for one in trace.keep()]
    told = f"{write_bytes(moved)} came for {write_bytes(unique)} of the files: a read-ahead is thrown away at each jump"
    return Cause(part, told, Edit([one for one in asked if fresh.get(one.rows[0], 1)]))


def _neighbours(trace: Trace) -> Cause | None:
    """Ranges that touch, asked for one after the other."""
    joined, touching, n_all = list[list[int]](), list[int](), 0
    ranges = trace.places(
        lambda row: kind_of(row) in ("range", "chunk") and row.range_start is not None
    )
    for group in trace.by_object(ranges):
        n_all += len(group) - 1
        joined.append([group[0]])
        for i, j in itertools.pairwise(group):
            (_, before), (start, end) = span_of(trace.rows[i]), span_of(trace.rows[j])
            if 0 <= start - before <= _GAP_NBYTES and trace.rows[j].start_s >= trace.rows[i].end_s:
                touching.append(j)
                if end - span_of(trace.rows[joined[-1][0]])[0] <= _JOINED_NBYTES:
                    joined[-1].append(j)
                    continue
            joined.append([j])
    asked = trace.keep(ranges)
    for one in joined:
        first, last = trace.rows[one[0]], trace.rows[one[-1]]
        asked.append(Asked((*one,), span_of(last)[1] - span_of(first)[0]))
    told = f"{len(touching)} of {n_all} neighbours touch; joined they are {len(asked)} requests instead of {len(trace.rows)}"
    return Cause(touching, told, Edit(asked))


def _metadata(trace: Trace) -> Cause | None:
    """Metadata asked for array by array."""
    asked = trace.places(is_metadata)
    found = {trace.rows[i].key.rpartition("/")[0] for i in asked if trace.rows[i].status < 300}
    if len(found) <= 3:
        return None
    told = f"{len(asked)} requests for metadata in {len(found)} places, which could be in one"
    return _drop(trace, asked, told, n_kept=1)


def _probes(trace: Trace) -> Cause | None:
    """Look-ups of what is not there."""
    missing = trace.places(lambda row: row.status == 404)
    names = Counter(trace.rows[i].key.rpartition("/")[2] for i in missing)
    such = ", ".join(name for name, _ in names.most_common(1))
    told = f"{len(missing)} of {len(trace.rows)} requests were answered 404, such as for {such}"
    return _drop(trace, missing, told)


def _listings(trace: Trace) -> Cause | None:
    """List before each read."""
    listed = trace.places(lambda row: kind_of(row) == "listing")
    n_read = len(trace.places(is_data))
    return _drop(trace, listed, f"{len(listed)} listings for {n_read} reads", n_kept=1)


def _credentials(trace: Trace) -> Cause | None:
    """Credentials sought from the metadata service of a machine."""
    asked = trace.places(lambda row: kind_of(row) == "credentials")
    seconds = sum(trace.rows[i].end_s - trace.rows[i].start_s for i in asked)
    past = [one for one in trace.run.bypassed if one.address.startswith(METADATA_SERVICES)]
    if not asked and not past:
        return None
    took = f" in {seconds:.1f} s" if asked else "; what they took counts as idle"
    told = f"{len(asked) + len(past)} connections to a metadata service{took}"
    return _drop(trace, asked, told) or Cause((), told, saved_s=trace.time["idle"])


def _throttled(trace: Trace) -> Cause | None:
    """Refusals for now, after which a client asks again."""
    refused = trace.places(lambda row: row.status in RETRIED)
    told = f"{len(refused)} of {len(trace.rows)} requests were refused, and then asked again"
    return _drop(trace, refused, told)


def _connections(trace: Trace) -> Cause | None:
    """Handshakes before every request or two."""
    new = trace.places(lambda row: row.is_first)
    if len(new) < max(0.5 * len(trace.rows), 2 * analysis.most_in_flight(trace.rows)):
        return None
    each_s = median(trace.rows[i].handshake_s for i in new)
    told = f"{len(new)} connections for {len(trace.rows)} requests, each set up in {1000 * each_s:.0f} ms"
    return Cause(new, told, Edit(trace.keep(), is_connected=True))


def _far(trace: Trace) -> Cause | None:
    """Round trips that are most of the first byte."""
    set_up_s = [row.handshake_s for row in trace.rows if row.is_first and row.handshake_s]
    round_trip_s = median(set_up_s) / HANDSHAKE_ROUND_TRIPS if set_up_s else 0.0
    round_trip_s = min(round_trip_s, trace.seen.first_byte_median_s)
    if round_trip_s < max(_FAR_S, 0.4 * trace.seen.first_byte_median_s):
        return None
    told = f"a round trip takes {1000 * round_trip_s:.0f} of the {1000 * trace.seen.first_byte_median_s:.0f} ms of latency: the store is far away"
    edit = Edit(trace.keep(), less_s=round_trip_s, is_connected=True)
    return Cause(range(len(trace.rows)), told, edit)


def _data(trace: Trace) -> tuple[list[int], int]:
    """Find the requests for data, and how many of these were in flight at most."""
    places = trace.places(is_data)
    return places, analysis.most_in_flight([trace.rows[i] for i in places])


def _in_turn(trace: Trace) -> Cause | None:
    """Objects, or chunks of a shard, that do not need one another, read one after the other."""
    places, n_in_flight = _data(trace)
    objects = [*trace.by_object(places)]
    # the index of a shard comes before its chunks
    parts = {i for one in objects for i in one[1:] if analysis.is_chunk(trace.rows[i]) and trace.rows[i].range_nbytes}  # fmt: skip
    if n_in_flight != 1 or len(objects) + len(parts) < max(_FEW, 0.5 * len(places)):
        return None
    free = frozenset(trace.places(lambda row: is_data(row) or row.method == "HEAD"))
    free -= {one[0] for one in objects if parts.intersection(one)}
    what = f"{len(parts)} chunks of shards" if parts else f"{len(objects)} objects"
    told = f"{what} were read one after the other, {write_bytes(median(trace.rows[i].nbytes for i in places))} each"
    return Cause(places, told, Edit(trace.keep(), free))


def _few(trace: Trace) -> Cause | None:
    """Fewer requests in flight than there were to make."""
    places, n_in_flight = _data(trace)
    rows = [trace.rows[i] for i in places]
    if not 1 < n_in_flight <= _FEW_IN_FLIGHT or len(places) < 3 * n_in_flight:
        return None
    # a queue goes on whenever one of its requests has ended; a program that waits for all begins anew
    if analysis.in_flight(rows).count(n_in_flight) < _BUSY * (len(rows) - n_in_flight):
        return None
    span_s = max(row.end_s for row in rows) - rows[0].start_s
    mean = sum(row.end_s - row.start_s for row in rows) / span_s
    if mean < _BUSY * n_in_flight:
        return None
    told = f"{len(places)} requests for data, never more than {n_in_flight} concurrent, {mean:.1f} in the mean"
    free = frozenset(trace.places(lambda row: is_data(row) or row.method == "HEAD"))
    return Cause(places, told, Edit(trace.keep(), free, _MORE_IN_FLIGHT))


def _one_stream(trace: Trace) -> Cause | None:
    """Large bodies that come over one connection while nothing else flows."""
    large = trace.places(lambda row: is_data(row) and row.nbytes >= _LARGE_NBYTES)
    if not large or analysis.most_in_flight([trace.rows[i] for i in large]) > 1:
        return None
    nbytes = sum(trace.rows[i].nbytes for i in large)
    told = f"{write_bytes(nbytes)} came one stream at a time, of {trace.seen.stream_nbytes_per_s / 1e6:.0f} MB/s"
    return Cause(large, told, Edit(split(trace.rows, large, _JOINED_NBYTES)))


def _processor(trace: Trace) -> Cause | None:
    """Processors that work while nobody waits for the network."""
    time = trace.time
    asking_s = trace.run.wall_s - time["start"]
    busy_s = time["processor"] + time["client"]
    # idle seconds may be those in which others had the processors
    if busy_s < max(_LEAST_BUSY_S, _BUSY * (asking_s - time["idle"]), _BUSY / 2 * asking_s):
        return None
    told = f"{busy_s:.1f} of {asking_s:.1f} s from the first request on the program computes, and the network waits for it"
    return Cause((), told, saved_s=busy_s)


def _link(trace: Trace) -> Cause | None:
    """Bodies that flow all the time over a link that carries no more."""
    time = trace.time
    asking_s = trace.run.wall_s - time["start"]
    _, n_in_flight = _data(trace)
    if time["bodies"] < _BUSY * asking_s or n_in_flight < 2:
        return None
    rate = sum(row.nbytes for row in trace.rows) / time["bodies"] / 1e6
    told = f"bodies flow in {time['bodies']:.1f} of {asking_s:.1f} s, {rate:.0f} MB/s in all: no request is in the way of another"
    return Cause((), told, saved_s=time["bodies"])


_FINDERS: dict[str, Callable[[Trace], Cause | None]] = {
    "failed": _failed,
    "looks": _looks,
    "repeats": _repeats,
    "overlaps": _overlaps,
    "neighbours": _neighbours,
    "metadata": _metadata,
    "probes": _probes,
    "listings": _listings,
    "credentials": _credentials,
    "throttled": _throttled,
    "connections": _connections,
    "far": _far,
    "in-turn": _in_turn,
    "few": _few,
    "one-stream": _one_stream,
    "processor": _processor,
    "link": _link,
}


_CLIENTS = {
    "s3fs": ("aiobotocore/",),
    "boto3": ("boto3/", "botocore/"),
    "obstore": ("object_store/", "obstore/"),
    "requests": ("python-requests/", "python-urllib3/"),
    "httpx": ("python-httpx/",),
    "aiohttp": ("aiohttp/",),
    "gdal": ("gdal/",),
    "duckdb": ("duckdb/",),
    "tensorstore": ("tensorstore/",),
    "arrow": ("aws-sdk-cpp/", "arrow/"),
    "hdf5": ("libhdf5/", "hdf5/"),
    "curl": ("curl/",),
    "go": ("go-http-client/", "aws-sdk-go", "minio", "rclone/"),
}
"""Clients by how their user agent begins, in small letters."""

_ZARR_READS_WITH = ("s3fs", "obstore", "aiohttp", "")
_ACTS_ON = {
    "max_concurrency": ("s3fs",),
    "cache": ("s3fs",),
    "block_size": ("s3fs",),
    "pool": ("s3fs",),
    "concurrency": ("s3fs", "obstore", "aiohttp"),
    "gap": ("s3fs", "obstore", "aiohttp"),
    "readdir": ("gdal",),
}
"""Clients that settings of `--try` act on; the others act on any."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What changes a cause, in the words of a client."""

    do: str
    setting: str = ""  # of `--try`, where it acts on this client


@dataclass(frozen=True, slots=True)
class CauseText:
    """What a user reads of a cause, whatever was seen of it."""

    title: str
    see: str  # address in the book
    neutral: Remedy  # for a client that is not known
    clients: Mapping[str, Remedy]
    rank: int = 1
    least: int = _FEW
    is_bound: bool = False

    def remedy_for(self, names: Iterable[str]) -> Remedy:
        """Return the remedy in the words of the first of some clients that has its own."""
        return next((self.clients[name] for name in names if name in self.clients), self.neutral)


@cache
def read_causes() -> Mapping[str, CauseText]:
    """Read what is reported of each cause; one that is not complete is refused.

    Raises
    ------
    ValueError
        If a cause has no finder or no text, or names a client that nobody has.
    """
    path = Path(__file__).with_name("causes.yaml")
    table = yaml.safe_load(path.read_text(encoding="utf-8"))
    if {*table} != {*_FINDERS}:
        raise ValueError(f"{path.name}: {sorted({*table} ^ {*_FINDERS})}; allowed: every cause")
    return {name: _read_cause(name, dict(entry)) for name, entry in table.items()}


def _read_cause(name: str, entry: dict[str, Any]) -> CauseText:
    clients = {
        client: Remedy(told["do"], told.get("try", ""))
        for client, told in entry.pop("clients", {}).items()
    }
    if odd := sorted({*clients} - {*_CLIENTS, "zarr"}):
        raise ValueError(f"{name}: {odd[0]}; allowed: {', '.join([*_CLIENTS, 'zarr'])}")
    neutral, is_bound = Remedy(entry.pop("do")), entry.pop("bound", False)
    return CauseText(neutral=neutral, clients=clients, is_bound=is_bound, **entry)


def client_of(user_agent: str) -> str:
    """Name a client by its user agent; nothing where it is not known."""
    small = user_agent.lower()
    return next((name for name, begins in _CLIENTS.items() if small.startswith(begins)), "")


def find_clients(rows: Sequence[TracedRequest]) -> list[str]:
    """Name the client of most requests, and before it Zarr where most are for its objects."""
    agents = Counter(row.user_agent for row in rows)
    counts = Counter[str]()
    for agent, number in agents.items():
        counts[client_of(agent)] += number
    client = counts.most_common(1)[0][0] if counts else ""
    n_zarr = sum(analysis.is_chunk(row) or is_metadata(row) for row in rows)
    is_zarr = client in _ZARR_READS_WITH and n_zarr > len(rows) / 2
    return [*(["zarr"] if is_zarr else []), client]


def explain_no_effect(run: Run, setting: str) -> str:
    """Explain in a line why a setting of `--try` can change nothing; nothing where it may.

    A client that gives no name, or one that is not known, may be any.
    """
    wanted = _ACTS_ON.get(setting.partition("=")[0], ())
    seen = {client_of(agent) for agent in {row.user_agent for row in run.rows}}
    if not wanted or not seen or seen & {*wanted, ""}:
        return ""
    return f"--try {setting} is not measured: it acts on {' and '.join(wanted)}, and the requests are of {', '.join(sorted(seen))}"


def find(run: Run, on: Network | None = None) -> list[Finding]:
    """Find known causes in a run, those that give a wrong result first and then by predicted gain.

    One that gains less than what is worth a change is none. On another network than that of the trace
    both times are predicted.
    """
    return find_causes(Trace(run, on))


def find_causes(trace: Trace) -> list[Finding]:
    """Find known causes in a trace, as `find` does."""
    if not trace.rows:
        return []
    likely, least = _bounds(trace)
    found = list[tuple[int, Finding]]()
    for name, finder in _FINDERS.items():
        cause, text = finder(trace), read_causes()[name]
        if cause is None or len(cause.rows) < text.least:
            continue
        wall_s, after_s = _predict(trace, cause, likely)
        after_least_s = _predict(trace, cause, least)[1]
        rank, asking_s = text.rank, wall_s - trace.time["start"]
        if rank and wall_s - after_s < max(_LEAST_S, asking_s * (1 - 1 / WORTH)):
            continue
        remedy = text.remedy_for(find_clients([trace.rows[i] for i in cause.rows] or trace.rows))
        is_most = cause.edit is None or text.is_bound
        is_bound = is_most or after_least_s > _SURE * after_s
        if is_bound:  # were what the trace does not show no limit at all
            after_s = _predict(trace, cause, trace.seen)[1]
        has_gain = rank == 1  # none of a wrong result, nor where nothing but reading less helps
        one = Finding(
            name=name,
            title=text.title,
            count=len(cause.rows),
            evidence=cause.evidence,
            line=remedy.do,
            gain=wall_s / after_s if has_gain else 0.0,
            seconds=after_s,
            is_bound=is_bound,
            setting=remedy.setting,
            see=text.see,
            least_gain=wall_s / max(after_least_s, after_s) if has_gain and not is_most else 0.0,
        )
        found.append((rank, one))

    def rank_of(pair: tuple[int, Finding]) -> tuple[int, float]:
        # what can gain so much at most is taken to gain half of that
        rank, one = pair
        return rank, -((one.gain - 1) / 2 if one.is_bound else one.gain - 1)

    return [one for _, one in sorted(found, key=rank_of)]


def _bounds(trace: Trace) -> tuple[Network, Network]:
    """Give the network that is likely, and the slowest that the trace does not rule out.

    A rate that no body showed may be much lower, and a link may carry no more than it was seen to.
    """
    seen, is_seen = trace.seen, isfinite(trace.seen.stream_nbytes_per_s)
    rate = seen.stream_nbytes_per_s if is_seen else _UNSEEN_NBYTES_PER_S
    likely, low = replace(seen, stream_nbytes_per_s=rate), rate if is_seen else rate / 5
    until_s = max(row.end_s for row in trace.rows)
    n_flowing = max([1, *(one[3] for one in analysis.intervals(trace.rows, until_s))])
    together = min(seen.aggregate_nbytes_per_s, low * n_flowing)
    return likely, replace(likely, stream_nbytes_per_s=low, aggregate_nbytes_per_s=together)


def _predict(trace: Trace, cause: Cause, network: Network) -> tuple[float, float]:
    """Predict what the program takes as it is, and without a cause."""
    base_s = trace.base_seconds(network)
    wall_s, saved_s = wall_on(trace, base_s), cause.saved_s
    if cause.edit is not None and base_s:
        less = 1 - trace.seconds(cause.edit, network) / base_s
        saved_s = (wall_s - trace.run.wall_s + trace.span_s) * less
    return wall_s, max(wall_s - saved_s, 1e-3)


def wall_on(trace: Trace, base_s: float) -> float:
    """Compute what the program takes: as it was, or on another network in place of its own."""
    wall_s = trace.run.wall_s
    return wall_s if trace.network is None else wall_s - trace.span_s + base_s


WITHIN_S = 8.0
"""Seconds in which a report is made: of a larger trace it has the requests alone."""


def report(
    run: Run, on: tuple[str, Network] = ("", Network()), *, within_s: float = WITHIN_S
) -> Report:
    """Report what a run asked for, what it waited for and what is known to mend it.

    What takes longer than `within_s` is left out, and the report says so: first the causes, then
    whatever takes more than a count.
    """
    name, network = on
    counted: Report | None = None
    try:
        with deadline(within_s):
            trace = Trace(run, network if name else None)
            counted = _count(trace, name)
            notes = [*counted.notes]
            if trace.n_replayed < len(trace.rows):
                notes.append(
                    f"gains are predicted from {trace.n_replayed:,} of {len(trace.rows):,} requests"
                )
            return replace(counted, findings=find_causes(trace), notes=notes)
    except TimeoutError:
        counted = counted or _list(run, name)
        note = f"causes were not sought: {len(run.rows):,} requests take longer than {within_s:g} s to analyse"
        return replace(counted, notes=[*counted.notes, note])


def _list(run: Run, name: str) -> Report:
    """Report what needs one look at each request."""
    past = [
        f"connection of pid {one.pid} ({one.name}) to {one.address} past the gateway"
        f"{'; ' * bool(one.remedy)}{one.remedy}"
        for one in run.bypassed
    ]
    tunnels = [
        f"{one.host}, {write_bytes(one.nbytes_down)} passed on unread: {one.reason}"
        for one in run.unread
    ]
    return Report(
        verdict=f"{len(run.rows):,} requests in {run.wall_s:.3g} s",
        wall_s=run.wall_s,
        exit_code=run.exit_code,
        n_requests=len(run.rows),
        hosts=sorted({row.host for row in run.rows}),
        n_waits=count_waits(row for row in run.rows if row.end_s),
        n_in_flight=0,
        moved_nbytes=sum(row.nbytes for row in run.rows),
        unique_nbytes=0,
        sent_nbytes=sum(row.sent_nbytes for row in run.rows),
        time_s={},
        kinds={},
        first_byte_s=(0.0, 0.0),
        stream_mb_per_s=0.0,
        gateway_share=run.gateway_s / run.wall_s,
        on=name,
        predicted_s=run.wall_s,
        findings=[],
        not_seen=[*past, *tunnels, *run.remarks],
        refused=dict(
            Counter(
                row.status for row in run.rows if row.status >= 400 or not row.status
            ).most_common()
        ),
    )


def _count(trace: Trace, name: str) -> Report:
    """Report what is counted, and the network that the requests show."""
    rows, seen = trace.rows, trace.seen
    base_s = trace.base_seconds(seen) if rows else trace.span_s
    return replace(
        _list(trace.run, name),
        n_in_flight=analysis.most_in_flight(rows),
        unique_nbytes=analysis.unique_nbytes(rows),
        time_s=trace.time,
        kinds=dict(Counter(map(kind_of, rows)).most_common()),
        first_byte_s=(seen.first_byte_median_s, seen.first_byte_p95_s),
        stream_mb_per_s=seen.stream_nbytes_per_s / 1e6 if isfinite(seen.stream_nbytes_per_s) else 0.0,
        predicted_s=wall_on(trace, base_s),
    )  # fmt: skip
