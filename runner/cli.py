"""Commands of ``wire`` that measure and build the book; each imports what it needs when it runs."""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from wire.errors import UserError, say

_site = partial(click.option, "--site", default="laptop", show_default=True)


def add_run_options(command: Any) -> Any:
    """Give a command the options of a run."""
    for option in (
        click.option("--anew", is_flag=True, help="Measure again what is done."),
        click.option("--more", is_flag=True, help="Go on with what its time budget ended."),
        click.option("--quick", is_flag=True, help="A first look: one block of every case."),
        click.option(
            "--minutes", type=float, help="Time budget of each case, for that of its file."
        ),
        click.option(
            "--max-usd", type=float, help="Refuse what may cost more on a store of yours."
        ),
    ):
        command = option(command)
    return command


@click.command("run-all")
@_site(help="Folder of parameters/.")
@click.option("--all", "is_all", is_flag=True, help="Also the long cases, else run by name alone.")
@add_run_options
def run_all(site: str, is_all: bool, **options: Any) -> None:
    """Run every case of a site, print a table and build the book."""
    from runner import build, cases, pages
    from runner.cases import find_studies

    by_name = {(study.name, case) for study in find_studies().values() for case in study.by_name}
    all_cases = pages.in_book_order(cases.find_cases(site))
    chosen = [
        candidate
        for candidate in all_cases
        if is_all or (candidate.notebook, candidate.name) not in by_name
    ]
    failures = _run(chosen, **options)
    say(f"the book: open {_short(build.build(site, say=say))}")
    _end(failures)


@click.command()
@click.argument("case")
@_site(help="Folder of parameters/.")
@click.option(
    "--render", is_flag=True, help="Measure nothing: execute the page over the reference's rows."
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


@click.command()
@_site(help="Whose results come before the reference.")
def book(site: str) -> None:
    """Build the book from results that are there; nothing is measured."""
    from runner import build

    say(f"open {_short(build.build(site, say=say))}")


@click.command()
@click.argument("records", nargs=-1, metavar="A.csv B.csv | CASE")
@_site(help="Whose record of CASE is A; B is the reference.")
def compare(records: tuple[str, ...], site: str) -> None:
    """Lay a record over another of the same case: ratios of read times, and what differs in origin."""
    from runner import published

    a, b = published.find_records(records, site)
    table, origin = published.compare_records(a, b)
    say(
        f"A is {_short(a)}, B is {_short(b)}\n\n{table.to_string(index=False)}\n\n{published.NOTE}\n"
    )
    say("what differs in origin (A; B):" if origin else "nothing differs in origin")
    for name, (left, right) in origin.items():
        say(f"    {name}: {left}; {right}")


@click.command()
@click.argument("cases", nargs=-1)
@_site(help="Whose results become the reference.")
def publish(cases: tuple[str, ...], site: str) -> None:
    """Promote results, of all cases or of those named, to the reference that the book shows."""
    from runner import build

    for path in build.publish(site, titles=cases):
        say(_short(path))


@click.command()
@click.argument("name")
@click.argument("cases", nargs=-1)
@_site(help="Whose records they are.")
@click.option(
    "--by", "measurer", default="", help="Who measured, as the book shall say it. [default: NAME]"
)
def submit(name: str, cases: tuple[str, ...], site: str, measurer: str) -> None:
    """Copy records of CASES to results/submitted/NAME, the folder to send with a pull request."""
    from runner import submitted

    say(
        f"{_short(submitted.submit(name, cases, site, measurer=measurer))} is what to send: add it in a pull request"
    )


@click.command()
def server() -> None:
    """Find the S3 server, or build it once."""
    from wire.bed.testbed import find_or_build_versitygw

    say(f"S3 server: {find_or_build_versitygw().name} is there")


@click.command()
def derive() -> None:
    """Write the schemas of case files from the studies' models, and what records say of published claims and ratios."""
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
