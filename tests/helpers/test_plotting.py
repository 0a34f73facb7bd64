"""Figures have one look and tables one spelling, wherever they are made."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Any, get_args

import matplotlib as mpl
import matplotlib.style
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.arrays.readers import READERS
from helpers.benchmark.record import read_published
from helpers.plotting import palette
from helpers.plotting.figures import number_axis
from helpers.plotting.palette import STYLE, Style, find_style, list_styles
from helpers.plotting.tables import count_rows, show
from studies.caching_costs.caches import CACHES
from studies.caching_costs.staleness import WATCHED
from studies.chunk_shape.layouts import Medium, make_accesses
from studies.hdf5_drivers.drivers import DRIVERS
from studies.requests_in_flight.workload import POOLS
from tests.refusals import refused
from wire.costs.bill import OPTIONS


@pytest.fixture
def ax() -> Iterator[Axes]:
    """Axes of a figure in the style of the book."""
    with mpl.rc_context():
        mpl.style.use(STYLE)
        yield Figure().subplots()


def linear(color: str) -> np.ndarray[Any, Any]:
    """Return linear RGB."""
    parts = np.array(mpl.colors.to_rgb(color))
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


KINDS: tuple[palette.Kind, ...] = get_args(palette.Kind)


@pytest.mark.parametrize(
    ("name", "style"),
    [(f"{kind} {name}", style) for kind in KINDS for name, style in list_styles(kind).items()],
)
def test_labels_in_these_colours_can_be_read(name: str, style: Style) -> None:
    """Each colour has a contrast of at least 4.5 to 1 on white, as text needs."""
    luminance = linear(style.color) @ [0.2126, 0.7152, 0.0722]  # as WCAG defines it
    assert 1.05 / (luminance + 0.05) >= 4.5, name


# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
DEFICIENCIES = {
    "none": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
}


def lab(color: str, deficiency: list[list[float]]) -> np.ndarray[Any, Any]:
    """Return CIE Lab of a colour as somebody with a deficiency sees it."""
    seen = np.clip(np.array(deficiency) @ linear(color), 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.array(to_xyz) @ seen / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("kind", KINDS)
def test_colours_differ_for_the_colour_blind(kind: palette.Kind, deficiency: str) -> None:
    """Any two of a kind differ by their marks; two colours differ by 14 in CIE Lab."""
    for one, other in itertools.combinations(list_styles(kind).values(), 2):
        assert one.marker != other.marker
        if one.color != other.color:
            seen = [lab(style.color, DEFICIENCIES[deficiency]) for style in (one, other)]
            distance = np.linalg.norm(seen[0] - seen[1])
            assert distance >= 14, (one, other, distance)


REGISTRIES: dict[palette.Kind, Collection[str]] = {
    "reader": [*READERS, *POOLS, "raw"],
    "cache": {*CACHES, *WATCHED},
    "option": OPTIONS,
    "driver": DRIVERS,
    "access": [access.name for access in make_accesses((60, 12, 12))],
    "medium": get_args(Medium),
    "store": read_published("abernathey2020_figure_digitised")["panel"].unique(),
    "format": [
        *read_published("green2022_figures_digitised")["format"].unique(),
        "TileDB Embedded",
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_registered_can_be_drawn(kind: palette.Kind) -> None:
    """Every entry of a registry has a style, and no style stands for nothing."""
    assert {*list_styles(kind)} == {*REGISTRIES[kind]}


def test_palettes_are_by_label_and_what_has_no_style_is_refused() -> None:
    """seaborn takes colours and markers by the label that a frame has."""
    for kind in KINDS:
        labels = palette.labels(kind)
        assert {*labels.values()} == {*palette.colors(kind)} == {*palette.markers(kind)}
        assert len({*labels.values()}) == len(labels), kind
    with refused("reader", "^no colour and marker for nothing"):
        find_style("nothing", "reader")
    assert find_style("raw", "reader").label == "raw reads"


@pytest.mark.parametrize(
    ("low", "high", "told", "untold"),
    [
        (0.08, 0.6, {"0.1", "0.2", "0.5"}, {"0.3"}),  # less than a decade
        (1e-4, 1.0, {"0.001", "0.1"}, {"0.002", "0.2"}),  # many decades
        (800.0, 30_000.0, {"1000", "10,000"}, {"1e+04"}),  # thousands as in tables
    ],
)
def test_a_logarithmic_axis_has_plain_numbers(
    ax: Axes, low: float, high: float, told: set[str], untold: set[str]
) -> None:
    """No powers of ten, and no more of them than find room."""
    ax.plot([low, high], [low, high])
    ax.set(xscale="log", yscale="log")
    number_axis(ax.xaxis)
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    labels = {label.get_text() for label in ax.get_xticklabels(which="both")}
    assert told <= labels and not untold & labels
    assert not any("^" in label.get_text() for label in ax.get_yticklabels(which="both"))


def test_tables_are_named_and_rounded_where_they_are_made() -> None:
    """Heads with units, contenders by their labels, three digits, a dash where nothing is."""
    frame = pd.DataFrame(
        {"read_s": [1.23456, float("nan")], "n_requests": [12345, 7], "is_cold": [True, False]},
        index=pd.Index(["zarr-s3fs", "raw"], name="reader"),
    )
    told = show(frame, kind="reader")
    assert [*told] == ["read (s)", "requests", "is cold"]
    assert [*told.index] == ["s3fs, default", "raw reads"]
    assert told.to_numpy().tolist() == [["1.23", "12,345", "yes"], ["\N{EN DASH}", "7", "no"]]
    assert "<b>" not in show(pd.DataFrame({"x": ["<b>"]})).to_html()


def test_rows_are_counted_by_phase() -> None:
    """What ended a measurement stands with its rows."""
    rows = pd.DataFrame({"phase": ["warm-up", "measured", "measured"], "block": [0, 0, 1]})
    told = count_rows(rows, stopped_by="its time budget").loc["measured"]
    assert [*told] == [2, 2, "its time budget"]
