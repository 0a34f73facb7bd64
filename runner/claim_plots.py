"""Pictures of what others published next to what is measured here: a strip a study, and a dot plot of claims."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.benchmark.record import read_records
from helpers.benchmark.statistics import measured
from helpers.findings import Finding
from helpers.plotting.tables import format_digits
from runner.published import REFERENCE, PublishedClaim, Verdict, judge_case

VERDICT_COLOURS: Mapping[Verdict, str] = {
    "same": "#009e73",
    "weaker here": "#e69f00",
    "contradicted": "#d55e00",
    "not comparable": "#888888",
    "not decided": "#888888",
}
PUBLISHED_NAMES: Mapping[str, str] = {
    "driver == 'fsspec' and optimised_io == 'no'": "fsspec, no cache",
    "driver == 'fsspec' and optimised_io == 'yes'": "fsspec, tuned",
    "driver == 'ros3' and optimised_io == 'no'": "ROS3, no cache",
    "driver == 'ros3' and optimised_io == 'yes'": "ROS3, tuned",
    "page-only-4mb": "pages of 4 MB",
    "page-only-8mb": "pages of 8 MB",
    "rechunked-4mb": "rechunked, 4 MB",
    "rechunked-8mb": "rechunked, 8 MB",
    "original": "as written",
    "feature": "diskcache",
    "feature2": "file cache",
    "feature3": "Redis",
    "dev": "no cache",
    "zarr-obstore": "obstore",
    "zarr-s3fs": "s3fs",
    "spatial_slice": "map",
    "time_series": "time series",
    "layout == 'contiguous time fastest'": "contiguous, time fastest",
    "layout == 'contiguous time slowest'": "contiguous, time slowest",
}
"""What readers call what tables of the sources name by a column or a condition."""
_MOST_LABELS = 10  # below a panel; of more places only their number is written
SMALL = 9.5
"""Points of the smallest letters, which a phone shows 9 px high: 34 rem for 7.6 inches."""


def spell(name: str) -> str:
    """Spell a name of a source's table as readers do.

    Examples
    --------
    >>> spell("chunk_kb_nominal == 1024"), spell("nworkers == 1"), spell("781250"), spell("CSV")
    ('chunks of 1024 kB', '1 worker', '0.78 MB', 'CSV')
    """
    if name in PUBLISHED_NAMES:
        return PUBLISHED_NAMES[name]
    column, _, value = name.partition(" == ")
    words = {"chunk_kb_nominal": "chunks of {} kB", "nworkers": "{} workers"}
    if column in words and value:
        return words[column].format(value).removesuffix("s" * (value == "1"))
    return f"{int(name) / 1e6:.2g} MB" if name.isdigit() and int(name) > 1e5 else name


def draw_strip(ratios: pd.DataFrame) -> Figure:
    """Draw the published ratios of a study with ours in them: a panel for what is compared, hollow is theirs.

    `ratios` has columns `what`, `over`, `at`, `published`, `ours`, `low` and `high`; a repeated
    ratio, which two of their tables have, is drawn twice.
    """
    panels = group_panels(ratios)
    n_columns = min(len(panels), 4)
    n_rows = math.ceil(len(panels) / n_columns)
    size = (7.6, 0.7 + n_rows * max(2.1, 1.6 + max(map(_find_label_height, panels.values()))))
    fig, axes = plt.subplots(
        n_rows, n_columns, figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    for ax, (title, part) in zip(axes.flat, panels.items(), strict=False):
        _draw_pairs(ax, part)
        ax.set_title("\n".join(textwrap.wrap(title, 19)), fontsize=SMALL)
    for ax in list(axes.flat)[len(panels) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        ax.set_ylabel("ratio of times (log)")
    handles = [
        Line2D([], [], linestyle="", marker="o", color="black", markerfacecolor="none"),
        Line2D([], [], linestyle="", marker="o", color="#0072b2"),
    ]
    fig.legend(handles, ["published", "ours"], loc="outside upper right", ncols=2, frameon=False)
    return fig


def group_panels(ratios: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Group ratios into panels by title, each with the column `label` of its places.

    A panel is one thing over another at several places; what is compared at one place alone shares
    a panel with all else that is over the same.

    Examples
    --------
    >>> table = pd.DataFrame({"what": ["a", "a", "b"], "over": "c", "at": ["2", "1", "1"]})
    >>> {title: [*part["label"]] for title, part in group_panels(table).items()}
    {'a over c': ['1', '2'], 'over c': ['b']}
    """
    ratios = ratios.assign(at=ratios["at"].fillna("").astype(str))
    n_places = ratios.groupby(["what", "over"])["at"].transform("nunique")
    is_alone = n_places == 1
    compared, over = ratios["what"].map(spell), ratios["over"].map(spell)
    titles = compared.where(~is_alone, "") + " over " + over
    labels = compared.where(is_alone, ratios["at"].map(spell))
    sizes = pd.to_numeric(ratios["at"], errors="coerce").fillna(0)
    ratios = ratios.assign(title=titles.str.strip(), label=labels, size=sizes)
    return {
        str(title): part.sort_values("size", kind="stable")
        for title, part in ratios.groupby("title", sort=False)
    }


