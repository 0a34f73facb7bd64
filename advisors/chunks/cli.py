"""``wire chunks``: which chunk shape, why, how to write it, and whether a second copy pays."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import click
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
from advisors.costs.assumptions import Assumptions
from advisors.costs.prices import Price, find_price
from helpers.arrays import chunks
from helpers.arrays import chunks as layout
from helpers.arrays.chunks import Shape
from helpers.cli import read_numbers
from helpers.errors import UserError
from helpers.models.access import Store
from helpers.models.transfer import Network
from helpers.netem.profiles import get_profile, profile_names

_TYPES = {1: "uint8", 2: "int16", 4: "float32", 8: "float64", 16: "complex128"}
_MB = 1e6


def facts_from(options: dict[str, Any]) -> ArrayFacts:
    """Take the array from numbers."""
    if not options["shape"]:
        raise UserError("shape: none; allowed: --shape 98128,277,349, or a STORE to read it from")
    try:
        shape = tuple(int(text) for text in options["shape"].split(","))
    except ValueError as error:
        raise UserError(
            f"shape: {options['shape']!r}; allowed: whole numbers and commas"
        ) from error
    shape = chunks.check_shape("shape", shape)
    dtype, itemsize = options["dtype"], options["itemsize"]
    if dtype:
        itemsize = _itemsize_of(dtype)
    if not itemsize or itemsize < 1:
        raise UserError(f"itemsize: {itemsize}; allowed: bytes of an element, at least 1")
    return ArrayFacts("array", shape, dtype or _TYPES.get(itemsize, f"V{itemsize}"), itemsize, None)


def _itemsize_of(dtype: str) -> int:
    """Look up the bytes of an element."""
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise UserError(f"dtype: {dtype!r}; allowed: a numpy type such as float32") from error
    if found.hasobject or found.itemsize == 0:
        raise UserError(f"dtype: {dtype!r}; allowed: a type of fixed size, such as float32")
    return found.itemsize


def store_from(options: dict[str, Any], facts: ArrayFacts) -> Store:
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
    ratio = options["compression_ratio"] or facts.compression_ratio or 1.0
    return Store(
        network,
        options["connections"],
        chunk_s=5e-4,
        decode_s_per_nbyte=1 / (options["decode_mb_per_s"] * _MB),
        compression_ratio=ratio,
    )


def parse_accesses(texts: tuple[str, ...], shape: Shape) -> tuple[list[Access], list[float]]:
    """Read accesses and their weights, which are 1 where none is given."""
    accesses, weights = [], []
    for text in texts:
        what, _, weight = text.partition(":")
        accesses.append(Access(what, _extent_of(what, shape)))
        try:
            weights.append(float(weight or 1))
        except ValueError as error:
            raise UserError(f"access: {text!r}; allowed: WHAT:NUMBER") from error
    return accesses, weights


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
    return chunks.check_within("access", extent, shape)


_ONE_REGION = ("loopback", "in-region", "express")  # profiles under which no byte leaves the region

_UNITS = {
    "storage_per_gb_month": "a GB and month",
    "get_per_1000": "a thousand requests",
    "egress_per_gb": "a GB read",
    "waiting_per_hour": "an hour of waiting",
}

_ITEMS = {
    "storage_per_gb_month": "store_gb_month",
    "get_per_1000": "store_gets_1e3",
    "egress_per_gb": "data_out_gb",
}
"""Where the project keeps each; waiting is a machine's."""


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that contradict --copies, or that mean nothing without it."""
    if not options["copies"]:
        for name, option in (("reads_per_month", "reads-per-month"), ("own", "price")):
            if options[name] not in (None, ()):
                raise UserError(f"{option}: {options[name]!r}; allowed: with --copies")
    elif options["rule"] != "best":
        raise UserError(f"rule: {options['rule']!r}; allowed with --copies: best, for accesses")
    elif options["criterion"] != "mean":
        raise UserError(
            f"criterion: {options['criterion']!r}; allowed with --copies: mean, as costs add up"
        )
    elif options["reads_per_month"] is None:
        raise UserError("reads-per-month: none; allowed with --copies: a number, at least 0")


def answer_replicas(pattern: AccessPattern, options: Mapping[str, Any]) -> dict[str, Any]:
    """Compare one copy with two at the prices chosen; a break-even of None is never."""
    priced = _choose_prices(options)
    found = compare_replicas(
        pattern,
        Prices(**{name: usd for name, (usd, _) in priced.items()}),
        n_reads_per_month=options["reads_per_month"],
    )
    even = found.breakeven_reads_per_month
    return {
        "reads_per_month": options["reads_per_month"],
        "one": {"copies": [_tell(found.one)], "usd_per_month": found.one_per_month},
        "two": {"copies": [_tell(c) for c in found.two], "usd_per_month": found.two_per_month},
        "breakeven_reads_per_month": even if even < math.inf else None,  # JSON has no infinity
        "prices": {name: {"usd": usd, "source": why} for name, (usd, why) in priced.items()},
    }


def explain_replicas(answer: Mapping[str, Any]) -> list[str]:
    """Say in words which copies there are, what they cost, and from when on two cost less."""
    one, two = answer["one"], answer["two"]
    even, reads = answer["breakeven_reads_per_month"], answer["reads_per_month"]
    prices = (
        f"{each['usd']:.4g} USD {_UNITS[name]} ({each['source']})"
        for name, each in answer["prices"].items()
    )
    return [
        f"One copy, {_name(one)}: {one['usd_per_month']:.4g} USD a month at {reads:,.15g} reads.",
        f"Two copies, {_name(two)}: {two['usd_per_month']:.4g} USD a month.",
        f"Two copies cost less from {float(f'{even:.3g}'):,.15g} reads a month on."
        if even is not None
        else "Two copies never cost less: at these prices reads gain nothing by the second.",
        f"Priced at {'; '.join(prices)}.",
        "These shapes cost least, and need not be the fastest; they have no shards, and writing"
        " them is not counted.",
    ]


def _tell(choice: Choice) -> dict[str, Any]:
    """Put a copy and the times of the accesses that go to it into what JSON can hold."""
    return {"chunk_shape": choice.chunk_shape, "seconds": choice.seconds}


def _name(several: Mapping[str, Any]) -> str:
    """Name each copy's chunks, and the accesses that go there."""
    return " and ".join(
        f"{','.join(map(str, copy['chunk_shape']))} for {', '.join(copy['seconds'])}"
        for copy in several["copies"]
    )


