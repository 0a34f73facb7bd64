"""Each figure once more for a narrow screen: panels below one another, letters at their size, the legend below.

A column of a telephone is about 370 px wide. A figure for a page of 720 px, scaled down to it, has
letters of half their size; so a second one is drawn, which the book shows there.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import warnings
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

from IPython.core.formatters import BaseFormatter, DisplayFormatter
from IPython.core.getipython import get_ipython
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.legend import Legend
from traitlets import ObjectName, Unicode

MIME = "image/vnd.narrow+svg"
"""Under this type a notebook keeps it, next to `image/svg+xml`; no other program shows it."""

WIDTH_IN = 3.7  # of a screen of 390 px less the margins of the page
_LINE = 42  # letters of a title that fit into that
_LABEL = 23  # letters of the name of a category, which share the line with what is drawn
_KEY = 16  # letters of a name in a legend of two columns
_PLACES: tuple[Literal["left", "center", "right"], ...] = ("left", "center", "right")
_NOTE = 8.5  # points of what is written next to a mark, where there is less room between them
_LINE_IN = 0.21  # height of a line of a legend


def render_narrow(fig: Figure) -> str:
    """Draw a figure for a narrow screen, as SVG. The figure is changed: draw it as it was before.

    Panels side by side come below one another, and one legend of all keys below them. Long titles
    and names are broken.
    """
    placed = [ax for ax in fig.axes if ax.get_visible() and ax.get_subplotspec() is not None]
    width, height = fig.get_size_inches()
    n_rows, n_columns = _count_panels(placed)
    if n_columns > 1:
        _stack(fig, placed)
        height *= max(1.0, 0.8 * len(placed) / n_rows)
    if title := fig.get_suptitle():
        fig.suptitle(fill(title, _LINE), x=0.01, ha="left", fontsize="medium")
    height += _break_lines(fig, placed) + _move_legends(fig, placed)
    fig.set_size_inches(min(width, WIDTH_IN), height)
    fig.set_layout_engine("constrained")
    text = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of axes that find no room
        fig.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _count_panels(placed: list[Axes]) -> tuple[int, int]:
    """Count the rows and columns of the grid in which panels lie."""
    specs = [spec for ax in placed if isinstance(spec := ax.get_subplotspec(), SubplotSpec)]
    if not specs:
        return 1, 1
    grid = specs[0].get_gridspec()
    return grid.nrows, grid.ncols


def _stack(fig: Figure, placed: list[Axes]) -> None:
    """Put panels below one another."""
    grid = fig.add_gridspec(len(placed), 1)
    for place, ax in enumerate(placed):
        ax.set_subplotspec(grid[place, 0])
        ax.tick_params(labelleft=True)
        ax.yaxis.get_label().set_visible(True)


def _break_lines(fig: Figure, placed: list[Axes]) -> float:
    """Break titles, labels and names of categories that are longer than a line, and return the height gained (inches).

    The title of the only panel becomes that of the figure, which has the width of the screen.
    """
    height = 0.0
    for ax in placed:
        title = "\n".join(filter(None, (ax.get_title(loc=at) for at in _PLACES)))
        for at in _PLACES:
            ax.set_title("", loc=at)
        if len(placed) == 1 and title:
            title = fill(title, _LINE)
            fig.suptitle(title, x=0.01, ha="left", fontsize="medium")
        elif title:
            title = fill(title, _LABEL + 10)
            ax.set_title(title, loc="left", fontsize="medium")
        height += _LINE_IN * title.count("\n")
        ax.set_xlabel(fill(ax.get_xlabel(), _LABEL))
        for note in ax.texts:
            note.set_fontsize(min(float(note.get_fontsize()), _NOTE))
        height += _turn_names(ax)
        names = [label.get_text() for label in ax.get_yticklabels()]
        if any(len(name) > _LABEL for name in names) and not any("$" in name for name in names):
            broken = [fill(name, _LABEL) for name in names]
            ax.set_yticks(ax.get_yticks(), broken)
            height += _LINE_IN * sum(name.count("\n") for name in broken)
    return height


def _turn_names(ax: Axes) -> float:
    """Turn names of categories below axes where they find no room side by side, and return the height gained (inches)."""
    names = [label.get_text() for label in ax.get_xticklabels()]
    is_words = any(re.search(r"[^\W\d_]{2}", name) for name in names if "$" not in name)
    widths = [max(map(len, name.split("\n"))) + 1 for name in names]
    if not is_words or sum(widths) <= _LINE - 10:
        return 0.0
    flat = [name.replace("\n", " ") for name in names]
    ax.set_xticks(ax.get_xticks(), flat, rotation=60, ha="right", rotation_mode="anchor")
    return 0.06 * max(map(len, flat))


def _move_legends(fig: Figure, placed: list[Axes]) -> float:
    """Put all legends below, as one, and return the height that it needs (inches)."""
    own = [legend for ax in placed if (legend := ax.get_legend()) is not None]
    keys: dict[str, Artist] = {}
    legends, title = [*fig.legends, *own], ""
    for legend in legends:
        texts = [text.get_text() for text in legend.get_texts()]
        for text, handle in zip(texts, legend.legend_handles, strict=True):
            if handle is not None:
                keys.setdefault(text, handle)
        title = legend.get_title().get_text() if len(legends) == 1 else ""
        legend.remove()
    if not keys:
        return 0.0
    n_columns = 2 if all(len(text) <= _KEY for text in keys) else 1
    names = [fill(text, _LINE) for text in keys]
    below = fig.legend(
        [*keys.values()],
        names,
        title=title,
        loc="outside lower left",
        ncols=n_columns,
        frameon=False,
    )
    return _height(below, n_columns)


def _height(legend: Legend, n_columns: int) -> float:
    """Estimate the height of a legend (inches)."""
    n_lines = sum(1 + text.get_text().count("\n") for text in legend.get_texts())
    return _LINE_IN * (-(-n_lines // n_columns) + bool(legend.get_title().get_text()))


def make_digest(svg: str) -> str:
    """Name a figure by its text, however its lines end."""
    return hashlib.sha256("\n".join(svg.splitlines()).encode()).hexdigest()[:24]


class _NarrowFormatter(BaseFormatter):
    format_type = Unicode(MIME)
    print_method = ObjectName("_repr_narrow_svg_")


def draw_both() -> None:
    """Let this notebook keep each figure in both forms; outside a notebook do nothing."""
    if (shell := get_ipython()) is not None and shell.display_formatter is not None:
        add_to(shell.display_formatter)


def add_to(formatter: DisplayFormatter) -> None:
    """Let a notebook draw each figure twice: as it is, and after that for a narrow screen.

    The second stands next to the first in the notebook, or, where the variable `ARRAYS_NARROW`
    names a folder, there, under the digest of the first.
    """
    wide = formatter.formatters["image/svg+xml"]
    draw_wide, drawn = wide.lookup_by_type(Figure), list[str]()

    def draw_as_it_is(fig: Figure) -> Any:
        picture = draw_wide(fig)
        drawn[:] = [picture[0] if isinstance(picture, tuple) else picture]
        return picture

    def draw_narrow(fig: Figure) -> str | None:
        folder, picture = os.environ.get("ARRAYS_NARROW"), render_narrow(fig)
        if not folder:
            return picture
        Path(folder, f"{make_digest(drawn[0])}.svg").write_text(picture, encoding="utf-8")
        return None

    wide.for_type(Figure, draw_as_it_is)
    narrow = _NarrowFormatter(parent=formatter)
    narrow.for_type(Figure, draw_narrow)  # type: ignore[no-untyped-call]
    formatter.formatters[MIME] = narrow
