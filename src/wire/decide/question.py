"""The question: what was asked, the array, and the store. Everything a user says is checked here, once."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (  # fmt: skip
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from wire.bed.networks import Profile, Provider, Region, get_profile
from wire.costs.prices import StorePrices, find_store_prices
from wire.decide.layouts import (
    MOST_ARRAY_NBYTES,
    MOST_EXTENT,
    Access,
    AccessPattern,
    ArrayFacts,
    Layout,
)
from wire.errors import UserError, convert_validation_error, redact, show
from wire.models.access import Shape, Store
from wire.models.client_costs import read_client_costs
from wire.models.transfer import network_with_tail
from wire.options import read_numbers

_MIN_CHUNK_NBYTES = 1_000_000  # of a chunk in the array, as Zarr's guide advises
_LINK_MB_PER_S = 1250.0  # of a machine that trains, where nobody says: 10 Gbit/s
_SECONDS_A_MONTH = 30 * 24 * 3600
_MOST_DIMENSIONS = 8
_LEAST_SHARE, _MOST_SHARE = 1e-9, 1e9


def _check_type(name: str) -> str:
    """Refuse a type of an element that is none, has no fixed size, or is none that Zarr stores."""
    from zarr.dtype import parse_dtype  # here: zarr takes a second to import

    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError, SyntaxError) as error:
        raise ValueError("a numpy type such as float32") from error
    if dtype.hasobject or not 0 < dtype.itemsize <= 2**20:
        raise ValueError("a type of fixed size, such as float32")
    try:
        with warnings.catch_warnings(action="ignore"):  # of types that Zarr has not specified yet
            parse_dtype(dtype, zarr_format=3)
    except (TypeError, ValueError) as error:  # such as float128; numpy reads blanks as a number
        raise ValueError("a type that Zarr stores, such as float32") from error
    return name


EXTENTS_ALLOWED = (
    f"one to {_MOST_DIMENSIONS} whole numbers from 1 to {MOST_EXTENT}, with commas or x between"
    " them, such as 87600,721,1440 or 87600x721x1440"
)


def _read_extents(text: Any) -> Any:
    """Read ``87600,721,1440`` or ``87600x721x1440``."""
    if not isinstance(text, str | list | tuple):
        raise ValueError(EXTENTS_ALLOWED)
    parts = re.split("[,x]", text) if isinstance(text, str) else [*map(str, text)]
    sound = [part.strip() for part in parts if re.fullmatch(r"\s*[0-9]{1,16}\s*", part)]
    extents = tuple(map(int, sound))
    is_sound = len(parts) == len(extents) <= _MOST_DIMENSIONS
    if not is_sound or not all(1 <= extent <= MOST_EXTENT for extent in extents):
        raise ValueError(EXTENTS_ALLOWED)
    return extents


Extents = Annotated[tuple[int, ...], BeforeValidator(_read_extents)]
Count = Annotated[int, Field(ge=1, le=10**6)]


def _option(title: str | None, text: str, *, default: Any = None, **bounds: Any) -> Any:
    """Declare an option: how its value is called, what it is, and its bounds."""
    return Field(default, title=title, description=text, **bounds)


class DecideOptions(BaseModel):
    """What was typed: each field is an option of the command; what is None follows from the array."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-")
    )

    variable: str = _option("NAME", "Array of DATASET.  [default: the largest]", default="")
    shape: Extents | None = _option("N,N,N", "Shape of an array without DATASET: elements for each dimension.")  # fmt: skip
    type: Annotated[str, AfterValidator(_check_type)] = _option("TYPE", "Type of an element without DATASET.  [default: float32]", default="float32")  # fmt: skip
    format: Literal["zarr", "hdf5"] = _option("[zarr|hdf5]", "Format of the chunks that exist, with --chunks.  [default: zarr]", default="zarr")  # fmt: skip
    chunks: Extents | None = _option("N,N,N", "Chunk shape that exists, without DATASET.")
    shards: Extents | None = _option("N,N,N", "Shard shape that exists, with --chunks.")
    access: str = _option("WHAT:SHARE,...", "Reads with their shares: series, map, whole, a box such as 365x10x10, a tile such as 1x256x256@aligned.  [default: series:0.5,map:0.5]", default="series:0.5,map:0.5")  # fmt: skip
    keep: Literal["nothing", "one-copy", "format", "bytes"] = _option("[nothing|one-copy|format|bytes]", "What must stay as it is.  [default: nothing]", default="nothing")  # fmt: skip
    append: str | None = _option("AXIS:STEPS", "Axis along which the array grows, and steps of an append, such as time:24.")  # fmt: skip
    profile: str = _option("NAME|FILE", "Network between reader and store: a name, or a file of `wire calibrate`.  [default: in-region]", default="in-region")  # fmt: skip
    compression: float | None = _option("X", "Compression ratio: array bytes over stored bytes.  [default: that of DATASET, or 1]", ge=1e-3, le=1e6)  # fmt: skip
    arrays: Count | None = _option("N", "Number of arrays of this shape.  [default: those of DATASET, or 1]")  # fmt: skip
    together: Count = _option("N", "Arrays of a file that are read together.  [default: 1]", default=1)  # fmt: skip
    scattered: bool | None = _option(None, "Order of the chunks in a file: variables interleaved, as appended in turn, or each in one piece.")  # fmt: skip
    max_objects: int = _option("N", "Largest number of objects of all arrays.  [default: 100000]", default=100_000, ge=1, le=10**15)  # fmt: skip
    in_flight: Count = _option("N", "Concurrent requests of a reader.  [default: 64]", default=64)
    memory: float = _option("GB", "Memory of the reader.  [default: 8]", default=8.0, ge=1e-9, le=1e9)  # fmt: skip
    cores: Count | None = _option("N", "CPU cores of the machine.  [default: 2, or the processes of a loader]")  # fmt: skip
    link_mb_per_s: float | None = _option("MB", "Network bandwidth of the machine in MB/s.  [default: 1250 for a loader]", ge=1e-3, le=1e7)  # fmt: skip
    reads_per_month: float = _option("N", "Reads of all kinds in a month.  [default: 10000]", default=10_000.0, ge=0, le=1e15)  # fmt: skip
    per_second: float | None = _option("N", "Reads of a service in a second, such as tiles.", ge=1e-6, le=1e9)  # fmt: skip
    wait_usd_hour: float | None = _option("USD", "Price of an hour of waiting.  [default: free]", ge=0, le=1e9)  # fmt: skip
    budget_usd_month: float | None = _option("USD", "Largest bill of a month.", ge=1e-6, le=1e15)
    price: tuple[str, ...] = _option("ITEM=USD", "Price of your own, such as store_gb_month=0.02.", default=())  # fmt: skip
    batch: Count | None = _option("N", "Samples in a batch of a loader.")
    workers: Count = _option("N", "Loader processes.  [default: 1]", default=1)
    prefetch: Count = _option("N", "Batches that each process keeps ready.  [default: 2]", default=2)  # fmt: skip

    @property
    def reader_cores(self) -> int:
        """Cores of a reader."""
        return max(1, (self.cores or 1) // self.workers)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for name, required in _WITH.items():
            if name in self.model_fields_set and required not in self.model_fields_set:
                raise _refuse(name, getattr(self, name), f"with --{required}")
        if {"per_second", "reads_per_month"} <= self.model_fields_set:
            raise _refuse("reads-per-month", self.reads_per_month, "without --per-second")
        return self


_WITH = {"format": "chunks", "shards": "chunks", "workers": "batch", "prefetch": "batch"}
_OF_NUMBERS = ("shape", "type", "format", "chunks", "shards")  # what a dataset tells itself


@dataclass(frozen=True, slots=True)
class Billing:
    """Who bills a store and where its reader is, which a profile says, and the prices that follow."""

    provider: str
    region: str
    assumed: str  # in a sentence, what the profile does not say; empty where it says both
    prices: StorePrices | None  # None where one of them is unknown
    missing: tuple[str, ...]  # items that have no price


ASSUMED_PROVIDER: Provider = "aws"
ASSUMED_REGION: Region = "same"
"""Of a profile's file that says nothing, which an answer says."""


def find_billing(profile: Profile, own: Mapping[str, float]) -> Billing:
    """Find the prices that a profile leads to, by its provider and region and never by its name."""
    provider, region = profile.provider, profile.region
    assumed = [f"provider: {ASSUMED_PROVIDER}"] * (provider is None)
    assumed += [f"region: {ASSUMED_REGION}"] * (region is None)
    note = f"{profile.name} does not say this, so it is assumed: {', '.join(assumed)}"
    provider, region = provider or ASSUMED_PROVIDER, region or ASSUMED_REGION
    prices = find_store_prices(provider, region, own)
    return Billing(
        provider,
        region,
        note if assumed else "",
        prices if isinstance(prices, StorePrices) else None,
        () if isinstance(prices, StorePrices) else prices,
    )


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be decided, checked."""

    options: DecideOptions  # with all that follows from the array
    address: str  # of the dataset; empty where numbers stand for it
    array: ArrayFacts
    pattern: AccessPattern  # as the search takes it, with rounded shares
    shares: tuple[float, ...]  # of the accesses
    profile: Profile  # of the network that it is read over
    billing: Billing

    @property
    def store(self) -> Store:
        """What one reader meets."""
        return self.pattern.store

    @property
    def n_arrays(self) -> int:
        """Arrays of this shape."""
        return self.options.arrays or 1

    @property
    def stored_nbytes(self) -> float:
        """Bytes stored of all arrays, once."""
        return self.n_arrays * self.array.nbytes / self.store.compression_ratio

    @property
    def prices(self) -> StorePrices | None:
        """What storing, reading and writing costs; None where a price is unknown."""
        return self.billing.prices


def _refuse(name: str, value: object, allowed: object) -> UserError:
    """Say of an option what it was and what is allowed."""
    return UserError(name, show(value), allowed)


def ask(address: str | None = None, **options: Any) -> Question:
    """Read a question from a command's options; what is None is not told."""
    values = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
    try:
        parsed = DecideOptions(**values)
    except ValidationError as error:
        raise convert_validation_error(error, depth=1) from error
    profile = get_profile(parsed.profile)
    billing = find_billing(profile, read_numbers("price", parsed.price))
    for name in ("budget_usd_month", "wait_usd_hour"):
        if not billing.prices and (usd := getattr(parsed, name)) is not None:
            missing = ", ".join(f"--price {item}=USD" for item in billing.missing)
            raise _refuse(name.replace("_", "-"), usd, f"with all prices, so with {missing}")
    array = _read_array(address, parsed)
    if parsed.keep in ("format", "bytes") and array.format == "none":
        raise _refuse("keep", parsed.keep, "of a DATASET, or with --chunks")
    n_arrays = parsed.arrays or array.n_alike
    follows: dict[str, Any] = {"arrays": n_arrays, "cores": parsed.cores or 2}
    if parsed.batch:  # a machine that trains has a core for each process, and one link
        follows["cores"] = parsed.cores or parsed.workers
        follows["link_mb_per_s"] = parsed.link_mb_per_s or _LINK_MB_PER_S
    if parsed.per_second:
        follows["reads_per_month"] = parsed.per_second * _SECONDS_A_MONTH
    if parsed.scattered is None:
        is_known = array.is_scattered is not None
        follows["scattered"] = array.is_scattered if is_known else n_arrays > 1
    parsed = parsed.model_copy(update=follows)
    least_gb = parsed.in_flight * array.dtype.itemsize / 1e9
    if parsed.memory < least_gb:
        raise _refuse("memory", parsed.memory, f"at least {least_gb:g} GB")
    accesses, shares = _read_accesses(parsed.access, array)
    pattern = AccessPattern(
        array.shape,
        array.dtype.itemsize,
        accesses,
        # to a twentieth, or a rarer one to a digit: nobody knows them better
        [math.floor(20 * s + 0.5) / 20 if s >= 0.05 else float(f"{s:.0e}") for s in shares],
        _make_store(parsed, profile, parsed.compression or array.compression or 1.0),
        together=parsed.batch or parsed.together,
        min_chunk_nbytes=_MIN_CHUNK_NBYTES,
        max_objects=max(1, parsed.max_objects // n_arrays),
        memory_nbytes=int(parsed.memory * 1e9),
        append=_read_append(parsed.append, array) if parsed.append else None,
    )
    return Question(parsed, redact(address or ""), array, pattern, shares, profile, billing)


def _make_store(options: DecideOptions, profile: Profile, compression: float) -> Store:
    """Describe the network and one reader, whose link is no wider than a worker's or the machine's."""
    network, measurement = network_with_tail(profile), profile.measurement
    links = (profile.worker_mb_per_s, options.link_mb_per_s)
    link = min(
        network.aggregate_nbytes_per_s,
        *(1e6 * (link_mb_per_s or math.inf) for link_mb_per_s in links),
    )
    for name in ("decode_mb_per_s", "chunk_ms"):
        value = measurement.get(name, 1)
        if not isinstance(value, int | float) or not 1e-9 <= value <= 1e9:
            raise _refuse(f"{name} of {options.profile}", value, "1e-9 to 1e9")
    store = Store(
        replace(network, aggregate_nbytes_per_s=link),
        options.in_flight,
        compression_ratio=compression,
        # a loader and a service keep their connections
        is_cold=not (options.batch or options.per_second),
    )
    return add_client_costs(store, "zarr-obstore", options, profile)


def add_client_costs(store: Store, client: str, options: DecideOptions, profile: Profile) -> Store:
    """Add what a client takes for a request, a chunk and a byte, by the table of `wire.models`.

    What a profile of `wire calibrate` has measured takes its place: its times to first byte have
    those of a client in them.
    """
    costs, measurement = read_client_costs(), profile.measurement
    is_compressed = store.compression_ratio != 1.0
    chosen = costs.get(client, costs["zarr-obstore"])
    store = chosen.apply(store, is_compressed=is_compressed, n_cores=options.reader_cores)
    if measurement:
        store = replace(store, wait_s=0.0)
    if "chunk_ms" in measurement:
        store = replace(store, chunk_s=float(measurement["chunk_ms"]) / 1000)
    if "decode_mb_per_s" in measurement:
        rate = options.reader_cores * float(measurement["decode_mb_per_s"])
        store = replace(store, decode_s_per_nbyte=1e-6 / rate)
    return store


def _read_array(address: str | None, options: DecideOptions) -> ArrayFacts:
    """Read the array of a dataset, or take it and the chunks that are there from numbers."""
    if address:
        for name in _OF_NUMBERS:
            if name in options.model_fields_set:
                raise _refuse(name, getattr(options, name), "without DATASET, which tells it")
        from wire.decide.dataset import read_dataset  # here, as numbers need none of it

        array = read_dataset(address, options.variable, options.together)
    elif options.variable:
        raise _refuse("variable", options.variable, "of a DATASET")
    elif not options.shape:
        raise UserError("shape", "none", "--shape 87600,721,1440, or a DATASET")
    else:
        array = ArrayFacts("array", options.shape, np.dtype(options.type))
    if len(array.shape) > _MOST_DIMENSIONS or array.nbytes > MOST_ARRAY_NBYTES:
        allowed = f"at most {_MOST_DIMENSIONS} dimensions and {MOST_ARRAY_NBYTES} bytes"
        raise _refuse("shape", [*array.shape], allowed)
    if not options.chunks:
        return array
    chunk, shard = options.chunks, options.shards
    _check_extents("chunks", chunk, array.shape)
    if shard and (
        len(shard) != len(chunk)
        or any(s % c or s >= n + c for s, c, n in zip(shard, chunk, array.shape, strict=True))
    ):
        allowed = f"multiples of the chunks, {list(chunk)}, that the array fills"
        raise _refuse("shards", [*shard], allowed)
    return replace(array, layout=Layout(chunk, shard), format=options.format)


def _check_extents(name: str, part: Shape, shape: Shape) -> None:
    """Refuse extents that are not as many as an array has, or no part of these."""
    if len(part) != len(shape):
        raise _refuse(name, [*part], f"{len(shape)} extents, as the array has")
    if any(not 1 <= p <= n for p, n in zip(part, shape, strict=True)):
        raise _refuse(name, [*part], f"1 to the array's, {show([*shape])}")


def _read_accesses(text: str, array: ArrayFacts) -> tuple[tuple[Access, ...], tuple[float, ...]]:
    """Read ``series:0.8,map:0.2``: accesses, and the share of each."""
    accesses: dict[str, tuple[Access, float]] = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition(":")
        box, sign, alignment = name.partition("@")
        try:
            share = float(weight or 1)
        except ValueError:
            share = math.nan
        if not (share == 0 or _LEAST_SHARE <= share <= _MOST_SHARE) or (
            sign and alignment != "aligned"
        ):
            shares = f"0 or {_LEAST_SHARE:g} to {_MOST_SHARE:g}"
            raise _refuse("access", part, f"WHAT:SHARE, or BOX@aligned:SHARE, of shares {shares}")
        if name in accesses:
            raise UserError("access", f"{show(name)} is there twice", "each once")
        accesses[name] = Access(name, _read_box(box, array), is_aligned=bool(sign)), share
    pairs = [(access, share) for access, share in accesses.values() if share]
    if not pairs:
        raise _refuse("access", text, "one with a share above 0")
    total = math.fsum(share for _, share in pairs)
    return tuple(access for access, _ in pairs), tuple(share / total for _, share in pairs)


def _read_box(text: str, array: ArrayFacts) -> Shape:
    """Turn a name, or a box such as 365x10x10, into elements for each dimension."""
    shape, n = array.shape, len(array.shape)
    named = {
        "series": {_find_axis("time", array) or 0},
        "map": set(range(1, n) if n < 3 else (n - 2, n - 1)),
        "whole": set(range(n)),
    }
    if text in named:
        return tuple(extent if i in named[text] else 1 for i, extent in enumerate(shape))
    try:
        box = tuple(map(int, text.split("x")))
    except ValueError as error:
        allowed = "series, map, whole, or a box such as 365x10x10"
        raise _refuse("access", text, allowed) from error
    _check_extents("access", box, shape)
    return box


def _find_axis(name: str, array: ArrayFacts) -> int | None:
    """Find a dimension by its name, or by its place; without names, time comes first."""
    for i, own in enumerate(array.dimensions):
        if own == name or (name == "time" and own in ("t", "valid_time", "Time")):
            return i
    if name in map(str, range(len(array.shape))):
        return int(name)
    return 0 if name == "time" and not any(array.dimensions) else None


def _read_append(text: str, array: ArrayFacts) -> tuple[int, int]:
    """Read ``time`` or ``time:24``: the axis along which the array grows, and by how much at once."""
    name, _, steps = text.partition(":")
    axis = _find_axis(name, array)
    is_number = steps.isascii() and steps.isdecimal() and len(steps) < 16 and int(steps) > 0
    if axis is None or (steps and not is_number):
        names = ", ".join(array.dimensions) or f"time, or 0 to {len(array.shape) - 1}"
        raise _refuse("append", text, f"AXIS or AXIS:STEPS, of {show(names)}")
    return axis, int(steps or 1)