def _find_angle(labels: Sequence[str]) -> int:
    """Find the degrees by which labels below an axis are turned: the more there are, the steeper."""
    if max(map(len, labels)) <= 3:
        return 0
    return 90 if len(labels) > 5 else 40


def _find_label_height(part: pd.DataFrame) -> float:
    """Find the inches that the labels of a panel take below its axis."""
    if len(part) > _MOST_LABELS:
        return 0.2
    longest = max(map(len, part["label"]))
    return 0.08 * longest * math.sin(math.radians(_find_angle([*part["label"]])))


def _draw_pairs(ax: Axes, part: pd.DataFrame) -> None:
    """Draw each published ratio and ours at one place of the axis, joined by a line."""
    places = np.arange(len(part))
    ax.axhline(1, color="0.7", linewidth=0.8, zorder=0)
    ax.vlines(places, part["published"], part["ours"], color="0.6", linewidth=1, zorder=1)
    ends = [part["ours"] - part["low"], part["high"] - part["ours"]]
    ax.errorbar(places, part["ours"], np.nan_to_num(ends), fmt="o", color="#0072b2", markersize=5)
    ax.plot(places, part["published"], "o", color="black", markerfacecolor="none", markersize=6)
    ax.set(yscale="log", xlim=(-0.6, len(part) - 0.4))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if len(part) <= _MOST_LABELS:
        labels = [*part["label"]]
        ax.set_xticks(places, labels, fontsize=SMALL)
        if angle := _find_angle(labels):
            ends_at_tick = {"ha": "right", "va": "center", "rotation_mode": "anchor"}
            ax.tick_params(axis="x", rotation=angle)
            plt.setp(ax.get_xticklabels(), **ends_at_tick)
    else:
        ax.set_xticks([])
        ax.set_xlabel(f"{len(part)} datasets or settings", fontsize=SMALL)
    ax.grid(visible=False, axis="x")


def compute_growth(rates: pd.DataFrame) -> pd.DataFrame:
    """Compute how throughput grows with a cluster: medians over those of the fewest workers.

    `rates` has columns `n_workers` and `mb_per_s`; of the result `size` is workers over the fewest,
    and `growth` is throughput over that of the fewest.

    Examples
    --------
    >>> rates = pd.DataFrame({"n_workers": [2, 8, 8], "mb_per_s": [10.0, 30.0, 34.0]})
    >>> compute_growth(rates).to_dict("list")
    {'size': [1.0, 4.0], 'growth': [1.0, 3.2]}
    """
    medians = rates.groupby("n_workers")["mb_per_s"].median().sort_index()
    size = medians.index.to_numpy(float) / medians.index[0]
    return pd.DataFrame({"size": size, "growth": medians.to_numpy() / medians.iloc[0]})


def read_our_rates() -> pd.DataFrame:
    """Read `reader`, `n_workers` and `mb_per_s` of Zarr and netCDF in our repetition of the eight stores."""
    rows = measured(read_records([REFERENCE / "cluster-studies" / "stores-of-2020.csv"]))
    rows = rows[rows["contender"].isin(["zarr-2020", "netcdf-2020"])]
    return pd.DataFrame(
        {
            "reader": rows["contender"].map({"zarr-2020": "Zarr", "netcdf-2020": "netCDF"}),
            "n_workers": rows["n_workers"].astype(int),
            "mb_per_s": rows["array_nbytes"] / rows["read_s"] / 1e6,
        }
    )


