"""The question: an array, how it is read and from what. Everything a user says is checked here, once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisors.chunks.dataset import ArrayFacts, Format, read_dataset
from advisors.chunks.forecast import Access, AccessPattern, Bounds, Layout, Prices
from helpers.arrays.chunks import Shape
from helpers.errors import UserError
from helpers.models.access import Store
from helpers.netem.profiles import get_measurement, get_profile, network_of
from helpers.prices import find_price

CHUNK_MS, DECODE_MB_PER_S = 0.5, 500.0
"""What a chunk and its bytes cost a processor where no calibration tells."""

MIN_CHUNK_NBYTES = 1_000_000
"""Fewest bytes of a chunk in the array, as Zarr's guide advises."""

APPEND_NBYTES = 1_000_000_000
"""Most bytes in the array that one append may rewrite."""

READS_PER_MONTH = 10_000.0
"""Accesses of all kinds, where nobody says."""

SECONDS_A_MONTH = 30 * 24 * 3600
_MOST_LONG = 8  # dimensions of more than one element: candidates multiply with each
_LONGEST = 2**53  # elements of a dimension up to which floats count without error
# of numbers on the command line, the least; some lie above it
_LEAST = {
    **dict.fromkeys(("in_flight", "cores", "max_objects", "arrays", "together"), 1),
    **dict.fromkeys(("batch", "workers", "prefetch"), 1),
    **dict.fromkeys(("reads_per_month", "wait_usd_hour"), 0),
    **dict.fromkeys(("memory", "compression", "budget_usd_month", "per_second"), 0),
}
_ABOVE = ("memory", "compression", "budget_usd_month", "per_second")
_OUTSIDE = ("other-region", "wide-area")  # profiles under which bytes leave the region


@dataclass(frozen=True, slots=True)
class Loader:
    """A program that draws boxes at random, batch by batch."""

    batch: int  # boxes of a batch, asked for at once
    workers: int = 1  # processes that read a batch each
    prefetch: int = 2  # batches that each of them has ready


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be decided, checked."""

    array: ArrayFacts
    address: str  # of the dataset; empty where numbers stand for it
    accesses: tuple[Access, ...]
    shares: tuple[float, ...]
    profile: str
    compression: float
    n_arrays: int  # of this shape, in the store or file
    together: int  # of them that are read at once
    reads_per_month: float
    in_flight: int  # requests of a client that is told how many
    cores: int
    memory_gb: float
    max_objects: int  # of all arrays
    append: tuple[int, int] | None = None  # axis, and steps of an append
    keep: str = "nothing"
    wait_usd_hour: float | None = None
    budget_usd_month: float | None = None
    per_second: float | None = None  # reads of a service
    loader: Loader | None = None

    @property
    def file_nbytes(self) -> float:
        """Bytes stored of all arrays, or of the file that holds them."""
        stored = self.n_arrays * self.array.nbytes / self.compression
        return float(self.array.file_nbytes or stored)

    def pattern(self, *, in_flight: int | None = None) -> AccessPattern:
        """Describe the problem as the search for chunk shapes takes it."""
        longest = None
        if self.append is not None:
            axis, steps = self.append
            slab = self.array.nbytes // self.array.shape[axis]
            most = max(steps, APPEND_NBYTES // max(1, slab))
            longest = tuple(
                min(n, most) if i == axis else n for i, n in enumerate(self.array.shape)
            )
        bounds = Bounds(
            MIN_CHUNK_NBYTES,
            max_objects=max(1, self.max_objects // self.n_arrays),
            memory_nbytes=int(self.memory_gb * 1e9),
            longest=longest,
        )
        return AccessPattern(
            self.array.shape,
            self.array.dtype.itemsize,
            self.accesses,
            _round_shares(self.shares),
            self._store(in_flight or self.in_flight),
            bounds,
            together=self.loader.batch if self.loader else self.together,
        )

    def _store(self, in_flight: int) -> Store:
        """Describe the network and one reader, whose link is no wider than a worker's."""
        profile, told = get_profile(self.profile), get_measurement(self.profile)
        network = network_of(profile)
        link = min(network.aggregate_nbytes_per_s, 1e6 * (profile.worker_mb_per_s or math.inf))
        if self.loader:
            link = min(link, network.aggregate_nbytes_per_s / self.loader.workers)
        decode = self.cores * float(told.get("decode_mb_per_s", DECODE_MB_PER_S))
        return Store(
            replace(network, aggregate_nbytes_per_s=link),
            in_flight,
            chunk_s=float(told.get("chunk_ms", CHUNK_MS)) / 1000,
            decode_s_per_nbyte=1 / (1e6 * decode),
            compression_ratio=self.compression,
        )

    def predicted_on(self) -> dict[str, Any]:
        """Tell the network, at full scale, and the reader that times are predicted on."""
        store = self._store(self.in_flight)
        network, rates = store.network, {}
        for name in ("stream", "aggregate"):
            rate = getattr(network, f"{name}_nbytes_per_s") / 1e6
            rates[f"{name}_mb_per_s"] = rate if rate < math.inf else None
        return {
            "profile": self.profile,
            "first_byte_median_s": network.first_byte_median_s,
            "first_byte_p95_s": network.first_byte_p95_s,
            **rates,
            "in_flight": self.in_flight,
            "decode_mb_per_s": round(1e-6 / store.decode_s_per_nbyte, 6),
            "chunk_ms": 1000 * store.chunk_s,
            "compression": self.compression,
        }

    def prices(self) -> Prices:
        """Look up what storing and reading costs over this network."""
        storage, get, out = (
            float(find_price(item).value or 0.0)
            for item in ("store_gb_month", "store_gets_1e3", "data_out_gb")
        )
        return Prices(storage, get, out if self.profile.startswith(_OUTSIDE) else 0.0)


