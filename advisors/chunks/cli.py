"""``wire chunks``: which chunk shape, why, how to write it, and whether a second replica pays."""

from __future__ import annotations

import json
from typing import Any

import click

from advisors.chunks.examples import EXAMPLES
from helpers.netem.profiles import get_measurement, get_profile, profile_names


@click.command("chunks")
@click.argument("store", required=False)
@click.option(
    "--variable", default="", help="Array of STORE, by its path in it; by default the largest."
)
@click.option("--shape", help="Elements for each dimension, as 98128,277,349.")
@click.option("--itemsize", type=int, help="Bytes of an element.")
@click.option("--dtype", help="Type of an element, instead of --itemsize.")
@click.option("--access", "accesses", multiple=True, metavar="WHAT[:WEIGHT]",
              help="series, slice or map, whole, or a box such as 365x10x10; 1x256x256@aligned for"
              " tiles and blocks on their own grid; may be repeated.")  # fmt: skip
@click.option("--rule", type=click.Choice(["best", "balanced"]), default="best", show_default=True)
@click.option("--chunk-nbytes", type=int, help="Most bytes of a chunk in the array.")
@click.option("--min-chunk-nbytes", type=int,
              help="Fewest bytes of a chunk in the array; 100000, unless the most are fewer.")  # fmt: skip
@click.option("--max-objects", type=int, default=1_000_000, show_default=True)
@click.option("--shard-from", type=int, help="Objects above which chunks come in shards; 10000.")
@click.option("--min-shard-nbytes", type=int, help="Fewest bytes of a shard in the array; 1e8.")
@click.option("--max-shard-nbytes", type=int, help="Most bytes of a shard in the array; 1e9.")
@click.option("--shard-reader", type=click.Choice(["concurrent", "sequential"]), default="concurrent",
              show_default=True, help="Chunks of a shard as zarr reads them from 3.3 on, or before.")  # fmt: skip
@click.option("--memory-nbytes", type=int, default=1_000_000_000, show_default=True)
@click.option(
    "--criterion", type=click.Choice(["mean", "worst"]), default="mean", show_default=True
)
@click.option("--profile", default="in-region", show_default=True, metavar="NAME|FILE",
              help=f"Network of the store: {', '.join(profile_names())}, or a file of `wire calibrate`.")  # fmt: skip
@click.option("--connections", type=int, default=10, show_default=True, help="Requests in flight.")
@click.option("--decode-mb-per-s", type=float, help="500, or what the file of --profile measured.")
@click.option("--chunk-ms", type=float, help="Work for a chunk: 0.5, or what that file measured.")
@click.option("--compression-ratio", type=float, help="Array bytes over stored bytes.")
@click.option("--replicas", is_flag=True, help="Does a second replica, in another shape, pay?")
@click.option("--reads-per-month", type=float, help="Accesses a month; for --replicas.")
@click.option("--price", "own", multiple=True, metavar="NAME=USD", help="A price of your own.")
@click.option("--like", type=click.Choice([*EXAMPLES]), help="Take an example instead of an array.")
@click.option("--beside", is_flag=True, help="Also what Dask, Zarr and netCDF-C pick.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def chunks_command(store: str | None, as_json: bool, **options: Any) -> None:
    """Recommend a chunk shape for an access pattern, from numbers or for the array in STORE."""
    from advisors.chunks.answers import CHUNK_MS, answer  # here, so that --help needs no numerics

    get_profile(options["profile"])  # refused whatever the rule, and before anything is read
    measured = get_measurement(options["profile"])
    for name, default in (("decode_mb_per_s", 500.0), ("chunk_ms", CHUNK_MS)):
        if options[name] is None:
            options[name] = measured.get(name, default)

    found = answer(store, options)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(",".join(map(str, found["chunk_shape"])))
    click.echo("\n".join(["", *found["reasons"], "", found["snippet"]]))
