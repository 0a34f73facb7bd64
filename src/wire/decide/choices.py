"""What could be stored and how it is read: choices for a question, each predicted, priced and ranked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from wire.bed.networks import Profile, get_profile
from wire.clients import CLIENTS as CLIENT_FACTS
from wire.clients import ClientFacts
from wire.decide.layouts import (
    APPEND_NBYTES,
    Access,
    AccessPattern,
    Forecast,
    Layout,
    best_copies,
    best_layout,
    best_of,
    bound_seconds,
    cheapest_of,
    expect,
    make_grid,
    rewritten_nbytes,
)
from wire.decide.question import ASSUMED_REGION, Question, add_client_costs
from wire.hdf5.inspection import FileLayout, Read, describe_layout
from wire.hdf5.prediction import BLOCKS, DEFAULT, DEFAULT_HTTPS, ReadMethod, predict_read
from wire.models import WORTH
from wire.models.transfer import network_of

Action = Literal["stay", "default", "set", "write", "rechunk", "align", "copy"]
_ORDER: tuple[Action, ...] = ("stay", "default", "set", "write", "rechunk", "copy")
"""The less is changed, the earlier."""
WRITES: tuple[Action, ...] = ("write", "rechunk", "align", "copy")
"""What writes something new."""

_FACTOR = 4.0  # between bytes of a request here and where a client was measured, at most
# Chunks of a file that are looked at, their bytes, and variables
_MOST_LISTED, _MOST_LISTED_NBYTES, _MOST_READ = 10_000, 2**28, 64
_MOST_NBYTES = 2**26  # of what is read at once
_MOST_WHOLE_NBYTES = 1e11  # of a file fetched whole
_LEAST_USD = 1.0  # a month, below which nobody weighs it


@dataclass(frozen=True, slots=True)
class ReadingClient:
    """A way to read that an answer may name, by its contender in the book's records."""

    name: str
    text: str  # how an answer calls it
    request_nbytes: tuple[float, float]  # of requests with which it was measured, least and most
    case: str = ""  # that measured it, in the region; empty where none did
    is_settable: bool = False  # whether its users set the concurrent requests
    method: ReadMethod | None = None  # to read a file of HDF5; None for chunks of Zarr
    recipe: str = ""  # of the book, that has its lines

    @property
    def facts(self) -> ClientFacts:
        """What it does at its defaults, with which it was measured."""
        return CLIENT_FACTS[self.name]

    @property
    def in_flight(self) -> int | None:
        """Concurrent requests; None where these are a setting."""
        return None if self.is_settable else self.facts.concurrency

    def support(
        self, profile: Profile, request_nbytes: float, in_flight: int, *, is_many: bool = False
    ) -> str:
        """Describe what a prediction rests on: where the client was measured, and what differs there.

        *Measured* is only what the same client did with as many concurrent requests over the same
        network, whatever that is called; `is_many` stands for many processes or users, which no
        case has.
        """
        if not self.case:
            return "unknown: no case has measured this client"
        low, high = self.request_nbytes
        near = low / _FACTOR <= request_nbytes <= high * _FACTOR
        measured = get_profile(_MEASURED)
        is_same_network = network_of(profile) == network_of(measured)
        is_same_network &= (profile.region or ASSUMED_REGION) == measured.region
        if not (is_same_network or near):
            return f"unknown: run {self.case} with profile {profile.name}"
        differs = []
        if not is_same_network:
            differs.append("over another network")
        if in_flight != (n_measured := self.facts.concurrency):
            plural = "s" * (n_measured > 1)
            differs.append(f"with {n_measured} concurrent request{plural}")
        if not low <= request_nbytes <= high:
            differs.append("with requests of another size")
        if is_many:
            differs.append("by one process")
        if differs:
            return f"predicted: {self.case} measured this client {', '.join(differs)}"
        return f"measured in {self.case}: the same client, concurrency and network"


