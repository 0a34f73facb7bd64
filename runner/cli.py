"""Commands of ``wire`` that measure and build the book; each imports what it needs when it runs."""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from wire.errors import UserError, say
from wire.options import ExampleCommand

_site = partial(click.option, "--site", default="laptop", show_default=True)


def add_run_options(command: Any) -> Any:
    """Give a command the options of a run."""
    for option in (
        click.option("--anew", is_flag=True, help="Measure finished cases again."),
        click.option("--more", is_flag=True, help="Add the repeats that the time budget cut off."),
        click.option(
            "--quick", is_flag=True, help="Measure one repeat of every case: a first look."
        ),
        click.option(
            "--minutes",
            type=float,
            metavar="MINUTES",
            help="Time budget of each case. [default: that of its parameter file]",
        ),
        click.option(
            "--max-usd",
            type=float,
            metavar="USD",
            help="Refuse a run on your own store that may cost more. [default: no limit]",
        ),
    ):
        command = option(command)
    return command


@click.command(
    "run-all",
    cls=ExampleCommand,
    examples=[
        ("wire run-all", "Measure the short cases and build the book: half an hour."),
        ("wire run-all --quick", "One repeat of each: a first look."),
        ("wire run-all --all --more", "Every case, going on where a run was ended."),
    ],
)
@_site(help="Folder of parameters/ with the cases.")
@click.option(
    "--all", "is_all", is_flag=True, help="Include the long cases, which else run by name alone."
)
@click.option(
    "--uncounted",
    "is_uncounted",
    is_flag=True,
    help="Leave out the cases whose CPU time is counted.",
)
@click.option(
    "--ladder-first",
    "is_ladder_first",
    is_flag=True,
    help="Measure first whether counted CPU time depends on the dilation here;"
    " refuse the cases that count it where it does.",
)
@add_run_options
def run_all(
    site: str, is_all: bool, is_uncounted: bool, is_ladder_first: bool, **options: Any
) -> None:
    """Run every case of a site, print a table and build the book."""
    from runner import build, cases, ladder, pages
    from runner.cases import find_studies

    by_name = {(study.name, case) for study in find_studies().values() for case in study.by_name}
    all_cases = pages.in_book_order(cases.find_cases(site))
    chosen = [
        candidate
        for candidate in all_cases
        if is_all or (candidate.notebook, candidate.name) not in by_name
    ]
    counted = ladder.find_counted(chosen) if is_uncounted or is_ladder_first else []
    if is_uncounted:
        chosen = [candidate for candidate in chosen if candidate not in counted]
    elif is_ladder_first and counted:
        _check_ladder(site, counted)
    failures = _run(chosen, **options)
    say(f"the book: open {_short(build.build(site, say=say))}")
    _end(failures)


def _check_ladder(site: str, counted: list[Any]) -> None:
    """Measure the ladder where its record is old or of another machine, and refuse `counted` where it is steep."""
    from helpers.benchmark.record import read_records
    from helpers.benchmark.statistics import measured
    from runner import ladder
    from runner.cases import find_case

    case = find_case(ladder.LADDER, site)
    records = [case.result(".csv"), case.result(".csv", "reference")]
    record = next((path for path in records if ladder.is_current(path)), None)
    if record is None:
        options = {"anew": True, "more": False, "quick": False, "minutes": None, "max_usd": None}
        _end(_run([case], **options))
        record = records[0]
    ladder.check_flat(measured(read_records([record])), counted)


@click.command(
    cls=ExampleCommand,
    examples=[
        ("wire run formats/in-region", "Measure one case."),
        ("wire run formats/in-region --site hub", "The same case on a hub, against your bucket."),
        ("wire run formats/in-region --render", "Execute its page over the committed rows."),
    ],
)
@click.argument("case")
@_site(help="Folder of parameters/ with the case.")
@click.option(
    "--render", is_flag=True, help="Execute the page over the committed rows; measure nothing."
)
@add_run_options
def run(case: str, site: str, render: bool, **options: Any) -> None:
    """Run one case, such as cluster-scaling/in-region."""
    from runner import cases

    chosen = cases.find_case(case, site)
    if not render:
        _end(_run([chosen], **options))
        return
    if any(options.values()):
        raise UserError("--render", "with an option to measure", "alone")
    from runner.run import render_case

    say(_short(render_case(chosen)))


