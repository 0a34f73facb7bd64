"""The answer of ``wire chunks``: from options to a recommendation in words, numbers and a snippet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisors.chunks.beside import (
    compare_tools,
    explain_aims,
    explain_tools,
    tell_aims,
)
from advisors.chunks.candidates import predict_seconds
from advisors.chunks.examples import EXAMPLES
from advisors.chunks.facts import ArrayFacts, read_facts, write_snippet
from advisors.chunks.problem import (
    Access,
    AccessPattern,
    Bounds,
    Choice,
    Prices,
    Recommendation,
    check_size,
)
from advisors.chunks.replicas import compare_replicas
from advisors.chunks.search import MODEL_ERROR, best_chunk_shape
from helpers.arrays.chunks import (
    Shape,
    balanced_chunk_shape,
    balanced_extents,
    check_within,
)
from helpers.cli import read_numbers
from helpers.errors import UserError
from helpers.models.access import Store
from helpers.netem.profiles import get_profile, network_of

CHUNK_MS = 0.5
"""What a chunk costs a processor, whatever its bytes, where no calibration tells."""

_TYPES = {1: "uint8", 2: "int16", 4: "float32", 8: "float64", 16: "complex128"}
_MB = 1e6
_LEAST_NBYTES = 100_000  # of a chunk: what one connection receives in a millisecond or a few
_SHARD_FROM = 10_000  # objects above which chunks come in shards
_SHARD_NBYTES = 100_000_000, 1_000_000_000  # of a shard, at least and at most
_BOUNDS = ("min_chunk_nbytes", "max_objects", "memory_nbytes", "shard_from", "min_shard_nbytes",
           "max_shard_nbytes")  # fmt: skip
# Profiles under which no byte leaves the region.
_ONE_REGION = (
    *("loopback", "express", "in-region"),
    *("google-in-region", "azure-in-region", "institute"),
)

_PRICES = {
    "storage_per_gb_month": ("a GB and month", "store_gb_month"),
    "get_per_1000": ("a thousand requests", "store_gets_1e3"),
    "egress_per_gb": ("a GB read", "data_out_gb"),
    "waiting_per_hour": ("an hour of waiting", None),
}
"""Of what each price is, and where the project keeps it; waiting is a machine's."""


