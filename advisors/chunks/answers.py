"""The answer of ``wire chunks``: from options to a recommendation in words, numbers and a snippet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from advisors.chunks.candidates import predict_seconds
from advisors.chunks.problem import (
    Access,
    AccessPattern,
    ArrayFacts,
    Bounds,
    Choice,
    Recommendation,
    read_facts,
)
from advisors.chunks.replicas import Prices, compare_replicas
from advisors.chunks.search import best_chunk_shape
from helpers.arrays.chunks import (
    Shape,
    balanced_chunk_shape,
    balanced_extents,
    check_shape,
    check_within,
)
from helpers.cli import read_numbers
from helpers.errors import UserError
from helpers.models.access import Store
from helpers.models.transfer import Network
from helpers.netem.profiles import get_profile

_TYPES = {1: "uint8", 2: "int16", 4: "float32", 8: "float64", 16: "complex128"}
_MB = 1e6
_ONE_REGION = ("loopback", "in-region", "express")  # profiles under which no byte leaves the region

_PRICES = {
    "storage_per_gb_month": ("a GB and month", "store_gb_month"),
    "get_per_1000": ("a thousand requests", "store_gets_1e3"),
    "egress_per_gb": ("a GB read", "data_out_gb"),
    "waiting_per_hour": ("an hour of waiting", None),
}
"""Of what each price is, and where the project keeps it; waiting is a machine's."""


