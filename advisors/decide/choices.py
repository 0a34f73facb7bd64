"""What could be stored and how it is read: choices for a question, each predicted and priced."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from advisors.chunks.forecast import Asked, Forecast, ask_layout, forecast, touched_runs
from advisors.chunks.problem import Access, AccessPattern, Layout
from advisors.chunks.question import Question
from advisors.chunks.search import WORTH, best_copies, best_layout, cheapest_layout
from advisors.costs.prices import find_price
from advisors.decide import clients
from advisors.decide.clients import Client

Action = Literal["default", "stay", "set", "write", "rechunk", "copy"]
How = tuple[Action, str]
"""What to do, and what that leaves."""


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
    write_usd: float = 0.0  # once, in requests
    append_nbytes: float | None = None  # that one append rewrites in the array
    samples_per_s: float | None = None  # of a loader
    support: str = ""  # what the prediction rests on
    # what ranking finds
    is_on_front: bool = field(default=False)  # nothing is both faster and cheaper
    is_knee: bool = field(default=False)
    is_over_budget: bool = field(default=False)

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


def list_choices(question: Question) -> list[Choice]:
    """List what the question allows and what is not slower than what is there, which comes first."""
    is_file = question.array.format in ("hdf5", "netcdf3")
    now, *others = (_list_file if is_file else _list_zarr)(question)
    unique = {(one.layouts, one.client.name): one for one in reversed(others)}
    kept = [one for one in reversed(unique.values()) if one.seconds <= now.seconds]
    return [now, *kept]


def _list_zarr(question: Question) -> Iterator[Choice]:
    now, in_flight = question.array.layout, clients.DEFAULT_ZARR.in_flight or 1
    pattern = question.pattern()
    there = now or Layout(_guess_chunks(question))
    how: How = ("stay", "as it is") if now else ("default", "Zarr's own chunks")
    yield _choose(
        question, how, clients.DEFAULT_ZARR, question.pattern(in_flight=in_flight), (there,)
    )
    if now:
        yield _choose(question, ("set", "chunks as they are"), clients.ZARR, pattern, (now,))
    if question.keep != "bytes":
        yield from _list_written(question, pattern, "rechunk" if now else "write")


def _list_written(question: Question, pattern: AccessPattern, action: Action) -> Iterator[Choice]:
    """List what may be written anew: one copy, the one that is cheapest to read, and two."""
    best = best_layout(pattern)
    yield _choose(question, (action, "one copy"), clients.ZARR, pattern, (best,))
    cheap = cheapest_layout(pattern, question.prices())
    yield _choose(question, (action, "one copy, cheapest to read"), clients.ZARR, pattern, (cheap,))
    copies = best_copies(pattern)
    if copies is None or copies.layouts[0] == copies.layouts[1]:
        return
    both = _choose(
        question, ("copy", "two copies"), clients.ZARR, pattern, copies.layouts, copies.serves
    )
    now, pairs = question.array.layout, []
    if question.array.format == "zarr" and now:  # one copy stays, and the other is new
        one, other = copies.layouts
        pairs = [((now, other), copies.serves), ((one, now), copies.serves)]
    kept = [
        _choose(question, ("copy", "as it is, and a copy"), clients.ZARR, pattern, pair, serves)
        for pair, serves in pairs
    ]
    least = min(kept, key=lambda one: one.seconds, default=both)
    yield least if least.seconds <= WORTH * both.seconds else both


def _guess_chunks(question: Question) -> tuple[int, ...]:
    """Ask zarr for the chunks of its own choice."""
    import zarr

    store = zarr.storage.MemoryStore()
    array = zarr.create_array(
        store, shape=question.array.shape, dtype=question.array.dtype, chunks="auto"
    )
    return tuple(int(c) for c in array.chunks)


def _choose(
    question: Question,
    how: How,
    client: Client,
    pattern: AccessPattern,
    layouts: Sequence[Layout],
    serves: Sequence[Sequence[int]] = (),
) -> Choice:
    """Predict and price a choice of Zarr, or of chunks that are read as those of Zarr."""
    every = tuple(range(len(pattern.accesses)))
    served = serves or [every]
    layout_of = {i: layout for layout, group in zip(layouts, served, strict=True) for i in group}
    asked = [
        replace(ask_layout(pattern, access, layout_of[i]), in_turn=client.in_turn)
        for i, access in enumerate(pattern.accesses)
    ]
    return _predict(question, how, client, pattern, asked, tuple(layouts), served)


def _predict(
    question: Question,
    how: How,
    client: Client,
    pattern: AccessPattern,
    asked: Sequence[Asked],
    layouts: tuple[Layout, ...],
    served: Sequence[Sequence[int]] = (),
) -> Choice:
    reads = []
    for access, share, one in zip(pattern.accesses, question.shares, asked, strict=True):
        found = forecast(pattern, access, share, one)
        if question.per_second:  # a service that opens the dataset for each read
            n_requests, n_waits = client.opens_in
            waited_s = n_waits * pattern.store.network.first_byte_median_s
            found = replace(found, p50_s=found.p50_s + waited_s, p95_s=found.p95_s + waited_s,
                            n_requests=found.n_requests + n_requests)  # fmt: skip
        reads.append(found)
    action, label = how
    names = tuple(tuple(pattern.accesses[i].name for i in group) for group in served)
    chosen = Choice(
        action,
        label,
        layouts,
        names or (tuple(one.name for one in pattern.accesses),),
        client,
        pattern.store.n_connections,
        tuple(reads),
        _price(question, reads, max(1, len(layouts))),
        support=client.support(question.profile, _mean_request(reads)),
    )
    written = (
        layouts if action in ("write", "rechunk") else layouts[-1:] if action == "copy" else ()
    )
    if action == "copy" and question.array.layout not in layouts:
        written = layouts
    puts = question.n_arrays * sum(one.count_objects(pattern.shape) for one in written)
    price = float(find_price("store_lists_1e3").value or 0.0)
    return replace(
        chosen,
        write_usd=puts * price / 1000,
        append_nbytes=_rewritten(question, layouts),
        samples_per_s=_loads(question, pattern, chosen.reads),
    )


def _mean_request(reads: Sequence[Forecast]) -> float:
    return math.fsum(one.share * one.nbytes / one.n_requests for one in reads)


def _price(question: Question, reads: Sequence[Forecast], n_copies: int) -> dict[str, float]:
    """Price a month line by line: what is kept, what is asked, what leaves, who waits."""
    prices, n = question.prices(), question.reads_per_month
    stored_gb = n_copies * question.n_arrays * question.array.nbytes / question.compression / 1e9
    n_requests = n * math.fsum(one.share * one.n_requests for one in reads)
    nbytes = n * math.fsum(one.share * one.nbytes for one in reads)
    lines = {
        "storage": stored_gb * prices.storage_per_gb_month,
        "requests": prices.of_read(n_requests, 0.0),
        "data out": prices.of_read(0.0, nbytes),
    }
    if question.wait_usd_hour is not None:
        hours = n * math.fsum(one.share * one.p50_s for one in reads) / 3600
        lines["waiting"] = hours * question.wait_usd_hour
    return lines


def _rewritten(question: Question, layouts: Sequence[Layout]) -> float | None:
    """Count the bytes of the array that one append rewrites, in all copies."""
    if question.append is None:
        return None
    axis, steps = question.append
    slab = question.array.nbytes / question.array.shape[axis]
    return math.fsum(slab * max(steps, one.object_shape[axis]) for one in layouts)


def _loads(question: Question, pattern: AccessPattern, reads: Sequence[Forecast]) -> float | None:
    """Predict the samples a second of a loader: of all workers, as far as the store answers."""
    if question.loader is None:
        return None
    batch_s = math.fsum(one.share * one.p50_s for one in reads)
    n_requests = math.fsum(one.share * one.n_requests for one in reads)
    rate = question.loader.workers / batch_s
    return question.loader.batch * min(rate, pattern.store.network.requests_per_s / n_requests)


def _list_file(question: Question) -> Iterator[Choice]:
    """List how an HDF5 file is read as it is, and what it may become."""
    layout = question.array.layout
    alone, pattern = question.pattern(in_flight=1), question.pattern()
    asked = [_ask_readahead(question, alone, access) for access in alone.accesses]
    there = (layout,) if layout else ()
    yield _predict(question, ("stay", "as it is"), clients.DEFAULT_FILE, alone, asked, there)
    if question.file_nbytes <= question.memory_gb * 1e9 / 2:
        whole = [_ask_blocks(question, pattern, one, is_whole=True) for one in pattern.accesses]
        yield _predict(question, ("set", "as it is"), clients.WHOLE, pattern, whole, there)
    asked = [_ask_blocks(question, alone, access, is_whole=False) for access in alone.accesses]
    yield _predict(question, ("set", "as it is"), clients.BLOCKS, alone, asked, there)
    if layout and question.array.format == "hdf5":
        yield _choose(question, ("set", "as it is"), clients.REFERENCES, pattern, there)
    if question.keep == "format":
        plain = replace(pattern, bounds=replace(pattern.bounds, max_objects=10**15))
        best = best_layout(plain)  # chunks of a file are no objects
        yield _choose(question, ("rechunk", "repacked"), clients.REFERENCES, pattern, (best,))
    elif question.keep == "nothing":
        yield from _list_written(question, pattern, "rechunk")


def _ask_readahead(question: Question, pattern: AccessPattern, access: Access) -> Asked:
    """Expect what ``s3fs.open`` asks: each jump in the file reads ahead, and forgets what was read."""
    asked, runs = _ask_chunks(question, pattern, access)
    each = asked.nbytes / runs
    n = runs * max(1.0, math.ceil(each / clients.READAHEAD_NBYTES))
    fetched = runs * min(question.file_nbytes, each + clients.READAHEAD_NBYTES)
    return _in_requests(asked, n, fetched)


def _ask_blocks(
    question: Question, pattern: AccessPattern, access: Access, *, is_whole: bool
) -> Asked:
    """Expect the blocks of a file that are read once each: all of them, or those of the chunks."""
    asked, runs = _ask_chunks(question, pattern, access)
    most, needed = question.file_nbytes, asked.nbytes + runs * clients.BLOCK_NBYTES
    fetched = most if is_whole else min(most, needed)
    return _in_requests(asked, max(1.0, math.ceil(fetched / clients.BLOCK_NBYTES)), fetched)


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