_MEASURED = "in-region"  # profile that ships, under which clients were measured
_FORMATS, _GRANULE = "formats/in-region", "hdf5-drivers/granule"
_WHOLE, _REFERENCES = ReadMethod("whole", "whole"), ReadMethod("references", "references")
CLIENTS: Mapping[str, ReadingClient] = {
    client.name: client
    for client in (
        ReadingClient("zarr-s3fs", "zarr over s3fs, as it comes", (5e5, 2.4e6), _FORMATS),
        ReadingClient(
            "zarr-obstore",
            "zarr over obstore",
            (9e4, 2.4e7),
            _FORMATS,
            is_settable=True,
            recipe="Open Zarr through obstore",
        ),
        ReadingClient(
            "fsspec-readahead",
            "h5py over s3fs.open, as it comes",
            (2.1e7, 5.2e7),
            _GRANULE,
            method=DEFAULT,
        ),
        ReadingClient(
            "fsspec-https", "h5py over fsspec.open, as it comes", (0, 0), method=DEFAULT_HTTPS
        ),
        ReadingClient(
            "obstore-whole",
            "h5py in memory, the file fetched whole by obstore",
            (8.0e6, 8.4e6),
            _GRANULE,
            is_settable=True,
            method=_WHOLE,
            recipe="Fetch the whole file in parallel ranges",
        ),
        ReadingClient(
            "fsspec-tuned",
            "h5py over s3fs, 8 MiB blocks kept",
            (1.7e6, 8.4e6),
            _GRANULE,
            method=BLOCKS,
            recipe="Keep blocks of a file object",
        ),
        ReadingClient(
            "references",
            "virtual references, zarr over obstore",
            (3.7e4, 2.4e6),
            _GRANULE,
            is_settable=True,
            method=_REFERENCES,
            recipe="Virtual references",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do, what to expect of it and what a month costs."""

    action: Action
    label: str
    layouts: tuple[Layout, ...]  # one for each copy
    serves: tuple[tuple[str, ...], ...]  # the accesses that read each
    client: ReadingClient
    in_flight: int
    reads: tuple[Forecast, ...]  # of each access
    stored_nbytes: float  # of all copies
    # storage, requests, egress, and waiting where it is priced; None where a price is unknown
    usd_month: Mapping[str, float] | None
    write_usd: float | None  # once, in requests that write
    append_nbytes: float | None  # stored, of one array, that an append rewrites at most
    write_nbytes: float  # over the wire to write what is new once: what is there, and each new copy
    samples_per_s: float | None  # of a loader
    samples_bound: str | None  # what bounds them
    support: str  # what the prediction rests on
    is_on_front: bool = False  # nothing is both faster and cheaper
    is_over_budget: bool = False

    def mean(self, name: str) -> float:
        """Weigh a number of its reads by how often each access happens."""
        return _mean(self.reads, name)

    @property
    def seconds(self) -> float:
        """Expected median time of a read."""
        return self.mean("p50_s")

    @property
    def pace_s(self) -> float:
        """Seconds between reads, by which choices are ranked: of a loader those of all its processes."""
        return 1 / self.samples_per_s if self.samples_per_s else self.seconds

    @property
    def usd(self) -> float | None:
        """USD a month in all; None where a price is unknown."""
        return None if self.usd_month is None else math.fsum(self.usd_month.values())

    @property
    def bill(self) -> float | None:
        """USD a month that the store charges; None where a price is unknown."""
        usd = self.usd
        return None if usd is None or not self.usd_month else usd - self.usd_month.get("waiting", 0)

    @property
    def expense(self) -> float:
        """What choices are ranked by next to seconds: the bill, or without prices the bytes stored."""
        return self.stored_nbytes if self.bill is None else max(self.bill, _LEAST_USD)


def _mean(reads: Sequence[Forecast], name: str) -> float:
    return math.fsum(read.share * getattr(read, name) for read in reads)


@dataclass(frozen=True, slots=True)
class Answer:
    """The choice that is recommended, and what it stands next to."""

    question: Question
    best: Choice
    now: Choice  # what is there, or what a client does by default
    choices: tuple[Choice, ...]  # cheapest first
    ties: tuple[Choice, ...]  # as good as the best, but changing more

    def gains(self, choice: Choice) -> dict[str, float]:
        """Compute how many times as fast as what is there each access is; of a loader, in samples a second."""
        if choice.samples_per_s and self.now.samples_per_s:
            ratio = choice.samples_per_s / self.now.samples_per_s
            return dict.fromkeys((read.access for read in choice.reads), ratio)
        pairs = zip(self.now.reads, choice.reads, strict=True)
        return {now.access: now.p50_s / read.p50_s for now, read in pairs}


def rank(question: Question, choices: Sequence[Choice]) -> Answer:
    """Recommend the least of seconds times dollars, or what costs least where waiting has a price.

    Where prices are unknown, bytes stored stand for dollars. There one percent more of a bill stops buying one percent of time; a bill below a dollar counts
    as one. Of choices within `WORTH` of that the one that changes least is taken. A budget only
    takes choices away, so it never raises a bill.
    """
    least, marked, most = math.inf, list[Choice](), question.options.budget_usd_month or math.inf
    for marked_choice in sorted(choices, key=_cost_first):
        is_on_front = marked_choice.action != "align" and marked_choice.pace_s < least
        is_over = (marked_choice.bill or 0.0) > most
        marked.append(replace(marked_choice, is_on_front=is_on_front, is_over_budget=is_over))
        least = marked_choice.pace_s if is_on_front else least

    def weigh(choice: Choice) -> float:
        if question.options.wait_usd_hour is not None and choice.usd is not None:
            return choice.usd
        return choice.pace_s * choice.expense

    unaligned = [choice for choice in marked if choice.action != "align"]
    small = [
        choice for choice in unaligned if (choice.append_nbytes or 0.0) <= APPEND_NBYTES
    ] or unaligned
    best, *ties = _recommend(small, weigh)
    if best.is_over_budget:
        within = [choice for choice in small if not choice.is_over_budget]
        best, *ties = _recommend(within or small[:1], weigh)
    now = next(choice for choice in marked if choice.action in ("stay", "default"))
    return Answer(question, best, now, tuple(marked), tuple(ties))


def _cost_first(choice: Choice) -> tuple[float, float]:
    return (choice.stored_nbytes if choice.bill is None else choice.bill, choice.pace_s)


def _recommend(pool: Sequence[Choice], weigh: Callable[[Choice], float]) -> list[Choice]:
    """List the choices that weigh about as little as the least and are about as fast, what changes least first."""
    best = min(pool, key=weigh)
    most, most_s = WORTH * weigh(best), WORTH * best.pace_s
    near = [choice for choice in pool if weigh(choice) <= most and choice.pace_s <= most_s]
    return sorted(near, key=lambda choice: (_ORDER.index(choice.action), weigh(choice)))


def list_choices(question: Question) -> list[Choice]:
    """List what the question allows and what is not slower than what is there, which comes first."""
    now, *changed = (_list_file if question.array.format == "hdf5" else _list_zarr)(question)
    unique = {
        (choice.layouts, choice.client.name, choice.action == "align"): choice
        for choice in reversed(changed)
    }
    return [now, *(choice for choice in reversed(unique.values()) if choice.pace_s <= now.pace_s)]


def _list_zarr(question: Question) -> Iterator[Choice]:
    now = question.array.layout
    layout = now or Layout(_guess_chunks(question))
    if now:
        yield _choose(question, "stay", "as it is", "zarr-s3fs", (layout,))
        yield _choose(question, "set", "chunks as they are", "zarr-obstore", (layout,))
    else:
        yield _choose(question, "default", "Zarr's own chunks", "zarr-s3fs", (layout,))
        if question.options.batch:
            yield _choose(question, "set", "Zarr's own chunks", "zarr-obstore", (layout,))
    if question.options.keep != "bytes":
        yield from _list_written(question, "rechunk" if now else "write")


def _guess_chunks(question: Question) -> tuple[int, ...]:
    """Ask zarr for the chunks of its own choice."""
    import zarr

    shape, dtype = question.array.shape, question.array.dtype
    with warnings.catch_warnings(action="ignore"):  # of types that Zarr v3 has not specified yet
        array = zarr.create_array({}, shape=shape, dtype=dtype, chunks="auto")
    return tuple(int(c) for c in array.chunks)


def _list_file(question: Question) -> Iterator[Choice]:
    """List how an HDF5 file is read as it is, and what it may become."""
    options, layout, lies = question.options, question.array.layout, question.array.lies
    stored = (layout,) if layout else ()
    is_web = question.address.startswith(("http://", "https://"))
    now = "fsspec-https" if is_web else "fsspec-readahead"
    yield _choose(question, "stay", "as it is", now, stored)
    nbytes = lies.file_nbytes if lies else question.stored_nbytes
    is_held = nbytes <= min(options.memory * 1e9 / 2, _MOST_WHOLE_NBYTES)
    for name in ("obstore-whole",) * is_held + ("fsspec-tuned",) + ("references",) * bool(layout):
        yield _choose(question, "set", "as it is", name, stored)
    if options.keep == "format":  # chunks of a file are no objects
        new = best_layout(replace(question.pattern, max_objects=10**15))
        yield _choose(question, "rechunk", "repacked", "references", (new,))
    elif options.keep != "bytes":
        yield from _list_written(question, "rechunk")


def _list_written(question: Question, action: Action) -> Iterator[Choice]:
    """List what may be written anew: one copy, the one that is cheapest to read, and two."""
    client, pattern = "zarr-obstore", question.pattern
    grid = make_grid(pattern)
    yield _choose(question, action, "one copy", client, (best_of(grid),))
    if prices := question.prices:
        cheap = cheapest_of(grid, get_usd=prices.get, out_usd=prices.out)
        yield _choose(question, action, "one copy, cheapest to read", client, (cheap,))
    if question.options.batch and not all(access.is_aligned for access in pattern.accesses):
        boxes = tuple(replace(access, is_aligned=True) for access in pattern.accesses)
        drawn = replace(question, pattern=replace(pattern, accesses=boxes))
        new, label = best_layout(drawn.pattern), "one copy, boxes drawn on its grid"
        yield _choose(drawn, "align", label, client, (new,))
    copies = best_copies(grid) if question.options.keep != "one-copy" else None
    if copies is None or copies[0][0] == copies[0][1]:
        return
    (first, second), serves = copies
    both = _choose(question, "copy", "two copies", client, (first, second), serves)
    now, label = question.array.layout, "as it is, and a copy"
    pairs = ((now, second), (first, now)) if now and question.array.format == "zarr" else ()
    chosen = [_choose(question, "copy", label, client, pair, serves) for pair in pairs]
    least = min(chosen, key=lambda choice: choice.seconds, default=both)
    is_small = (least.append_nbytes or 0.0) <= APPEND_NBYTES
    yield least if least.seconds <= WORTH * both.seconds and is_small else both


def _choose(
    question: Question,
    action: Action,
    label: str,
    name: str,
    layouts: tuple[Layout, ...],
    serves: Sequence[Sequence[int]] = (),
) -> Choice:
    """Predict and price layouts that a client reads, each for the accesses at some places."""
    options, array, client = question.options, question.array, CLIENTS[name]
    n_connections = client.in_flight or options.in_flight
    store = replace(question.store, n_connections=n_connections)
    store = add_client_costs(store, name, options, question.profile)
    pattern = replace(question.pattern, store=store)
    accesses, served = pattern.accesses, serves or [range(len(pattern.accesses))]
    reads = [Forecast("", 0, 0, 0, 0, 0, 0, 0)] * len(accesses)
    for layout, group in zip(layouts or (None,), served, strict=True):
        for i in group:
            if client.method or layout is None:
                read = _expect_file(question, pattern, client, accesses[i], layout)
            else:
                read = _expect_chunks(question, pattern, client, accesses[i], layout)
            reads[i] = replace(read, share=question.shares[i])
    written = [layout for layout in layouts if action in WRITES and layout != array.layout]
    n_puts = question.n_arrays * sum(layout.count_objects(array.shape) for layout in written)
    n_read = bool(written) and array.format != "none"  # what is there, once
    write_nbytes = (len(written) + n_read) * question.stored_nbytes
    rewritten = None
    if pattern.append:
        extents = [layout.object_shape[pattern.append[0]] for layout in layouts]
        rewritten = math.fsum(float(rewritten_nbytes(pattern, extent)) for extent in extents)
    request_nbytes = math.fsum(read.share * read.nbytes / read.n_requests for read in reads)
    is_many = bool(options.batch or options.per_second)
    stored_nbytes = max(1, len(layouts)) * question.stored_nbytes
    samples_per_s, bound = _count_samples(question, reads) if options.batch else (None, None)
    return Choice(
        action,
        label,
        layouts,
        tuple(tuple(accesses[i].name for i in group) for group in served),
        client,
        n_connections,
        tuple(reads),
        stored_nbytes,
        _price(question, reads, stored_nbytes),
        n_puts * question.prices.put if question.prices else None,
        rewritten,
        write_nbytes,
        samples_per_s,
        bound,
        client.support(question.profile, request_nbytes, n_connections, is_many=is_many),
    )


def _expect_chunks(
    question: Question,
    pattern: AccessPattern,
    client: ReadingClient,
    access: Access,
    layout: Layout,
) -> Forecast:
    """Predict an access to chunks of Zarr, which a service opens for each read."""
    read = expect(
        pattern,
        access,
        layout,
        in_turn=client.facts.requests_per_chunk,
        n_cores=question.options.reader_cores,
    )
    if not question.options.per_second:
        return read
    n_opened, n_waits = client.facts.opening
    waited_s = n_waits * pattern.store.network.first_byte_median_s
    times = {name: getattr(read, name) + waited_s for name in ("p05_s", "p50_s", "p95_s")}
    return replace(read, **times, n_requests=read.n_requests + n_opened)


def _price(
    question: Question, reads: Sequence[Forecast], stored_nbytes: float
) -> dict[str, float] | None:
    """Price a month line by line: storage, requests, egress, waiting; None where a price is unknown."""
    prices, n = question.prices, question.options.reads_per_month
    if prices is None:
        return None
    lines = {
        "storage": stored_nbytes * prices.storage,
        "requests": n * _mean(reads, "n_requests") * prices.get,
        "egress": n * _mean(reads, "nbytes") * prices.out,
    }
    if question.options.wait_usd_hour is not None:
        lines["waiting"] = n * _mean(reads, "p50_s") / 3600 * question.options.wait_usd_hour
    return lines


def _count_samples(question: Question, reads: Sequence[Forecast]) -> tuple[float, str]:
    """Predict the samples a second of all workers of a loader, and say what bounds them.

    A worker takes a batch after the other; they share the store, the machine's link and its cores.
    """
    options, network = question.options, network_of(question.profile)
    link = min(network.aggregate_nbytes_per_s, 1e6 * (options.link_mb_per_s or math.inf))
    bounds = {
        "workers": options.workers / _mean(reads, "p50_s"),
        "requests of the store": network.requests_per_s / _mean(reads, "n_requests"),
        "link": link / _mean(reads, "nbytes"),
        "cores": (options.cores or 1) / max(_mean(reads, "cpu_s"), 1e-12),
    }
    bound = min(bounds, key=bounds.__getitem__)
    return (options.batch or 1) * bounds[bound], bound


def _expect_file(
    question: Question,
    pattern: AccessPattern,
    client: ReadingClient,
    access: Access,
    layout: Layout | None,
) -> Forecast:
    """Predict an access to a file, which it opens first, by the engine of `wire.hdf5`."""
    network = pattern.store.network
    described, times = _describe_file(question, pattern, access, layout)
    settings = replace(client.method or DEFAULT, in_flight=pattern.store.n_connections)
    prediction = predict_read(settings, described, network)
    nbytes = prediction.nbytes * (1 if settings.kind == "whole" else times)
    p50_s, wanted = (
        prediction.open_s + prediction.read_s * times,
        math.prod(access.extent) * pattern.itemsize,
    )
    later_s = p50_s + network.first_byte_p95_s - network.first_byte_median_s
    return Forecast(
        access.name,
        *bound_seconds(p50_s, later_s),
        prediction.n_requests + (prediction.n_requests - prediction.n_open_requests) * (times - 1),
        nbytes,
        nbytes * pattern.store.compression_ratio / (pattern.together * wanted),
        described.decode_s * times,
    )


def _describe_file(
    question: Question, pattern: AccessPattern, access: Access, layout: Layout | None
) -> tuple[FileLayout, float]:
    """Describe the file of an access in the middle of the array, and how many times as much is read.

    Of chunks that are too many to list, some stand for all; one that is too large to hold is read
    in parts. What has no chunks is read in runs of neighbours. Where most chunks were never stored,
    an access finds as large a share of them as there is.
    """
    array, ratio, shape = question.array, question.store.compression_ratio, pattern.shape
    lies = array.lies
    is_there = layout is not None and layout == array.layout
    is_whole = access.extent == shape
    runs = shape if is_whole else (1,) * (len(shape) - 1) + shape[-1:]
    chunk = layout.chunk_shape if layout else runs
    grid = [-(-n // c) for n, c in zip(shape, chunk, strict=True)]
    pairs = zip(shape, chunk, access.extent, grid, strict=True)
    mean = [min(n, 1 + (e - 1) / c) if e < size else n for size, c, e, n in pairs]
    counts = [math.floor(n + 0.5) for n in mean]
    starts = [(n - k) // 2 for n, k in zip(grid, counts, strict=True)]
    n_read = min(pattern.together, question.n_arrays, _MOST_READ)
    n_stored = n_all = math.prod(grid)
    if lies and is_there and lies.variables:
        n_stored = max(1, min(lies.variables[0].n_chunks, n_all))
    density = n_stored / n_all
    n_mean = math.prod(mean) * density
    if question.options.compression or array.compression:  # of all chunks over those stored
        ratio *= density
    nbytes = float(math.prod(chunk) * pattern.itemsize)
    n_parts = max(1, math.ceil(nbytes / ratio / _MOST_NBYTES))
    nbytes /= n_parts
    most = max(1, int(min(_MOST_LISTED, _MOST_LISTED_NBYTES * ratio / nbytes) / n_read))
    if density < 1:
        n = max(1, min(most, math.floor(n_mean + 0.5)))
        chunks = [*range((n_stored - n) // 2, (n_stored + n) // 2)]
    else:
        # the first of them alone: an axis may have more than memory holds
        places = np.unravel_index(np.arange(min(most, math.prod(counts))), counts)
        from_start = [place + start for place, start in zip(places, starts, strict=True)]
        chunks = np.ravel_multi_index(from_start, grid).tolist()
    touched = [n * n_parts + i for n in chunks for i in range(min(n_parts, most))][:most]
    n_variables = (
        max(1, round(lies.file_nbytes * ratio / array.nbytes)) if lies else question.n_arrays
    )
    described = describe_layout(
        n_chunks=n_stored * n_parts,
        chunk_nbytes=nbytes / ratio,
        n_variables=min(n_variables, _MOST_LISTED),
        n_read=n_read,
        is_scattered=bool(question.options.scattered),
        touched=touched,
        value_nbytes=len(touched) * nbytes if ratio != 1 else 0.0,
    )
    is_known = lies and is_there and n_parts == 1
    if lies and is_known and [len(chunks) for chunks in lies.chunks] == [n_stored] * n_read:
        described = replace(
            lies,
            read=tuple(_pick_reads(reads, set(touched)) for reads in lies.read),
            references_nbytes=described.references_nbytes,
            decode_s=described.decode_s,
        )
    return described, n_mean * n_parts / len(touched) * pattern.together / n_read


def _pick_reads(reads: Sequence[Read], touched: set[int]) -> tuple[Read, ...]:
    """Keep the reads of some chunks of a variable, of its header, and of the index before each of them."""
    expanded: list[Read] = []
    index: list[Read] = []
    n, was_chunk = -1, False
    for read in reads:
        if read.is_metadata:
            index = [*([] if was_chunk else index), read]
        elif (n := n + 1) in touched or n == 0:
            expanded += [*index, read] if n in touched else index
            index = []
        was_chunk = not read.is_metadata
    return tuple(expanded)
