"""Published ratios between two readers, layouts or formats, each next to the same ratio of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from matplotlib.axes import Axes
from pydantic import BaseModel, ConfigDict, ValidationError

from book.cases import write_changed
from book.published import FOLDER, REFERENCE, Figure, Ours
from helpers.benchmark.record import read_records
from helpers.errors import UserError, explain
from helpers.plotting.figures import number_axis

TABLE = FOLDER / "against-real.csv"

NEAR = 1.5
"""Factor within which a ratio counts as met."""
CLEAR = 1.3
"""Published ratio from which on, either way, the order of the two has to be ours too."""


class Series(BaseModel):
    """Ratios of one table and one case: the time of each of `others` over that of `base`, at each of `at`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str  # key of the bibliography
    table: str
    column: str  # seconds, or with `is_rate` bytes in a second
    is_rate: bool = False
    theirs: str  # rows of the table, as `DataFrame.query` takes it, with {name} and {at}
    case: str
    ours: str  # rows of the record, likewise
    value: str = "read_s"  # of which columns, as `DataFrame.eval` takes it, with {at}
    base: dict[str, str]  # one name of theirs: ours
    others: dict[str, str]
    at: dict[str, str] = {"": ""}
    why: str = ""  # in which respect the two are not alike

    def compare(self) -> Iterator[tuple[object, ...]]:
        """Compare each ratio of the series that both have."""
        ((their_base, our_base),) = self.base.items()
        for their_at, our_at in self.at.items():
            for their_name, our_name in self.others.items():
                rows = (self.theirs.format(name=name, at=their_at) for name in (their_name, their_base))  # fmt: skip
                over, under = reversed([*rows]) if self.is_rate else rows
                published = Figure(table=self.table, over=over, under=under, column=self.column).read()  # fmt: skip
                over, under = (self.ours.format(name=name, at=our_at) for name in (our_name, our_base))  # fmt: skip
                found = Ours(
                    case=self.case, over=over, under=under, value=self.value.format(at=our_at)
                ).read()
                if found is not None:
                    what = (self.source, their_name, their_base, their_at)
                    yield *what, published, found.value, found.low, found.high, self.case, self.why


COLUMNS = ["source", "what", "over", "at", "published", "ours", "low", "high", "case", "why"]


def read_series(path: Path = FOLDER / "ratios.yaml") -> list[Series]:
    """Read which ratios are compared."""
    try:
        return [Series.model_validate(one) for one in yaml.safe_load(path.read_text("utf-8"))]
    except ValidationError as error:
        raise UserError(f"{path.name}: {explain(error)}") from error


def compare(series: list[Series]) -> pd.DataFrame:
    """Compare published ratios of times with ours.

    Returns
    -------
    DataFrame
        `COLUMNS`, and `quotient`, ours over published, and `is_charged`, whether the processors of
        the case were as slow as its network. Interval: 95 %, of the blocks of the case.
    """
    table = pd.DataFrame([line for one in series for line in one.compare()], columns=COLUMNS)
    charged = {case: _is_charged(str(case)) for case in table["case"].unique()}
    quotient = table["ours"] / table["published"]
    return table.assign(quotient=quotient, is_charged=table["case"].map(charged))


def write(path: Path = TABLE) -> bool:
    """Write the comparison; tell whether it changed."""
    return write_changed(path, compare(read_series()).to_csv(index=False, float_format="%.4g"))


def _is_charged(case: str) -> bool:
    """Tell whether the machine of a case had a stated number of processors."""
    rows = read_records([REFERENCE / f"{case}.csv"])
    return bool(json.loads(rows["parameters"].iloc[-1]).get("processors"))


def score(table: pd.DataFrame) -> dict[str, float]:
    """Score the comparison: how far ratios are off, and how often the order is right.

    Returns
    -------
    dict
        `n` ratios of `n_sources`; `median_factor` between the two, at least 1; `near_percent`
        within `NEAR`; of the `n_clear` published ratios beyond `CLEAR`, `ordered_percent` in the
        same order with us.

    Examples
    --------
    >>> table = pd.DataFrame({"source": ["a", "b"], "published": [2.0, 0.5], "ours": [1.6, 1.2]})
    >>> found = score(table)
    >>> found["n"], round(found["median_factor"], 2), found["near_percent"], found["ordered_percent"]
    (2, 1.73, 50.0, 50.0)
    """
    published, ours = (np.log(table[name].to_numpy()) for name in ("published", "ours"))
    off = np.abs(ours - published)
    clear = np.abs(published) > np.log(CLEAR)
    ordered = np.sign(ours[clear]) == np.sign(published[clear])
    return {
        "n": len(table),
        "n_sources": table["source"].nunique(),
        "median_factor": float(np.exp(np.median(off))),
        "near_percent": 100 * float((off <= np.log(NEAR)).mean()),
        "n_clear": int(clear.sum()),
        "ordered_percent": 100 * float(ordered.mean()),
    }


def tabulate_scores(table: pd.DataFrame) -> pd.DataFrame:
    """Score each source, and all together."""
    found = {str(source): score(part) for source, part in table.groupby("source", sort=False)}
    scores = pd.DataFrame.from_dict({**found, "all": score(table)}, orient="index")
    return scores.drop(columns="n_sources").rename_axis("source")


def draw(ax: Axes, table: pd.DataFrame) -> None:
    """Draw published ratios and ours on logarithmic axes, those of charged processors filled."""
    for source, part in table.groupby("source", sort=False):
        color = ax.plot([], [], "o", label=source)[0].get_color()
        for is_charged, some in part.groupby("is_charged"):
            ends = [some["ours"] - some["low"], some["high"] - some["ours"]]
            face = color if is_charged else "none"
            ax.errorbar(some["published"], some["ours"], ends, fmt="o", color=color, markerfacecolor=face, elinewidth=0.6)  # fmt: skip
    ends = np.array([0.8, 1.25]) * [table["published"].min(), table["published"].max()]
    ax.plot(ends, ends, color="0.5", linewidth=1)
    ax.fill_between(ends, ends / NEAR, ends * NEAR, color="0.5", alpha=0.15, linewidth=0)
    found = score(table)
    ax.set_title(f"{found['near_percent']:.0f} % of {found['n']} ratios are within {NEAR:g} of those published", x=0)  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="published (log)", ylabel="ours (log)")
    for axis in (ax.xaxis, ax.yaxis):
        number_axis(axis)
    ax.legend(frameon=False)