def _choose_prices(options: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Take the user's own prices, and the project's for the others, with where they are from."""
    own = read_numbers("price", options["own"])
    for name in own:
        if name not in _UNITS:
            raise UserError(f"price {name}: no such price; allowed: {', '.join(_UNITS)}")
    return {
        name: (own[name], "given") if name in own else _find(name, options["profile"])
        for name in _UNITS
    }


def _find(name: str, profile: str) -> tuple[float, str]:
    """Take a price that the project keeps."""
    if name == "waiting_per_hour":
        return _price_waiting()
    if name == "egress_per_gb" and profile in _ONE_REGION:
        return 0.0, "nothing leaves the region"
    return _quote(find_price(_ITEMS[name]))


def _price_waiting() -> tuple[float, str]:
    """Price an hour of the machine that the cost model takes for an instance."""
    machine = Assumptions()
    (vcpu, found), (gb, _) = (
        _quote(find_price(item)) for item in ("instance_vcpu_hour", "instance_gb_hour")
    )
    usd = machine.instance_vcpus * vcpu + machine.instance_gb * gb
    what = f"a machine of {machine.instance_vcpus:g} processors and {machine.instance_gb:g} GB"
    return usd, f"{what}, {found}"


def _quote(price: Price) -> tuple[float, str]:
    """Take a price with its date and source; one that is unknown has to be given."""
    if price.value is None:
        raise UserError(f"price {price.item}: unknown; allowed: your own, by --price NAME=USD")
    return price.value, f"{price.region}, {price.date}, {price.source}"


@click.command("chunks")
@click.argument("store", required=False)
@click.option("--variable", default="", help="Array of STORE; by default the largest.")
@click.option("--shape", help="Elements for each dimension, as 98128,277,349.")
@click.option("--itemsize", type=int, help="Bytes of an element.")
@click.option("--dtype", help="Type of an element, instead of --itemsize.")
@click.option("--access", "accesses", multiple=True, metavar="WHAT[:WEIGHT]",
              help="series, slice, whole, or a box such as 365x10x10; may be repeated.")  # fmt: skip
@click.option("--rule", type=click.Choice(["best", "balanced"]), default="best", show_default=True)
@click.option("--chunk-nbytes", type=int, help="Most bytes of a chunk in the array.")
@click.option("--max-objects", type=int, default=1_000_000, show_default=True)
@click.option("--memory-nbytes", type=int, default=1_000_000_000, show_default=True)
@click.option(
    "--criterion", type=click.Choice(["mean", "worst"]), default="mean", show_default=True
)
@click.option("--profile", type=click.Choice(profile_names()), default="in-region", show_default=True,
              help="Network of the store, unscaled.")  # fmt: skip
@click.option("--connections", type=int, default=10, show_default=True, help="Requests in flight.")
@click.option("--decode-mb-per-s", type=float, default=500.0, show_default=True)
@click.option("--compression-ratio", type=float, help="Array bytes over stored bytes.")
@click.option("--copies", is_flag=True, help="Does a second copy, in another shape, pay?")
@click.option("--reads-per-month", type=float, help="Accesses of the mix a month; for --copies.")
@click.option(
    "--price", "own", multiple=True, metavar="NAME=USD", help="A price of your own; for --copies."
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def chunks_command(store: str | None, as_json: bool, **options: Any) -> None:
    """Recommend a chunk shape for a mix of accesses, from numbers or for the array in STORE."""
    check_options(options)
    facts = read_facts(store, options["variable"]) if store else facts_from(options)
    answer = _balanced(facts, options) if options["rule"] == "balanced" else _best(facts, options)
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    click.echo(",".join(map(str, answer["chunk_shape"])))
    click.echo("\n".join(["", *answer["reasons"], "", answer["snippet"]]), err=False)


def _balanced(facts: ArrayFacts, options: dict[str, Any]) -> dict[str, Any]:
    nbytes = options["chunk_nbytes"] or 2**22
    chunk = layout.balanced_chunk_shape(facts.shape, facts.itemsize, nbytes)
    extents = layout.balanced_extents(facts.shape, facts.itemsize, nbytes)
    counts = [-(-n // c) for n, c in zip(facts.shape, chunk, strict=True)]
    reasons = [
        f"The rule of balance: a line along the first dimension touches {counts[0]} chunks,"
        f" the slice across it {math.prod(counts[1:])}.",
        f"Before rounding: {' x '.join(f'{extent:.2f}' for extent in extents)};"
        f" {math.prod(chunk) * facts.itemsize} bytes of at most {nbytes}.",
    ]
    return _answer(facts, chunk, None, reasons)


def _best(facts: ArrayFacts, options: dict[str, Any]) -> dict[str, Any]:
    accesses, weights = parse_accesses(options["accesses"] or ("series", "slice"), facts.shape)
    bounds = Bounds(
        max_chunk_nbytes=options["chunk_nbytes"] or 100_000_000,
        max_objects=options["max_objects"],
        memory_nbytes=options["memory_nbytes"],
    )
    store = store_from(options, facts)
    pattern = AccessPattern(
        facts.shape, facts.itemsize, accesses, weights, store, bounds, options["criterion"]
    )
    copies = {"copies": answer_replicas(pattern, options)} if options["copies"] else {}
    found = best_chunk_shape(
        facts.shape, facts.itemsize, accesses, weights, store,
        bounds=bounds, criterion=options["criterion"],
    )  # fmt: skip
    reasons = [*_explain(found, facts, options), *_compare_now(pattern, found, facts)]
    more = {
        "shard_shape": found.shard_shape,
        "seconds": found.best.seconds,
        "second_best": {"chunk_shape": found.second.chunk_shape, "costs": found.second_costs},
        "pareto_front": [{"chunk_shape": c.chunk_shape, "seconds": c.seconds} for c in found.front],
        "n_chunks": found.n_chunks,
        "n_objects": found.n_objects,
    }
    reasons += explain_replicas(copies["copies"]) if copies else []
    return _answer(facts, found.best.chunk_shape, found.shard_shape, reasons) | more | copies


def _explain(found: Recommendation, facts: ArrayFacts, options: dict[str, Any]) -> list[str]:
    nbytes = math.prod(found.best.chunk_shape) * facts.itemsize
    times = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in found.best.seconds.items())
    lines = [
        f"Predicted over {options['profile']}, {options['connections']} requests in flight: {times}.",
        f"A chunk has {nbytes / _MB:.3g} MB in the array; there are {found.n_chunks} chunks"
        f" in {found.n_objects} objects.",
        f"The best of clearly other shapes, {','.join(map(str, found.second.chunk_shape))},"
        f" takes {found.second_costs:.3g} times as long.",
    ]
    if found.shard_shape:
        lines.append(
            f"Chunks outnumber the {options['max_objects']} objects allowed, so they are sharded."
        )
    return lines


def _compare_now(pattern: AccessPattern, found: Recommendation, facts: ArrayFacts) -> list[str]:
    """Say what the chunks that are there cost, if there are any."""
    if facts.chunk_shape is None:
        return []
    now = tuple(min(c, n) for c, n in zip(facts.chunk_shape, facts.shape, strict=True))
    seconds = predict_seconds(pattern, np.asarray([now], np.int64))
    ratio = float(pattern.score(seconds)[0]) / found.best.score
    return [
        f"The chunks that {facts.variable} has now, {','.join(map(str, facts.chunk_shape))},"
        f" take {ratio:.3g} times as long."
    ]


def _answer(
    facts: ArrayFacts, chunk: Shape, shard: Shape | None, reasons: list[str]
) -> dict[str, Any]:
    return {
        "variable": facts.variable,
        "shape": facts.shape,
        "itemsize": facts.itemsize,
        "chunk_shape": chunk,
        "reasons": reasons,
        "snippet": _snippet(facts, chunk, shard),
    }


def _snippet(facts: ArrayFacts, chunk: Shape, shard: Shape | None) -> str:
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