def answer(store: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Recommend chunks for the array in a store, or for one given in numbers.

    Parameters
    ----------
    store : str or None
        Address of a Zarr store or a netCDF-4 or HDF5 file; None for numbers alone.
    options : mapping
        Those of the command, by their names in Python.

    Returns
    -------
    dict
        What JSON can hold: chunk shape, reasons, a snippet that writes such an
        array, and for the best rule times, shards, alternatives and replicas.

    Raises
    ------
    UserError
        If the options make no sense, or contradict each other.
    """
    _check_options(options)
    facts = read_facts(store, options["variable"]) if store else _facts_from(options)
    found = (_balance if options["rule"] == "balanced" else _search)(facts, options)
    chunk_shape, shard_shape = found["chunk_shape"], found.get("shard_shape")
    array = {"variable": facts.variable, "shape": facts.shape, "itemsize": facts.itemsize}
    return {**array, **found, "snippet": _write_snippet(facts, chunk_shape, shard_shape)}


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that contradict --replicas, or that mean nothing without it."""
    if not options["replicas"]:
        for name, option in (("reads_per_month", "reads-per-month"), ("own", "price")):
            if options[name] not in (None, ()):
                raise UserError(f"{option}: {options[name]!r}; allowed: with --replicas")
    elif options["rule"] != "best":
        raise UserError(f"rule: {options['rule']!r}; allowed with --replicas: best, for accesses")
    elif options["criterion"] != "mean":
        raise UserError(
            f"criterion: {options['criterion']!r}; allowed with --replicas: mean, as costs add up"
        )
    elif options["reads_per_month"] is None:
        raise UserError("reads-per-month: none; allowed with --replicas: a number, at least 0")


def _facts_from(options: Mapping[str, Any]) -> ArrayFacts:
    """Take the array from numbers."""
    if not options["shape"]:
        raise UserError("shape: none; allowed: --shape 98128,277,349, or a STORE to read it from")
    try:
        shape = tuple(int(text) for text in options["shape"].split(","))
    except ValueError as error:
        raise UserError(
            f"shape: {options['shape']!r}; allowed: whole numbers and commas"
        ) from error
    shape = check_shape("shape", shape)
    dtype = options["dtype"]
    itemsize = _itemsize_of(dtype) if dtype else options["itemsize"]
    if not itemsize or itemsize < 1:
        raise UserError(f"itemsize: {itemsize}; allowed: bytes of an element, at least 1")
    return ArrayFacts("array", shape, dtype or _TYPES.get(itemsize, f"V{itemsize}"), itemsize, None)


def _itemsize_of(dtype: str) -> int:
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise UserError(f"dtype: {dtype!r}; allowed: a numpy type such as float32") from error
    if found.hasobject or found.itemsize == 0:
        raise UserError(f"dtype: {dtype!r}; allowed: a type of fixed size, such as float32")
    return found.itemsize


def _store_from(options: Mapping[str, Any], facts: ArrayFacts) -> Store:
    """Describe the network as it is, not to scale, and a reader that decodes as it goes."""
    profile = get_profile(options["profile"])
    first = profile.first_byte_s

    def rate(value: float | None) -> float:
        return math.inf if value is None else value * profile.scale

    network = Network(
        first.median_s if first else 0.0,
        first.p95_s if first else 0.0,
        rate(profile.stream_mb_per_s) * _MB,
        rate(profile.aggregate_mb_per_s) * _MB,
        rate(profile.requests_per_s),
    )
    if not options["decode_mb_per_s"] > 0:
        raise UserError(f"decode-mb-per-s: {options['decode_mb_per_s']}; allowed: above 0")
    return Store(
        network,
        options["connections"],
        chunk_s=5e-4,
        decode_s_per_nbyte=1 / (options["decode_mb_per_s"] * _MB),
        compression_ratio=options["compression_ratio"] or facts.compression_ratio or 1.0,
    )


def _parse_access(text: str, shape: Shape) -> tuple[Access, float]:
    """Read an access and its weight, which is 1 where none is given."""
    what, _, weight = text.partition(":")
    access = Access(what, _extent_of(what, shape))
    try:
        return access, float(weight or 1)
    except ValueError as error:
        raise UserError(f"access: {text!r}; allowed: WHAT:NUMBER") from error


def _extent_of(what: str, shape: Shape) -> Shape:
    """Turn a name, or a box such as 365x10x10, into elements for each dimension."""
    named = {
        "series": (shape[0], *(1 for _ in shape[1:])),
        "slice": (1, *shape[1:]),
        "whole": shape,
    }
    if what in named:
        return named[what]
    try:
        extent = tuple(int(part) for part in what.split("x"))
    except ValueError as error:
        raise UserError(
            f"access: {what!r}; allowed: series, slice, whole, or a box such as 365x10x10"
        ) from error
    return check_within("access", extent, shape)


def _balance(facts: ArrayFacts, options: Mapping[str, Any]) -> dict[str, Any]:
    nbytes = options["chunk_nbytes"] or 2**22
    chunk = balanced_chunk_shape(facts.shape, facts.itemsize, nbytes)
    extents = balanced_extents(facts.shape, facts.itemsize, nbytes)
    counts = [-(-n // c) for n, c in zip(facts.shape, chunk, strict=True)]
    reasons = [
        f"The rule of balance: a line along the first dimension touches {counts[0]} chunks,"
        f" the slice across it {math.prod(counts[1:])}.",
        f"Before rounding: {' x '.join(f'{extent:.2f}' for extent in extents)};"
        f" {math.prod(chunk) * facts.itemsize} bytes of at most {nbytes}.",
    ]
    return {"chunk_shape": chunk, "reasons": reasons}


def _search(facts: ArrayFacts, options: Mapping[str, Any]) -> dict[str, Any]:
    texts = options["accesses"] or ("series", "slice")
    accesses, weights = zip(*(_parse_access(text, facts.shape) for text in texts), strict=True)
    bounds = Bounds(
        max_chunk_nbytes=options["chunk_nbytes"] or 100_000_000,
        max_objects=options["max_objects"],
        memory_nbytes=options["memory_nbytes"],
    )
    store, criterion = _store_from(options, facts), options["criterion"]
    pattern = AccessPattern(
        facts.shape, facts.itemsize, accesses, weights, store, bounds, criterion
    )
    replicas = {"replicas": _compare_replicas(pattern, options)} if options["replicas"] else {}
    found = best_chunk_shape(pattern)
    reasons = [*_explain(found, facts, options), *_compare_now(pattern, found, facts)]
    return {
        **_tell(found.best),
        "reasons": reasons + (_explain_replicas(replicas["replicas"]) if replicas else []),
        "shard_shape": found.shard_shape,
        "second_best": {"chunk_shape": found.second.chunk_shape, "costs": found.second_costs},
        "pareto_front": [_tell(choice) for choice in found.front],
        "n_chunks": found.n_chunks,
        "n_objects": found.n_objects,
        **replicas,
    }


def _tell(choice: Choice) -> dict[str, Any]:
    """Put a choice into what JSON can hold."""
    return {"chunk_shape": choice.chunk_shape, "seconds": choice.seconds}


def _explain(found: Recommendation, facts: ArrayFacts, options: Mapping[str, Any]) -> list[str]:
    nbytes = math.prod(found.best.chunk_shape) * facts.itemsize
    times = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in found.best.seconds.items())
    lines = [
        f"Predicted over {options['profile']}, {options['connections']} requests in flight: {times}.",
        f"A chunk has {nbytes / _MB:.3g} MB in the array; there are {found.n_chunks} chunks"
        f" in {found.n_objects} objects.",
        f"The best of clearly other shapes, {_name(found.second.chunk_shape)},"
        f" takes {found.second_costs:.3g} times as long.",
    ]
    if found.shard_shape:
        lines.append(
            f"Chunks outnumber the {options['max_objects']} objects allowed, so they are sharded."
        )
    return lines


def _name(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))


def _compare_now(pattern: AccessPattern, found: Recommendation, facts: ArrayFacts) -> list[str]:
    """Say what the chunks that are there cost, if there are any."""
    if facts.chunk_shape is None:
        return []
    now = tuple(min(c, n) for c, n in zip(facts.chunk_shape, facts.shape, strict=True))
    seconds = predict_seconds(pattern, np.asarray([now], np.int64))
    ratio = float(pattern.score(seconds)[0]) / found.best.score
    return [
        f"The chunks that {facts.variable} has now, {_name(facts.chunk_shape)},"
        f" take {ratio:.3g} times as long."
    ]


def _compare_replicas(pattern: AccessPattern, options: Mapping[str, Any]) -> dict[str, Any]:
    """Compare one replica with two at the prices chosen; a break-even of None is never."""
    priced = _choose_prices(options)
    found = compare_replicas(
        pattern,
        Prices(**{name: usd for name, (usd, _) in priced.items()}),
        n_reads_per_month=options["reads_per_month"],
    )
    even = found.breakeven_reads_per_month
    return {
        "reads_per_month": options["reads_per_month"],
        "one": {"replicas": [_tell(found.one)], "usd_per_month": found.one_per_month},
        "two": {"replicas": [*map(_tell, found.two)], "usd_per_month": found.two_per_month},
        "breakeven_reads_per_month": even if even < math.inf else None,  # JSON has no infinity
        "prices": {name: {"usd": usd, "source": why} for name, (usd, why) in priced.items()},
    }


def _explain_replicas(found: Mapping[str, Any]) -> list[str]:
    """Say in words which replicas there are, what they cost, and from when on two cost less."""
    one, two = found["one"], found["two"]
    even, reads = found["breakeven_reads_per_month"], found["reads_per_month"]
    prices = (
        f"{each['usd']:.4g} USD {_PRICES[name][0]} ({each['source']})"
        for name, each in found["prices"].items()
    )
    return [
        f"One replica, {_list(one)}: {one['usd_per_month']:.4g} USD a month at {reads:,.15g} reads.",
        f"Two replicas, {_list(two)}: {two['usd_per_month']:.4g} USD a month.",
        f"Two replicas cost less from {float(f'{even:.3g}'):,.15g} reads a month on."
        if even is not None
        else "Two replicas never cost less: at these prices the second saves nothing on reads.",
        f"Priced at {'; '.join(prices)}.",
        "These shapes cost least, and need not be the fastest; they have no shards, and writing"
        " them is not counted.",
    ]


def _list(several: Mapping[str, Any]) -> str:
    """Name each replica's chunks, and the accesses that go there."""
    return " and ".join(
        f"{_name(each['chunk_shape'])} for {', '.join(each['seconds'])}"
        for each in several["replicas"]
    )


def _choose_prices(options: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Take the user's own prices, and the project's for the others, with where they are from."""
    own = read_numbers("price", options["own"])
    for name in own:
        if name not in _PRICES:
            raise UserError(f"price {name}: no such price; allowed: {', '.join(_PRICES)}")
    return {
        name: (own[name], "given") if name in own else _find_price(name, options["profile"])
        for name in _PRICES
    }


def _find_price(name: str, profile: str) -> tuple[float, str]:
    """Take a price that the project keeps, with its date and source."""
    item = _PRICES[name][1]
    if item is None:
        return _price_waiting()
    if name == "egress_per_gb" and profile in _ONE_REGION:
        return 0.0, "nothing leaves the region"
    return _quote(item)


def _price_waiting() -> tuple[float, str]:
    """Price an hour of the machine that the cost model takes for an instance."""
    from advisors.costs.assumptions import Assumptions

    machine = Assumptions()
    (vcpu, found), (gb, _) = _quote("instance_vcpu_hour"), _quote("instance_gb_hour")
    usd = machine.instance_vcpus * vcpu + machine.instance_gb * gb
    what = f"a machine of {machine.instance_vcpus:g} processors and {machine.instance_gb:g} GB"
    return usd, f"{what}, {found}"


def _quote(item: str) -> tuple[float, str]:
    """Look up a price; one that is unknown has to be given."""
    from advisors.costs.prices import find_price  # here: without --replicas no pydantic is needed

    price = find_price(item)
    if price.value is None:
        raise UserError(f"price {item}: unknown; allowed: your own, by --price NAME=USD")
    return price.value, f"{price.region}, {price.date}, {price.source}"


def _write_snippet(facts: ArrayFacts, chunk: Shape, shard: Shape | None) -> str:
    shards = f", shards={shard}" if shard else ""
    return "\n".join(
        [
            "# Zarr",
            "import zarr",
            "",
            f'array = zarr.create_array("{facts.variable}.zarr", shape={facts.shape},'
            f' chunks={chunk}{shards}, dtype="{facts.dtype}")',
            "",
            "# netCDF-4 through xarray: dataset.to_netcdf(path, encoding=encoding)",
            f'encoding = {{"{facts.variable}": {{"chunksizes": {chunk}, "zlib": True, "shuffle": True}}}}',
        ]
    )
