"""Figures refuse the unfair, clip nothing, and label without overlap."""

from __future__ import annotations

import ast
import itertools
import json
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
from matplotlib.text import Annotation, Text

from advisors.costs.assumptions import OPTIONS
from helpers.arrays.readers import READERS
from helpers.benchmark.record import read_records
from helpers.errors import UserError
from helpers.paths import ROOT
from helpers.plotting import palette
from helpers.plotting.figures import (
    draw_calibration,
    draw_errors,
    draw_scaling,
    label_ends,
    number_axis,
    spread,
)
from helpers.plotting.palette import (
    STYLE,
    Look,
    UnfairComparisonError,
    check_looks,
    comparison,
    contender_palette,
    find_look,
    get_looks,
)
from studies.caching_costs import figures
from studies.caching_costs.caches import CACHES
from studies.chunk_shape import figures as chunk_drawing
from studies.chunk_shape.contenders import CODECS
from studies.chunk_shape.layouts import Medium, make_accesses
from studies.hdf5_drivers.drivers import DRIVERS
from studies.hdf5_drivers.figures import place_rows
from studies.hdf5_drivers.file_layouts import FILE_LAYOUTS
from studies.hdf5_drivers.files import LAYOUTS

NAMES = [name for name in contender_palette() if name != "raw"]


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
    with pytest.raises(UserError, match=r"or a line in looks\.py$"):
        find_look("new-one", kind)


def test_no_contender_vanishes_from_a_figure(ax: Axes) -> None:
    """What has no look stops a drawing that once left it out."""
    savings = pd.DataFrame({"lru": [2.0], "new-one": [3.0]}, index=["map"])
    opening = pd.DataFrame({"bound": [4.0]}, index=["map"])
    with pytest.raises(UserError, match="new-one"):
        figures.draw_savings(ax, savings, opening)
    codecs = pd.DataFrame(
        {"codec": ["none", "new-one"], "chunk_kib": 1, "ratio": 1, "decode_mb_per_s": 1}
    )
    with pytest.raises(UserError, match="new-one"):
        chunk_drawing.draw_codecs([ax, ax], codecs)
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


def test_palette_is_extended_not_changed() -> None:
    """A study may add contenders; names and colours in use stay whose they are."""
    look = Look("#303030", "*")
    assert contender_palette({"tiledb": look})["tiledb"] == look
    assert "tiledb" not in contender_palette()
    for name, taken in (("raw", look), ("tiledb", contender_palette()["raw"])):
        with pytest.raises(UserError, match="is taken"):
            contender_palette({name: taken})


def make_rows(**changed: dict[str, Any]) -> pd.DataFrame:
    """Return rows of two contenders and the ceiling at two points; `changed` by contender."""
    rows = []
    for n_workers in (1, 2):
        for name in ("a", "b", "raw"):
            row = {
                "contender": name,
                "point": f'{{"n_workers": {n_workers}}}',
                "is_ceiling": name == "raw",
                "codec": "none" if name == "raw" else "zstd",
                "concurrency": 8 * n_workers,  # grows along the x-axis, for all alike
                "cache_state": "cold",
                "array_nbytes": 100,
            }
            rows.append(row | changed.get(name, {}))
    return pd.DataFrame(rows)


def test_equal_contenders_need_no_footnote() -> None:
    """Equal at each point is fair, whatever changes from point to point."""
    assert comparison(make_rows()) == ""


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("codec", "lz4", r"codec: zstd \(a\), lz4 \(b\)"),
        ("concurrency", 10, r"concurrency: 8 \(a\), 10 \(b\)"),
        ("cache_state", "warm", r"cache_state: cold \(a\), warm \(b\)"),
        ("array_nbytes", 99, r"array_nbytes: 100 \(a\), 99 \(b\)"),
        ("codec", None, r"codec: zstd \(a\), .*\(b\)"),  # unknown is not equal
    ],
)
def test_unfair_is_refused_or_footnoted(name: str, value: object, told: str) -> None:
    """Undeclared, the line names the setting; declared, the footnote does; another does not help."""
    rows = make_rows(b={name: value})
    other = "array_nbytes" if name != "array_nbytes" else "codec"
    for declared in ((), (other,)):
        with pytest.raises(UnfairComparisonError, match=f"contenders differ in {told}"):
            comparison(rows, declared=declared)
    note = comparison(rows, declared=(name,))
    assert note.startswith(f"Not equal, by declaration: {name}: ") and note.endswith("(b).")


