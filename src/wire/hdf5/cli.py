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
    """How an HDF5 file lies for reading over a network, and what can be gained."""


@hdf5.command()
@click.argument("source", metavar="FILE_OR_URL")
@click.option("--variables", "listed", multiple=True, metavar="NAME,…",
              help="Datasets to read, such as gt1l/heights/h_ph,gt1l/heights/lat_ph; all by default.")  # fmt: skip
@click.option("--profile", default="in-region", show_default=True, metavar="NAME|FILE",
              help="Network it is read over, or a file of `wire calibrate`.")  # fmt: skip
@click.option("--seconds", type=float, default=10.0, show_default=True,
              help="Time for looking at the file, and for predicting; at least 1.")  # fmt: skip
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@click.option("--apply", "out", type=click.Path(path_type=Path),
              help="Write a repack to this file, by h5repack, and compare it, by h5diff.")  # fmt: skip
@click.option("--repack", "label", default="", help="Label of the repack; the best by default.")
def advise(
    source: str, listed: tuple[str, ...], *, profile: str, seconds: float, is_json: bool,
    out: Path | None, label: str,
) -> None:  # fmt: skip
    """Say what is wrong with FILE_OR_URL, and predict each way to read it.

    It is a path, or an address that begins with s3://, gs:// or https://. Only metadata are read.
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
    pages = f"pages of {report.page_nbytes / 2**20:g} MiB" if report.page_nbytes else "no pages"
    yield f"{cut(report.name)}: {report.file_nbytes / 1e6:.3g} MB, {pages}, metadata of"
    yield f"    {report.metadata_nbytes / 1e3:.3g} kB in {report.n_metadata_spans} places"
    if report.n_left_out:
        yield f"    left out, for it would take long: {report.n_left_out:,} objects and chunks or more"
    if advised.not_predicted:
        yield f"    not predicted, for it would take long: {'; '.join(advised.not_predicted)}"
    yield from (f"wrong: {problem['text']}" for problem in advised.problems)
    yield f"nothing is wrong by {GUIDE}" if not advised.problems else f"    by {GUIDE}"
    yield f"read {len(advised.variables)} of {len(report.variables)} datasets over {advised.profile}, predicted;"
    need = f"{REQUEST_S * 1000:.3g} ms a request and {START_S:.3g} s to start"
    yield f"    client and server are taken to need {need}"
    width = max(len(advice.label) for advice in advised.advice) + 2
    yield f"{'':{width}}{'open':>8}{'read':>9}{'requests':>10}{'MB':>9}{'gain':>8}"
    for advice in advised.advice:
        prediction = advice.prediction
        yield (
            f"{advice.label:{width}}{prediction.open_s:>7.2f}s{prediction.read_s:>8.2f}s"
            f"{prediction.n_requests:>10}{prediction.nbytes / 1e6:>9.3g}{advice.gain:>8.1f}"
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
