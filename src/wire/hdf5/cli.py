"""``wire hdf5``: what is wrong with an HDF5 file for object storage, and what could be gained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wire.errors import UserError, cut, say

if TYPE_CHECKING:
    from wire.hdf5.advice import Advised

_MOST_S = 86_400  # that a look at a file may take


@click.group()
def hdf5() -> None:
    """Inspect an HDF5 or netCDF-4 file in object storage, and predict each way to read it."""


@hdf5.command(
    epilog="\b\n"
    + """Examples:
  wire hdf5 advise granule.h5 --variables gt1l/heights/h_ph
  wire hdf5 advise s3://bucket/granule.h5 --profile other-region
  wire hdf5 advise granule.h5 --apply rewritten.h5"""
)
@click.argument("source", metavar="FILE_OR_URL")
@click.option("--variables", "listed", multiple=True, metavar="NAME,…",
              help="Variables that are read, such as gt1l/heights/h_ph,gt1l/heights/lat_ph.  [default: all]")  # fmt: skip
@click.option("--profile", default="in-region", show_default=True, metavar="NAME|FILE",
              help="Network between reader and store: a name, or a file of `wire calibrate`.")  # fmt: skip
@click.option("--seconds", type=float, default=10.0, show_default=True,
              help="Time limit for inspecting and predicting, at least 1 s.")  # fmt: skip
@click.option("--json", "is_json", is_flag=True, help="Output as JSON.")
@click.option("--apply", "out", type=click.Path(path_type=Path),
              help="File to which h5repack writes a rewritten copy; h5diff compares it.")  # fmt: skip
@click.option("--repack", "label", default="",
              help="Label of the rewritten copy, as the output prints it.  [default: the fastest]")  # fmt: skip
def advise(
    source: str, listed: tuple[str, ...], *, profile: str, seconds: float, is_json: bool,
    out: Path | None, label: str,
) -> None:  # fmt: skip
    """Predict each way to read an HDF5 file over a network, and recommend one.

    FILE_OR_URL is a path, or a URL that begins with s3://, gs:// or https://. Only metadata are
    read. The output begins with the recommendation, and lists what is wrong with the file.
    """
    from wire.bed.networks import get_profile
    from wire.hdf5.advice import advise as find_advice
    from wire.hdf5.repacked import apply_repack, check_out

    if not 1 <= seconds <= _MOST_S:  # nan is refused too
        raise UserError("seconds", f"{seconds:g}", f"1 to {_MOST_S}")
    if out is not None:
        check_out(out)
    variables = [name for part in listed for name in part.split(",") if name]
    advised = find_advice(source, get_profile(profile), variables=variables, seconds=seconds)
    chosen = advised.find_repack(label) if out is not None or label else None
    text = json.dumps(asdict(advised), indent=2) if is_json else "\n".join(render(advised))
    say(text)
    if out is None or chosen is None:
        return
    say(f"{chosen.name}: {apply_repack(source, chosen, out)}", err=is_json)


def render(advised: Advised) -> Iterator[str]:  # numpydoc ignore=YD01
    """Write a report, what is wrong, and advice as lines of text."""
    from wire.hdf5.advice import GUIDE
    from wire.hdf5.prediction import REQUEST_S, START_S

    report = advised.report
    yield advised.answer
    pages = f"pages of {report.page_nbytes / 2**20:g} MiB" if report.page_nbytes else "no pages"
    yield f"{cut(report.name)}: {report.file_nbytes / 1e6:.3g} MB, {pages}, metadata of"
    yield f"    {report.metadata_nbytes / 1e3:.3g} kB in {report.n_metadata_spans} places"
    if report.n_left_out:
        yield f"    left out, for it would take long: {report.n_left_out:,} objects and chunks or more"
    yield from (f"    not predicted: {reason}" for reason in advised.not_predicted)
    yield from (f"wrong: {problem['text']}" for problem in advised.problems)
    yield f"nothing is wrong by {GUIDE}" if not advised.problems else f"    by {GUIDE}"
    yield f"read {len(advised.variables)} of {len(report.variables)} variables over {advised.profile}, predicted;"
    need = f"{REQUEST_S * 1000:.3g} ms a request and {START_S:.3g} s to start"
    yield f"    client and server are taken to need {need}"
    width = max(len(advice.label) for advice in advised.advice) + 4
    yield f"{'':{width}}{'open':>8}{'read':>9}{'requests':>10}{'MB':>9}{'speed-up':>10}"
    for advice in advised.advice:
        prediction = advice.prediction
        mark = "→ " if advice.label == advised.best else "  "
        yield (
            f"{mark + advice.label:{width}}{prediction.open_s:>7.2f}s{prediction.read_s:>8.2f}s"
            f"{prediction.n_requests:>10}{prediction.nbytes / 1e6:>9.3g}{advice.gain:>9.1f}x"
        )
    for advice in advised.advice:
        yield f"{advice.label} ({advice.cost}): {advice.command}"
    variables = report.variables
    notes = {
        "filters that are not here": {f for v in variables for f in v.missing_filters},
        "values in other files, not predicted": {v.name for v in variables if v.other_files},
        "of variable length, in heaps that are not predicted": {v.name for v in variables if v.is_variable_length},
    }  # fmt: skip
    for title, names in notes.items():
        if names:
            yield f"{title}: {', '.join(map(cut, sorted(names)[:8]))}{' …' * (len(names) > 8)}"
