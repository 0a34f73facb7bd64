"""``wire hdf5``: how an HDF5 file lies, what its repack gains, and whether it is fit for object storage."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from helpers.errors import UserError

if TYPE_CHECKING:
    from advisors.hdf5.advice import Advised
    from advisors.hdf5.check import Checklist
    from advisors.hdf5.inspection import FileReport
    from advisors.hdf5.scoring import Scores


@click.group()
def hdf5() -> None:
    """How an HDF5 file lies for reading over a network, and what repacking it gains."""


@hdf5.command()
@click.argument("source", metavar="FILE_OR_URL")
@click.option("--variable", "variables", multiple=True, help="A dataset to read; all by default.")
@click.option("--profile", default="in-region", show_default=True, metavar="NAME|FILE",
              help="Network it is read over, or a file of `wire calibrate`.")  # fmt: skip
@click.option("--block", "block_mib", default=8.0, show_default=True, help="Blocks of cache, MiB.")
@click.option(
    "--page-buffer", "buffer_mib", type=float, help="HDF5's, MiB; 16, or a page, by default."
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@click.option(
    "--apply", "out", type=click.Path(path_type=Path), help="Write a repack to this file."
)
@click.option("--repack", "label", default="", help="Label of the repack; the best by default.")
def advise(
    source: str,
    variables: tuple[str, ...],
    *,
    profile: str,
    block_mib: float,
    buffer_mib: float | None,
    is_json: bool,
    out: Path | None,
    label: str,
) -> None:
    """Report how an HDF5 file lies, and predict what its repacks gain; only metadata are read."""
    from advisors.hdf5 import advice, prediction
    from advisors.hdf5.repack import apply_repack, check_out
    from helpers.netem.profiles import get_profile

    if out is not None:
        check_out(source, out)
    settings = prediction.Settings(
        block_nbytes=round(block_mib * prediction.MIB),
        page_buffer_nbytes=None if buffer_mib is None else round(buffer_mib * prediction.MIB),
    )
    network = get_profile(profile)
    advised = advice.advise(source, network, variables=variables, settings=settings)
    chosen = advised.find_repack(label) if out is not None or label else None
    click.echo(
        json.dumps(advised.to_mapping(), indent=2) if is_json else "\n".join(render(advised))
    )
    if out is not None and chosen is not None:
        click.echo(f"{chosen[0]}: {apply_repack(source, chosen[1], out)}", err=is_json)


@hdf5.command()
@click.argument("source", metavar="FILE_OR_URL")
@click.option("--profile", default="in-region", show_default=True, metavar="NAME|FILE",
              help="Network it is read over, or a file of `wire calibrate`.")  # fmt: skip
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def check(source: str, *, profile: str, is_json: bool) -> None:
    """Go through the checklist of the cloud-optimised HDF5 guide; only metadata are read.

    The exit code is 0 where no item failed, 1 where one did, and 2 where the file or an option is
    none.
    """
    from advisors.hdf5.check import check_file
    from helpers.netem.profiles import get_profile

    try:
        found = check_file(source, get_profile(profile))
    except UserError as error:  # elsewhere it ends with 1, which here is a verdict
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    click.echo(json.dumps(found.to_mapping(), indent=2) if is_json else render_checklist(found))
    sys.exit(0 if found.is_passed else 1)


def render_checklist(found: Checklist) -> str:
    """Write a checklist as text: an item a line, and under it what was measured and the bound."""
    lines = [f"{found.file}, read by HDF5 {found.hdf5_version} over {found.network}"]
    for item in found.items:
        measured = "" if item.value is None else f"{item.value:.15g} {item.unit}, asked: "
        lines += [
            f"{item.status:16}{item.name}: {item.reason}",
            f"{'':16}{measured}{item.bound} ({item.source})",
        ]
    n_failed = sum(item.status == "failed" for item in found.items)
    verdict = f"failed: {n_failed} item{'s' * (n_failed > 1)}" if n_failed else "passed"
    return "\n".join([*lines, verdict])


@hdf5.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--profile", default="in-region", show_default=True, help="Network to emulate.")
@click.option("--reads", "n_reads", type=click.IntRange(1), default=20, show_default=True,
              help="Of each file, where they are short.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the network's delays.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="CSV file to write.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def score(
    folder: Path, *, profile: str, n_reads: int, seed: int, out: Path | None, is_json: bool
) -> None:
    """Measure the gains predicted for the files of FOLDER over the emulated network."""
    from advisors.hdf5 import scoring
    from helpers.netem.profiles import get_profile

    paths, network = scoring.find_files(folder), get_profile(profile)
    with scoring.open_own_testbed(network, seed=seed) as testbed:
        found = scoring.score_files(paths, network, testbed, n_reads=n_reads)
    if out is not None:
        found.write(out)
    click.echo(json.dumps(found.to_mapping(), indent=2) if is_json else render_scores(found))


def render_scores(found: Scores) -> str:
    """Write predicted and measured gains as a table, and their errors."""
    width = max(len(one.file) for one in found.scores) + 2
    starts = sorted(one.start_s for one in found.scores)
    lines = [
        f"over {found.profile}; {found.request_s * 1000:.3g} ms a request,"
        f" {starts[0]:.3g} to {starts[-1]:.3g} s to start",
        f"{'':{width}}{'before (s)':>18}{'after (s)':>16}{'gain':>16}{'error':>8}",
        f"{'':{width}}{'pred.':>9}{'meas.':>9}{'pred.':>8}{'meas.':>8}{'pred.':>8}{'meas.':>8}",
    ]
    lines += [
        f"{one.file:{width}}{one.predicted_before_s:>9.2f}{one.before_s:>9.2f}"
        f"{one.predicted_after_s:>8.2f}{one.after_s:>8.2f}{one.predicted_gain:>8.1f}{one.gain:>8.1f}"
        f"{one.error:>+8.0%}  {one.repack}"
        for one in found.scores
    ]
    errors = f"median {found.median_error:.0%}, worst {found.worst_error:.0%}"
    return "\n".join(
        [*lines, f"error of the predicted gain, of {len(found.scores)} files: {errors}"]
    )


def render(advised: Advised) -> list[str]:
    """Write a report and advice as lines of text."""
    present, costs = advised.present, advised.costs
    origin = "assumed, not measured" if costs.is_assumed else "fitted"
    lines = [
        *_render_report(advised.report),
        "",
        f"read {len(advised.variables)} of {len(advised.report.variables)} datasets over the network",
        f"    {advised.network};",
        f"    {costs.request_s * 1000:.3g} ms a request and {costs.start_s:.3g} s to start for client"
        f" and server, {present.listing_s:.2g} s to list and {present.decode_s:.2g} s to decode for"
        f" the library, are {origin}",
        f"{'':34}{'open':>8}{'read':>8}{'requests':>10}{'MB':>9}{'gain':>7}",
        _row("as it is, no cache", present.open_s, present.read_s)
        + f"{present.n_requests:>10}{present.nbytes / 1e6:>9.3g}{1:>7.1f}",
    ]
    for one in advised.advice:
        found = one.prediction
        lines.append(
            _row(one.label, found.open_s, found.read_s)
            + f"{found.n_requests:>10}{found.nbytes / 1e6:>9.3g}{one.gain:>7.1f}"
        )
    lines.append("")
    for one in advised.advice:
        lines += [f"{one.label}: {one.cost}", f"    {one.command}"]
    return lines


def _row(label: str, open_s: float, read_s: float) -> str:
    return f"{label:34}{open_s:>7.2f}s{read_s:>7.2f}s"


def _render_report(report: FileReport) -> list[str]:
    from advisors.hdf5.inspection import CHUNK_BOUNDS_NBYTES

    pages = f", pages of {report.page_nbytes / 2**20:g} MiB" if report.page_nbytes else ""
    lines = [
        f"{report.name}: {report.file_nbytes / 1e6:.3g} MB, file space: {report.strategy}{pages}",
        f"metadata: {report.metadata_nbytes / 1e3:.1f} kB in {report.n_metadata_spans} places,"
        f" the last ends at {report.metadata_end / 1e6:.3g} MB",
    ]
    if report.n_heap_spans:
        lines.append(
            f"heaps of attributes: {report.heap_nbytes / 1e3:.1f} kB in {report.n_heap_spans} places"
        )
    if report.userblock_nbytes:
        lines.append(f"user block: {report.userblock_nbytes} bytes")
    bounds = [f"under {bound / 1e3:g} kB" for bound in CHUNK_BOUNDS_NBYTES] + ["above"]
    counted = zip(bounds, report.chunk_counts, report.chunk_nbytes, strict=True)
    lines += [f"chunks {label}: {n}, {b / 1e6:.3g} MB" for label, n, b in counted if n]
    heaps = [v.name for v in report.variables if v.is_variable_length and not v.has_known_heaps]
    if heaps:
        lines.append(f"of variable length, too many to predict their heaps: {', '.join(heaps)}")
    others = [variable.name for variable in report.variables if variable.other_files]
    if others:
        lines.append(f"values in other files, not predicted: {', '.join(others)}")
    missing = {name for variable in report.variables for name in variable.missing_filters}
    if missing:
        lines.append(f"filters that are not here: {', '.join(sorted(missing))}")
    return lines
