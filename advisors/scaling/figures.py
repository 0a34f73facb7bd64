"""Figures of the page on scaling out, of what was simulated, as SVG text."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advisors.scaling.cluster import CAUSES
from advisors.scaling.scale_out import Outlook, find_outlooks, find_tails
from helpers.plotting.figures import label_ends, number_axis, write_key
from helpers.plotting.palette import (
    BAND,
    BLUE,
    BROWN,
    CEILING_GREY,
    GREEN,
    INDIGO,
    PLUM,
    RED,
    RULE,
    RUST,
    STYLE,
    TEAL,
)  # fmt: skip

_COLORS = (RED, BLUE, GREEN)  # of plans and of tails, in the order in which they are found
_MARKERS = ("o", "s", "^")
# Where the time of a slot goes, from what is wasted to what is wanted.
_CAUSE_COLORS = dict(
    zip(
        CAUSES, (PLUM, RED, TEAL, BROWN, RUST, BLUE, INDIGO, GREEN, CEILING_GREY, BAND), strict=True
    )
)
_LEAST_SHARE = 0.02  # of a cause that is drawn by its name


@contextmanager
def _paper(size: tuple[float, float]) -> Iterator[Figure]:
    """Make a figure in the style of the book, without a window and without pyplot's list."""
    with matplotlib.style.context(list(STYLE)):
        yield Figure(figsize=size)


def write_svg(figure: Figure) -> str:
    """Write a figure as SVG, the same text for the same drawing."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def draw_petabyte() -> str:
    """Draw hours and dollars of a petabyte over workers, a line a plan."""
    with _paper((7.2, 6.6)) as figure:
        hours, dollars = figure.subplots(2, 1, sharex=True)
        outlooks = find_outlooks()
        _draw_lines(hours, outlooks, lambda o: [each.seconds / 3600 for each in o.found])
        _draw_lines(dollars, outlooks, lambda o: o.usd)
        hours.set(ylabel="time (hours)")
        dollars.set(ylabel="price (USD)", xlabel="workers of two cores")
        write_key(hours, "simulated; both axes logarithmic")
        return write_svg(figure)


def _draw_lines(
    ax: Axes, outlooks: Sequence[Outlook], values: Callable[[Outlook], Sequence[float]]
) -> None:
    """Draw a line for each plan, with its name at the end."""
    ends: list[tuple[str, float, str]] = []
    for outlook, color, marker in zip(outlooks, _COLORS, _MARKERS, strict=True):
        sizes = [each.n_workers for each in outlook.found]
        y = values(outlook)
        ax.plot(sizes, y, marker=marker, color=color)
        ends.append((outlook.label, float(y[-1]), color))
    ax.set(xscale="log", yscale="log")
    number_axis(ax.xaxis)
    number_axis(ax.yaxis)
    label_ends(ax, ends, at=float(sizes[-1]))


def draw_shares() -> str:
    """Draw where the time of the slots goes, a panel a plan."""
    with _paper((7.2, 6.4)) as figure:
        outlooks = find_outlooks()
        panels = figure.subplots(len(outlooks), 1, sharex=True, sharey=True)
        for ax, outlook in zip(panels, outlooks, strict=True):
            _draw_share(ax, outlook)
        panels[-1].set_xlabel("workers of two cores")
        panels[1].set_ylabel("slot time (%)")
        return write_svg(figure)


def _draw_share(ax: Axes, outlook: Outlook) -> None:
    """Stack the causes of one plan over workers, and name the larger ones where they are largest."""
    sizes, low = [each.n_workers for each in outlook.found], [0.0] * len(outlook.found)
    for cause in CAUSES:
        share = [100 * each.shares[cause] for each in outlook.found]
        high = [x + y for x, y in zip(low, share, strict=True)]
        ax.fill_between(sizes, low, high, color=_CAUSE_COLORS[cause], alpha=0.75, linewidth=0)
        low = high
    ax.set(xscale="log", xlim=(sizes[0], sizes[-1]), ylim=(0, 100))
    number_axis(ax.xaxis)
    write_key(ax, outlook.label)
    ends = [(cause, _middle(outlook, cause), _CAUSE_COLORS[cause]) for cause in CAUSES[:-1]
            if outlook.found[-1].shares[cause] >= _LEAST_SHARE]  # fmt: skip
    label_ends(ax, ends, at=float(sizes[-1]))


def _middle(outlook: Outlook, cause: str) -> float:
    """Find the middle of a cause at the largest cluster."""
    shares = outlook.found[-1].shares
    below = sum(shares[name] for name in CAUSES[: CAUSES.index(cause)])
    return 100 * (below + shares[cause] / 2)


def draw_tails() -> str:
    """Draw what hedging costs in requests against what it takes off the 99th percentile."""
    with _paper((7.2, 4.2)) as figure:
        ax = figure.subplots()
        ends: list[tuple[str, float, str]] = []
        reached: list[float] = []
        for (label, points), color, marker in zip(
            find_tails().items(), _COLORS, _MARKERS, strict=True
        ):
            x, y = [100 * p.extra for p in points], [p.p99_ms for p in points]
            ax.plot(x, y, marker=marker, color=color)
            ends.append((label, y[-1], color))
            reached.append(x[-1])
            for point, at, height in zip(points, x, y, strict=True):
                if color == _COLORS[1] and point.extra > 0.01:
                    ax.annotate(  # below its mark, where neither the line nor its leader runs
                        f"{point.hedge_ms:g} ms", (at, height), xytext=(-3, -5), color=color,
                        textcoords="offset points", ha="right", va="top", fontsize=8,
                    )  # fmt: skip
        ax.set(xlabel="requests more (%)", ylabel="99th percentile of a chunk (ms)", yscale="log")
        number_axis(ax.yaxis)
        ax.axvline(0, color=RULE, linewidth=0.8)
        write_key(ax, "beside the marks of one line: milliseconds until the hedge")
        label_ends(ax, ends, at=reached)
        return write_svg(figure)
