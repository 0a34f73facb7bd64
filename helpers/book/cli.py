"""Commands of ``wire`` that measure and build the book; each imports what it needs when it runs."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import click

from helpers.errors import UserError

_site = partial(click.option, "--site", default="laptop", show_default=True)
_anew = click.option("--anew", is_flag=True, help="Measure again what is done.")
_more = click.option("--more", is_flag=True, help="Go on with what its time budget ended.")
_quick = click.option(
    "--quick",
    is_flag=True,
    help="A first look: one block a case, the shortest of each study first, as many as 15 minutes hold.",
)
_minutes = click.option(
    "--minutes", type=float, help="Time budget of each case, in the place of that of its file."
)
_render = click.option(
    "--render",
    is_flag=True,
    help="Measure nothing: execute the notebook over the reference's rows, and replace its page there.",
)
_max_usd = click.option(
    "--max-usd", type=float, help="Refuse to run what is expected to cost more on a store of yours."
)
_in_region = click.option(
    "--in-region", is_flag=True, help="Workers are in the region of that store: no data leave it."
)


@click.command("run-all")
@_site(help="Folder of parameters/.")
@_anew
@_more
@_quick
@_minutes
@_max_usd
@_in_region
def run_all(
    site: str, anew: bool, more: bool, quick: bool, minutes: float | None, **bound: Any
) -> None:
    """Run every case of a site, print a table and build the book."""
    _refuse_both(quick=quick, anew=anew, more=more)
    budget_s = _read_budget(minutes)
    from helpers.benchmark.memory import watch_memory
    from helpers.benchmark.provenance import python_build
    from helpers.book import build, expected, pages
    from helpers.book import cases as runner
    from helpers.book import run as runs
    from helpers.objectstore.versitygw import find_or_build_versitygw

    slow = {"not optimised": "without optimisation", "debug": "for debugging"}
    if compiled := slow.get(python_build()):
        click.echo(
            f"this Python was compiled {compiled}: what it computes takes longer than elsewhere"
        )
    cases = pages.in_book_order(runner.find_cases(site))
    bound |= {"again": anew or more, "quick": quick, "budget_s": budget_s}
    expected.check_expected(cases, click.echo, **bound)
    find_or_build_versitygw()
    for name in dict.fromkeys(case.notebook for case in cases):
        _set_up(name)
    start = time.monotonic()
    with watch_memory() as peak:
        how = {"anew": anew, "more": more, "quick": quick}
        outcomes = runs.run_cases(cases, click.echo, **how, budget_s=budget_s)
        click.echo("\n".join(["", *runs.summarise(outcomes), "", "building the book"]))
        page = build.build(site, say=click.echo)
    if not (more or quick or budget_s) and all(outcome.state == "done" for outcome in outcomes):
        seconds, nbytes = time.monotonic() - start, peak.nbytes
        took = {"seconds": seconds, "peak_nbytes": nbytes, "watcher_cpu_s": peak.cpu_s}
        runs.note_whole_run(site, outcomes, **took)
    click.echo(f"the book: open {_short(page)}")
    _end(runs.explain_failures(outcomes))


@click.command()
@click.argument("case")
@_site(help="Folder of parameters/.")
@_anew
@_more
@_quick
@_minutes
@_render
@_max_usd
@_in_region
def run(
    case: str,
    site: str,
    anew: bool,
    more: bool,
    quick: bool,
    minutes: float | None,
    render: bool,
    **bound: Any,
) -> None:
    """Run one case, such as cluster-scaling/in-region."""
    _refuse_both(quick=quick, anew=anew, more=more)
    if render and (quick or anew or more or minutes):
        raise UserError("--render: with an option to measure; allowed: alone")
    budget_s = _read_budget(minutes)
    from helpers.book import cases as runner

    cases = [runner.find_case(case, site)]
    if render:
        from helpers.book.render import render_case

        click.echo(_short(render_case(cases[0])))
        return
    runner.read_parameters(cases[0])  # what is refused is refused before anything heavy is imported

    from helpers.book import expected

    bound |= {"again": anew or more, "quick": quick, "budget_s": budget_s}
    expected.check_expected(cases, click.echo, **bound)
    from helpers.book import run as runs

    how = {"anew": anew, "more": more, "quick": quick}
    outcomes = runs.run_cases(cases, click.echo, **how, budget_s=budget_s)
    click.echo("\n".join(runs.summarise(outcomes)))
    _end(runs.explain_failures(outcomes))


@click.command()
@_site(help="Whose results come before the reference.")
@click.option("--pdf", is_flag=True, help="Also the whole book as one page and as PDF.")
def book(site: str, pdf: bool) -> None:
    """Build the book from results that are there; nothing is measured."""
    from helpers.book import build

    index = build.build(site, say=click.echo)
    click.echo(f"open {_short(index)}")
    if pdf:
        from helpers.book import printing

        page = printing.assemble(index.parent)
        click.echo(f"to print: {_short(page)}")
        click.echo(f"as PDF: {_short(printing.print_pdf(page))}")


@click.command()
@click.argument("records", nargs=-1, metavar="A.csv B.csv | CASE")
@_site(help="Whose record of CASE is A; B is the reference.")
@click.option(
    "--value", type=click.Choice(["read_s", "open_s"]), default="read_s", show_default=True
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def compare(records: tuple[str, ...], site: str, value: str, is_json: bool) -> None:
    """Lay a record over another of the same case: ratios, noise of both, and what differs in origin."""
    from helpers.book import comparison

    a, b = comparison.find_records(records, site)
    found = comparison.compare_records(a, b, value=value)
    lines = comparison.render_comparison(found, *map(Path, map(_short, (a, b))))
    click.echo(json.dumps(found, indent=2) if is_json else "\n".join(lines))


@click.command()
@click.argument("cases", nargs=-1)
@_site(help="Whose results become the reference.")
def publish(cases: tuple[str, ...], site: str) -> None:
    """Promote results, of all cases or of those named, to the reference that the book shows."""
    from helpers.book import build

    for path in build.publish(site, titles=cases):
        click.echo(_short(path))


@click.command()
def server() -> None:
    """Find the S3 server, or build it once."""
    from helpers.objectstore.versitygw import find_or_build_versitygw

    click.echo(f"S3 server: {find_or_build_versitygw().name} is there")


@click.command("set-up")
def set_up() -> None:
    """Find or build what the studies need beside the S3 server."""
    from helpers.book.studies import find_studies

    for name in find_studies():
        _set_up(name)


@click.command()
def derive() -> None:
    """Write parameter cells of notebooks and schemas of case files from the studies' models."""
    from helpers.book.cases import write_derived

    for path in write_derived():
        click.echo(_short(path))


def _refuse_both(*, quick: bool, anew: bool, more: bool) -> None:
    """Refuse a first look that would take the place of what was measured whole."""
    for name in ("anew",) * anew + ("more",) * more:
        if quick:
            raise UserError(f"--quick: together with --{name}; allowed: without it")


def _read_budget(minutes: float | None) -> float:
    """Read the time budget that each case gets, in seconds; 0 for that of its file."""
    if minutes is not None and not 0 < minutes <= 10_000:
        raise UserError(f"--minutes: {minutes:g}; allowed: above 0, at most 10000")
    return 60 * (minutes or 0.0)


def _set_up(notebook: str) -> None:
    """Run the set-up step of a study, if it has one; what the study is, is checked with its cases."""
    from helpers.book.studies import find_studies

    study = find_studies().get(notebook)
    if study is not None and study.set_up is not None:
        study.set_up(click.echo)


def _end(failures: list[str]) -> None:
    """Exit with the failures as the last lines, if there are any."""
    if failures:
        sys.exit("\n".join(failures))


def _short(path: Path) -> str:
    """Write a path as seen from here, where it can be."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
