"""``python -m helpers chunks``: which chunk shape, why, and how to write it."""

from __future__ import annotations

import json
import math
from typing import Any

import click
import numpy as np

from helpers.chunking import Access, Bounds, Mix, Recommendation, best_chunk_shape
from helpers.errors import UserError
from helpers.models.accesses import Store
from helpers.models.fluid import Network
from helpers.storage import layout
from helpers.storage.layout import Shape
from helpers.storage.metadata import ArrayFacts, read_facts
from helpers.storage.network import get_profile, profile_names
from helpers.sweeps import predict_seconds

_TYPES = {1: "uint8", 2: "int16", 4: "float32", 8: "float64", 16: "complex128"}
_MB = 1e6


@click.command()
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
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def chunks(store: str | None, as_json: bool, **options: Any) -> None:
    """Recommend a chunk shape for a mix of accesses, from numbers or for the array in STORE."""
    facts = read_facts(store, options["variable"]) if store else _facts_from(options)
    answer = _balanced(facts, options) if options["rule"] == "balanced" else _best(facts, options)
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    click.echo(",".join(map(str, answer["chunk_shape"])))
    click.echo("\n".join(["", *answer["reasons"], "", answer["snippet"]]), err=False)


def _facts_from(options: dict[str, Any]) -> ArrayFacts:
    if not options["shape"]:
        raise UserError("shape: none; allowed: --shape 98128,277,349, or a STORE to read it from")
    try:
        shape = tuple(int(text) for text in options["shape"].split(","))
    except ValueError as error:
        raise UserError(
            f"shape: {options['shape']!r}; allowed: whole numbers and commas"
        ) from error
    shape = layout.check_shape("shape", shape)
    dtype, itemsize = options["dtype"], options["itemsize"]
    if dtype:
        itemsize = _itemsize_of(dtype)
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
    accesses, weights = _parse_accesses(options["accesses"] or ("series", "slice"), facts.shape)
    bounds = Bounds(
        max_chunk_nbytes=options["chunk_nbytes"] or 100_000_000,
        max_objects=options["max_objects"],
        memory_nbytes=options["memory_nbytes"],
    )
    store = _store(options, facts)
    found = best_chunk_shape(
        facts.shape, facts.itemsize, accesses, weights, store,
        bounds=bounds, criterion=options["criterion"],
    )  # fmt: skip
    mix = Mix(facts.shape, facts.itemsize, accesses, weights, store, bounds, options["criterion"])
    reasons = [*_explain(found, facts, options), *_compare_now(mix, found, facts)]
    more = {
        "shard_shape": found.shard_shape,
        "seconds": found.best.seconds,
        "second_best": {"chunk_shape": found.second.chunk_shape, "costs": found.second_costs},
        "pareto_front": [{"chunk_shape": c.chunk_shape, "seconds": c.seconds} for c in found.front],
        "n_chunks": found.n_chunks,
        "n_objects": found.n_objects,
    }
    return _answer(facts, found.best.chunk_shape, found.shard_shape, reasons) | more


def _store(options: dict[str, Any], facts: ArrayFacts) -> Store:
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


def _parse_accesses(texts: tuple[str, ...], shape: Shape) -> tuple[list[Access], list[float]]:
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
    return layout.check_within("access", extent, shape)


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


def _compare_now(mix: Mix, found: Recommendation, facts: ArrayFacts) -> list[str]:
    """Say what the chunks that are there cost, if there are any."""
    if facts.chunk_shape is None:
        return []
    now = tuple(min(c, n) for c, n in zip(facts.chunk_shape, facts.shape, strict=True))
    seconds = predict_seconds(mix, np.asarray([now], np.int64))
    ratio = float(mix.score(seconds)[0]) / found.best.score
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
