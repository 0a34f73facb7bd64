"""What others published beside what is measured here: tables, claims with verdicts, and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd
import seaborn as sns
import yaml
from matplotlib.axes import Axes
from pydantic import BaseModel, ConfigDict, ValidationError

from helpers.benchmark.record import read_published, read_records
from helpers.benchmark.statistics import Comparison, Interval
from helpers.errors import UserError
from helpers.paths import ROOT
from helpers.plotting.figures import number_axis, write_key
from helpers.plotting.palette import Kind, colors, find_style, labels, markers
from helpers.plotting.tables import digits

FOLDER = ROOT / "results" / "published"
REFERENCE = ROOT / "results" / "reference"

CaseVerdict = Literal["holds", "does not hold", "undecided"]
Verdict = Literal["holds", "holds under conditions", "does not hold", "cannot be decided here"]
Answer = Interval | Comparison
"""A figure of ours, with its interval; a comparison knows the noise of its record too."""


def list_tables(folder: Path = FOLDER) -> pd.DataFrame:
    """Tabulate the published tables: rows, source, address, licence, and the pages that use each."""
    listed = yaml.safe_load((folder / "tables.yaml").read_text(encoding="utf-8"))
    lines = [
        (name, one["n_rows"], one["source"], one["url"], one["licence"], ", ".join(one["pages"]))
        for name, one in listed.items()
    ]
    return pd.DataFrame(
        lines, columns=["table", "rows", "source", "published at", "licence", "used by"]
    )


def read_reference(title: str) -> pd.DataFrame:
    """Read the committed record of a case, such as ``cluster-scaling/in-region``."""
    path = REFERENCE / f"{title}.csv"
    if not path.exists():
        raise UserError(f"case: {title!r} has no committed result; allowed: one that is published")
    return read_records([path])


def find_reference(title: str) -> pd.DataFrame | None:
    """Read the committed record of a case, if it has one by now."""
    is_there = (REFERENCE / f"{title}.csv").exists()
    return read_reference(title) if is_there else None


class Figure(BaseModel):
    """A published number: the median of a column over rows of a table, or the ratio of two."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: str
    over: str  # which rows, as `DataFrame.query` takes it
    column: str
    under: str = ""  # of a ratio, the rows or the column that divide
    under_column: str = ""
    factor: float = 1.0  # to the unit of the claim

    def read(self) -> float:
        """Read it from its table."""
        rows = read_published(self.table)
        value = self.factor * self._median(rows, self.over, self.column)
        if not (self.under or self.under_column):
            return value
        which, column = self.under or self.over, self.under_column or self.column
        return value / self._median(rows, which, column)

    def _median(self, rows: pd.DataFrame, which: str, column: str) -> float:
        found = rows.query(which, engine="python")[column].dropna()
        if found.empty:
            raise UserError(f"{self.table}: no row where {which}; allowed: rows of the table")
        return float(found.median())


