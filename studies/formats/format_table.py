"""The table of formats and clients on their page: one row a way to read, a bar in each cell, chips for cases."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from helpers.benchmark.record import read_records
from helpers.benchmark.statistics import measured
from helpers.paths import ROOT
from helpers.plotting.tables import format_digits
from studies.formats.readers import FORMAT_READERS

REFERENCE = ROOT / "results" / "reference" / "formats"
CASES: Mapping[str, str] = {
    "counted": "same region, CPU time counted",
    "in-region": "same region, CPU time not counted",
    "other-region": "another region",
    "small": "20 MB",
    "large": "500 MB",
}
"""Cases of the table by what their chip says, the one that is shown first at the top."""

ACCESSES: Mapping[str, str] = {"whole": "the whole array", "series": "a time series"}
COLUMNS: Mapping[str, tuple[str, float]] = {
    "total": ("open and read (s)", 1.0),
    "open_s": ("open (s)", 1.0),
    "read_s": ("read (s)", 1.0),
    "n_requests": ("requests", 1.0),
    "wire_nbytes": ("MB moved", 1e-6),
}
"""Columns of a table: what their heads say, and the factor from the record's unit."""


def tabulate_reads(path: Path) -> dict[str, pd.DataFrame]:
    """Tabulate medians over repeats by access: a row a reader, the columns of `COLUMNS` in their units.

    Readers are in the order of `total`, the least first; references without a format and second
    copies are left out. No table where there is no record.
    """
    if not path.exists():
        return {}
    rows = measured(read_records([path]))
    rows = rows[~rows["is_ceiling"].astype(bool) & (rows["control_of"].fillna("") == "")]
    accesses = [json.loads(point).get("access", "") for point in rows["point"]]
    rows = rows.assign(access=accesses, total=rows["open_s"] + rows["read_s"])
    tables = {}
    for access in ACCESSES:
        part = rows[rows["access"] == access]
        if not part.empty:
            medians = part.groupby("contender")[[*COLUMNS]].median()
            scaled = medians * [factor for _, factor in COLUMNS.values()]
            tables[access] = scaled.sort_values("total")
    return tables


def render_table(folder: Path = REFERENCE) -> str:
    """Write all tables with a chip for each; without scripts, for the style sheet shows the chosen one."""
    tables = {
        f"{label}, {ACCESSES[access]}": table
        for case, label in CASES.items()
        for access, table in tabulate_reads(folder / f"{case}.csv").items()
    }
    if not tables:
        return "No record of formats is there.\n"
    chips = "\n".join(_write_chips(list(tables)))
    bodies = "\n".join(_write_table(label, table) for label, table in tables.items())
    return (
        "```{raw} html\n"
        f'<div class="format-table" role="group" aria-label="Formats and clients, by case">\n{chips}\n{bodies}\n</div>\n'
        "```\n"
    )


def _write_chips(labels: list[str]) -> Iterator[str]:
    """Write a radio button and its label for each table; the first is chosen."""
    for place, label in enumerate(labels):
        chosen = " checked" if place == 0 else ""
        yield f'<input type="radio" name="format-table" id="format-table-{place}"{chosen}><label for="format-table-{place}">{html.escape(label)}</label>'


def _write_table(caption: str, table: pd.DataFrame) -> str:
    """Write one table with a bar behind each number, as long as its share of the column's largest."""
    heads = "".join(f'<th scope="col">{head}</th>' for head, _ in COLUMNS.values())
    names = {name: reader.label for name, reader in FORMAT_READERS.items()}
    largest = table.max()
    lines = []
    for contender, row in table.iterrows():
        cells = "".join(
            f'<td><i style="width:{100 * row[name] / largest[name]:.0f}%"></i><span>{_format_cell(name, row[name])}</span></td>'
            for name in COLUMNS
        )
        label = html.escape(names.get(str(contender), str(contender)))
        lines.append(f'<tr><th scope="row">{label}</th>{cells}</tr>')
    return (
        f'<div class="format-rows"><table><caption>{html.escape(caption)}: medians over repeats, the quickest first</caption>'
        f'<thead><tr><th scope="col">format and client</th>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _format_cell(name: str, value: float) -> str:
    """Write a count whole, and any other number with two digits."""
    return f"{value:,.0f}" if name == "n_requests" else format_digits(value, n=2)