def answer(store: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Recommend chunks for the array in a store, or for one given in numbers where there is none.

    What JSON can hold is returned: chunk shape, reasons, a snippet that writes such an
    array, and for the best rule times, shards, alternatives and replicas. Options have the
    names of the command's in Python; those that contradict each other are refused.
    """
    _check_options(options)
    options = _take_example(store, options)
    facts = read_facts(store, options["variable"]) if store else _facts_from(options)
    check_size(facts.shape)
    found = (_balance if options["rule"] == "balanced" else _search)(facts, options)
    chunk_shape, shard_shape = found["chunk_shape"], found.get("shard_shape")
    array = {"variable": facts.variable, "shape": facts.shape, "itemsize": facts.itemsize}
    return {**array, **found, "snippet": write_snippet(facts, chunk_shape, shard_shape)}


def _take_example(store: str | None, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put an example that is named in the place of an array; what is asked beside it stands."""
    if not (name := options.get("like")):
        return options
    if store or options["shape"]:
        raise UserError(f"like: {name!r}; allowed: without STORE and without --shape")
    example = EXAMPLES[name].options()
    return {**options, **{key: options[key] or value for key, value in example.items()}}


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that contradict --replicas, or that mean nothing without it."""
    if not options["replicas"]:
        if (reads := options["reads_per_month"]) is not None:
            raise UserError(f"reads-per-month: {reads!r}; allowed: with --replicas")
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
    shape = check_size(read_extents(options["shape"], ",", "shape", "whole numbers and commas"))
    dtype = type_of(options["dtype"] or "V0")
    itemsize = dtype.itemsize or options["itemsize"]
    if not itemsize or itemsize < 1:
        raise UserError(f"itemsize: {itemsize}; allowed: bytes of an element, at least 1")
    default = np.dtype(_TYPES.get(itemsize, f"V{itemsize}"))
    return ArrayFacts("array", shape, dtype if dtype.itemsize else default)


def type_of(name: str) -> np.dtype[Any]:
    """Look up the type of an element; one without a fixed size is refused."""
    try:
        found = np.dtype(name)
    except (TypeError, ValueError, SyntaxError) as error:
        raise UserError(f"dtype: {name!r}; allowed: a numpy type such as float32") from error
    if found.hasobject or (found.itemsize == 0 and name != "V0"):
        raise UserError(f"dtype: {name!r}; allowed: a type of fixed size, such as float32")
    return found


def store_from(
    options: Mapping[str, Any], compression_ratio: float | None = None, *, n_workers: int = 1
) -> Store:
    """Describe the network as it is, not to scale, and workers that decode as they go."""
    profile = get_profile(options["profile"])
    n_each = max(1, -(-options["connections"] // n_workers))
    network = network_of(profile, streams_per_worker=n_each)
    if not options["decode_mb_per_s"] > 0:
        raise UserError(f"decode-mb-per-s: {options['decode_mb_per_s']}; allowed: above 0")
    if not 0 <= options["chunk_ms"] < math.inf:
        raise UserError(f"chunk-ms: {options['chunk_ms']}; allowed: at least 0, and finite")
    return Store(
        network,
        options["connections"],
        chunk_s=options["chunk_ms"] / 1000 / n_workers,
        decode_s_per_nbyte=1 / (options["decode_mb_per_s"] * _MB * n_workers),
        compression_ratio=options["compression_ratio"] or compression_ratio or 1.0,
    )


def _tell_network(options: Mapping[str, Any], store: Store) -> dict[str, Any]:
    """Name what is predicted on: the network at full scale, and the reader."""
    network = store.network
    rates = {
        "stream_mb_per_s": network.stream_nbytes_per_s / _MB,
        "aggregate_mb_per_s": network.aggregate_nbytes_per_s / _MB,
        "requests_per_s": network.requests_per_s,
    }
    return {
        "profile": options["profile"],
        "first_byte_median_s": network.first_byte_median_s,
        "first_byte_p95_s": network.first_byte_p95_s,
        **{name: rate if rate < math.inf else None for name, rate in rates.items()},
        "connections": store.n_connections,
        "decode_mb_per_s": options["decode_mb_per_s"],
        "chunk_ms": options["chunk_ms"],
        "compression_ratio": store.compression_ratio,
    }


_RATES = {"stream_mb_per_s": "MB/s a connection", "aggregate_mb_per_s": "MB/s together",
          "requests_per_s": "requests/s"}  # fmt: skip


def _explain_network(on: Mapping[str, Any]) -> str:
    """Say in a sentence what is predicted on."""
    median_ms, p95_ms = (1000 * on[f"first_byte_{end}_s"] for end in ("median", "p95"))
    delay = f"first byte after {median_ms:.3g} ms in the median and {p95_ms:.3g} ms at the 95th percentile"
    rates = [f"{on[name]:.4g} {unit}" for name, unit in _RATES.items() if on[name] is not None]
    return (
        f"Predicted over {on['profile']} :"
        f" {', '.join([delay if p95_ms else 'no delay', *rates])};"
        f" {on['connections']} requests in flight, decoding at {on['decode_mb_per_s']:g} MB/s"
        f" with {on['chunk_ms']:g} ms for each chunk,"
        f" compressed {on['compression_ratio']:.3g} times."
    )


def parse_access(text: str, shape: Shape) -> tuple[Access, float]:
    """Read an access and its weight, which is 1 where none is given."""
    what, _, weight = text.partition(":")
    box, at, how = what.partition("@")
    if at and how != "aligned":
        raise UserError(f"access: {text!r}; allowed after a box: @aligned, or nothing")
    access = Access(what, _extent_of(box, shape), is_aligned=bool(at))
    try:
        return access, float(weight or 1)
    except ValueError as error:
        raise UserError(f"access: {text!r}; allowed: WHAT:NUMBER") from error


def _extent_of(what: str, shape: Shape) -> Shape:
    """Turn a name, or a box such as 365x10x10, into elements for each dimension."""
    named = {
        "series": (shape[0], *(1 for _ in shape[1:])),
        "slice": (1, *shape[1:]),
        "map": (1, *shape[1:]),
        "whole": shape,
    }
    if what in named:
        return named[what]
    extent = read_extents(
        what, "x", "access", "series, slice or map, whole, or a box such as 365x10x10"
    )
    return check_within("access", extent, shape)


def read_extents(text: str, between: str, option: str, allowed: str) -> Shape:
    """Read whole numbers with a mark between them; `allowed` says how an option is written."""
    try:
        return tuple(int(part) for part in text.split(between))
    except ValueError as error:
        raise UserError(f"{option}: {text!r}; allowed: {allowed}") from error


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


def bounds_from(options: Mapping[str, Any]) -> Bounds:
    """Bound chunks, and shards from so many objects on, by what is asked or by our own defaults."""
    given = {name: value for name in _BOUNDS if (value := options.get(name)) is not None}
    most, shard = options["chunk_nbytes"] or 100_000_000, given.get("max_shard_nbytes")
    defaults = {
        "min_chunk_nbytes": min(_LEAST_NBYTES, most),
        "shard_from": _SHARD_FROM,
        "min_shard_nbytes": min(_SHARD_NBYTES[0], shard or _SHARD_NBYTES[0]),
        "max_shard_nbytes": max(_SHARD_NBYTES[1], 2 * given.get("min_shard_nbytes", 1)),
    }
    return Bounds(max_chunk_nbytes=most, **{**defaults, **given})


def _tell_beside(
    pattern: AccessPattern, found: Recommendation, facts: ArrayFacts, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell the answers of speed and of cost, with their prices, and what tools pick if it is asked."""
    priced = choose_prices(options)
    answers = tell_aims(pattern, found, Prices(**{name: usd for name, (usd, _) in priced.items()}))
    aims = {"answers": answers, "prices": _tell_prices(priced)}
    if not (options.get("beside") or options.get("like")):
        return aims, {}
    return aims, {"beside": compare_tools(pattern, found, facts.dtype)}


def _tell_prices(priced: Mapping[str, tuple[float, str]]) -> dict[str, Any]:
    return {name: {"usd": usd, "source": why} for name, (usd, why) in priced.items()}


def _search(facts: ArrayFacts, options: Mapping[str, Any]) -> dict[str, Any]:
    texts = options["accesses"] or ("series", "slice")
    accesses, weights = zip(*(parse_access(text, facts.shape) for text in texts), strict=True)
    bounds = bounds_from(options)
    store = store_from(options, facts.compression_ratio)
    criterion = options["criterion"]
    is_abreast = options.get("shard_reader") != "sequential"
    pattern = AccessPattern(
        facts.shape, facts.itemsize, accesses, weights, store, bounds, criterion, is_abreast
    )
    plain = replace(pattern, bounds=replace(bounds, shard_from=None))
    replicas = {"replicas": _compare_replicas(plain, options)} if options["replicas"] else {}
    found = best_chunk_shape(pattern, tolerance=MODEL_ERROR)
    network = _tell_network(options, store)
    aims, beside = _tell_beside(pattern, found, facts, options)
    reasons = [_explain_network(network), *_explain(found, facts, pattern)]
    reasons += _compare_now(pattern, found, facts) + explain_aims(aims["answers"])
    reasons += explain_tools(beside["beside"]) if beside else []
    return {
        **_tell(found.best),
        "reasons": reasons + (_explain_replicas(replicas["replicas"]) if replicas else []),
        "shard_shape": found.shard_shape,
        "fastest": _tell(found.fastest),
        "second_best": {"chunk_shape": found.second.chunk_shape, "costs": found.second_costs},
        "pareto_front": [_tell(choice) for choice in found.front],
        "n_chunks": found.n_chunks,
        "n_objects": found.n_objects,
        "predicted_on": network,
        **aims,
        **beside,
        **replicas,
    }


def _tell(choice: Choice) -> dict[str, Any]:
    """Put a choice into what JSON can hold."""
    return {"chunk_shape": choice.chunk_shape, "seconds": choice.seconds}


def _explain(found: Recommendation, facts: ArrayFacts, pattern: AccessPattern) -> list[str]:
    nbytes = math.prod(found.best.chunk_shape) * facts.itemsize
    times = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in found.best.seconds.items())
    lines = [
        f"In these chunks: {times}.",
        f"A chunk has {nbytes / _MB:.3g} MB in the array; there are {found.n_chunks} chunks"
        f" in {found.n_objects} objects.",
    ]
    if found.second != found.best:
        lines.append(
            f"The best of clearly other shapes, {_name(found.second.chunk_shape)},"
            f" takes {found.second_costs:.3g} times as long."
        )
    if found.best != found.fastest:
        lines.insert(
            1,
            f"{_name(found.fastest.chunk_shape)} is predicted to be the fastest; of the shapes that"
            f" take at most {MODEL_ERROR:.0%} longer in each access, about the model's own error,"
            " this is the squarest.",
        )
    if found.shard_shape:
        lines.append(
            f"Chunks outnumber {pattern.bounds.max_plain} objects, so they come in shards of"
            f" {_name(found.shard_shape)}, {math.prod(found.shard_shape) * facts.itemsize / _MB:.3g} MB,"
            f" whose chunks are read {'side by side' if pattern.reads_shards_abreast else 'in turn'},"
            f" as zarr does {'from 3.3 on' if pattern.reads_shards_abreast else 'before 3.3'}."
        )
    return lines


