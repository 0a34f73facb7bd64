"""Say how many times as fast one contender is as another, from the record that a page shows.

A text page writes ``{gain}`study/case key=value | slower | faster```; the values of the first part
select the rows of both contenders, those behind the name of one its own. A word without `=` in the
first part names the column that is compared, ``read_s`` by default; ``total_s`` is opening and
reading. What the record does not hold is told as not measured.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path

import pandas as pd
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from helpers.benchmark import statistics
from helpers.benchmark.record import read_records
from helpers.plotting.tables import digits

NOT_MEASURED = "not measured here"


def tell_gain(text: str, folder: Path) -> str:
    """Say it, from the records in a folder."""
    (case, *where), slower, faster = (part.split() for part in text.split("|"))
    path = folder / f"{case}.csv"
    if not path.exists():
        return NOT_MEASURED
    column = next((word for word in where if "=" not in word), "read_s")
    shared = [word for word in where if "=" in word]
    rows = read_measured(path, path.stat().st_mtime_ns)
    over, under = (select(rows, name, [*shared, *own]) for name, *own in (slower, faster))
    if not {*over["block"]} & {*under["block"]}:
        return NOT_MEASURED
    sides = [statistics.pool_copies(side, column) for side in (over, under)]
    ratio = statistics.paired_between(*sides, value=column)
    verdict = statistics.judge(ratio, noise_near(rows, under, column)).verdict
    ends = f" ({digits(ratio.low)} to {digits(ratio.high)})" if ratio.n > 1 else ""
    doubt = " (indistinguishable)" if verdict == "indistinguishable" else ""
    return f"{digits(ratio.centre)}{ends} times as fast{doubt}"


@functools.cache
def read_measured(path: Path, _changed_ns: int) -> pd.DataFrame:
    """Read a record, once for all that is told of it."""
    rows = statistics.measured(read_records([path]))
    return rows.assign(total_s=rows["open_s"] + rows["read_s"])


def select(rows: pd.DataFrame, name: str, conditions: list[str]) -> pd.DataFrame:
    """Choose the rows of a contender and its copy, which the pages count together, that meet all conditions."""
    reader = rows["contender"].where(rows["control_of"] == "", rows["control_of"])
    chosen = rows[reader == name]
    for key, _, value in (one.partition("=") for one in conditions):
        chosen = chosen[chosen[key].astype(str) == value] if key in chosen else chosen[:0]
    return chosen


def noise_near(rows: pd.DataFrame, near: pd.DataFrame, column: str) -> float:
    """Compute the A/A noise at the point of some rows, or where the record has a control."""
    copies = rows[rows["control_of"] != ""]
    here = copies[copies["point"].isin(near["point"])]
    if copies.empty:
        return math.nan
    copy = (copies if here.empty else here).iloc[-1]
    at = rows[rows["point"] == copy["point"]]
    return statistics.noise_ratio(at, copy["contender"], value=column)


class Gain(SphinxRole):
    """The role, which reads the records that lie beside the staged pages."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write the gain as text."""
        return [nodes.Text(tell_gain(self.text, Path(self.env.srcdir) / "notebooks"))], []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the role."""
    app.add_role("gain", Gain())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
