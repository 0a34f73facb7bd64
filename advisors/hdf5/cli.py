"""``wire hdf5 advise``: how an HDF5 file lies, and what its repack would gain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from advisors.hdf5.advice import Advised
    from advisors.hdf5.inspection import FileReport


@click.group()
def hdf5() -> None:
    """How an HDF5 file lies for reading over a network, and what repacking it gains."""


@hdf5.command()
@click.argument("source", metavar="FILE_OR_URL")
@click.option("--variable", "variables", multiple=True, help="A dataset to read; all by default.")
@click.option("--profile", default="in-region", show_default=True, help="Network it is read over.")
@click.option("--block", "block_mib", default=8.0, show_default=True, help="Blocks of cache, MiB.")
@click.option("--scaled", is_flag=True, help="Predict on the scale model that the book emulates.")
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
    scaled: bool,
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
    network = get_profile(profile) if scaled else advice.unscale(get_profile(profile))
    advised = advice.advise(source, network, variables=variables, settings=settings)
    chosen = advised.find_repack(label) if out is not None or label else None
    click.echo(
        json.dumps(advised.to_mapping(), indent=2) if is_json else "\n".join(render(advised))
    )
    if out is not None and chosen is not None:
        click.echo(f"{chosen[0]}: {apply_repack(source, chosen[1], out)}", err=is_json)


def render(advised: Advised) -> list[str]:
    """Write a report and advice as lines of text."""
    present, costs = advised.present, advised.costs
    origin = "assumed, not measured" if costs.is_assumed else "fitted"
    lines = [
        *_render_report(advised.report),
        "",
        f"read {len(advised.variables)} of {len(advised.report.variables)} datasets over the network",
        f"    {advised.network};",
        f"    {costs.request_s * 1000:g} ms a request and {costs.start_s:g} s to start"
        f" for client and server are {origin}; decoding is not counted",
        f"{'':34}{'open':>8}{'read':>8}{'requests':>10}{'MB':>9}{'gain':>7}",
        _row("as it is, no cache", present.open.seconds, present.read.seconds)
        + f"{present.n_requests:>10}{present.nbytes / 1e6:>9.3g}{1:>7.1f}",
    ]
    for one in advised.advice:
        found = one.prediction
        lines.append(
            _row(one.label, found.open.seconds, found.read.seconds)
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
    if report.userblock_nbytes:
        lines.append(f"user block: {report.userblock_nbytes} bytes")
    bounds = [f"under {bound / 1e3:g} kB" for bound in CHUNK_BOUNDS_NBYTES] + ["above"]
    counted = zip(bounds, report.chunk_counts, report.chunk_nbytes, strict=True)
    lines += [f"chunks {label}: {n}, {b / 1e6:.3g} MB" for label, n, b in counted if n]
    heaps = [variable.name for variable in report.variables if variable.is_variable_length]
    if heaps:
        lines.append(f"of variable length, their heaps not predicted: {', '.join(heaps)}")
    others = [variable.name for variable in report.variables if variable.other_files]
    if others:
        lines.append(f"values in other files, not predicted: {', '.join(others)}")
    missing = {name for variable in report.variables for name in variable.missing_filters}
    if missing:
        lines.append(f"filters that are not here: {', '.join(sorted(missing))}")
    return lines
