"""``python -m helpers chunks``: which chunk shape, why, and how to write it."""

from __future__ import annotations

import json
import math
from typing import Any

import click
import numpy as np

from helpers.chunking import Bounds, Mix, Recommendation, best_chunk_shape
from helpers.commands.asked import facts_from, parse_accesses, store_from
from helpers.commands.copies import answer_copies, check_options, explain_copies
from helpers.storage import layout
from helpers.storage.layout import Shape
from helpers.storage.metadata import ArrayFacts, read_facts
from helpers.storage.network import profile_names
from helpers.sweeps import predict_seconds

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
@click.option("--copies", is_flag=True, help="Does a second copy, in another shape, pay?")
@click.option("--reads-per-month", type=float, help="Accesses of the mix a month; for --copies.")
@click.option(
    "--price", "own", multiple=True, metavar="NAME=USD", help="A price of your own; for --copies."
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def chunks(store: str | None, as_json: bool, **options: Any) -> None:
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
    mix = Mix(facts.shape, facts.itemsize, accesses, weights, store, bounds, options["criterion"])
    copies = {"copies": answer_copies(mix, options)} if options["copies"] else {}
    found = best_chunk_shape(
        facts.shape, facts.itemsize, accesses, weights, store,
        bounds=bounds, criterion=options["criterion"],
    )  # fmt: skip
    reasons = [*_explain(found, facts, options), *_compare_now(mix, found, facts)]
    more = {
        "shard_shape": found.shard_shape,
        "seconds": found.best.seconds,
        "second_best": {"chunk_shape": found.second.chunk_shape, "costs": found.second_costs},
        "pareto_front": [{"chunk_shape": c.chunk_shape, "seconds": c.seconds} for c in found.front],
        "n_chunks": found.n_chunks,
        "n_objects": found.n_objects,
    }
    reasons += explain_copies(copies["copies"]) if copies else []
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
