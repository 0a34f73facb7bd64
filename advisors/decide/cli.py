"""``wire decide``: what to do with an array and the way it is read, what it gains and what it costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from helpers.errors import say

if TYPE_CHECKING:
    from advisors.decide.choices import Answer

_TYPES = ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "int64")  # of the form


@click.command()
@click.argument("dataset", required=False)
@click.option("--variable", metavar="NAME", help="Array of DATASET; the largest by default.")
@click.option("--shape", metavar="N,N,N", help="Without DATASET: elements for each dimension.")
@click.option("--type", "dtype", metavar="TYPE", help="Without DATASET; float32 by default.")
@click.option("--format", type=click.Choice(["zarr", "hdf5"]), help="What is there, with --chunks.")
@click.option("--chunks", metavar="N,N,N", help="Without DATASET: chunks that are there.")
@click.option("--shards", metavar="N,N,N", help="And shards.")
@click.option(
    "--access", metavar="WHAT:SHARE,...", help="series, map, whole, 365x10x10, 1x256x256@aligned."
)
@click.option(
    "--keep", type=click.Choice(["nothing", "one-copy", "format", "bytes"]), help="What must stay."
)
@click.option("--append", metavar="AXIS:STEPS", help="How it grows, as time:24.")
@click.option("--profile", metavar="NAME|FILE", help="Network [in-region].")
@click.option("--compression", type=float, metavar="X", help="Array bytes over stored bytes.")
@click.option("--arrays", type=int, metavar="N", help="Arrays of this shape [1].")
@click.option("--together", type=int, metavar="N", help="Arrays of a file read at once [1].")
@click.option(
    "--scattered/--in-one-piece",
    "is_scattered",
    default=None,
    help="How a file's variables lie: as appended in turn, or each alone.",
)
@click.option("--max-objects", type=int, metavar="N", help="Of all arrays [100000].")
@click.option("--in-flight", type=int, metavar="N", help="Requests at once [64].")
@click.option("--memory", type=float, metavar="GB", help="Of the reader [8].")
@click.option("--cores", type=int, metavar="N", help="Of the machine [2; a loader's processes].")
@click.option("--link-mb-per-s", type=float, metavar="MB", help="Of the machine [a loader: 1250].")
@click.option("--reads-per-month", type=float, metavar="N", help="Of all kinds [10000].")
@click.option("--per-second", type=float, metavar="N", help="Reads of a service, as of tiles.")
@click.option("--wait-usd-hour", type=float, metavar="USD", help="Price of an hour of waiting.")
@click.option("--budget-usd-month", type=float, metavar="USD", help="Most that a month may cost.")
@click.option("--batch", type=int, metavar="N", help="A loader's boxes in a batch;")
@click.option("--workers", type=int, metavar="N", help="its processes [1],")
@click.option("--prefetch", type=int, metavar="N", help="and batches each has ready [2].")
@click.option("--why", is_flag=True, help="Print all choices, their bills and lines of code.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def decide(dataset: str | None, *, why: bool, is_json: bool, **options: Any) -> None:
    """Stay, set, rechunk or copy: what to do with DATASET and the way it is read."""
    from advisors.decide.show import to_mapping, write_short, write_why

    answer = find_answer(dataset, **options)
    if is_json:
        say(json.dumps(to_mapping(answer), indent=2, allow_nan=False))
        return
    say("\n".join([*write_short(answer), *(write_why(answer) if why else ())]))


def find_answer(dataset: str | None = None, **options: Any) -> Answer:
    """Answer a question in the words of the command's options; those that are not given are at their defaults."""
    from advisors.decide.choices import list_choices, rank  # here, so that --help is quick
    from advisors.decide.question import ask

    question = ask(dataset, options)
    return rank(question, list_choices(question))


def write_form_data() -> str:
    """Write what the form of the page needs, as JSON: networks with their prices, clients, types."""
    import numpy as np

    from advisors.decide.choices import CLIENTS
    from advisors.decide.question import ask
    from helpers.netem.profiles import profile_names
    from helpers.prices import BILLED_GB_NBYTES

    networks = {}
    for name in sorted(profile_names(), key=lambda one: one != "in-region"):
        question = ask(None, {"shape": "1", "profile": name})
        store, prices = question.store, question.prices()
        network = store.network
        rates = {
            "stream": network.stream_nbytes_per_s,
            "link": network.aggregate_nbytes_per_s,
            "requests": network.requests_per_s,
        }
        networks[name] = {
            "p50": network.first_byte_median_s,
            "sigma": network.first_byte_sigma,
            "mean": network.first_byte_mean_s,
            **{key: min(rate, 1e300) for key, rate in rates.items()},  # JSON has no infinity
            "chunk": store.chunk_s,
            "decode": store.decode_s_per_nbyte,
            "storage": prices.storage_per_gb_month / BILLED_GB_NBYTES,
            "get": prices.of_read(1, 0),
            "out": prices.of_read(0, 1),
        }
    clients = {
        key: {"inFlight": one.in_flight or 64, "inTurn": one.in_turn, "opening": one.opening}
        for key, one in (("plain", CLIENTS["zarr-s3fs"]), ("tuned", CLIENTS["zarr-obstore"]))
    }
    types = {name: np.dtype(name).itemsize for name in _TYPES}
    return json.dumps({"networks": networks, "clients": clients, "types": types})