def _round_shares(shares: Sequence[float]) -> tuple[float, ...]:
    """Round shares to a twentieth, or a rarer one to a digit: nobody knows them better.

    Examples
    --------
    >>> _round_shares([0.79, 0.21]), _round_shares([0.987, 0.013])
    ((0.8, 0.2), (1.0, 0.01))
    """
    return tuple(math.floor(20 * s + 0.5) / 20 if s >= 0.05 else float(f"{s:.0e}") for s in shares)


def ask(address: str | None, options: Mapping[str, Any]) -> Question:
    """Read a question from a command's options, those of `wire chunks` or of `wire decide`."""
    told = {name: value for name, value in options.items() if value is not None}
    get_profile(told["profile"])
    for name, value in get_measurement(told["profile"]).items():
        is_number = isinstance(value, int | float) and 0 < value < math.inf
        if name in ("decode_mb_per_s", "chunk_ms") and not is_number:
            raise UserError(f"{name} of {told['profile']}: {value!r}; allowed: a number above 0")
    for name, least in _LEAST.items():
        value, is_above = told.get(name, least or 1), name in _ABOVE
        if not least <= value < math.inf or (is_above and value == least):
            allowed = f"above {least}" if is_above else f"at least {least}"
            raise UserError(f"{name.replace('_', '-')}: {value:g}; allowed: {allowed}")
    array = _read_array(address, told)
    if told.get("keep", "nothing") != "nothing" and array.format == "none":
        raise UserError(f"keep: {told['keep']}; allowed: of a DATASET, or with --chunks")
    accesses, shares = read_accesses(told.get("access") or "series:0.5,map:0.5", array)
    loader = None
    if "batch" in told:
        loader = Loader(told["batch"], told.get("workers", 1), told.get("prefetch", 2))
    elif alone := [name for name in ("workers", "prefetch") if name in told]:
        raise UserError(f"{alone[0]}: {told[alone[0]]}; allowed: with --batch")
    per_second, reads = told.get("per_second"), told.get("reads_per_month")
    if per_second and reads is not None:
        raise UserError(f"reads-per-month: {reads:g}; allowed: without --per-second")
    reads_per_month = READS_PER_MONTH if reads is None else reads
    if per_second:
        reads_per_month = per_second * SECONDS_A_MONTH
    found = Question(
        array,
        address or "",
        accesses,
        shares,
        told["profile"],
        told.get("compression") or array.compression or 1.0,
        told.get("arrays", array.n_alike),
        told.get("together", 1),
        reads_per_month,
        told["in_flight"],
        told["cores"],
        told["memory"],
        told["max_objects"],
        _read_append(told.get("append"), array),
        told.get("keep", "nothing"),
        told.get("wait_usd_hour"),
        told.get("budget_usd_month"),
        per_second,
        loader,
    )
    least_gb = found.in_flight * array.dtype.itemsize / 1e9
    if found.memory_gb < least_gb:
        raise UserError(f"memory: {found.memory_gb:g}; allowed: at least {least_gb:g} GB")
    return found


def _read_array(address: str | None, told: Mapping[str, Any]) -> ArrayFacts:
    """Read the array of a dataset, or take it from numbers."""
    own = [name for name in ("shape", "dtype", "format", "chunks", "shards") if name in told]
    if address:
        if own:
            name = "type" if own[0] == "dtype" else own[0]
            raise UserError(f"{name}: {told[own[0]]!r}; allowed: without DATASET, which tells it")
        array = read_dataset(address, told.get("variable", ""))
    elif told.get("variable"):
        raise UserError(f"variable: {told['variable']!r}; allowed: of a DATASET")
    elif "shape" not in told:
        raise UserError(
            "shape: none; allowed: --shape 87600,721,1440, or a DATASET to read it from"
        )
    else:
        shape = check_within("shape", read_extents(told["shape"], ",", "shape"))
        array = ArrayFacts("array", shape, read_type(told.get("dtype", "float32")))
    if sum(n > 1 for n in array.shape) > _MOST_LONG or max(array.shape) > _LONGEST:
        raise UserError(
            f"shape: {list(array.shape)}; allowed: at most {_MOST_LONG} dimensions of more than one"
            f" element, of {_LONGEST} at most"
        )
    return _take_layout(array, told) if not address else array


