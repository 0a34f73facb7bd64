"""Figures once more for a narrow screen: what is drawn of them, and where the book finds it."""

import io
import xml.etree.ElementTree as ET

import matplotlib.pyplot as plt
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure

from helpers.plotting import narrow
from helpers.plotting.palette import STYLE

POINTS = 72  # of an inch, as SVG counts


@pytest.fixture(autouse=True)
def _in_style():
    with plt.style.context(STYLE):
        yield
    plt.close("all")


def draw(n_columns=1, **options):
    fig, axes = plt.subplots(1, n_columns, figsize=(7.2, 3), squeeze=False, **options)
    for place, ax in enumerate(axes.flat):
        ax.plot([1, 2], [3, 4], label=f"a client of {place}")
        ax.set_title(f"panel {place}")
    return fig, axes[0]


def size_of(svg):
    root = ET.fromstring(svg)
    width, height = (float(root.get(side).removesuffix("pt")) for side in ("width", "height"))
    return width / POINTS, height / POINTS


def test_it_has_the_width_of_a_phone():
    fig, _ = draw()
    width, height = size_of(narrow.render_narrow(fig))
    assert width == pytest.approx(narrow.WIDTH_IN)
    assert height == pytest.approx(3)


def test_panels_side_by_side_come_below_one_another():
    fig, axes = draw(3, sharey=True)
    _, height = size_of(narrow.render_narrow(fig))
    places = [ax.get_position() for ax in axes]
    assert height > 6
    assert len({round(place.x0, 6) for place in places}) == 1
    assert places[0].y0 > places[1].y1 > places[1].y0 > places[2].y1


def test_a_legend_beside_the_axes_goes_below_them_and_takes_room_of_its_own():
    fig, axes = draw()
    axes[0].legend(loc="upper left", bbox_to_anchor=(1, 1))
    _, height = size_of(narrow.render_narrow(fig))
    assert axes[0].get_legend() is None
    legend = fig.legends[0].get_window_extent()
    assert legend.y1 <= axes[0].get_tightbbox().y0
    assert height > 3


def test_long_titles_and_names_are_broken():
    fig, axes = draw()
    axes[0].set_title("One title of so many words that no phone can show all of them in a line")
    axes[0].set_yticks([3, 4], ["whole file, obstore on Google", "b"])
    svg = narrow.render_narrow(fig)
    assert axes[0].get_yticklabels()[0].get_text() == "whole file, obstore on\nGoogle"
    assert "\n" in fig.get_suptitle()
    assert "many words that no phone can show all of them in a line" not in svg


def test_names_below_the_axes_are_turned_where_they_find_no_room():
    fig, axes = draw()
    axes[0].set_xticks(
        [1, 1.3, 1.6, 2], ["pages of 4 MiB", "pages of 8 MiB", "as\nwritten", "longer"]
    )
    narrow.render_narrow(fig)
    boxes = [label.get_window_extent() for label in axes[0].get_xticklabels()]
    assert axes[0].get_xticklabels()[2].get_text() == "as written"
    assert all(label.get_rotation() == 60 for label in axes[0].get_xticklabels())
    assert min(box.y0 for box in boxes) >= 0


def test_a_notebook_keeps_both_drawings_and_the_wide_one_first(monkeypatch):
    monkeypatch.delenv("ARRAYS_NARROW", raising=False)
    both, _ = show(draw()[0])
    assert size_of(both["image/svg+xml"])[0] > size_of(both[narrow.MIME])[0]


def test_a_page_that_draws_itself_leaves_the_narrow_one_where_the_book_finds_it(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("ARRAYS_NARROW", str(tmp_path))
    shown, _ = show(draw()[0])
    assert narrow.MIME not in shown
    name = f"{narrow.make_digest(shown['image/svg+xml'])}.svg"
    assert size_of((tmp_path / name).read_text())[0] == pytest.approx(narrow.WIDTH_IN)


def show(fig):
    formatter = DisplayFormatter()
    formatter.formatters["image/svg+xml"].for_type(Figure, draw_svg)
    narrow.add_to(formatter)
    return formatter.format(fig)


def draw_svg(fig):
    text = io.StringIO()
    fig.savefig(text, format="svg")
    return text.getvalue()
