"""``wire decide``: which format, chunks, client and settings, what they cost and what that rests on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from helpers.errors import UserError

if TYPE_CHECKING:
    from advisors.decide.choices import Choice
    from advisors.decide.ranking import Answer


@click.command()
@click.option("--shape", help="Elements for each dimension, as 87600,721,1440.")
@click.option("--type", "dtype", help="Type of an element; float32 by default.")
@click.option("--access", metavar="WHAT:SHARE,...",
              help="series, map, whole, or a box such as 365x10x10; series:0.5,map:0.5 by default.")  # fmt: skip
@click.option("--store", help="Network to the store: a profile; in-region by default.")
@click.option("--arrays", type=int, help="Arrays or files of this shape; 1 by default.")
@click.option("--compression", type=float, help="Array bytes over stored bytes; 1 by default.")
@click.option("--reads-per-month", type=float, help="Accesses, all together; 10000 by default.")
@click.option("--cores", type=int, help="Processors of the machine that reads; 2 by default.")
@click.option("--memory", "memory_gb", type=float, help="Its memory in GB; 8 by default.")
@click.option("--decode-mb-per-s", type=float, help="Decoding by one worker; 500 by default.")
@click.option("--max-objects", type=int, help="Objects in the store; a million by default.")
@click.option("--budget-usd-month", type=float, help="Most that a month may cost.")
@click.option("--must-stay", type=click.Choice(["any", "hdf5"]), help="Format that has to stay.")
@click.option("--may-rewrite/--no-rewrite", default=None, help="Whether bytes may be written anew.")
@click.option("--reader", help="any, xarray, zarr, h5py or gdal; any by default.")
@click.option("--chunks", help="Chunk shape of the HDF5 files that are there.")
@click.option("--requests-per-s", type=float, help="Of a tile service, on average.")
@click.option("--datasets", type=int, help="Datasets of a tile service.")
@click.option(
    "--change-every", "change_every_s", type=float, help="Seconds after which they change."
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@click.option(
    "--derive", is_flag=True, help="Gather the records anew, and all that the page looks up."
)
def decide(is_json: bool, derive: bool, **given: Any) -> None:
    """Choose format, chunks, client, settings, cache and copies for an array and its accesses."""
    if derive:
        from advisors.decide import evidence, page

        click.echo(f"{evidence.PATH.name}: {evidence.write()} rows")
        click.echo(f"{page.PATH.name}: {page.write_lookup()} answers")
        return
    if given["shape"] is None:
        raise UserError("shape: none; allowed: --shape 87600,721,1440")
    from advisors.decide.question import Question
    from advisors.decide.ranking import decide as find_answer  # here, so that --help is quick

    asked = Question.ask(**{name: value for name, value in given.items() if value is not None})
    answer = find_answer(asked)
    text = json.dumps(answer.to_mapping(), indent=2) if is_json else "\n".join(render(answer))
    click.echo(text)


def render(answer: Answer) -> list[str]:
    """Write an answer as lines of text: a table of choices, then the first with its code."""
    lines = []
    for number, choice in enumerate(answer.choices, start=1):
        lines += [*_render_choice(number, choice, answer.question.itemsize), ""]
    best = answer.choices[0]
    if best.support.case_file:
        lines += [f"{best.support.confidence}: run this case", "", best.support.case_file]
    return [*lines, *answer.notes, "", "To paste:", "", best.code]


def _render_choice(number: int, choice: Choice, itemsize: int) -> list[str]:
    """Write one choice in a few lines."""
    from advisors.decide.choices import tell_number

    over = ", over the budget" if choice.is_over_budget else ""
    lines = [f"{number}. {choice.label}: {choice.usd_month:,.2f} USD a month{over}"]
    lines.append(f"   {choice.tell_layout(itemsize)}; {choice.client}, {choice.tell_reading()}")
    for one in choice.forecasts:
        p50, p95 = ("?" if s is None else f"{tell_number(s)} s" for s in (one.p50_s, one.p95_s))
        lines.append(
            f"   {one.access} ({100 * one.share:.3g} %): median {p50}, 95 % within {p95},"
            f" {tell_number(one.n_requests)} requests, {tell_number(one.nbytes / 1e6)} MB; bottleneck: {one.limit}"
        )
    lines.append("   " + ", ".join(f"{k} {usd:,.2f} USD" for k, usd in choice.usd.items()))
    case = f" ({choice.support.case})" if choice.support.case else ""
    lines.append(f"   {choice.support.confidence}{case}: {choice.support.why}")
    return [*lines, f"   {choice.limits}"] if choice.limits else lines
