"""Choices for a question: what could be stored and how it is read, each predicted, priced and ranked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from advisors.chunks.answers import choose_prices
from advisors.chunks.problem import AccessPattern, Prices
from advisors.chunks.replicas import compare_replicas
from advisors.chunks.search import MODEL_ERROR, best_chunk_shape
from advisors.costs.prices import find_price
from advisors.decide import snippets
from advisors.decide.forecasts import (
    Asked,
    Forecast,
    ask_blocks,
    ask_chunks,
    choose_flight,
    forecast,
    share_out,
)
from advisors.decide.question import Format, Question
from advisors.decide.support import Support, choose_client, find_support
from helpers.arrays.chunks import Shape, count_chunks
from helpers.errors import UserError

_ANY_NUMBER = 10**15  # of chunks, which are no objects in a file


@dataclass(frozen=True, slots=True)
class Plan:
    """What is stored and how it is read, before anything is predicted of it."""

    label: str
    client: str  # name of its contender in the records
    reads: tuple[Asked, ...]  # what each access asks
    chunk_shapes: tuple[Shape, ...]  # one for each copy
    shard_shape: Shape | None = None
    limits: str = ""  # what the prediction leaves out
    is_rewritten: bool = False  # whether a file of HDF5 is written anew
    copy_of: Mapping[str, int] = field(default_factory=dict)  # the copy that each access reads


@dataclass(frozen=True, slots=True)
class Choice:
    """A plan with what to expect of it, what it costs and what it rests on."""

    label: str
    format: Format
    chunk_shapes: tuple[Shape, ...]  # elements for each dimension, one for each copy
    shard_shape: Shape | None
    client: str
    n_in_flight: int  # requests of one worker
    n_workers: int
    cache: str
    forecasts: tuple[Forecast, ...]  # one for each access
    usd: Mapping[str, float]  # a month, line by line
    support: Support  # what was measured, and how far it carries
    code: str  # lines to paste
    limits: str = ""
    is_over_budget: bool = False

    @property
    def n_copies(self) -> int:
        """Copies of the array in the store."""
        return len(self.chunk_shapes)

    @property
    def usd_month(self) -> float:
        """USD a month in all."""
        return math.fsum(self.usd.values())

    @property
    def seconds(self) -> float:
        """Expected median time of an access, weighted by how often each happens."""
        return math.fsum(one.share * (one.p50_s or 0.0) for one in self.forecasts)

    def tell_layout(self, itemsize: int) -> str:
        """Say in words how the array is cut, with the bytes of each piece."""
        chunks = " and ".join(_tell_shape(shape, itemsize) for shape in self.chunk_shapes)
        if self.shard_shape is None:
            return f"chunks {chunks}"
        return f"chunks {chunks} in shards {_tell_shape(self.shard_shape, itemsize)}"

    def tell_reading(self) -> str:
        """Say in words how it is read: requests in flight, workers, cache."""
        some = "s" * (self.n_workers > 1)
        told = f"{self.n_in_flight} in flight, {self.n_workers} worker{some}"
        return f"{told}, {self.cache}" if self.cache else told

    def tell_times(self) -> str:
        """Say median and 95th percentile of each access."""
        return "; ".join(
            f"{one.access} {_tell_seconds(one.p50_s)} ({_tell_seconds(one.p95_s)})"
            for one in self.forecasts
        )


def _tell_seconds(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{1000 * value:.2g} ms" if value < 0.1 else f"{float(f'{value:.2g}'):,.15g} s"


def tell_number(value: float) -> str:
    """Write a number to three digits, without an exponent.

    Examples
    --------
    >>> tell_number(1234.5)
    '1,230'
    """
    return f"{float(f'{value:.3g}'):,.15g}"


def tell_usd(value: float) -> str:
    """Write an amount to three digits."""
    return f"{tell_number(value)} USD"


def _tell_shape(shape: Shape, itemsize: int) -> str:
    return f"{'x'.join(map(str, shape))} ({tell_number(math.prod(shape) * itemsize / 1e6)} MB)"


def find_prices(question: Question) -> tuple[Prices, tuple[str, ...]]:
    """Find what a month is priced at, and say so; waiting is that of the machine that reads."""
    vcpu, gb = (find_price(item) for item in ("instance_vcpu_hour", "instance_gb_hour"))
    an_hour = question.cores * (vcpu.value or 0.0) + question.memory_gb * (gb.value or 0.0)
    own = (f"waiting_per_hour={an_hour!r}",)
    priced = choose_prices({"own": own, "profile": question.store})
    storage, source = priced["storage_per_gb_month"]
    is_plain = question.compression == 1
    compressed = "uncompressed" if is_plain else f"compressed {question.compression:g} times"
    notes = (
        f"Times are predicted over {question.store} at full scale, for an array that is open;"
        f" each worker decodes {question.decode_mb_per_s:g} MB/s, {compressed}.",
        f"A month has {question.reads_per_month:,.15g} accesses. A GB costs {storage:g} USD"
        f" ({source}), and an hour of the machine, {question.cores} processors"
        f" and {question.memory_gb:g} GB, {an_hour:.3g} USD, paid while it reads.",
    )
    return Prices(**{name: usd for name, (usd, _) in priced.items()}), notes


def list_plans(question: Question, prices: Prices) -> Iterator[Plan]:
    """List what the question allows."""
    for form in question.formats:
        clients = snippets.clients_for(form, question.reader)
        if form == "hdf5":
            yield from _plan_hdf5(question, clients)
        elif form == "references" and clients:
            yield _plan_references(question)
        elif clients:
            for plan in _plan_zarr(question, prices, clients[0]):
                yield replace(plan, client=choose_client(question, clients, plan.reads))


def _plan_zarr(question: Question, prices: Prices, client: str) -> Iterator[Plan]:
    """Plan one copy in the best shape, one in another, and two copies."""
    pattern = question.pattern()
    plain = replace(pattern, bounds=replace(pattern.bounds, shard_from=None))
    found = best_chunk_shape(pattern, tolerance=MODEL_ERROR)
    best, shard = found.best.chunk_shape, found.shard_shape
    limits = _tell_in_turn(pattern, best, shard) if shard else ""
    reads = _ask_all(pattern, best, shard)
    yield Plan("Zarr in shards" if shard else "Zarr", client, reads, (best,), shard, limits)
    other = found.second.chunk_shape
    if shard:
        other = best_chunk_shape(plain, tolerance=MODEL_ERROR).best.chunk_shape
    if count_chunks(question.shape, other) <= pattern.bounds.max_objects and other != best:
        label = "Zarr without shards" if shard else "Zarr, the next best shape"
        yield Plan(label, client, _ask_all(plain, other), (other,))
    if len(pattern.accesses) > 1:
        yield from _plan_copies(question, plain, prices, client)


def _tell_in_turn(pattern: AccessPattern, chunk: Shape, shard: Shape) -> str:
    """Say what shards take where their chunks are read one after the other."""
    in_turn = _ask_all(replace(pattern, reads_shards_abreast=False), chunk, shard)
    times = ", ".join(
        f"{access.name} {_tell_seconds(asked.predict(pattern.store))}"
        for access, asked in zip(pattern.accesses, in_turn, strict=True)
    )
    return f"Before zarr 3.3 the chunks of a shard are read one after the other: {times}."


def _plan_copies(
    question: Question, pattern: AccessPattern, prices: Prices, client: str
) -> Iterator[Plan]:
    """Plan two copies, where objects are few enough without shards."""
    n_reads = question.reads_per_month / question.arrays
    try:
        found = compare_replicas(pattern, prices, n_reads_per_month=n_reads)
    except UserError:
        return
    of_copy = {name: copy.chunk_shape for copy in found.two for name in copy.seconds}
    reads = tuple(ask_chunks(pattern, one, of_copy[one.name]) for one in pattern.accesses)
    even = found.breakeven_reads_per_month * question.arrays
    pays = f"pays from {tell_number(even)} accesses a month on" if even < math.inf else "never pays"
    yield Plan(
        f"Zarr, a copy for {' and one for '.join(', '.join(c.seconds) for c in found.two)}",
        client,
        reads,
        tuple(copy.chunk_shape for copy in found.two),
        limits=f"The second copy {pays}; writing it is not counted.",
        copy_of={name: i for i, copy in enumerate(found.two) for name in copy.seconds},
    )


def _ask_all(pattern: AccessPattern, chunk: Shape, shard: Shape | None = None) -> tuple[Asked, ...]:
    return tuple(ask_chunks(pattern, access, chunk, shard) for access in pattern.accesses)


def _plan_references(question: Question) -> Plan:
    """Plan the chunks of a file as they are, read as those of Zarr are."""
    chunk, guess = _find_chunks(question)
    limits = f"{guess}Making the references reads the metadata of every file once."
    reads = _ask_all(question.pattern(), chunk)
    return Plan("HDF5 as it is, by virtual references", "references", reads, (chunk,), None, limits)


def _find_chunks(question: Question) -> tuple[Shape, str]:
    """Take the chunks of a file, or those that HDF5 chooses where nobody says, and say so."""
    if question.chunks is not None:
        return question.chunks, ""
    import io

    import h5py

    with h5py.File(io.BytesIO(), "w") as file:
        made = file.create_dataset("field", question.shape, question.dtype, chunks=True)
        chunk = tuple(int(extent) for extent in made.chunks)
    told = "x".join(map(str, chunk))
    return chunk, f"Chunks of the file are taken as h5py chooses them, {told}; say your own. "


def _plan_hdf5(question: Question, clients: Sequence[str]) -> Iterator[Plan]:
    """Plan a file fetched whole or read in blocks, as it is and, where it may be, rewritten."""
    chunk, guess = _find_chunks(question)
    pattern = question.pattern(1)
    for client in clients:
        if client == "obstore-whole":
            if question.nbytes / question.compression > question.memory_gb * 1e9 / 2:
                continue
            whole = tuple(_ask_file(question, None) for _ in pattern.accesses)
            limits = "Whatever is asked for, the whole file comes and stays in memory."
            yield Plan("HDF5 as it is, fetched whole", client, whole, (chunk,), None, limits)
            continue
        limits = f"{guess}Opening the file and listing what is in it are not counted."
        reads = tuple(_ask_file(question, asked) for asked in _ask_all(pattern, chunk))
        yield Plan("HDF5 as it is, in blocks", client, reads, (chunk,), None, limits)
        if question.may_rewrite:
            bounds = replace(pattern.bounds, shard_from=None, max_objects=_ANY_NUMBER)
            new = best_chunk_shape(
                replace(pattern, bounds=bounds), tolerance=MODEL_ERROR
            ).best.chunk_shape
            reads = tuple(_ask_file(question, asked) for asked in _ask_all(pattern, new))
            yield Plan("HDF5 rewritten, in blocks", client, reads, (new,), is_rewritten=True)


def _ask_file(question: Question, asked: Asked | None) -> Asked:
    """Expect the blocks of a file that an access reads: those of its chunks, or all of them."""
    from advisors.hdf5.prediction import TUNED

    file_nbytes = question.nbytes / question.compression
    block_nbytes = min(float(TUNED.block_nbytes), file_nbytes)
    n_blocks = float(math.ceil(file_nbytes / block_nbytes))
    if asked is not None:
        n_each = max(1.0, asked.stored_nbytes / block_nbytes)
        n_blocks = min(n_blocks, asked.n_chunks * n_each)
    return ask_blocks(n_blocks, block_nbytes, question.compression)


def price_plan(question: Question, plan: Plan, prices: Prices) -> Choice:
    """Predict a plan, price a month of it and say what it rests on."""
    shares, client = [float(s) for s in question.pattern().shares], snippets.CLIENTS[plan.client]
    n_workers, n_each = 1, client.in_flight
    if n_each is None:
        n_workers, n_each = choose_flight(question, plan.reads, shares)
    names = (access.name for access in question.accesses()[0])
    parts = zip(names, shares, plan.reads, strict=True)
    forecasts = tuple(
        forecast(share_out(question, asked, n_workers, n_each), asked, access=n, share=s)
        for n, s, asked in parts
    )
    nbytes = [one.nbytes / max(one.n_requests, 1e-9) for one in forecasts]
    return Choice(
        plan.label,
        client.format,
        plan.chunk_shapes,
        plan.shard_shape,
        client.text,
        n_each,
        n_workers,
        "",
        forecasts,
        _price(question, forecasts, prices, len(plan.chunk_shapes)),
        find_support(
            question,
            plan.client,
            beside=snippets.clients_for(client.format, question.reader),
            request_nbytes=nbytes,
        ),
        write_code(question, plan, n_each, n_workers),
        plan.limits,
    )


def _price(
    question: Question, forecasts: Sequence[Forecast], prices: Prices, n_copies: int
) -> dict[str, float]:
    """Price a month: what is kept, and what is asked, read and waited for."""
    stored_gb = n_copies * question.arrays * question.nbytes / question.compression / 1e9
    lines = {"storage": stored_gb * prices.storage_per_gb_month}
    for one in forecasts:
        n_reads = question.reads_per_month * one.share
        parts = {
            "requests": prices.of_read(0, n_reads * one.n_requests, 0),
            "data out": prices.of_read(0, 0, n_reads * one.nbytes),
            "compute": prices.of_read(n_reads * (one.p50_s or 0.0), 0, 0),
        }
        for name, usd in parts.items():
            lines[name] = lines.get(name, 0.0) + float(usd)
    return {name: usd for name, usd in lines.items() if usd}


def write_code(question: Question, plan: Plan, n_each: int, n_workers: int) -> str:
    """Write the lines to paste for a plan."""
    client = plan.client
    if client == "references":
        return snippets.read_references()
    if client.startswith("gdal"):
        return ""
    if snippets.CLIENTS[client].format == "hdf5":
        return _write_hdf5(question, plan, n_each)
    names = [f"copy-{i}" for i in range(1, 3)] if len(plan.chunk_shapes) > 1 else ["array"]
    lines = [
        snippets.write_array(question.shape, one, plan.shard_shape, question.dtype, copy=name)
        for name, one in zip(names, plan.chunk_shapes, strict=True)
    ]
    usual = max(zip(*question.accesses(), strict=True), key=lambda pair: pair[1])[0]
    name = names[plan.copy_of.get(usual.name, 0)]
    selection = snippets.select(usual.extent, question.shape)
    lines.append(snippets.read_array(client, n_each, n_workers, selection, copy=name))
    return "\n\n".join(lines)


def _write_hdf5(question: Question, plan: Plan, n_each: int) -> str:
    """Write the lines that read an HDF5 file, and that rewrite it first where the plan does."""
    from advisors.hdf5.prediction import TUNED
    from advisors.hdf5.repack import PAGES_NBYTES

    if plan.client == "obstore-whole":
        return snippets.read_whole(TUNED.block_nbytes, n_each, question.reader)
    lines = [snippets.read_blocks(TUNED.block_nbytes, question.reader)]
    if plan.is_rewritten:
        lines.insert(0, snippets.rewrite_file(plan.chunk_shapes[0], PAGES_NBYTES[0]))
    return "\n\n".join(lines)