def make_traced(**seen: dict[str, Any]) -> pd.DataFrame:
    """Return rows of two equal contenders and the ceiling with traces; `seen` by contender."""
    rows = make_rows().assign(n_requests=10, wire_nbytes=50.0, stored_nbytes=50)
    for name, values in seen.items():
        for key, value in values.items():
            rows.loc[rows["contender"] == name, key] = value
    flights = {name: values.get("in_flight", 0.9) for name, values in seen.items()}
    shares = rows["contender"].map(flights).fillna(0.9) * rows["concurrency"]
    traces = [json.dumps({"mean_in_flight": s, "max_in_flight": s}) for s in shares]
    return rows.assign(trace=traces)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ({}, "^$"),
        ({"in_flight": 0.85}, "^$"),  # within the tolerance
        ({"in_flight": 0.5}, r"in flight over threads, on average: 0.5 \(b\), 0.9 \(a\), at n_"),
        ({"in_flight": 0.5}, r"in flight over threads, at most: 0.5 \(b\), 0.9 \(a\), at n_"),
        ({"n_requests": 20}, r"requests a chunk: 2 \(a\), 4 \(b\), at n_workers 2"),
        ({"wire_nbytes": 100.0}, r"over the wire over those stored: 1 \(a\), 2 \(b\), at"),
    ],
)
def test_what_the_trace_saw_is_declared(seen: dict[str, Any], told: str) -> None:
    """Equal settings are not equal reads: requests in flight, a chunk and bytes are compared."""
    note = comparison(make_traced(b=seen), n_chunks=5)
    assert re.search(told, note), note
    assert (note == "") or note.startswith("Not equal, in the trace: ")


def test_settings_and_traces_share_a_footnote() -> None:
    """A declared setting does not hide the trace; what was not traced is said to be so."""
    note = comparison(make_traced(b={"codec": "lz4", "n_requests": 20}), declared=("codec",))
    assert re.match(
        r"Not equal, by declaration: codec: .* Not equal, in the trace: requests: ", note
    )
    untraced = make_traced().assign(trace="{}", n_requests=np.nan, wire_nbytes=np.nan)
    assert comparison(untraced) == "Requests were not traced, so they are not compared."


def test_the_reference_declares_how_netcdf_reads() -> None:
    """In region netCDF has half as many requests in flight as threads, and the footnote says it."""
    rows = read_records([ROOT / "results" / "reference" / "cluster-scaling" / "in-region.csv"])
    measured = rows[(rows["phase"] == "measured") & (rows["control_of"] == "")]
    note = comparison(measured)
    assert "requests in flight over threads, at most: 0.5 (netcdf-fsspec), 1 (" in note


def test_comparison_on_what_is_not_there_is_refused() -> None:
    """A column nobody recorded cannot be equal."""
    with pytest.raises(UserError, match="on: codec is in no row"):
        comparison(make_rows().drop(columns="codec"))
    with pytest.raises(UserError, match="declared: colour; allowed: codec"):
        comparison(make_rows(), declared=("colour",))


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


