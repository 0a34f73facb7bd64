"""``wire chunks``: which chunk shape, and shards where there are many objects, for an array and its accesses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from advisors.chunks.forecast import AccessPattern, Layout
    from advisors.chunks.question import Question

_SHARED = (
    click.argument("dataset", required=False),
    click.option("--variable", metavar="NAME", help="Array of DATASET; the largest by default."),
    click.option("--shape", metavar="N,N,N", help="Without DATASET: elements for each dimension."),
    click.option("--type", "dtype", metavar="TYPE", help="Without DATASET; float32 by default."),
    click.option("--access", metavar="WHAT:SHARE,...",
                 help="series, map, whole, 365x10x10, 1x256x256@aligned."),
    click.option("--profile", default="in-region", metavar="NAME|FILE", help="Network [in-region]."),
    click.option("--compression", type=float, metavar="X", help="Array bytes over stored bytes."),
    click.option("--memory", type=float, default=8, metavar="GB", help="Of the reader [8]."),
    click.option("--cores", type=int, default=2, metavar="N", help="Cores that decode [2]."),
    click.option("--in-flight", type=int, default=64, metavar="N", help="Requests at once [64]."),
    click.option("--arrays", type=int, metavar="N", help="Arrays of this shape [1]."),
    click.option("--max-objects", type=int, default=100_000, metavar="N",
                 help="Of all arrays [100000]."),
    click.option("--append", metavar="AXIS:STEPS", help="How it grows, as time:24."),
    click.option("--why", is_flag=True, help="Print all choices, their bills and lines of code."),
    click.option("--json", "is_json", is_flag=True, help="Print JSON."),
)  # fmt: skip


def shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that `wire chunks` and `wire decide` spell alike."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


@click.command("chunks")
@shared_options
def chunks_command(dataset: str | None, *, why: bool, is_json: bool, **options: Any) -> None:
    """Recommend one layout for DATASET, or for an array in numbers, and the way it is read."""
    from advisors.chunks.question import ask  # here, so that --help is quick

    found = answer(ask(dataset, options))
    click.echo(json.dumps(found, indent=2) if is_json else "\n".join(_write(found, is_long=why)))


def answer(question: Question) -> dict[str, Any]:
    """Recommend a layout, with what else there is, as JSON can hold it."""
    from advisors.chunks.search import (
        best_copies,
        best_layout,
        cheapest_layout,
        fastest_layout,
        restrict,
    )

    pattern, now = question.pattern(), question.array.layout
    others = {
        "fastest": fastest_layout(pattern),
        "cheapest to read": cheapest_layout(pattern, question.prices()),
        **({"as it is": now} if now else {}),
    }
    copies = best_copies(pattern)
    pairs = zip(copies.layouts, copies.serves, strict=True) if copies else ()
    return {
        "variable": question.array.variable,
        "shape": question.array.shape,
        "type": str(question.array.dtype),
        "predicted_on": question.predicted_on(),
        **_describe(pattern, best_layout(pattern)),
        "others": {name: _describe(pattern, one) for name, one in others.items()},
        "copies": [_describe(restrict(pattern, group), one) for one, group in pairs],
    }


def _describe(pattern: AccessPattern, layout: Layout) -> dict[str, Any]:
    """Put a layout and what is expected of it into plain values; seconds are medians."""
    from advisors.chunks.forecast import forecast_layout

    reads = forecast_layout(pattern, layout)
    return {
        "chunk_shape": layout.chunk_shape,
        "shard_shape": layout.shard_shape,
        "chunk_nbytes": math.prod(layout.chunk_shape) * pattern.itemsize,
        "n_objects": layout.count_objects(pattern.shape),
        "seconds": {one.access: one.p50_s for one in reads},
        "reads": [asdict(one) for one in reads],
    }


def _write(found: dict[str, Any], *, is_long: bool) -> Iterator[str]:
    yield _write_layout(found)
    yield _write_reads(found)
    for name, other in found["others"].items():
        if is_long or name == "as it is":
            yield f"{name.capitalize()}: {_write_layout(other)}. {_write_reads(other)}"
    if is_long and found["copies"]:
        texts = (f"{_write_layout(one)}. {_write_reads(one)}" for one in found["copies"])
        yield f"Two copies: {' '.join(texts)}"
    shards = f", shards={found['shard_shape']}" if found["shard_shape"] else ""
    yield (
        f"zarr.create_array(store, shape={found['shape']}, chunks={found['chunk_shape']}{shards},"
        f' dtype="{found["type"]}")'
    )
    if not is_long:
        yield "More with --why; what to do with the array, and what that costs: wire decide."


def _write_layout(one: dict[str, Any]) -> str:
    shape = ",".join(map(str, one["chunk_shape"]))
    shard = ",".join(map(str, one["shard_shape"] or ()))
    inside = f" in shards {shard}" if shard else ""
    return f"{shape} ({one['chunk_nbytes'] / 1e6:.3g} MB){inside}, {one['n_objects']:,} objects"


def _write_reads(one: dict[str, Any]) -> str:
    parts = (
        f"{read['access']} {read['p50_s']:.2g} s, {read['n_requests']:,.0f} requests,"
        f" {read['nbytes'] / 1e6:,.3g} MB"
        for read in one["reads"]
    )
    return f"Predicted: {'; '.join(parts)}."
