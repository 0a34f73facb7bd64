"""What could be stored and how it is read: choices for a question, each predicted, priced and ranked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from advisors.decide.layouts import (
    APPEND_NBYTES,
    Access,
    AccessPattern,
    Asked,
    Forecast,
    Layout,
    ask_layout,
    forecast,
    rewritten_nbytes,
    touched_runs,
)
from advisors.decide.question import Question
from advisors.decide.search import WORTH, best_copies, best_layout, best_of, cheapest_of, make_grid
from helpers.prices import BILLED_GB_NBYTES, find_price

Action = Literal["stay", "default", "set", "write", "rechunk", "align", "copy"]
_ORDER: tuple[Action, ...] = ("stay", "default", "set", "write", "rechunk", "copy")
"""The less is changed, the earlier."""
How = tuple[Action, str]
"""What to do, and what that leaves."""

READAHEAD_NBYTES = 50 * 2**20
"""What ``s3fs.open`` reads ahead by default."""

BLOCK_NBYTES = 8 * 2**20
"""Of a block that is kept, and of a part of a file fetched whole."""

_FACTOR = 4.0  # between bytes of a request here and where a client was measured, at most
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
        Client("fsspec-readahead", "h5py over s3fs.open, as it comes", (2.5e7, 5.2e7), _GRANULE, 1,
               is_of_file=True),
        Client("obstore-whole", "h5py in memory, the file fetched whole by obstore", (8.0e6, 8.4e6),
               _GRANULE, is_of_file=True),
        Client("fsspec-tuned", "h5py over s3fs, 8 MiB blocks kept", (1.7e6, 8.4e6), _GRANULE, 1,
               is_of_file=True),
        Client("references", "virtual references, zarr over obstore", (4e4, 2.4e6), _GRANULE,
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
    if copies is None or copies.layouts[0] == copies.layouts[1]:
        return
    (one, other), serves = copies.layouts, copies.serves
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
    """Predict and price chunks of Zarr, or those of a file that are read as these are."""
    served = serves or [range(len(pattern.accesses))]
    layout_of = {i: layout for layout, group in zip(layouts, served, strict=True) for i in group}
    asked = [
        replace(ask_layout(pattern, access, layout_of[i]), in_turn=client.in_turn)
        for i, access in enumerate(pattern.accesses)
    ]
    return _predict(question, how, client, pattern, asked, layouts, served)


def _predict(
    question: Question,
    how: How,
    client: Client,
    pattern: AccessPattern,
    asked: Sequence[Asked],
    layouts: tuple[Layout, ...],
    served: Sequence[Sequence[int]],
) -> Choice:
    triples = list(zip(pattern.accesses, question.asked.shares, asked, strict=True))
    reads = tuple(forecast(pattern, access, share, one) for access, share, one in triples)
    is_service = question.asked.per_second is not None
    if is_service:  # it opens the dataset for each read
        n_requests, n_waits = client.opening
        waited_s = n_waits * pattern.store.network.first_byte_median_s
        reads = tuple(
            replace(
                one,
                p50_s=one.p50_s + waited_s,
                p95_s=one.p95_s + waited_s,
                n_requests=one.n_requests + n_requests,
            )
            for one in reads
        )
    written = [one for one in layouts if how[0] != "set" and one != question.array.layout]
    n_puts = question.asked.arrays * sum(one.count_objects(pattern.shape) for one in written)
    request_nbytes = math.fsum(one.share * one.nbytes / one.n_requests for one in reads)
    append, rewritten = question.asked.append, None
    if append is not None:
        rewritten = math.fsum(
            float(rewritten_nbytes(pattern, one.object_shape[append[0]])) for one in layouts
        )
    is_many = bool(question.asked.batch) or is_service
    return Choice(
        *how,
        layouts,
        tuple(tuple(pattern.accesses[i].name for i in group) for group in served),
        client,
        pattern.store.n_connections,
        reads,
        _price(question, reads, max(1, len(layouts))),
        n_puts * (find_price("store_lists_1e3").value or 0.0) / 1000,
        rewritten,
        _count_samples(question, pattern, reads, asked) if question.asked.batch else None,
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
    question: Question,
    pattern: AccessPattern,
    reads: Sequence[Forecast],
    asked: Sequence[Asked],
) -> tuple[float, str]:
    """Predict the samples a second of all workers of a loader, and say what bounds them.

    A worker takes a batch after the other; they share the store, the machine's link and its cores.
    """
    typed, store = question.asked, pattern.store
    one_core_s = store.decode_s_per_nbyte * max(1, typed.cores // typed.workers)
    cpu_s = math.fsum(
        read.share * one.n_chunks * (store.chunk_s + one.chunk_nbytes * one_core_s)
        for read, one in zip(reads, asked, strict=True)
    )
    n_requests = math.fsum(one.share * one.n_requests for one in reads)
    nbytes = math.fsum(one.share * one.nbytes for one in reads)
    bounds = {
        "workers": typed.workers / math.fsum(one.share * one.p50_s for one in reads),
        "requests of the store": store.network.requests_per_s / n_requests,
        "link": store.network.aggregate_nbytes_per_s / nbytes,
        "cores": typed.cores / cpu_s,
    }
    what = min(bounds, key=bounds.__getitem__)
    return (typed.batch or 1) * bounds[what], what


def _list_file(question: Question) -> Iterator[Choice]:
    """List how an HDF5 file is read as it is, and what it may become."""
    layout, clients = question.array.layout, CLIENTS
    there, pattern, alone = (layout,) if layout else (), question.pattern(), question.pattern(in_flight=1)  # fmt: skip
    every = [range(len(pattern.accesses))]
    asked = [_ask_readahead(question, alone, access) for access in alone.accesses]
    client = clients["fsspec-readahead"]
    yield _predict(question, ("stay", "as it is"), client, alone, asked, there, every)
    how: How = ("set", "as it is")
    if question.file_nbytes <= question.asked.memory * 1e9 / 2:
        asked = [_ask_blocks(question, pattern, one, is_whole=True) for one in pattern.accesses]
        client = clients["obstore-whole"]
        yield _predict(question, how, client, pattern, asked, there, every)
    asked = [_ask_blocks(question, alone, access, is_whole=False) for access in alone.accesses]
    yield _predict(question, how, clients["fsspec-tuned"], alone, asked, there, every)
    if layout:
        yield _choose(question, how, clients["references"], pattern, there)
    if question.asked.keep == "format":
        plain = replace(pattern, bounds=replace(pattern.bounds, max_objects=10**15))
        best = best_layout(plain)  # chunks of a file are no objects
        how = ("rechunk", "repacked")
        yield _choose(question, how, clients["references"], pattern, (best,))
    elif question.asked.keep in ("nothing", "one-copy"):
        yield from _list_written(question, "rechunk")


def _ask_readahead(question: Question, pattern: AccessPattern, access: Access) -> Asked:
    """Expect what ``s3fs.open`` asks: each jump in the file reads ahead, and forgets what was read."""
    asked, runs = _ask_chunks(question, pattern, access)
    if question.file_nbytes <= READAHEAD_NBYTES:  # then the first request brings it whole
        return _in_requests(asked, 1.0, question.file_nbytes)
    each = asked.nbytes / runs
    n = runs * max(1.0, math.ceil(each / READAHEAD_NBYTES))
    return _in_requests(asked, n, runs * min(question.file_nbytes, each + READAHEAD_NBYTES))


def _ask_blocks(
    question: Question, pattern: AccessPattern, access: Access, *, is_whole: bool
) -> Asked:
    """Expect the blocks of a file that are read once each: all of them, or those of the chunks."""
    asked, runs = _ask_chunks(question, pattern, access)
    most, needed = question.file_nbytes, asked.nbytes + runs * BLOCK_NBYTES
    fetched = most if is_whole else min(most, needed)
    return _in_requests(asked, max(1.0, math.ceil(fetched / BLOCK_NBYTES)), fetched)


def _ask_chunks(question: Question, pattern: AccessPattern, access: Access) -> tuple[Asked, float]:
    """Expect the chunks that an access touches in a file, and the runs in which these follow one another."""
    row = Layout((1,) * (len(pattern.shape) - 1) + pattern.shape[-1:])  # of what has no chunks
    layout = question.array.layout or row
    runs = touched_runs(pattern, access, np.asarray([layout.chunk_shape]))
    return ask_layout(pattern, access, layout), pattern.together * float(runs[0])


def _in_requests(asked: Asked, n: float, nbytes: float) -> Asked:
    """Put the chunks that are decoded into so many requests."""
    decoded = asked.n_chunks * asked.chunk_nbytes
    return replace(asked, n_chunks=n, chunk_nbytes=decoded / n, n_fetches=n, fetched_nbytes=nbytes)