def make_summary(**medians: list[float]) -> pd.DataFrame:
    """Return a summary at 1, 2, 4 and 8 workers."""
    rows = [
        {
            "contender": name,
            "n_workers": n,
            "median": value,
            "low": 0.9 * value,
            "high": 1.2 * value,
            "n": 5,
            "unstable": "",
        }
        for name, values in medians.items()
        for n, value in zip((1, 2, 4, 8), values, strict=True)
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def summary() -> pd.DataFrame:
    """Eight contenders, three of which end almost together."""
    ends = dict(zip(NAMES, [500.0, 505.0, 510.0, 420.0, 200.0, 60.0, 120.0, 350.0], strict=True))
    return make_summary(**{name: [end / 5, end / 3, end / 2, end] for name, end in ends.items()})


def texts(ax: Axes) -> dict[str, Annotation]:
    """Find what is written on axes."""
    return {text.get_text(): text for text in ax.texts if isinstance(text, Annotation)}


@pytest.mark.parametrize("log", [False, True])
def test_labels_do_not_overlap_and_stay_in_the_figure(
    ax: Axes, summary: pd.DataFrame, log: bool
) -> None:
    """Eight names and the key: no two boxes meet, none leaves the figure."""
    ceiling = make_summary(raw=[110.0, 220.0, 400.0, 515.0])
    points = summary.rename(columns={"median": "throughput_mb_per_s"})
    draw_scaling(ax, summary, points=points, predictions=points, ceiling=ceiling, log=log)
    ax.figure.draw_without_rendering()
    written = texts(ax)
    assert {*NAMES, "ceiling"} < set(written)
    # The box of the words alone: the thin line to the mark may pass others.
    boxes = {name: Text.get_window_extent(text) for name, text in written.items()}
    for one, other in itertools.combinations(boxes, 2):
        assert not boxes[one].overlaps(boxes[other]), (one, other)
    for name, box in boxes.items():
        page = ax.get_figure(root=True).bbox
        assert page.x0 <= box.x0 and box.x1 <= page.x1, name
        assert page.y0 <= box.y0 and box.y1 <= page.y1, name


def test_labels_have_the_colour_of_their_line(ax: Axes, summary: pd.DataFrame) -> None:
    """A label is found by its colour, and there is no legend and no title."""
    draw_scaling(ax, summary)
    for name in NAMES:
        assert texts(ax)[name].get_color() == contender_palette()[name].color
    assert ax.get_legend() is None and ax.get_title() == ""


@pytest.mark.parametrize("log", [False, True])
def test_nothing_is_clipped(ax: Axes, summary: pd.DataFrame, log: bool) -> None:
    """The highest and lowest number drawn, of any kind, lie inside the axes."""
    high = pd.DataFrame({"contender": [NAMES[0]], "n_workers": [8], "throughput_mb_per_s": [900.0]})
    low = high.assign(throughput_mb_per_s=1.5)
    draw_scaling(ax, summary, points=high, predictions=low, log=log)
    bottom, top = ax.get_ylim()
    assert top >= 900 and bottom <= 1.5
    assert (bottom == 0) is not log
    left, right = ax.get_xlim()
    assert left < 1 and right > 8 and (left == 0) is not log
    assert ax.get_yscale() == ("log" if log else "linear")
    assert sorted(ax.get_xticks()) == [1, 2, 4, 8]


def test_axes_name_quantity_and_unit(ax: Axes, summary: pd.DataFrame) -> None:
    """Lower case, unit in brackets, and which bytes."""
    draw_scaling(ax, summary)
    assert ax.get_xlabel() == "workers"
    assert ax.get_ylabel() == "throughput of array bytes (MB/s)"


def test_medians_intervals_points_and_predictions_are_drawn(ax: Axes) -> None:
    """What the tables say is what the lines hold."""
    summary = make_summary(raw=[1.0, 2.0, 4.0, 8.0])
    table = summary.rename(columns={"median": "throughput_mb_per_s"})
    draw_scaling(ax, summary, points=table, predictions=table.assign(throughput_mb_per_s=3.0))
    drawn = [line for line in ax.lines if len(line.get_xdata())]
    styles = {(line.get_linestyle(), line.get_marker()): line for line in drawn}
    assert styles["--", "None"].get_ydata().tolist() == [3.0] * 4
    assert styles["None", "_"].get_ydata().tolist() == [1.0, 2.0, 4.0, 8.0]
    assert styles["None", "x"].get_ydata().tolist() == [1.0, 2.0, 4.0, 8.0]
    (intervals,) = ax.collections
    ends = [segment[:, 1].tolist() for segment in intervals.get_segments()]
    assert np.allclose(ends, [[0.9 * y, 1.2 * y] for y in (1.0, 2.0, 4.0, 8.0)])


def test_unstable_medians_are_hollow_and_the_key_says_so(ax: Axes) -> None:
    """An unstable result says so itself; a stable figure does not mention it."""
    summary = make_summary(references=[1.0, 2.0, 4.0, 8.0])
    draw_scaling(ax, summary)
    assert not any("hollow" in text for text in texts(ax))
    other = Figure().subplots()
    summary.loc[3, "unstable"] = "standard deviation is 30 % of the mean"
    draw_scaling(other, summary)
    (hollow,) = [
        line
        for line in other.lines
        if line.get_markerfacecolor() == palette.PAPER and len(line.get_xdata())
    ]
    assert hollow.get_xdata().tolist() == [8]
    assert any("hollow: unstable" in text for text in texts(other))


def test_contender_without_a_look_is_refused(ax: Axes) -> None:
    """A colour made up on the spot would differ from page to page."""
    with pytest.raises(UserError, match="looks: none for nobody; allowed: zarr-s3fs"):
        draw_scaling(ax, make_summary(nobody=[1.0, 2.0, 3.0, 4.0]))


def test_calibration_shows_deviation_and_band(ax: Axes) -> None:
    """31.5 measured for 30 asked is 5 %, on the edge of the band, inside the axes."""
    draw_calibration(ax, [30.0, 60.0], [31.5, 54.0], x=[1, 64], xlabel="connections")
    marks = [line for line in ax.lines if line.get_marker() == "o"]
    assert marks[0].get_ydata().tolist() == pytest.approx([5, -10])
    assert marks[0].get_xdata().tolist() == [1, 64]
    assert ax.get_ylim()[0] < -10 and ax.get_ylim()[1] > 5
    assert ax.patches[0].get_bbox().intervaly.tolist() == [-5, 5]
    assert ax.get_ylabel() == "measured less asked (%)"


@pytest.mark.parametrize(
    ("asked", "found", "x"),
    [([1.0], [1.0, 2.0], None), ([1.0], [0.0], None), ([1.0], [1.0], [1, 2])],
)
def test_calibration_of_unequal_lists_is_refused(
    ax: Axes, asked: list[float], found: list[float], x: list[float] | None
) -> None:
    """A pair that lacks a side, or a zero, is a mistake."""
    with pytest.raises(UserError, match="asked, measured"):
        draw_calibration(ax, asked, found, x=x)


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


def test_figures_diff(summary: pd.DataFrame, tmp_path: Path) -> None:
    """The same table gives the same SVG, byte for byte, and its text can be searched."""
    drawn = []
    for name in ("one.svg", "two.svg"):
        with mpl.rc_context():
            mpl.style.use(STYLE)
            figure = Figure()
            draw_scaling(figure.subplots(), summary)
            figure.savefig(tmp_path / name, metadata={"Date": None})
        drawn.append((tmp_path / name).read_text())
    assert drawn[0] == drawn[1]
    assert ">netcdf-fsspec</text>" in drawn[0]


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
