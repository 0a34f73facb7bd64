"""Figures of cluster scaling: what the tables say is what is drawn, and nothing is clipped."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import matplotlib.style
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from helpers.errors import UserError
from helpers.plotting import palette
from helpers.plotting.palette import STYLE, get_looks
from studies.cluster_scaling.figures import draw_calibration, draw_scaling

NAMES = [name for name in get_looks("reader") if name != "raw"]


@pytest.fixture
def ax() -> Iterator[Axes]:
    """Axes of a figure in the style of the book."""
    with mpl.rc_context():
        mpl.style.use(STYLE)
        yield Figure().subplots()


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
    """Every contender; three of them end almost together."""
    ends = dict(
        zip(
            NAMES, [500.0, 505.0, 510.0, 420.0, 200.0, 60.0, 120.0, 350.0, 300.0, 40.0], strict=True
        )
    )
    return make_summary(**{name: [end / 5, end / 3, end / 2, end] for name, end in ends.items()})


def texts(ax: Axes) -> dict[str, Annotation]:
    """Find what is written on axes."""
    return {text.get_text(): text for text in ax.texts if isinstance(text, Annotation)}


def test_labels_do_not_overlap_and_stay_in_the_figure(ax: Axes, summary: pd.DataFrame) -> None:
    """All names and the key: no two boxes meet, none leaves the figure."""
    ceiling = make_summary(raw=[110.0, 220.0, 400.0, 515.0])
    points = summary.rename(columns={"median": "throughput_mb_per_s"})
    draw_scaling(ax, summary, points=points, predictions=points, ceiling=ceiling)
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
        assert texts(ax)[name].get_color() == get_looks("reader")[name].color
    assert ax.get_legend() is None and ax.get_title() == ""


def test_nothing_is_clipped(ax: Axes, summary: pd.DataFrame) -> None:
    """The highest and lowest number drawn, of any kind, lie inside the axes."""
    high = pd.DataFrame({"contender": [NAMES[0]], "n_workers": [8], "throughput_mb_per_s": [900.0]})
    low = high.assign(throughput_mb_per_s=1.5)
    draw_scaling(ax, summary, points=high, predictions=low)
    bottom, top = ax.get_ylim()
    assert top >= 900 and bottom <= 1.5
    left, right = ax.get_xlim()
    assert bottom == 0 and left < 1 and right > 8
    assert sorted(ax.get_xticks()) == [1, 2, 4, 8]


def test_axes_name_quantity_and_unit(ax: Axes, summary: pd.DataFrame) -> None:
    """Lower case, unit in brackets."""
    draw_scaling(ax, summary)
    assert ax.get_xlabel() == "workers"
    assert ax.get_ylabel() == "throughput (MB/s)"


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
    with pytest.raises(
        UserError, match="reader: no colour and marker for nobody; allowed: zarr-s3fs"
    ):
        draw_scaling(ax, make_summary(nobody=[1.0, 2.0, 3.0, 4.0]))


def test_calibration_shows_deviation_and_band(ax: Axes) -> None:
    """31.5 measured for 30 asked is 5 %, on the edge of the band, inside the axes."""
    draw_calibration(ax, [30.0, 60.0], [31.5, 54.0], x=[1, 64], xlabel="connections")
    marks = [line for line in ax.lines if line.get_marker() == "o"]
    assert marks[0].get_ydata().tolist() == pytest.approx([5, -10])
    assert marks[0].get_xdata().tolist() == [1, 64]
    assert ax.get_ylim()[0] < -10 and ax.get_ylim()[1] > 5
    assert ax.patches[0].get_bbox().intervaly.tolist() == [-5, 5]
    assert ax.get_ylabel() == "measured less target (%)"


def test_streams_that_nothing_came_over_are_drawn(ax: Axes) -> None:
    """On a busy machine half of the streams may get no byte in time; what is to come is not lost."""
    draw_calibration(ax, [20.0, 20.0], [20.0, 0.0], x=[1, 64], xlabel="connections")
    assert [*ax.lines[-1].get_ydata()] == [0, -100] and ax.get_ylim()[0] < -100


@pytest.mark.parametrize(
    ("target", "found", "x"),
    [([1.0], [1.0, 2.0], [1]), ([0.0], [1.0], [1]), ([1.0], [-1.0], [1]), ([1.0], [1.0], [1, 2])],
)
def test_calibration_of_unequal_lists_is_refused(
    ax: Axes, target: list[float], found: list[float], x: list[float]
) -> None:
    """A pair that lacks a side, a target of zero, or less than nothing, is a mistake."""
    with pytest.raises(UserError, match="target, measured"):
        draw_calibration(ax, target, found, x=x, xlabel="connections")


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
