"""``wire decide``: what to do with an array and the way it is read, what it gains and what it costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from advisors.chunks.cli import shared_options

if TYPE_CHECKING:
    from advisors.decide.rank import Answer


@click.command()
@shared_options
@click.option("--format", type=click.Choice(["zarr", "hdf5"]), help="What is there, with --chunks.")
@click.option("--chunks", metavar="N,N,N", help="Without DATASET: chunks that are there.")
@click.option("--shards", metavar="N,N,N", help="And shards.")
@click.option("--keep", type=click.Choice(["nothing", "format", "bytes"]), help="What must stay.")
@click.option("--together", type=int, metavar="N", help="Arrays of a file read at once [1].")
@click.option("--reads-per-month", type=float, metavar="N", help="Of all kinds [10000].")
@click.option("--wait-usd-hour", type=float, metavar="USD", help="Price of an hour of waiting.")
@click.option("--budget-usd-month", type=float, metavar="USD", help="Most that a month may cost.")
@click.option("--per-second", type=float, metavar="N", help="Reads of a service, as of tiles.")
@click.option("--batch", type=int, metavar="N", help="A loader's boxes in a batch;")
@click.option("--workers", type=int, metavar="N", help="its processes [1],")
@click.option("--prefetch", type=int, metavar="N", help="and batches each has ready [2].")
def decide(dataset: str | None, *, why: bool, is_json: bool, **options: Any) -> None:
    """Stay, set, rechunk or copy: what to do with DATASET and the way it is read."""
    from advisors.decide.show import to_mapping, write_short, write_why

    answer = find_answer(dataset, **options)
    if is_json:
        click.echo(json.dumps(to_mapping(answer), indent=2))
        return
    click.echo("\n".join([*write_short(answer), *(write_why(answer) if why else ())]))


def find_answer(dataset: str | None = None, **options: Any) -> Answer:
    """Answer a question in the words of the command's options; those that are not given are at their defaults."""
    from advisors.chunks.question import ask  # here, so that --help is quick
    from advisors.decide.choices import list_choices
    from advisors.decide.rank import rank

    question = ask(dataset, {**decide.make_context("decide", []).params, **options})
    return rank(question, list_choices(question))
