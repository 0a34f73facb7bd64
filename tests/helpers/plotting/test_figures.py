"""Figures refuse the unfair, clip nothing, and label without overlap."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, get_args

import matplotlib as mpl
import matplotlib.style
import nbformat
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advisors.costs.assumptions import OPTIONS
from helpers.arrays.readers import READERS
from helpers.benchmark.record import read_published
from helpers.errors import UserError
from helpers.paths import ROOT
from helpers.plotting import palette
from helpers.plotting.figures import (
    draw_errors,
    label_ends,
    number_axis,
    spread,
)
from helpers.plotting.palette import (
    STYLE,
    Look,
    check_looks,
    find_look,
    get_looks,
)
from studies.caching_costs import figures
from studies.caching_costs.caches import CACHES
from studies.chunk_shape.contenders import CODECS
from studies.chunk_shape.layouts import Medium, make_accesses
from studies.hdf5_drivers.drivers import DRIVERS
from studies.hdf5_drivers.figures import place_rows
from studies.hdf5_drivers.file_layouts import FILE_LAYOUTS
from studies.hdf5_drivers.files import LAYOUTS


@pytest.fixture
def ax() -> Iterator[Axes]:
    """Axes of a figure in the style of the book."""
    with mpl.rc_context():
        mpl.style.use(STYLE)
        yield Figure().subplots()


def luminance(color: str) -> float:
    """Relative luminance as WCAG defines it."""
    parts = np.array(mpl.colors.to_rgb(color))
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


KINDS: tuple[palette.Kind, ...] = get_args(palette.Kind)


@pytest.mark.parametrize(
    ("name", "look"),
    [(f"{kind} {name}", look) for kind in KINDS for name, look in get_looks(kind).items()],
)
def test_labels_in_these_colours_can_be_read(name: str, look: Look) -> None:
    """Each colour has a contrast of at least 4.5 to 1 on white, as text needs."""
    assert 1.05 / (luminance(look.color) + 0.05) >= 4.5, name


# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
DEFICIENCIES = {
    "none": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
}


def lab(color: str, deficiency: list[list[float]]) -> np.ndarray[Any, Any]:
    """Return CIE Lab of a colour as somebody with a deficiency sees it."""
    parts = np.array(mpl.colors.to_rgb(color))
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(deficiency) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.array(to_xyz) @ seen / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("kind", KINDS)
def test_colours_differ_for_the_colour_blind(kind: palette.Kind, deficiency: str) -> None:
    """Any two of a kind differ by their marks; two colours differ by 14 in CIE Lab."""
    for one, other in itertools.combinations(get_looks(kind).values(), 2):
        assert (one.marker, one.is_hollow) != (other.marker, other.is_hollow) or (
            one.color != other.color and kind == "driver"  # marks are those of a library's caches
        )
        if one.color != other.color:
            seen = [lab(look.color, DEFICIENCIES[deficiency]) for look in (one, other)]
            distance = np.linalg.norm(seen[0] - seen[1])
            assert distance >= 14, (one, other, distance)


REGISTRIES: dict[palette.Kind, Collection[str]] = {
    "reader": [*READERS, "raw"],
    "cache": CACHES,
    "option": OPTIONS,
    "driver": DRIVERS,
    "access": [access.name for access in make_accesses((60, 12, 12))],
    "medium": get_args(Medium),
    "codec": CODECS,
    "store": read_published("abernathey2020_figure_digitised")["panel"].unique(),
    "published-format": read_published("green2022_figures_digitised")["format"].unique(),
    "published-client": read_published("earthmover_tensor_storage_s3")["method"].unique(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_registered_can_be_drawn(kind: palette.Kind) -> None:
    """Every entry of a registry has a look, and no look stands for nothing."""
    check_looks(REGISTRIES[kind], kind)
    assert {*get_looks(kind)} == {*REGISTRIES[kind]}


def test_every_layout_of_a_file_has_its_place() -> None:
    """Layouts are rows, not colours; none is without one."""
    every = [*FILE_LAYOUTS, *LAYOUTS]
    assert len(place_rows([("ros3", layout) for layout in every])) == len({*every})


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_look_is_refused_by_name(kind: palette.Kind) -> None:
    """One line names what cannot be drawn, and where a look would be written."""
    with pytest.raises(UserError, match=f"^{kind}: no colour and marker for new-one; allowed: "):
        check_looks(["new-one", "new-one"], kind)
    with pytest.raises(UserError, match=r"or a line in palette\.py$"):
        find_look("new-one", kind)


def test_no_contender_vanishes_from_a_figure(ax: Axes) -> None:
    """What has no look stops a drawing that once left it out."""
    savings = pd.DataFrame({"lru": [2.0], "new-one": [3.0]}, index=["map"])
    opening = pd.DataFrame({"bound": [4.0]}, index=["map"])
    with pytest.raises(UserError, match="new-one"):
        figures.draw_savings(ax, savings, opening)
    with pytest.raises(UserError, match="new-one"):
        draw_errors(ax, pd.DataFrame({"contender": ["new-one"], "relative_error": [0.1]}))


_HEX = re.compile(r"#(?:[0-9a-fA-F]{8}|[0-9a-fA-F]{6}|[0-9a-fA-F]{3,4})\b")


def find_colours(source: str) -> set[str]:
    """Find colours that a source writes: hexadecimal in any text, names and letters as arguments."""
    tree = ast.parse(source)
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    found = {text for node in texts for text in _HEX.findall(str(node.value))}
    found |= {str(node.value) for node in texts if str(node.value) in mpl.colors.CSS4_COLORS}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and re.search("color|^c$|cmap|palette", node.arg or ""):
            found |= {str(node.value.value)} if isinstance(node.value, ast.Constant) else set()
    return found - {"none"}


def test_colours_are_found_wherever_they_are_written() -> None:
    """The search that the next test relies on finds each way to write a colour."""
    source = 'a = {"x": "#0073B1"}; f(facecolor="k"); g("white"); h(cmap="jet"); h(color="none")'
    assert find_colours(source) == {"#0073B1", "k", "white", "jet"}


def test_colours_stand_in_one_table() -> None:
    """No helper, notebook, script or style sheet of figures writes a colour of its own."""
    table = Path(palette.__file__)
    sources = {
        path: path.read_text() for path in [*ROOT.glob("helpers/**/*.py"), *ROOT.glob("_ext/*.py")]
    }
    for path in ROOT.glob("notebooks/*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        sources[path] = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert find_colours(sources.pop(table))
    written = {path.name: found for path, text in sources.items() if (found := find_colours(text))}
    for path in [*ROOT.glob("_static/*.js"), *ROOT.glob("helpers/**/*.mplstyle")]:
        if found := _HEX.findall(path.read_text()) + re.findall(r"color: *\w+", path.read_text()):
            written[path.name] = {*found}
    assert not written


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([], []),
        ([0.3], [0.3]),
        ([0.2, 0.8], [0.2, 0.8]),  # far apart: nothing moves
        ([0.5, 0.5], [0.45, 0.55]),  # two at one place part evenly
        ([0.9, 0.1], [0.9, 0.1]),  # the order given is the order returned
        ([1.0, 1.0], [0.9, 1.0]),  # not beyond the end
        ([-3.0, 0.0], [0.0, 0.1]),
    ],
)
def test_spread(places: list[float], expected: list[float]) -> None:
    """Labels move only when they must, and evenly."""
    assert spread(places, gap=0.1, low=0, high=1) == pytest.approx(expected)


@given(st.lists(st.floats(-1, 2), min_size=1, max_size=15))
@settings(max_examples=60, deadline=None)
def test_spread_keeps_order_gap_and_room(places: list[float]) -> None:
    """Neighbours keep their order and distance, inside the room."""
    found = spread(places, gap=0.1, low=0, high=1)
    gap = min(0.1, 1 / max(len(places) - 1, 1))
    order = np.argsort(places, kind="stable")
    assert (np.diff(np.array(found)[order]) >= gap - 1e-6).all()
    assert min(found) >= -1e-6 and max(found) <= 1 + 1e-6


def test_errors_show_every_point_in_percent(ax: Axes) -> None:
    """One row a contender, the far-off ones inside the axes."""
    errors = pd.DataFrame(
        {"contender": ["raw", "raw", "references"], "relative_error": [0.1, -0.7, 0.0]}
    )
    draw_errors(ax, errors)
    drawn = [line for line in ax.lines if line.get_marker() in {"x", "h"}]
    assert [line.get_xdata().tolist() for line in drawn] == [[10.0, -70.0], [0.0]]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["raw", "references"]
    assert ax.get_xlim()[0] < -70
    assert ax.patches[0].get_bbox().intervalx.tolist() == [-20, 20]


def test_labels_outside_a_figure_are_refused() -> None:
    """Axes that were removed have no size."""
    removed = Figure().subplots()
    removed.remove()
    with pytest.raises(UserError, match="ax: belongs to no figure"):
        label_ends(removed, [("a", 1.0, "#000000")], at=1.0)


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


def test_a_narrow_logarithmic_axis_has_fewer_numbers() -> None:
    """Numbers neither touch one another nor leave fewer than two, however narrow a panel is."""
    with mpl.rc_context():
        mpl.style.use(STYLE)
        figure = Figure(figsize=(7.2, 2))
        for ax, high in zip(figure.subplots(1, 4), (30.0, 200.0, 4e4, 2e-3), strict=True):
            ax.plot([high / 300, high], [1, 2])
            ax.set(xscale="log")
            number_axis(ax.xaxis)
        figure.draw_without_rendering()
        for ax in figure.axes:
            inside = [
                one
                for one in ax.get_xticklabels()
                if ax.get_xlim()[0] <= one.get_position()[0] <= ax.get_xlim()[1]
            ]
            ends = [(box.x0, box.x1) for box in (one.get_window_extent() for one in inside)]
            assert len(ends) >= 2 and all(a[1] < b[0] for a, b in itertools.pairwise(ends)), inside