def _name(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))


def _compare_now(pattern: AccessPattern, found: Recommendation, facts: ArrayFacts) -> list[str]:
    """Say what the chunks that are there cost, if there are any."""
    if facts.chunk_shape is None:
        return []
    now, shards = (
        np.minimum([extents or facts.chunk_shape], facts.shape).astype(np.int64)
        for extents in (facts.chunk_shape, facts.shard_shape)
    )
    seconds = predict_seconds(pattern, now, shard_shapes=shards if facts.shard_shape else None)
    ratio = float(pattern.score(seconds)[0]) / found.best.score
    return [
        f"The chunks that {facts.variable} has now, {_name(facts.chunk_shape)},"
        f" take {ratio:.3g} times as long."
    ]


def _compare_replicas(pattern: AccessPattern, options: Mapping[str, Any]) -> dict[str, Any]:
    """Compare one replica with two at the prices chosen; a break-even of None is never."""
    priced = choose_prices(options)
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
        "prices": _tell_prices(priced),
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


def choose_prices(options: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
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
    """Take a price that the project keeps, with its date and source; of waiting, that of an instance."""
    if name == "egress_per_gb" and profile in _ONE_REGION:
        return 0.0, "nothing leaves the region"
    if item := _PRICES[name][1]:
        return _quote(item)
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