class Claim(BaseModel):
    """What a source claims, and between which bounds of ours it counts as held."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    study: str  # key of the bibliography
    says: str
    tested_as: str = ""  # what we took for a number where the source has none
    unit: str = ""
    theirs: Figure | None = None  # None where the source gives no figure
    at_least: float = -math.inf
    at_most: float = math.inf
    decided_by: str = ""  # which case would decide it where none that was measured does


def read_claims(path: Path = FOLDER / "claims.yaml") -> dict[str, Claim]:
    """Read the claims of all sources, by name."""
    claims = {}
    for name, one in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        try:
            claims[name] = Claim.model_validate(one)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, (name, *first["loc"])))
            raise UserError(f"{path.name}: {place}: {first['msg']}") from error
    return claims


def exact(value: float) -> Interval:
    """Take what was counted or computed, and not measured: its interval is itself."""
    return Interval(float(value), float(value), float(value), 0)


def judge_case(claim: Claim, found: Answer) -> CaseVerdict:
    """Judge a claim in one case: by its whole interval, or not at all.

    A claim that one is faster than another, so with a bound of 1, is undecided inside the noise
    of the record too; one value alone, without an interval, decides nothing.

    Examples
    --------
    >>> tenfold = Claim(study="a", says="ten times as fast", at_least=5, at_most=20)
    >>> judge_case(tenfold, Interval(1.5, 1.4, 1.6, n=5))
    'does not hold'
    >>> judge_case(tenfold, Interval(6.0, 4.0, 9.0, n=5))
    'undecided'
    """
    ratio = found.ratio if isinstance(found, Comparison) else found
    is_noise = isinstance(found, Comparison) and found.verdict == "indistinguishable"
    if is_noise and 1 in (claim.at_least, claim.at_most):
        return "undecided"
    if claim.at_least <= ratio.low and ratio.high <= claim.at_most:
        return "holds"
    if ratio.high < claim.at_least or ratio.low > claim.at_most:
        return "does not hold"
    return "undecided"


def judge(claim: Claim, found: Mapping[str, Answer]) -> Verdict:
    """Judge a claim over all cases that speak to it, by their names.

    It holds where it does in each, and under conditions where it does in some.
    """
    verdicts = {judge_case(claim, one) for one in found.values()}
    if verdicts <= {"undecided"}:
        return "cannot be decided here"
    if verdicts == {"holds"}:
        return "holds"
    return "holds under conditions" if "holds" in verdicts else "does not hold"


def tabulate_claims(
    claims: Mapping[str, Claim], found: Mapping[str, Mapping[str, Answer]], study: str
) -> pd.DataFrame:
    """Tabulate the claims of a source: their figure, ours in each case, the verdict, and the rest.

    The rest says in which cases a claim holds and in which not, or what would decide it.
    """
    if unknown := [name for name in found if name not in claims]:
        raise UserError(f"claims: {', '.join(unknown)}; allowed: {', '.join(claims)}")
    lines = []
    for name, claim in claims.items():
        if claim.study == study:
            answers = found.get(name, {})
            verdict = judge(claim, answers)
            told = "; ".join(f"{case}: {_tell(one)}" for case, one in answers.items())
            theirs = "" if claim.theirs is None else digits(claim.theirs.read(), n=3)
            says = claim.says + (f"; tested as: {claim.tested_as}" if claim.tested_as else "")
            says += f" ({claim.unit})" if claim.unit else ""
            rest = _tell_rest(claim, answers, verdict)
            lines.append((says, theirs, told or "not measured", verdict, rest))
    names = ["claim", "theirs", "ours", "verdict", "where, or what would decide"]
    return pd.DataFrame(lines, columns=names, index=range(1, len(lines) + 1))


def _tell(found: Answer) -> str:
    """Write a figure and, where it has one, its interval."""
    ratio = found.ratio if isinstance(found, Comparison) else found
    if math.isinf(ratio.high):
        return f"at least {digits(ratio.low, n=3)}"
    ends = f" ({digits(ratio.low, n=3)} to {digits(ratio.high, n=3)})" if ratio.n > 1 else ""
    return f"{digits(ratio.centre, n=3)}{ends}"


def _tell_rest(claim: Claim, found: Mapping[str, Answer], verdict: Verdict) -> str:
    """Say where a claim holds, or what would decide it."""
    if verdict == "cannot be decided here":
        return (claim.decided_by or "more blocks, or a case that measures it").replace("`", "")
    places: dict[CaseVerdict, list[str]] = {}
    for case, one in found.items():
        places.setdefault(judge_case(claim, one), []).append(case)
    if len(places) == 1:
        return ""
    return "; ".join(f"{said}: {', '.join(where)}" for said, where in places.items())


def count_verdicts(
    claims: Mapping[str, Claim], found: Mapping[str, Mapping[str, Answer]]
) -> dict[Verdict, int]:
    """Count the claims of all sources by verdict."""
    counts: dict[Verdict, int] = dict.fromkeys(get_args(Verdict), 0)
    for name, claim in claims.items():
        counts[judge(claim, found.get(name, {}))] += 1
    return counts


_KINDS: Mapping[str, str] = {
    "csv": "CSV",
    "partcsv": "CSV in parts",
    "parquet": "Parquet, one file",
    "partparquet": "Parquet in parts",
    "partparquet2": "Parquet in parts, second copy",
    "nc": "netCDF",
    "zarr": "Zarr group",
    "zarray": "Zarr array",
}

CONVERSIONS: Mapping[str, str] = {
    "csv2partparqet": "CSV to Parquet in parts",
    "csv2parquet_local": "CSV to one file of Parquet, on the machine",
    "csv2partcsv": "CSV to CSV in parts",
    "netcdf2zgroup": "netCDF to a Zarr group",
    "netcdf2zarray": "netCDF to a Zarr array",
}
"""What the follow-up study converted, by its own names of it."""


def name_object(name: str) -> str:
    """Name an object of the follow-up study in words: its format, and how that was written.

    Examples
    --------
    >>> name_object("ETOPO1_Ice_g_gmt4.100MB.partparquet"), name_object("ETOPO1_Ice_g_gmt4.nc")
    ('Parquet in parts, 100 MB', 'netCDF')
    """
    _, *how, kind = name.split(".")
    return ", ".join([_KINDS[kind], *(one.replace("MB", " MB") for one in how)])


def read_stores() -> pd.DataFrame:
    """Read the runs of the stores of 2020: `store`, `n_workers`, `mb_per_s`, `is_exact`.

    Points of the figure, by their exact value where one is known, and the table of runs that the
    figure does not show.
    """
    points = read_published("abernathey2020_figure_digitised")
    runs = read_published("abernathey2020_runs").query("dataset == 'run_table'", engine="python")
    known = points["throughput_mb_per_s_exact"]
    digitised = {
        "store": points["panel"],
        "n_workers": points["nworkers"],
        "mb_per_s": known.fillna(points["throughput_mb_per_s"]),
        "is_exact": known.notna(),
    }
    table = {
        "store": "GCS Zarr",
        "n_workers": runs["nworkers"],
        "mb_per_s": runs["throughput_mb_per_s"],
        "is_exact": True,
    }
    found = pd.concat([pd.DataFrame(digitised), pd.DataFrame(table)], ignore_index=True)
    return found.astype({"n_workers": int})


def make_curve(sizes: Sequence[float], seconds: Sequence[Any], mb: float) -> pd.DataFrame:
    """Turn predicted seconds, each with its interval, into throughput of so many MB over workers."""
    rates = [(mb / one.value, mb / one.high, mb / one.low) for one in seconds]
    table = pd.DataFrame(rates, columns=["mb_per_s", "low", "high"])
    return table.assign(n_workers=[*sizes])


def draw_curve(ax: Axes, points: pd.DataFrame, curve: pd.DataFrame, name: str) -> None:
    """Draw the runs of a store over workers, and its fitted curve with the band of one run, if any.

    What was read from a figure is hollow.
    """
    style = find_style(name, "store")
    if "low" in curve:
        band = curve["low"], curve["high"]
        ax.fill_between(curve["n_workers"], *band, color=style.color, alpha=0.15, linewidth=0)
    ax.plot(curve["n_workers"], curve["mb_per_s"], color=style.color, linewidth=1.2, label=name)
    for is_exact, part in points.groupby("is_exact"):
        face = style.color if is_exact else "none"
        marks: dict[str, Any] = {"color": style.color, "markersize": 5, "alpha": 0.75}
        ax.plot(part["n_workers"], part["mb_per_s"], style.marker, markerfacecolor=face, **marks)


def draw_stores(ax: Axes, points: pd.DataFrame, curves: Mapping[str, pd.DataFrame]) -> None:
    """Draw all stores over one another, on logarithmic axes."""
    for name, part in points.groupby("store", sort=False):
        draw_curve(ax, part, curves[str(name)].drop(columns=["low", "high"]), str(name))
    set_log_axes(ax, "workers", "throughput (MB/s)")
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))


def set_log_axes(ax: Axes, xlabel: str, ylabel: str) -> None:
    """Make both axes logarithmic, with plain numbers."""
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    for axis in (ax.xaxis, ax.yaxis):
        number_axis(axis)


def draw_formats(ax: Axes, points: pd.DataFrame) -> None:
    """Draw the formats of the follow-up study over workers, mean and standard error of five runs."""
    for name, part in points.groupby("format", sort=False):
        style, line = find_style(str(name), "published-format"), part.sort_values("nworkers")
        rates = line["mean_throughput_mb_per_s"], line["throughput_sem_mb_per_s"]
        how: dict[str, Any] = {"marker": style.marker, "color": style.color, "label": style.label}
        ax.errorbar(line["nworkers"], *rates, **how)
    ax.set(xlabel="workers", ylabel="throughput (MB/s)", ylim=(0, None))
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))


def draw_clients(ax: Axes, points: pd.DataFrame, kind: Kind, *, key: str) -> None:
    """Draw throughput over chunk size, a line a client through its medians.

    The columns of `points` are `client`, `chunk_mb` and `mb_per_s`; `key` stands above the axes.
    """
    named = points.assign(client=points["client"].map(labels(kind)))
    how = {"palette": colors(kind), "markers": markers(kind), "dashes": False, "estimator": "median"}  # fmt: skip
    sns.lineplot(named, x="chunk_mb", y="mb_per_s", hue="client", style="client", errorbar=("pi", 100), ax=ax, **how)  # fmt: skip
    set_log_axes(ax, "chunk (MB)", "throughput (MB/s)")
    write_key(ax, key)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
