"""The question: what was asked, the array, and the store. Everything a user says is checked here, once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from advisors.decide.layouts import Access, AccessPattern, ArrayFacts, Bounds, Layout, Prices
from helpers.arrays.chunks import Shape
from helpers.errors import UserError, show
from helpers.models.access import Store
from helpers.netem.profiles import get_profile, network_of
from helpers.prices import find_price
from helpers.redaction import redact

_CHUNK_MS, _DECODE_MB_PER_S = 0.5, 500.0  # of a processor, where no calibration tells
_MIN_CHUNK_NBYTES = 1_000_000  # of a chunk in the array, as Zarr's guide advises
_LINK_MB_PER_S = 1250.0  # of a machine that trains, where nobody says: 10 Gbit/s
_SECONDS_A_MONTH = 30 * 24 * 3600
_MOST_LONG, _MOST = 8, 32  # dimensions of more than one element, and in all
_LONGEST = 2**53  # elements of a dimension up to which floats count without error
_LARGEST = 2**62  # bytes of an array up to which whole numbers of 64 bits count
# Numbers of the command line: least and most. Beyond lies nothing that is built, and no float.
_WITHIN = {
    **dict.fromkeys(("in_flight", "cores", "arrays", "together", "batch", "workers"), (1, 10**6)),
    "prefetch": (1, 10**6),
    "max_objects": (1, 10**15),
    "memory": (1e-9, 1e9),
    "compression": (1e-3, 1e6),
    "link_mb_per_s": (1e-3, 1e7),
    "reads_per_month": (0, 1e15),
    "wait_usd_hour": (0, 1e9),
    "budget_usd_month": (1e-6, 1e15),
    "per_second": (1e-6, 1e9),
}
_LEAST_SHARE, _MOST_SHARE = 1e-9, 1e9
_OUTSIDE = ("other-region", "wide-area")  # profiles under which bytes leave the region
_NAMES = {"dtype": "type"}  # of options that Python calls otherwise


@dataclass(frozen=True, slots=True)
class Asked:
    """What was typed, in the words of the options, checked and with defaults."""

    accesses: tuple[Access, ...]
    shares: tuple[float, ...]
    address: str = ""  # of the dataset; empty where numbers stand for it
    profile: str = "in-region"
    in_flight: int = 64  # requests of a client that is told how many
    cores: int = 2  # of the machine, that decode
    link_mb_per_s: float | None = None  # of the machine
    memory: float = 8.0  # GB, of a reader
    arrays: int = 1  # of this shape, in the store or file
    together: int = 1  # of them that are read at once
    max_objects: int = 100_000  # of all arrays
    append: tuple[int, int] | None = None  # axis, and steps of an append
    keep: str = "nothing"
    is_scattered: bool = False  # whether the chunks of a file's variables lie among one another
    reads_per_month: float = 10_000.0  # of all kinds
    per_second: float | None = None  # reads of a service
    wait_usd_hour: float | None = None
    budget_usd_month: float | None = None
    batch: int | None = None  # boxes that a loader asks for at once; None where none loads
    workers: int = 1  # its processes, which read a batch each
    prefetch: int = 2  # batches that each of them has ready


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be decided, checked."""

    asked: Asked
    array: ArrayFacts
    store: Store  # what one reader meets

    @property
    def stored_nbytes(self) -> float:
        """Bytes stored of all arrays, once."""
        return self.asked.arrays * self.array.nbytes / self.store.compression_ratio

    def pattern(self, *, in_flight: int | None = None) -> AccessPattern:
        """Describe the problem as the search for chunk shapes takes it."""
        asked = self.asked
        bounds = Bounds(
            _MIN_CHUNK_NBYTES,
            max_objects=max(1, asked.max_objects // asked.arrays),
            memory_nbytes=int(asked.memory * 1e9),
            append=asked.append,
        )
        return AccessPattern(
            self.array.shape,
            self.array.dtype.itemsize,
            asked.accesses,
            _round_shares(asked.shares),
            replace(self.store, n_connections=in_flight or asked.in_flight),
            bounds,
            together=asked.batch or asked.together,
        )

    def prices(self) -> Prices:
        """Look up what storing and reading costs over this network."""
        items = ("store_gb_month", "store_gets_1e3", "data_out_gb")
        storage, get, out = (float(find_price(item).value or 0.0) for item in items)
        return Prices(storage, get, out if self.asked.profile.startswith(_OUTSIDE) else 0.0)


def _round_shares(shares: Sequence[float]) -> tuple[float, ...]:
    """Round shares to a twentieth, or a rarer one to a digit: nobody knows them better.

    Examples
    --------
    >>> _round_shares([0.79, 0.21]), _round_shares([0.987, 0.013])
    ((0.8, 0.2), (1.0, 0.01))
    """
    return tuple(math.floor(20 * s + 0.5) / 20 if s >= 0.05 else float(f"{s:.0e}") for s in shares)


def _refuse(name: str, value: object, allowed: object) -> UserError:
    """Say of an option what it was and what is allowed."""
    option = _NAMES.get(name, name).replace("_", "-")
    return UserError(f"{option}: {value}; allowed: {allowed}")


def ask(address: str | None = None, options: Mapping[str, Any] | None = None) -> Question:
    """Read a question from a command's options; what is None is not told."""
    told = {name: value for name, value in (options or {}).items() if value is not None}
    get_profile(told.get("profile", "in-region"))
    for name, (least, most) in _WITHIN.items():
        if name in told and not least <= told[name] <= most:
            raise _refuse(name, f"{told[name]:g}", f"{least:g} to {most:g}")
    array = _read_array(address, told)
    if told.get("keep") in ("format", "bytes") and array.format == "none":
        raise _refuse("keep", told["keep"], "of a DATASET, or with --chunks")
    if "batch" not in told and (alone := {"workers", "prefetch"} & told.keys()):
        raise _refuse(name := min(alone), told[name], "with --batch")
    if "per_second" in told:
        if "reads_per_month" in told:
            raise _refuse("reads-per-month", f"{told['reads_per_month']:g}", "without --per-second")
        told["reads_per_month"] = told["per_second"] * _SECONDS_A_MONTH
    if "batch" in told:  # a machine that trains has a core for each process, and one link
        told = {"cores": told.get("workers", 1), "link_mb_per_s": _LINK_MB_PER_S, **told}
    accesses, shares = _read_accesses(told.pop("access", "series:0.5,map:0.5"), array)
    told = {"arrays": array.n_alike, **told, "address": redact(address) if address else ""}
    is_scattered = array.is_scattered if array.is_scattered is not None else told["arrays"] > 1
    told.setdefault("is_scattered", is_scattered)
    told["append"] = _read_append(told["append"], array) if "append" in told else None
    known = {each.name for each in fields(Asked)}
    asked = Asked(accesses, shares, **{name: told[name] for name in told.keys() & known})
    least_gb = asked.in_flight * array.dtype.itemsize / 1e9
    if asked.memory < least_gb:
        raise _refuse("memory", f"{asked.memory:g}", f"at least {least_gb:g} GB")
    return Question(asked, array, _make_store(asked, told.get("compression", array.compression or 1.0)))  # fmt: skip


def _make_store(asked: Asked, compression: float) -> Store:
    """Describe the network and one reader, whose link is no wider than a worker's or the machine's."""
    profile = get_profile(asked.profile)
    told = profile.measurement
    network = network_of(profile)
    links = (profile.worker_mb_per_s, asked.link_mb_per_s)
    link = min(network.aggregate_nbytes_per_s, *(1e6 * (one or math.inf) for one in links))
    cores = max(1, asked.cores // asked.workers)
    for name in ("decode_mb_per_s", "chunk_ms"):
        value = told.get(name, 1)
        if not isinstance(value, int | float) or not 1e-9 <= value <= 1e9:
            raise _refuse(f"{name} of {asked.profile}", show(value), "1e-9 to 1e9")
    return Store(
        replace(network, aggregate_nbytes_per_s=link),
        asked.in_flight,
        chunk_s=float(told.get("chunk_ms", _CHUNK_MS)) / 1000,
        decode_s_per_nbyte=1e-6 / (cores * float(told.get("decode_mb_per_s", _DECODE_MB_PER_S))),
        compression_ratio=compression,
    )


def _read_array(address: str | None, told: Mapping[str, Any]) -> ArrayFacts:
    """Read the array of a dataset, or take it from numbers."""
    if address:
        for name in ("shape", "dtype", "format", "chunks", "shards"):
            if name in told:
                raise _refuse(name, show(told[name]), "without DATASET, which tells it")
        from advisors.decide.dataset import read_dataset  # here, as numbers need none of it

        array = read_dataset(address, told.get("variable", ""), told.get("together", 1))
    elif "variable" in told:
        raise _refuse("variable", show(told["variable"]), "of a DATASET")
    elif "shape" not in told:
        raise _refuse("shape", "none", "--shape 87600,721,1440, or a DATASET to read it from")
    else:
        shape = _read_extents("shape", told["shape"])
        array = ArrayFacts("array", shape, _read_type(told.get("dtype", "float32")))
    is_long = sum(n > 1 for n in array.shape) > _MOST_LONG or len(array.shape) > _MOST
    if is_long or max(array.shape) > _LONGEST or array.nbytes > _LARGEST:
        raise _refuse(
            "shape",
            show(list(array.shape)),
            f"at most {_MOST_LONG} dimensions of more than one element and {_MOST} in all,"
            f" of {_LONGEST} elements and {_LARGEST} bytes at most",
        )
    return array if address else _take_layout(array, told)


def _take_layout(array: ArrayFacts, told: Mapping[str, Any]) -> ArrayFacts:
    """Take the chunks that are there from numbers."""
    if "chunks" not in told:
        if {"format", "shards"} & told.keys():
            raise _refuse("chunks", "none", "with --format or --shards: those that are there")
        return array
    chunk, shard = _read_extents("chunks", told["chunks"], array.shape), None
    if "shards" in told:
        shard = _read_extents("shards", told["shards"])
        allowed = f"multiples of the chunks, {list(chunk)}, that the array fills"
        if len(shard) != len(chunk) or any(
            s % c or s >= n + c for s, c, n in zip(shard, chunk, array.shape, strict=True)
        ):
            raise _refuse("shards", show(list(shard)), allowed)
    return replace(array, layout=Layout(chunk, shard), format=told.get("format", "zarr"))


def _read_type(name: str) -> np.dtype[Any]:
    """Look up the type of an element; one without a fixed size is refused."""
    try:
        found = np.dtype(name)
    except (TypeError, ValueError, SyntaxError) as error:
        raise _refuse("type", show(name), "a numpy type such as float32") from error
    if found.hasobject or not 0 < found.itemsize <= 2**20:
        raise _refuse("type", show(name), "a type of fixed size, such as float32")
    return found


def _read_extents(name: str, text: str, shape: Shape | None = None) -> Shape:
    """Read whole numbers above 0 with a mark between them, as many and no larger than an array has."""
    between = "x" if name == "access" else ","
    try:
        part = tuple(map(int, text.split(between)))
    except ValueError as error:
        also = "series, map, whole, or a box such as " if name == "access" else ""
        raise _refuse(name, show(text), also + between.join(("365", "10", "10"))) from error
    allowed = ""
    if shape and len(part) != len(shape):
        allowed = f"{len(shape)} extents, as the array has"
    elif min(part) < 1:
        allowed = "one or more extents, each a whole number above 0"
    elif shape and any(p > n for p, n in zip(part, shape, strict=True)):
        allowed = f"at most the array's, {show(list(shape))}"
    if allowed:
        raise _refuse(name, show(list(part)), allowed)
    return part


def _read_accesses(text: str, array: ArrayFacts) -> tuple[tuple[Access, ...], tuple[float, ...]]:
    """Read ``series:0.8,map:0.2``: accesses, and the share of each."""
    found: dict[str, tuple[Access, float]] = {}
    for part in text.split(","):
        what, _, weight = part.strip().partition(":")
        box, at, how = what.partition("@")
        try:
            share = float(weight or 1)
        except ValueError:
            share = math.nan
        if not (share == 0 or _LEAST_SHARE <= share <= _MOST_SHARE) or (at and how != "aligned"):
            shares = f"0 or {_LEAST_SHARE:g} to {_MOST_SHARE:g}"
            allowed = f"WHAT:SHARE, or BOX@aligned:SHARE, with shares of {shares}"
            raise _refuse("access", show(part), allowed)
        if what in found:
            raise UserError(f"access: {show(what)} is there twice; allowed: each once")
        found[what] = Access(what, _read_box(box, array), is_aligned=bool(at)), share
    kept = [(access, share) for access, share in found.values() if share]
    if not kept:
        raise _refuse("access", show(text), "one with a share above 0")
    total = math.fsum(share for _, share in kept)
    return tuple(access for access, _ in kept), tuple(share / total for _, share in kept)


def _read_box(what: str, array: ArrayFacts) -> Shape:
    """Turn a name, or a box such as 365x10x10, into elements for each dimension."""
    shape, n = array.shape, len(array.shape)
    named = {
        "series": {_find_axis("time", array) or 0},
        "map": set(range(1, n) if n < 3 else (n - 2, n - 1)),
        "whole": set(range(n)),
    }
    if what not in named:
        return _read_extents("access", what, shape)
    return tuple(extent if i in named[what] else 1 for i, extent in enumerate(shape))


def _find_axis(name: str, array: ArrayFacts) -> int | None:
    """Find a dimension by its name, or by its place; without names, time comes first."""
    for i, own in enumerate(array.dimensions):
        if own == name or (name == "time" and own in ("t", "valid_time", "Time")):
            return i
    if name.isascii() and name.isdecimal() and len(name) < 3 and int(name) < len(array.shape):
        return int(name)
    return 0 if name == "time" and not any(array.dimensions) else None


def _read_append(text: str, array: ArrayFacts) -> tuple[int, int]:
    """Read ``time`` or ``time:24``: the axis along which the array grows, and by how much at once."""
    name, _, steps = text.partition(":")
    axis = _find_axis(name, array)
    is_number = steps.isascii() and steps.isdecimal() and len(steps) < 16 and int(steps) > 0
    if axis is None or (steps and not is_number):
        own = show(", ".join(array.dimensions))
        names = own if array.dimensions else f"time, or 0 to {len(array.shape) - 1}"
        raise _refuse("append", show(text), f"AXIS or AXIS:STEPS, of {names}")
    return axis, int(steps or 1)
