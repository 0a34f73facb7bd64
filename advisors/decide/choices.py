"""What could be stored and how it is read: choices for a question, each predicted and priced."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import yaml

from advisors.chunks.forecast import (
    Access,
    AccessPattern,
    Asked,
    Forecast,
    Layout,
    ask_layout,
    forecast,
    touched_runs,
)
from advisors.chunks.question import Question
from advisors.chunks.search import WORTH, best_copies, best_layout, cheapest_layout
from helpers.prices import find_price

Action = Literal["default", "stay", "set", "write", "rechunk", "copy"]
How = tuple[Action, str]
"""What to do, and what that leaves."""

READAHEAD_NBYTES = 50 * 2**20
"""What ``s3fs.open`` reads ahead by default."""

BLOCK_NBYTES = 8 * 2**20
"""Of a block that is kept, and of a part of a file fetched whole."""

_FACTOR = 4.0  # between bytes of a request here and where a client was measured, at most


@dataclass(frozen=True, slots=True)
class Client:
    """A way to read, in the words of ``clients.yaml``."""

    name: str
    text: str
    request_nbytes: tuple[float, float]
    cases: Mapping[str, str]
    in_flight: int | None = None
    in_turn: float = 1.0
    opening: tuple[int, int] = (0, 0)
    is_of_file: bool = False

    def support(self, profile: str, request_nbytes: float) -> str:
        """Say what a prediction rests on: where the client was measured, and how alike that is."""
        low, high = self.request_nbytes
        is_alike = low / _FACTOR <= request_nbytes <= high * _FACTOR
        case = self.cases.get(profile, next(iter(self.cases.values())))
        if profile in self.cases and is_alike:
            return f"predicted, client measured in {case}"
        if profile in self.cases or is_alike:
            return f"extrapolated from {case}"
        return f"unknown: run {case} with profile {profile}"


@cache
def read_clients() -> Mapping[str, Client]:
    """Read the clients that an answer may name."""
    given = yaml.safe_load(Path(__file__).with_name("clients.yaml").read_text(encoding="utf-8"))
    return {name: Client(name, **fields) for name, fields in given.items()}


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
    append_nbytes: float | None  # of the array that one append rewrites
    samples_per_s: float | None  # of a loader
    support: str  # what the prediction rests on
    # what ranking finds
    is_on_front: bool = False  # nothing is both faster and cheaper
    is_knee: bool = False
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


def list_choices(question: Question) -> list[Choice]:
    """List what the question allows and what is not slower than what is there, which comes first."""
    now, *others = (_list_file if question.array.format == "hdf5" else _list_zarr)(question)
    unique = {(one.layouts, one.client.name): one for one in reversed(others)}
    return [now, *(one for one in reversed(unique.values()) if one.seconds <= now.seconds)]


def _list_zarr(question: Question) -> Iterator[Choice]:
    now, default = question.array.layout, read_clients()["zarr-s3fs"]
    how: How = ("stay", "as it is") if now else ("default", "Zarr's own chunks")
    there = now or Layout(_guess_chunks(question))
    yield _choose(question, how, default, question.pattern(in_flight=default.in_flight), (there,))
    if now:
        tuned = read_clients()["zarr-obstore"]
        yield _choose(question, ("set", "chunks as they are"), tuned, question.pattern(), (now,))
    if question.keep != "bytes":
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
    client, pattern = read_clients()["zarr-obstore"], question.pattern()
    yield _choose(question, (action, "one copy"), client, pattern, (best_layout(pattern),))
    cheap = cheapest_layout(pattern, question.prices())
    yield _choose(question, (action, "one copy, cheapest to read"), client, pattern, (cheap,))
    copies = best_copies(pattern)
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
    yield least if least.seconds <= WORTH * both.seconds else both


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
    triples = zip(pattern.accesses, question.shares, asked, strict=True)
    reads = tuple(forecast(pattern, access, share, one) for access, share, one in triples)
    if question.per_second:  # a service that opens the dataset for each read
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
    n_puts = question.n_arrays * sum(one.count_objects(pattern.shape) for one in written)
    request_nbytes = math.fsum(one.share * one.nbytes / one.n_requests for one in reads)
    return Choice(
        *how,
        layouts,
        tuple(tuple(pattern.accesses[i].name for i in group) for group in served),
        client,
        pattern.store.n_connections,
        reads,
        _price(question, reads, max(1, len(layouts))),
        n_puts * (find_price("store_lists_1e3").value or 0.0) / 1000,
        _count_rewritten(question, layouts),
        _count_samples(question, pattern, reads),
        client.support(question.profile, request_nbytes),
    )


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


def _count_rewritten(question: Question, layouts: Sequence[Layout]) -> float | None:
    """Count the bytes of the array that one append rewrites, in all copies."""
    if question.append is None:
        return None
    axis, steps = question.append
    slab = question.array.nbytes / question.array.shape[axis]
    return math.fsum(slab * max(steps, one.object_shape[axis]) for one in layouts)


def _count_samples(
    question: Question, pattern: AccessPattern, reads: Sequence[Forecast]
) -> float | None:
    """Predict the samples a second of a loader: of all workers, as far as the store answers."""
    if question.loader is None:
        return None
    batch_s = math.fsum(one.share * one.p50_s for one in reads)
    n_requests = math.fsum(one.share * one.n_requests for one in reads)
    rate = question.loader.workers / batch_s
    return question.loader.batch * min(rate, pattern.store.network.requests_per_s / n_requests)


def _list_file(question: Question) -> Iterator[Choice]:
    """List how an HDF5 file is read as it is, and what it may become."""
    layout, clients = question.array.layout, read_clients()
    there, pattern, alone = (layout,) if layout else (), question.pattern(), question.pattern(in_flight=1)  # fmt: skip
    every = [range(len(pattern.accesses))]
    asked = [_ask_readahead(question, alone, access) for access in alone.accesses]
    client = clients["fsspec-readahead"]
    yield _predict(question, ("stay", "as it is"), client, alone, asked, there, every)
    how: How = ("set", "as it is")
    if question.file_nbytes <= question.memory_gb * 1e9 / 2:
        asked = [_ask_blocks(question, pattern, one, is_whole=True) for one in pattern.accesses]
        client = clients["obstore-whole"]
        yield _predict(question, how, client, pattern, asked, there, every)
    asked = [_ask_blocks(question, alone, access, is_whole=False) for access in alone.accesses]
    yield _predict(question, how, clients["fsspec-tuned"], alone, asked, there, every)
    if layout:
        yield _choose(question, how, clients["references"], pattern, there)
    if question.keep == "format":
        plain = replace(pattern, bounds=replace(pattern.bounds, max_objects=10**15))
        best = best_layout(plain)  # chunks of a file are no objects
        how = ("rechunk", "repacked")
        yield _choose(question, how, clients["references"], pattern, (best,))
    elif question.keep == "nothing":
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
