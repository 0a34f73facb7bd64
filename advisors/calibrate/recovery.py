"""Whether `wire calibrate` finds the figures of networks that it does not know.

`python -m advisors.calibrate.recovery` draws networks at random, puts each before the embedded
store, calibrates it as anybody would, and writes the record of what was drawn and what was found;
under a minute a network. They are slow, so that a machine of two cores is no part of what is found.
"""

from __future__ import annotations

import csv
import math
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from helpers.errors import UserError
from helpers.netem.profiles import get_measurement, get_profile
from helpers.paths import ROOT

RECORD = ROOT / "data" / "scale-out" / "calibration.csv"
"""What was measured for this book."""

TARGET = 0.05
"""How far off a figure may be."""

FIGURES = {
    "median_s": "first byte, median",
    "p95_s": "first byte, 95th percentile",
    "stream_mb_per_s": "one connection",
    "aggregate_mb_per_s": "all connections",
    "requests_per_s": "requests a second",
}


def draw(rng: random.Random) -> dict[str, float]:
    """Draw a network: its first byte, its rates, and how much more its link carries than a stream."""
    median_s, stream = rng.uniform(0.1, 0.25), rng.uniform(3.0, 5.0)
    drawn = {
        "median_s": median_s,
        "p95_s": median_s * rng.uniform(1.5, 3.0),
        "stream_mb_per_s": stream,
        "aggregate_mb_per_s": stream * rng.uniform(2.2, 3.8),
        "requests_per_s": rng.uniform(70.0, 130.0),
    }
    return {name: float(f"{value:.3g}") for name, value in drawn.items()}


def recover(drawn: Mapping[str, float], folder: Path) -> dict[str, float | None]:
    """Calibrate the embedded store over a network, and return the figures that were found.

    All are None where the calibration ended before its time, as where the store refuses too much.
    """
    import yaml

    from advisors.calibrate.cli import calibrate

    told = {name: value for name, value in drawn.items() if name not in ("median_s", "p95_s")}
    told |= {"first_byte_s": {name: drawn[name] for name in ("median_s", "p95_s")}}  # type: ignore[dict-item]
    network, out = folder / "drawn.yml", folder / "found.yml"
    network.write_text(yaml.safe_dump(told), encoding="utf-8")
    options = ["embedded", "--emulate", str(network), "--out", str(out), "--max-mb", "400"]
    try:
        calibrate.main(options, standalone_mode=False)
    except UserError as error:
        click.echo(error)
    if not out.exists() or get_measurement(str(out))["state"] != "complete":
        return dict.fromkeys(drawn)
    found = get_profile(str(out))
    first = found.first_byte_s
    seen = {name: getattr(found, name) for name in FIGURES if name in told}
    return seen | {name: first and getattr(first, name) for name in ("median_s", "p95_s")}


def measure(n_networks: int, seed: int) -> Iterator[dict[str, Any]]:
    """Recover networks drawn from a seed; yield a row a figure: `network`, `figure`, `drawn`, `found`."""
    if n_networks < 1:
        raise UserError(f"networks: {n_networks}; allowed: at least 1")
    rng = random.Random(seed)
    for number in range(n_networks):
        drawn = draw(rng)
        with TemporaryDirectory() as folder:
            found = recover(drawn, Path(folder))
        for name, value in drawn.items():
            yield {"network": number, "seed": seed, "figure": name, "drawn": value, "found": found[name]}  # fmt: skip


def render_recovery(path: Path = RECORD) -> str:
    """Write how far off each figure was, over all networks, and hold it to the target."""
    if not path.exists():
        return "Not measured yet; `python -m advisors.calibrate.recovery` does it.\n"
    with path.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    return _tell(rows)


def _tell(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| figure | median error (%) | largest (%) |", "| --- | ---: | ---: |"]
    missed = []
    for name, title in FIGURES.items():
        same = [row for row in rows if row["figure"] == name]
        errors = [
            abs(float(row["found"]) / float(row["drawn"]) - 1) if row["found"] else math.inf
            for row in same
        ]
        shown = [
            f"{100 * error:.1f}" if math.isfinite(error) else "not found"
            for error in (statistics.median(errors), max(errors))
        ]
        lines.append(f"| {title} | {' | '.join(shown)} |")
        missed += [title] if max(errors) > TARGET else []
    n = len({row["network"] for row in rows})
    verdict = f"not kept for: {'; '.join(missed)}" if missed else "kept by each figure"
    return "\n".join([
        *lines,
        "",
        f"Networks drawn at random, {n} of them, which the calibration did not know;"
        f" our target, each figure within {100 * TARGET:g} %, is {verdict}.\n",
    ])  # fmt: skip


@click.command()
@click.option("--networks", default=3, show_default=True, help="Networks to draw.")
@click.option("--seed", default=1, show_default=True, help="They are drawn from.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=RECORD)
def main(networks: int, seed: int, out: Path) -> None:
    """Draw networks, calibrate each, and keep what was drawn and found."""
    from helpers.benchmark.provenance import write_rows

    rows = [*measure(networks, seed)]
    write_rows(out, rows, ("python", "obstore"))
    click.echo(_tell(rows))


if __name__ == "__main__":
    sys.exit(main())