def find_size(claim: PublishedClaim) -> float:
    """Find the number that a claim is drawn at: the published one, else the middle of its bounds; else NaN.

    NaN where it is not above zero, for the axis is logarithmic.
    """
    if claim.published is not None:
        size = claim.published.read()
    elif math.isfinite(claim.at_least) and math.isfinite(claim.at_most):
        size = math.sqrt(max(claim.at_least, 0) * max(claim.at_most, 0))
    else:
        size = claim.at_least if math.isfinite(claim.at_least) else claim.at_most
    return size if math.isfinite(size) and size > 0 else math.nan


def list_drawn(
    claims: Mapping[str, PublishedClaim], findings: Mapping[str, Mapping[str, Finding]]
) -> list[str]:
    """List the claims that have a size and a figure of ours above zero, which a logarithmic axis can show."""
    return [
        name
        for name, claim in claims.items()
        if not math.isnan(find_size(claim))
        and any(answer.value > 0 for answer in findings.get(name, {}).values())
    ]


def draw_claims(
    claims: Mapping[str, PublishedClaim], findings: Mapping[str, Mapping[str, Finding]]
) -> Figure:
    """Draw our figures over the published one, a line a claim: a grey band between its bounds, a dot for each case.

    A dot has the colour of its verdict; at 1 ours is as published.
    """
    names = list_drawn(claims, findings)
    size = (7.6, 1.1 + 0.46 * len(names))
    fig, ax = plt.subplots(figsize=size, layout="constrained")
    shown: dict[Verdict, None] = {}
    numbers: dict[str, str] = {}
    for place, name in enumerate(names):
        claim = claims[name]
        scale = find_size(claim)
        _draw_band(ax, place, claim, scale)
        drawn = [answer for answer in findings[name].values() if answer.value > 0]
        for shift, answer in zip(
            np.linspace(-0.15, 0.15, len(drawn) + 2)[1:-1], drawn, strict=True
        ):
            verdict = judge_case(claim, answer)
            shown[verdict] = None
            low, high = (
                end if math.isfinite(end) else answer.value for end in (answer.low, answer.high)
            )
            ends = [
                [(answer.value - max(low, answer.value / 1e3)) / scale],
                [(high - answer.value) / scale],
            ]
            ax.errorbar(
                [answer.value / scale],
                [place + shift],
                xerr=ends,
                fmt="o",
                color=VERDICT_COLOURS[verdict],
            )
        numbers[name] = _write_numbers(scale, drawn[0].value)
        ax.annotate(
            numbers[name],
            (0, place),
            (-8, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=SMALL,
        )
    labels = ["\n".join(textwrap.wrap(claims[name].says, 42)) for name in names]
    ax.set_yticks(range(len(names)), labels, fontsize=SMALL)
    ax.tick_params(
        axis="y", length=0, pad=14 + 0.62 * SMALL * max(map(len, numbers.values()), default=0)
    )
    ax.axvline(1, color="black", linewidth=1)
    ax.set(xscale="log", xlabel="ours over published (log)", ylim=(len(names) - 0.5, -0.6))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.grid(visible=False, axis="y")
    _add_key(fig, [*shown])
    return fig


def _write_numbers(published: float, ours: float) -> str:
    """Write what was published and what is found here; beside the claim, so that a phone shows both at once."""
    return f"{format_digits(published, n=2)} \N{RIGHTWARDS ARROW} {format_digits(ours, n=2)}"


def _draw_band(ax: Axes, place: int, claim: PublishedClaim, scale: float) -> None:
    """Draw the bounds of a claim as a band; one without a bound to a side ends at ten times its size."""
    low = claim.at_least / scale if claim.at_least > 0 else 0.1
    high = claim.at_most / scale if math.isfinite(claim.at_most) else 10
    low, high = (end if math.isfinite(end) else 0.1 for end in (low, high))
    ax.barh(place, high - low, left=low, height=0.7, color="0.88", zorder=0)


def _add_key(fig: Figure, verdicts: Sequence[Verdict]) -> None:
    """Write what the colours mean, of those that are drawn."""
    texts: dict[str, list[str]] = {}
    for verdict in verdicts:
        texts.setdefault(VERDICT_COLOURS[verdict], []).append(verdict)
    handles = [Line2D([], [], linestyle="", marker="o", color=colour) for colour in texts]
    labels = [" or ".join(words) for words in texts.values()]
    fig.legend(
        handles, labels, loc="outside upper left", ncols=len(texts), frameon=False, fontsize=SMALL
    )
