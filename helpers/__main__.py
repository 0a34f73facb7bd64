"""The command line: ``python -m helpers COMMAND``."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from helpers.commands.advise import advise
from helpers.commands.chunks import chunks
from helpers.commands.costs import costs
from helpers.errors import UserError
from helpers.redaction import redact


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure how arrays are read from object storage, and build the book."""


main.add_command(chunks)
main.add_command(advise)
main.add_command(costs)


@main.command("run-all")
@click.option("--site", default="laptop", show_default=True, help="Folder of parameters/.")
@click.option("--anew", is_flag=True, help="Measure again what is done.")
@click.option("--more", is_flag=True, help="Go on with cases that their time budget ended.")
def run_all(site: str, anew: bool, more: bool) -> None:
    """Run every case of a site, print a table and build the book."""
    from helpers import book, runner
    from helpers.memory import watch_memory
    from helpers.storage.server import find_or_build_versitygw

    find_or_build_versitygw()
    cases = runner.find_cases(site)
    if any(case.notebook == "hdf5-drivers" for case in cases):
        _try_ros3()
    start = time.monotonic()
    with watch_memory() as peak:
        outcomes = runner.run_cases(cases, click.echo, anew=anew, more=more)
        click.echo("\n".join(["", *runner.summarise(outcomes), "", "building the book"]))
        page = book.build(site, say=click.echo)
    if not more and all(outcome.state == "done" for outcome in outcomes):
        took = {
            "seconds": time.monotonic() - start,
            "peak_nbytes": peak.nbytes,
            "watcher_cpu_s": peak.cpu_s,
        }
        runner.note_whole_run(site, outcomes, **took)
    click.echo(f"the book: open {_short(page)}")
    _end(runner.explain_failures(outcomes))


@main.command()
@click.argument("case")
@click.option("--site", default="laptop", show_default=True, help="Folder of parameters/.")
@click.option("--anew", is_flag=True, help="Measure again if it is done.")
@click.option("--more", is_flag=True, help="Go on if its time budget ended it.")
def run(case: str, site: str, anew: bool, more: bool) -> None:
    """Run one case, such as cluster-scaling/in-region."""
    from helpers import runner

    cases = [runner.find_case(case, site)]
    outcomes = runner.run_cases(cases, click.echo, anew=anew, more=more)
    click.echo("\n".join(runner.summarise(outcomes)))
    _end(runner.explain_failures(outcomes))


@main.command()
@click.option(
    "--site", default="laptop", show_default=True, help="Whose results come before the reference."
)
def book(site: str) -> None:
    """Build the book from results that are there; nothing is measured."""
    from helpers import book as book_

    click.echo(f"open {_short(book_.build(site, say=click.echo))}")


@main.command()
@click.option(
    "--site", default="laptop", show_default=True, help="Whose results become the reference."
)
def publish(site: str) -> None:
    """Promote results to the reference that the published book shows."""
    from helpers import promotion

    for path in promotion.publish(site):
        click.echo(_short(path))


@main.command()
def bench() -> None:
    """Print every bar with how it was computed, and write results/laptop/bench.csv."""
    from helpers import bench as bench_

    bench_.run_bench(click.echo)


@main.command()
def server() -> None:
    """Find the S3 server, or build it once."""
    from helpers.storage.server import find_or_build_versitygw

    click.echo(f"S3 server: {find_or_build_versitygw().name} is there")


@main.command("ros3")
def ros3_() -> None:
    """Find the HDF5 with its own S3 driver, or build it once."""
    from helpers.storage import ros3

    click.echo(f"ROS3: {ros3.build_ros3(click.echo).folder.name} is there")


def _try_ros3() -> None:
    """Build HDF5 with ROS3 if it can be; the studies say so where it is absent."""
    from helpers.storage import ros3

    try:
        ros3.build_ros3(click.echo)
    except UserError as error:
        click.echo(f"going on without it: {error}")


def _end(failures: list[str]) -> None:
    """Exit with the failures as the last lines, if there are any."""
    if failures:
        sys.exit("\n".join(failures))


def _short(path: Path) -> str:
    """Write a path as seen from here, where it can be."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


@contextmanager
def end_well() -> Iterator[None]:
    """End with a line instead of a traceback, and on a signal only after the children have."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # else nohup, or another's
            signal.signal(number, _interrupt)
    try:
        yield
    except UserError as error:
        sys.exit(f"error: {error}")
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit("interrupted; what was measured is kept, and the same command goes on from there")
    except Exception:  # of a defect: the whole traceback, but no credential of an address
        sys.exit(redact(traceback.format_exc().rstrip()))


def _interrupt(number: int, _frame: Any) -> None:
    """Do what Ctrl-C does, once."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    with end_well():
        main(standalone_mode=False)
