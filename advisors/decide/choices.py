"""What could be stored and how it is read: choices for a question, each predicted, priced and ranked."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from advisors.decide.layouts import (
    APPEND_NBYTES,
    Access,
    AccessPattern,
    Forecast,
    Layout,
    ask_layout,
    forecast,
    rewritten_nbytes,
)
from advisors.decide.question import Question
from advisors.decide.search import best_copies, best_layout, best_of, cheapest_of, make_grid
from helpers.models import WORTH
from helpers.prices import BILLED_GB_NBYTES, find_price

if TYPE_CHECKING:
    from advisors.hdf5.inspection import FileLayout, Read
    from advisors.hdf5.prediction import Way

Action = Literal["stay", "default", "set", "write", "rechunk", "align", "copy"]
_ORDER: tuple[Action, ...] = ("stay", "default", "set", "write", "rechunk", "copy")
"""The less is changed, the earlier."""
How = tuple[Action, str]
"""What to do, and what that leaves."""

BLOCK_NBYTES = 8 * 2**20
"""Of a block that is kept, and of a part of a file fetched whole."""

_FILE_IN_FLIGHT = 10  # requests with which files were measured, at most
_FACTOR = 4.0  # between bytes of a request here and where a client was measured, at most
# Chunks of a file that are looked at, their bytes, and variables
_MOST_LISTED, _MOST_LISTED_NBYTES, _MOST_READ = 10_000, 2**28, 64
_MOST_NBYTES, _MOST_WHOLE_NBYTES = (
    2**26,
    1e11,
)  # of what is read at once, and of a file fetched whole
_LEAST_USD = 1.0  # a month, below which nobody weighs it


@dataclass(frozen=True, slots=True)
class Client:
    """A way to read that an answer may name, by its contender in the book's records."""

    name: str
    text: str  # how an answer calls it
    request_nbytes: tuple[
        float, float
    ]  # of the requests with which it was measured, least and most
    cases: Mapping[str, str]  # that measured it, by network
    in_flight: int | None = None  # requests at once, where these are no setting
    in_turn: float = 1.0  # requests for a chunk, one after the other
    opening: tuple[int, int] = (0, 0)  # requests and waits that a dataset takes to open
    is_of_file: bool = False  # whether it reads a file of HDF5

    def support(self, profile: str, request_nbytes: float, *, is_many: bool = False) -> str:
        """Say what a prediction rests on: where the client was measured, and how alike that is.

        `is_many` tells of many processes or users at once, which no case has.
        """
        low, high = self.request_nbytes
        case = self.cases.get(profile, next(iter(self.cases.values())))
        if profile in self.cases and low <= request_nbytes <= high and not is_many:
            return f"predicted, client measured in {case}"
        is_alike = low / _FACTOR <= request_nbytes <= high * _FACTOR
        if profile in self.cases or is_alike:
            return f"extrapolated from {case}"
        return f"unknown: run {case} with profile {profile}"


