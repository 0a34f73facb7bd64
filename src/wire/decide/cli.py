"""``wire decide``: what to do with an array and the way it is read, what it gains and what it costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
import numpy as np

from wire.bed.networks import profile_names
from wire.decide.choices import CLIENTS, Answer, list_choices, rank
from wire.decide.question import DecideOptions, ask
from wire.decide.show import to_mapping, write_prices, write_short, write_why
from wire.errors import say
from wire.models.client_costs import read_client_costs

_TYPES = ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "int64")  # of the form


def _take_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of `DecideOptions`, which checks its text."""
    for name, field in reversed(DecideOptions.model_fields.items()):
        flag = f"--{field.alias}" + "/--in-one-piece" * (name == "scattered")
        option = click.option(flag, name, default=None, metavar=field.title, help=field.description, multiple=name == "price")  # fmt: skip
        command = option(command)
    return command


@click.command(
    epilog="\b\n"
    """Examples:
  wire decide s3://bucket/era5.zarr --variable t2m --access series:0.8,map:0.2
  wire decide --shape 87600,721,1440 --arrays 55 --append time:24
  wire decide granule.h5 --keep bytes --access whole"""
)
@click.argument("dataset", required=False)
@_take_options
@click.option(
    "--why", is_flag=True, help="Print all choices, their bills, and code that writes what is new."
)
@click.option("--json", "is_json", is_flag=True, help="Output as JSON.")
def decide(dataset: str | None, *, why: bool, is_json: bool, **options: Any) -> None:
    """Recommend chunks, copies and settings for DATASET and the way it is read.

    DATASET is a Zarr store, an HDF5 or a netCDF-4 file: a path, or a URL that begins with s3://,
    gs:// or https://. Without it, --shape describes an array. The answer may be to change nothing.
    """
    answer = find_answer(dataset, **options)
    if is_json:
        say(json.dumps(to_mapping(answer), indent=2, allow_nan=False))
        return
    say("\n".join([*write_short(answer), *(write_why(answer) if why else ())]))


def find_answer(dataset: str | None = None, **options: Any) -> Answer:
    """Answer a question in the words of the command's options; those that are not given are at their defaults."""
    question = ask(dataset, **options)
    return rank(question, list_choices(question))


def write_form_data() -> str:
    """Write what the form of the page needs, as JSON: networks with their prices, clients, types."""
    networks = {}
    for name in sorted(profile_names(), key=lambda name: name != "in-region"):
        question = ask(shape="1", profile=name)
        network = question.store.network
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
            "tail": network.tail_slope,
            "setup": network.setup_s,
            "trip": network.round_trip_s,
            "window": min(network.initial_window_nbytes, 1e300),
            "prices": None
            if (prices := question.prices) is None
            else {name: getattr(prices, name) for name in ("storage", "get", "put", "out")},
            "billing": write_prices(question),
        }
    costs, n_cores = read_client_costs(), ask(shape="1").options.reader_cores
    clients = {
        key: {
            "inFlight": client.in_flight or 64,
            "inTurn": client.facts.requests_per_chunk,
            "opening": client.facts.opening,
            "wait": costs[client.name].request_ms / 1000,
            "perChunk": costs[client.name].chunk_ms / 1000,
            "copied": 1e-6 / (n_cores * costs[client.name].copy_mb_per_s),
            "decoded": 1e-6 / (n_cores * costs[client.name].decode_mb_per_s),
        }
        for key, client in (("plain", CLIENTS["zarr-s3fs"]), ("tuned", CLIENTS["zarr-obstore"]))
    }
    types = {name: np.dtype(name).itemsize for name in _TYPES}
    return json.dumps({"networks": networks, "clients": clients, "types": types})