def _run(cases: list[Any], **options: Any) -> list[str]:
    """Run cases, print their table and return what failed."""
    from runner import run as runs
    from wire.bed.testbed import find_or_build_versitygw

    minutes, max_usd = options.pop("minutes"), options.pop("max_usd")
    if minutes is not None and not 0 < minutes <= 10_000:
        raise UserError("--minutes", f"{minutes:g}", "above 0, at most 10000")
    if options["quick"] and (options["anew"] or options["more"]):
        raise UserError("--quick", "together with --anew or --more", "without them")
    if max_usd is not None and not max_usd >= 0:
        raise UserError("--max-usd", f"{max_usd:g}", "from 0 on")
    bound = {"max_usd": math.inf if max_usd is None else max_usd, "quick": options["quick"]}
    is_repeated, budget_s = options["anew"] or options["more"], 60 * (minutes or 0.0)
    # what is refused is refused before anything starts
    checked = runs.check_expected(cases, say, **bound, is_repeated=is_repeated, budget_s=budget_s)
    find_or_build_versitygw()
    outcomes = runs.run_cases(cases, say, checked=checked, **options, budget_s=budget_s)
    say(f"\n{runs.summarise(outcomes)}\n")
    return runs.explain_failures(outcomes)


@click.command(
    cls=ExampleCommand,
    examples=[
        ("wire book", "Build the book from your results, else from the committed ones."),
        ("wire book --site hub", "The same from results of a hub."),
        ("make book", "Set up the environment first."),
    ],
)
@_site(help="Folder of results/ that is shown before the committed results.")
def book(site: str) -> None:
    """Build the book from existing results; measure nothing."""
    from runner import build

    say(f"open {_short(build.build(site, say=say))}")


@click.command(
    cls=ExampleCommand,
    examples=[
        ("wire compare formats/in-region", "Your record next to the committed one."),
        ("wire compare formats/in-region --site hub", "That of a hub next to the committed one."),
        ("wire compare mine.csv theirs.csv", "Any two records of one case."),
    ],
)
@click.argument("records", nargs=-1, metavar="A.csv B.csv | CASE")
@_site(help="Folder of results/ with record A of CASE; B is the committed one.")
def compare(records: tuple[str, ...], site: str) -> None:
    """Compare two records of a case: ratios of their read times, and how their origins differ."""
    from runner import published

    a, b = published.find_records(records, site)
    table, origin = published.compare_records(a, b)
    say(
        f"A is {_short(a)}, B is {_short(b)}\n\n{table.to_string(index=False)}\n\n{published.NOTE}\n"
    )
    say("what differs in origin (A; B):" if origin else "nothing differs in origin")
    for name, (left, right) in origin.items():
        say(f"    {name}: {left}; {right}")


@click.command(
    cls=ExampleCommand,
    examples=[
        ("wire publish", "Make all of your results the ones that the book shows."),
        ("wire publish formats/in-region", "Those of one case."),
        ("wire publish --site hub", "Those of a hub."),
    ],
)
@click.argument("cases", nargs=-1)
@_site(help="Folder of results/ to copy from.")
def publish(cases: tuple[str, ...], site: str) -> None:
    """Copy results of CASES, or of all, to results/reference, which the book shows."""
    from runner import build

    for path in build.publish(site, titles=cases):
        say(_short(path))


@click.command(
    cls=ExampleCommand,
    examples=[
        ("wire submit our-hub", "All of your records, in results/submitted/our-hub."),
        ("wire submit our-hub formats/in-region", "The record of one case."),
        ('wire submit our-hub --by "Example Institute"', "With the name that the book prints."),
    ],
)
@click.argument("name")
@click.argument("cases", nargs=-1)
@_site(help="Folder of results/ to copy from.")
@click.option(
    "--by",
    "measurer",
    default="",
    metavar="TEXT",
    help="Name of the measurer in the book. [default: NAME]",
)
def submit(name: str, cases: tuple[str, ...], site: str, measurer: str) -> None:
    """Copy records of CASES, or of all, to results/submitted/NAME, to send with a pull request."""
    from runner import submitted

    say(
        f"{_short(submitted.submit(name, cases, site, measurer=measurer))} is what to send: add it in a pull request"
    )


@click.command()
def server() -> None:
    """Find the S3 server of the emulated network, or build it once."""
    from wire.bed.testbed import find_or_build_versitygw

    say(f"S3 server: {find_or_build_versitygw().name} is there")


@click.command()
def derive() -> None:
    """Write what follows from models and records: schemas of parameter files, verdicts on published claims, ratios."""
    from runner import published
    from runner.cases import write_derived

    for path in write_derived() + published.write_tables():
        say(_short(path))


def _end(failures: list[str]) -> None:
    """Exit with the failures as the last lines, if there are any."""
    if failures:
        say("\n".join(failures), err=True)
        sys.exit(1)


def _short(path: Path) -> str:
    """Write a path as seen from here, where it can be."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
