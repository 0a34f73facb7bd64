"""``wire hdf5``: what could be gained for an HDF5 file, and whether it is fit for object storage."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from helpers.errors import UserError

if TYPE_CHECKING:
    from advisors.hdf5.advice import Advised
    from advisors.hdf5.check import Checklist


@click.group()
def hdf5() -> None:
    """How an HDF5 file lies for reading over a network, and what can be gained."""


_source = click.argument("source", metavar="FILE_OR_URL")
_profile = click.option("--profile", default="in-region", show_default=True, metavar="NAME|FILE",
                        help="Network it is read over, or a file of `wire calibrate`.")  # fmt: skip
_json = click.option("--json", "is_json", is_flag=True, help="Print JSON.")


@hdf5.command()
@_source
@click.option("--variables", "listed", multiple=True, metavar="NAME,…",
              help="Datasets to read, such as gt1l/heights/h_ph,gt1l/heights/lat_ph; all by default.")  # fmt: skip
@_profile
@_json
@click.option(
    "--apply", "out", type=click.Path(path_type=Path), help="Write a repack to this file."
)
@click.option("--repack", "label", default="", help="Label of the repack; the best by default.")
def advise(
    source: str,
    listed: tuple[str, ...],
    *,
    profile: str,
    is_json: bool,
    out: Path | None,
    label: str,
) -> None:
    """Predict what can be gained over today's default for FILE_OR_URL.

    It is a path, or an address that begins with s3://, gs:// or https://. Only metadata are read.
    """
    from advisors.hdf5.advice import advise as find_advice
    from advisors.hdf5.repack import apply_repack, check_out
    from helpers.netem.profiles import get_profile

    if out is not None:
        check_out(source, out)
    variables = [name for one in listed for name in one.split(",") if name]
    advised = find_advice(source, get_profile(profile), variables=variables)
    chosen = advised.find_repack(label) if out is not None or label else None
    told = json.dumps(asdict(advised), indent=2) if is_json else "\n".join(render(advised))
    click.echo(told)
    if out is not None and chosen is not None:
        click.echo(f"{chosen.label}: {apply_repack(source, chosen, out)}", err=is_json)


@hdf5.command()
@_source
@_profile
@_json
def check(source: str, *, profile: str, is_json: bool) -> None:
    """Go through the checklist of the cloud-optimised HDF5 guide; only metadata are read.

    The exit code is 0 where no item failed, 1 where one did, and 2 where the file or an option is
    none.
    """
    from advisors.hdf5.check import GUIDE, check_file
    from helpers.netem.profiles import get_profile

    try:
        found = check_file(source, get_profile(profile))
    except UserError as error:  # elsewhere it ends with 1, which here is a verdict
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    plain = {"is_passed": found.is_passed, "guide": GUIDE, **asdict(found)}
    click.echo(json.dumps(plain, indent=2) if is_json else render_checklist(found))
    sys.exit(0 if found.is_passed else 1)


def render_checklist(found: Checklist) -> str:
    """Write a checklist as text, a line an item; those that failed come first."""
    order = ("failed", "passed", "not applicable")
    items = sorted(found.items, key=lambda item: order.index(item.status))
    lines = [f"{item.status:16}{item.text}" for item in items]
    n_failed = sum(item.status == "failed" for item in items)
    verdict = f"failed: {n_failed} item{'s' * (n_failed > 1)}" if n_failed else "passed"
    return "\n".join([f"{found.file}, over {found.profile}", *lines, verdict])


def render(advised: Advised) -> Iterator[str]:
    """Write a report and advice as lines of text.

    Yields
    ------
    str
        A line.
    """
    report, costs = advised.report, advised.costs
    pages = f"pages of {report.page_nbytes / 2**20:g} MiB" if report.page_nbytes else "no pages"
    yield f"{report.name}: {report.file_nbytes / 1e6:.3g} MB, {pages}, metadata of"
    yield f"    {report.metadata_nbytes / 1e3:.3g} kB in {report.n_metadata_spans} places"
    yield f"read {len(advised.variables)} of {len(report.variables)} datasets over {advised.profile};"
    yield (
        f"    {costs.request_s * 1000:.3g} ms a request and {costs.start_s:.3g} s to start are"
        f" {'assumed, not measured' if costs.is_assumed else 'fitted'}"
    )
    width = max(len(one.label) for one in advised.advice) + 2
    yield f"{'':{width}}{'open':>8}{'read':>9}{'requests':>10}{'MB':>9}{'gain':>8}"
    for one in advised.advice:
        found = one.prediction
        yield (
            f"{one.label:{width}}{found.open_s:>7.2f}s{found.read_s:>8.2f}s"
            f"{found.n_requests:>10}{found.nbytes / 1e6:>9.3g}{one.gain:>8.1f}"
        )
    for one in advised.advice:
        yield f"{one.label} ({one.cost}): {one.command}"
    notes = {
        "filters that are not here": {f for v in report.variables for f in v.missing_filters},
        "values in other files, not predicted": {v.name for v in report.variables if v.other_files},
        "of variable length, too many to predict their heaps": {
            v.name for v in report.variables if v.is_variable_length and not v.has_known_heaps
        },
    }
    yield from (f"{what}: {', '.join(sorted(names))}" for what, names in notes.items() if names)