_FORMATS, _GRANULE = {"in-region": "formats/in-region"}, {"in-region": "hdf5-drivers/granule"}
CLIENTS: Mapping[str, Client] = {
    one.name: one
    for one in (
        # since 2026 s3fs asks for the length of each chunk first, and opening takes seven requests
        # twice, mostly in turn (ledger of requests: zarr 3.4, s3fs 2026.9)
        Client("zarr-s3fs", "zarr over s3fs, as it comes", (5e5, 2.4e6), _FORMATS, 10, 2, (14, 8)),
        Client("zarr-obstore", "zarr over obstore", (9e4, 2.4e7), _FORMATS),
        Client("fsspec-readahead", "h5py over s3fs.open, as it comes", (2.1e7, 5.2e7), _GRANULE, 1,
               is_of_file=True),
        Client("obstore-whole", "h5py in memory, the file fetched whole by obstore", (8.0e6, 8.4e6),
               _GRANULE, is_of_file=True),
        Client("fsspec-tuned", "h5py over s3fs, 8 MiB blocks kept", (1.7e6, 8.4e6), _GRANULE, 1,
               is_of_file=True),
        Client("references", "virtual references, zarr over obstore", (3.7e4, 2.4e6), _GRANULE,
               is_of_file=True),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do, what to expect of it and what a month costs."""

    action: Action
    label: str
    layouts: tuple[Layout, ...]  # one for each copy
    serves: tuple[tuple[str, ...], ...]  # the accesses that read each
    client: Client
    in_flight: int
    reads: tuple[Forecast, ...]  # of each access
    usd_month: Mapping[str, float]  # storage, requests, data out, and waiting where it is priced
    write_usd: float  # once, in requests
    append_nbytes: float | None  # stored, of one array, that an append rewrites at most
    samples: tuple[float, str] | None  # a second, of a loader, and what bounds them
    support: str  # what the prediction rests on
    is_on_front: bool = False  # nothing is both faster and cheaper
    is_over_budget: bool = False

    @property
    def seconds(self) -> float:
        """Expected median time of a read, weighted by how often each access happens."""
        return math.fsum(one.share * one.p50_s for one in self.reads)

    @property
    def usd(self) -> float:
        """USD a month in all."""
        return math.fsum(self.usd_month.values())

    @property
    def bill(self) -> float:
        """USD a month that the store charges."""
        return self.usd - self.usd_month.get("waiting", 0.0)

    @property
    def is_free(self) -> bool:
        """Whether it may be recommended: in the budget, the same reads, appends as allowed."""
        is_small = (self.append_nbytes or 0.0) <= APPEND_NBYTES
        return not self.is_over_budget and self.action != "align" and is_small


@dataclass(frozen=True, slots=True)
class Answer:
    """The choice that is recommended, and what it stands beside."""

    question: Question
    best: Choice
    now: Choice  # what is there, or what a client does by default
    choices: tuple[Choice, ...]  # cheapest first
    ties: tuple[Choice, ...]  # as good as the best, but changing more

    def gains(self, choice: Choice) -> dict[str, float]:
        """Compute how many times as fast as what is there each access is."""
        pairs = zip(self.now.reads, choice.reads, strict=True)
        return {now.access: now.p50_s / one.p50_s for now, one in pairs}


def rank(question: Question, choices: Sequence[Choice]) -> Answer:
    """Recommend the least of seconds times dollars, or what costs least where waiting has a price.

    There one percent more of a bill stops buying one percent of time; a bill below a dollar counts
    as one. Of choices within `WORTH` of that the one that changes least is taken. A budget only
    takes choices away, so it never raises a bill.
    """
    ordered = sorted(choices, key=lambda one: (one.bill, one.seconds))
    least, marked, most = math.inf, list[Choice](), question.asked.budget_usd_month or math.inf
    for one in ordered:
        is_on_front = one.action != "align" and one.seconds < least
        marked.append(replace(one, is_on_front=is_on_front, is_over_budget=one.bill > most))
        least = min(least, one.seconds) if one.action != "align" else least
    is_priced = question.asked.wait_usd_hour is not None
    key = (lambda one: one.usd) if is_priced else _weigh
    same = [one for one in marked if one.action != "align"]
    small = [one for one in same if (one.append_nbytes or 0.0) <= APPEND_NBYTES] or same
    best, ties = _recommend(small, key)
    if best.is_over_budget:
        best, ties = _recommend([one for one in small if not one.is_over_budget] or small[:1], key)
    now = next(one for one in marked if one.action in ("stay", "default"))
    return Answer(question, best, now, tuple(marked), tuple(ties))


def _recommend(
    pool: Sequence[Choice], key: Callable[[Choice], float]
) -> tuple[Choice, list[Choice]]:
    """Take the least, or of those about as good and as fast what changes least."""
    best = min(pool, key=key)
    near = [
        one for one in pool if key(one) <= WORTH * key(best) and one.seconds <= WORTH * best.seconds
    ]
    near.sort(key=lambda one: (_ORDER.index(one.action), key(one)))
    return near[0], near[1:]


def _weigh(choice: Choice) -> float:
    """Multiply seconds by dollars."""
    return choice.seconds * max(choice.bill, _LEAST_USD)


def list_choices(question: Question) -> list[Choice]:
    """List what the question allows and what is not slower than what is there, which comes first."""
    now, *others = (_list_file if question.array.format == "hdf5" else _list_zarr)(question)
    unique = {
        (one.layouts, one.client.name, one.action == "align"): one for one in reversed(others)
    }
    return [now, *(one for one in reversed(unique.values()) if one.seconds <= now.seconds)]


def _list_zarr(question: Question) -> Iterator[Choice]:
    now, default = question.array.layout, CLIENTS["zarr-s3fs"]
    how: How = ("stay", "as it is") if now else ("default", "Zarr's own chunks")
    there = now or Layout(_guess_chunks(question))
    yield _choose(question, how, default, question.pattern(in_flight=default.in_flight), (there,))
    if now or question.asked.batch:
        how = ("set", "chunks as they are" if now else "Zarr's own chunks")
        yield _choose(question, how, CLIENTS["zarr-obstore"], question.pattern(), (there,))
    if question.asked.keep != "bytes":
        yield from _list_written(question, "rechunk" if now else "write")


def _guess_chunks(question: Question) -> tuple[int, ...]:
    """Ask zarr for the chunks of its own choice."""
    import zarr

    shape, dtype = question.array.shape, question.array.dtype
    with warnings.catch_warnings(action="ignore"):  # of types that Zarr v3 has not specified yet
        array = zarr.create_array({}, shape=shape, dtype=dtype, chunks="auto")
    return tuple(int(c) for c in array.chunks)


def _list_written(question: Question, action: Action) -> Iterator[Choice]:
    """List what may be written anew: one copy, the one that is cheapest to read, and two."""
    client, pattern = CLIENTS["zarr-obstore"], question.pattern()
    grid = make_grid(pattern)
    yield _choose(question, (action, "one copy"), client, pattern, (best_of(grid),))
    cheap = cheapest_of(grid, question.prices())
    yield _choose(question, (action, "one copy, cheapest to read"), client, pattern, (cheap,))
    if question.asked.batch and not all(one.is_aligned for one in pattern.accesses):
        boxes = [replace(one, is_aligned=True) for one in pattern.accesses]
        aligned = replace(pattern, accesses=boxes)
        how: How = ("align", "one copy, boxes drawn on its grid")
        yield _choose(question, how, client, aligned, (best_layout(aligned),))
    copies = best_copies(grid) if question.asked.keep != "one-copy" else None
    if copies is None or copies[0][0] == copies[0][1]:
        return
    (one, other), serves = copies
    both = _choose(question, ("copy", "two copies"), client, pattern, (one, other), serves)
    now = question.array.layout
    pairs = ((now, other), (one, now)) if now and question.array.format == "zarr" else ()
    kept = [
        _choose(question, ("copy", "as it is, and a copy"), client, pattern, pair, serves)
        for pair in pairs
    ]
    least = min(kept, key=lambda choice: choice.seconds, default=both)
    yield least if least.seconds <= WORTH * both.seconds and least.is_free else both


def _choose(
    question: Question,
    how: How,
    client: Client,
    pattern: AccessPattern,
    layouts: tuple[Layout, ...],
    serves: Sequence[Sequence[int]] = (),
) -> Choice:
    """Predict and price chunks of Zarr."""
    served, store = serves or [range(len(pattern.accesses))], pattern.store
    layout_of = {i: layout for layout, group in zip(layouts, served, strict=True) for i in group}
    one_core_s = store.decode_s_per_nbyte * max(1, question.asked.cores // question.asked.workers)
    opened, n_waits = client.opening if question.asked.per_second else (0, 0)
    waited_s = n_waits * store.network.first_byte_median_s  # of a service, which opens it for each
    reads, cpu_s = list[Forecast](), 0.0
    pairs = zip(pattern.accesses, question.asked.shares, strict=True)
    for i, (access, share) in enumerate(pairs):
        asked = replace(ask_layout(pattern, access, layout_of[i]), in_turn=client.in_turn)
        one = forecast(pattern, access, share, asked)
        cpu_s += share * asked.n_chunks * (store.chunk_s + asked.chunk_nbytes * one_core_s)
        reads.append(
            replace(
                one,
                p50_s=one.p50_s + waited_s,
                p95_s=one.p95_s + waited_s,
                n_requests=one.n_requests + opened,
            )
        )
    return _finish(question, how, client, pattern, reads, cpu_s, layouts, served)


def _finish(
    question: Question,
    how: How,
    client: Client,
    pattern: AccessPattern,
    reads: Sequence[Forecast],
    cpu_s: float,
    layouts: tuple[Layout, ...],
    served: Sequence[Sequence[int]],
) -> Choice:
    """Price what is expected of reads, which take so much of one processor in the mean."""
    written = [one for one in layouts if how[0] != "set" and one != question.array.layout]
    n_puts = question.asked.arrays * sum(one.count_objects(pattern.shape) for one in written)
    request_nbytes = math.fsum(one.share * one.nbytes / one.n_requests for one in reads)
    append, rewritten = question.asked.append, None
    if append is not None:
        rewritten = math.fsum(
            float(rewritten_nbytes(pattern, one.object_shape[append[0]])) for one in layouts
        )
    is_many = bool(question.asked.batch or question.asked.per_second)
    is_many |= client.is_of_file and pattern.store.n_connections > _FILE_IN_FLIGHT
    return Choice(
        *how,
        layouts,
        tuple(tuple(pattern.accesses[i].name for i in group) for group in served),
        client,
        pattern.store.n_connections,
        tuple(reads),
        _price(question, reads, max(1, len(layouts))),
        n_puts * (find_price("store_lists_1e3").value or 0.0) / 1000,
        rewritten,
        _count_samples(question, reads, cpu_s) if question.asked.batch else None,
        client.support(question.asked.profile, request_nbytes, is_many=is_many),
    )


def _price(question: Question, reads: Sequence[Forecast], n_copies: int) -> dict[str, float]:
    """Price a month line by line: what is kept, what is asked, what leaves, who waits."""
    prices, n = question.prices(), question.asked.reads_per_month
    stored_gb = n_copies * question.stored_nbytes / BILLED_GB_NBYTES
    n_requests = n * math.fsum(one.share * one.n_requests for one in reads)
    nbytes = n * math.fsum(one.share * one.nbytes for one in reads)
    lines = {
        "storage": stored_gb * prices.storage_per_gb_month,
        "requests": prices.of_read(n_requests, 0.0),
        "data out": prices.of_read(0.0, nbytes),
    }
    if question.asked.wait_usd_hour is not None:
        hours = n * math.fsum(one.share * one.p50_s for one in reads) / 3600
        lines["waiting"] = hours * question.asked.wait_usd_hour
    return lines


def _count_samples(
    question: Question, reads: Sequence[Forecast], cpu_s: float
) -> tuple[float, str]:
    """Predict the samples a second of all workers of a loader, and say what bounds them.

    A worker takes a batch after the other; they share the store, the machine's link and its cores.
    """
    typed, network = question.asked, question.store.network
    n_requests = math.fsum(one.share * one.n_requests for one in reads)
    nbytes = math.fsum(one.share * one.nbytes for one in reads)
    bounds = {
        "workers": typed.workers / math.fsum(one.share * one.p50_s for one in reads),
        "requests of the store": network.requests_per_s / n_requests,
        "link": question.machine_nbytes_per_s / nbytes,
        "cores": typed.cores / max(cpu_s, 1e-12),
    }
    what = min(bounds, key=bounds.__getitem__)
    return (typed.batch or 1) * bounds[what], what


def _list_file(question: Question) -> Iterator[Choice]:
    """List how an HDF5 file is read as it is, and what it may become; the engine is that of `advisors.hdf5`."""
    from advisors.hdf5.prediction import BLOCKS, DEFAULT, Way  # here, as Zarr needs none of it

    n, layout = question.asked.in_flight, question.array.layout
    whole, references = (
        Way("whole", "whole", in_flight=n),
        Way("references", "references", in_flight=n),
    )
    how: How = ("set", "as it is")
    yield _read_file(question, ("stay", "as it is"), "fsspec-readahead", DEFAULT, layout)
    if question.file_nbytes <= min(question.asked.memory * 1e9 / 2, _MOST_WHOLE_NBYTES):
        yield _read_file(question, how, "obstore-whole", whole, layout)
    yield _read_file(question, how, "fsspec-tuned", BLOCKS, layout)
    if layout:
        yield _read_file(question, how, "references", references, layout)
    if question.asked.keep == "format":
        pattern = question.pattern()  # chunks of a file are no objects
        plain = replace(pattern, bounds=replace(pattern.bounds, max_objects=10**15))
        best = best_layout(plain)
        yield _read_file(question, ("rechunk", "repacked"), "references", references, best)
    elif question.asked.keep in ("nothing", "one-copy"):
        yield from _list_written(question, "rechunk")


def _read_file(
    question: Question, how: How, client: str, way: Way, layout: Layout | None
) -> Choice:
    """Predict and price a file of such chunks; each read opens it first."""
    from advisors.hdf5.prediction import predict

    pattern, network = question.pattern(in_flight=way.in_flight), question.store.network
    reads, cpu_s = list[Forecast](), 0.0
    for access, share in zip(pattern.accesses, question.asked.shares, strict=True):
        described, times = _describe_file(question, pattern, access, layout)
        one = predict(way, described, network)
        n_more = (one.n_requests - one.n_open_requests) * (times - 1)
        nbytes = one.nbytes * (1 if way.kind == "whole" else times)
        p50_s = one.open_s + one.read_s * times
        wanted = pattern.together * math.prod(access.extent) * pattern.itemsize
        p95_s = p50_s + network.first_byte_p95_s - network.first_byte_median_s
        over_read = nbytes * question.store.compression_ratio / wanted
        reads.append(
            Forecast(access.name, share, p50_s, p95_s, one.n_requests + n_more, nbytes, over_read)
        )
        cpu_s += share * described.decode_s * times
    every = [range(len(pattern.accesses))]
    there = (layout,) if layout else ()
    return _finish(question, how, CLIENTS[client], pattern, reads, cpu_s, there, every)


def _describe_file(
    question: Question, pattern: AccessPattern, access: Access, layout: Layout | None
) -> tuple[FileLayout, float]:
    """Describe the file of an access in the middle of the array, and how many times as much is read.

    Of chunks that are too many to list, some stand for all.
    """
    from advisors.hdf5.descriptions import describe_layout

    shape, ratio, asked = pattern.shape, question.store.compression_ratio, question.asked
    chunk = layout.chunk_shape if layout else access.extent[-1:]
    if not layout:  # what has no chunks is read in runs of neighbours
        is_whole = access.extent == shape
        chunk = shape if is_whole else (1,) * (len(shape) - 1) + shape[-1:]
    grid = [-(-n // c) for n, c in zip(shape, chunk, strict=True)]
    pairs = zip(shape, chunk, access.extent, grid, strict=True)
    mean = [min(n, 1 + (e - 1) / c) if e < size else n for size, c, e, n in pairs]
    ranges = [
        range((n - k) // 2, (n + k) // 2) for n, k in zip(grid, map(_round, mean), strict=True)
    ]
    n_read = min(pattern.together, asked.arrays, _MOST_READ)
    nbytes = float(math.prod(chunk) * pattern.itemsize)
    n_parts = max(
        1, math.ceil(nbytes / ratio / _MOST_NBYTES)
    )  # of a chunk that is too large to hold
    nbytes /= n_parts
    most = max(1, int(min(_MOST_LISTED, _MOST_LISTED_NBYTES * ratio / nbytes) / n_read))
    places = itertools.islice(itertools.product(*ranges), most)
    chunks = [int(np.ravel_multi_index(place, grid)) for place in places]
    touched = [n * n_parts + i for n in chunks for i in range(min(n_parts, most))][:most]
    n_variables = asked.arrays
    if question.array.file_nbytes:
        n_variables = max(1, round(question.file_nbytes * ratio / question.array.nbytes))
    described = describe_layout(
        n_chunks=math.prod(grid) * n_parts,
        chunk_nbytes=nbytes / ratio,
        n_variables=min(n_variables, _MOST_LISTED),
        n_read=n_read,
        is_scattered=asked.is_scattered,
        touched=touched,
        value_nbytes=len(touched) * nbytes if ratio != 1 else 0.0,
    )
    lies, is_there = question.array.lies, layout == question.array.layout
    if (
        lies
        and is_there
        and n_parts == 1
        and [len(one) for one in lies.chunks] == [math.prod(grid)] * n_read
    ):
        described = replace(
            lies,
            read=tuple(_pick_reads(one, set(touched)) for one in lies.read),
            references_nbytes=described.references_nbytes,
            decode_s=described.decode_s,
        )
    return described, math.prod(mean) * n_parts / len(touched) * pattern.together / n_read


def _pick_reads(reads: Sequence[Read], touched: set[int]) -> tuple[Read, ...]:
    """Keep the reads of some chunks of a variable, of its header, and of the index before each of them."""
    found: list[Read] = []
    index: list[Read] = []
    n, was_chunk = -1, False
    for one in reads:
        if one.is_metadata:
            index = [*([] if was_chunk else index), one]
        elif (n := n + 1) in touched or n == 0:
            found += [*index, one] if n in touched else index
            index = []
        was_chunk = not one.is_metadata
    return tuple(found)


def _round(n: float) -> int:
    return max(1, math.floor(n + 0.5))