def _take_layout(array: ArrayFacts, told: Mapping[str, Any]) -> ArrayFacts:
    """Take the chunks that are there from numbers."""
    there: Format = told.get("format", "zarr" if "chunks" in told else "none")
    if "chunks" not in told:
        if there != "none" or "shards" in told:
            raise UserError("chunks: none; allowed with --format or --shards: those that are there")
        return array
    chunk = check_within("chunks", read_extents(told["chunks"], ",", "chunks"), array.shape)
    shard = read_extents(told["shards"], ",", "shards") if "shards" in told else None
    if shard and (
        len(shard) != len(chunk) or any(s % c for s, c in zip(shard, chunk, strict=True))
    ):
        raise UserError(f"shards: {list(shard)}; allowed: multiples of the chunks, {list(chunk)}")
    return replace(array, layout=Layout(chunk, shard), format=there)


def read_type(name: str) -> np.dtype[Any]:
    """Look up the type of an element; one without a fixed size is refused."""
    try:
        found = np.dtype(name)
    except (TypeError, ValueError, SyntaxError) as error:
        raise UserError(f"type: {name!r}; allowed: a numpy type such as float32") from error
    if found.hasobject or not found.itemsize:
        raise UserError(f"type: {name!r}; allowed: a type of fixed size, such as float32")
    return found


def read_extents(text: str, between: str, option: str) -> Shape:
    """Read whole numbers with a mark between them."""
    try:
        return tuple(int(part) for part in text.split(between))
    except ValueError as error:
        example = between.join(("365", "10", "10"))
        also = "series, map, whole, or a box such as " if option == "access" else ""
        raise UserError(f"{option}: {text!r}; allowed: {also}{example}") from error


def check_within(name: str, part: Shape, shape: Shape | None = None) -> Shape:
    """Refuse extents below 1, or such as an array has not."""
    if shape and len(part) != len(shape):
        raise UserError(f"{name}: {list(part)}; allowed: {len(shape)} extents, as the array has")
    if min(part) < 1:
        raise UserError(
            f"{name}: {list(part)}; allowed: one or more extents, each a whole number above 0"
        )
    if shape and any(p > n for p, n in zip(part, shape, strict=True)):
        raise UserError(f"{name}: {list(part)}; allowed: at most the array's, {list(shape)}")
    return part


def read_accesses(text: str, array: ArrayFacts) -> tuple[tuple[Access, ...], tuple[float, ...]]:
    """Read ``series:0.8,map:0.2``: accesses, and the share of each."""
    found: dict[str, tuple[Access, float]] = {}
    for part in text.split(","):
        what, _, weight = part.strip().partition(":")
        box, at, how = what.partition("@")
        try:
            share = float(weight or 1)
        except ValueError:
            share = math.nan
        if not 0 <= share < math.inf or (at and how != "aligned"):
            raise UserError(f"access: {part!r}; allowed: WHAT:SHARE, or BOX@aligned:SHARE")
        if what in found:
            raise UserError(f"access: {what!r} is there twice; allowed: each once")
        found[what] = Access(what, _read_box(box, array), is_aligned=bool(at)), share
    kept = [(access, share) for access, share in found.values() if share]
    if not kept:
        raise UserError(f"access: {text!r}; allowed: one with a share above 0")
    total = math.fsum(share for _, share in kept)
    return tuple(access for access, _ in kept), tuple(share / total for _, share in kept)


def _read_box(what: str, array: ArrayFacts) -> Shape:
    """Turn a name, or a box such as 365x10x10, into elements for each dimension."""
    shape, n = array.shape, len(array.shape)
    time = find_axis("time", array) or 0
    plane = range(1, n) if n < 3 else (n - 2, n - 1)
    named = {
        "series": tuple(extent if i == time else 1 for i, extent in enumerate(shape)),
        "map": tuple(extent if i in plane else 1 for i, extent in enumerate(shape)),
        "whole": shape,
    }
    return named.get(what) or check_within("access", read_extents(what, "x", "access"), shape)


def find_axis(name: str, array: ArrayFacts) -> int | None:
    """Find a dimension by its name, or by its place; without names, time comes first."""
    for i, own in enumerate(array.dimensions):
        if own == name or (name == "time" and own in ("t", "valid_time", "Time")):
            return i
    if name.isdecimal() and int(name) < len(array.shape):
        return int(name)
    return 0 if name == "time" and not any(array.dimensions) else None


def _read_append(text: str | None, array: ArrayFacts) -> tuple[int, int] | None:
    """Read ``time`` or ``time:24``: the axis along which the array grows, and by how much at once."""
    if text is None:
        return None
    name, _, steps = text.partition(":")
    axis = find_axis(name, array)
    if axis is None or not (steps or "1").isdecimal() or not int(steps or 1):
        names = ", ".join(array.dimensions) or f"time, or 0 to {len(array.shape) - 1}"
        raise UserError(f"append: {text!r}; allowed: AXIS or AXIS:STEPS, of {names}")
    return axis, int(steps or 1)
