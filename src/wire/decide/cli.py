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

_TYPES = ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "int64")  # of the form


def _take_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of `DecideOptions`, which checks its text."""
    for name, field in reversed(DecideOptions.model_fields.items()):
        flag = f"--{field.alias}" + "/--in-one-piece" * (name == "scattered")
        option = click.option(flag, name, default=None, metavar=field.title, help=field.description, multiple=name == "price")  # fmt: skip
        command = option(command)
    return command


@click.command()
@click.argument("dataset", required=False)
@_take_options
@click.option(
    "--why", is_flag=True, help="Print all choices, their bills, and lines that make what is new."
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def decide(dataset: str | None, *, why: bool, is_json: bool, **options: Any) -> None:
    """Stay, set, rechunk or copy: what to do with DATASET and the way it is read."""
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
        store, network = question.store, question.store.network
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
            "prices": None
            if (prices := question.prices) is None
            else {name: getattr(prices, name) for name in ("storage", "get", "put", "out")},
            "billing": write_prices(question),
        }
    clients = {
        key: {
            "inFlight": client.in_flight or 64,
            "inTurn": client.facts.requests_per_chunk,
            "opening": client.facts.opening,
        }
        for key, client in (("plain", CLIENTS["zarr-s3fs"]), ("tuned", CLIENTS["zarr-obstore"]))
    }
    types = {name: np.dtype(name).itemsize for name in _TYPES}
    return json.dumps({"networks": networks, "clients": clients, "types": types})
