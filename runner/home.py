"""The small pictures of the first page, drawn at the build from what cases found and others published."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from helpers.benchmark.record import read_published
from helpers.findings import Finding
from helpers.plotting import narrow, palette
from runner.published import NEAR

Read = Callable[[str], Mapping[str, Finding]]
"""From a case to what it found, of the results that the book shows."""

_SHOWN = {
    "new": palette.GREEN,
    "old picture": palette.RUST,
    "wrong picture": palette.RED,
    "error": palette.CHARCOAL,
}
_CACHES = {
    "as-shipped": "titiler's default",
    "lru-chunks": "chunk cache",
    "lru-etag": "keyed by ETag",
    "lru-etag-chunks": "chunks, by ETag",
}
_CHANGES = {
    "values": "values",
    "shape": "shape",
    "chunk-grid": "chunk\ngrid",
    "append-newest": "day\nadded",
}
_SIZE = (4, 1.7)  # inches, one for all, so that they stand in line next to each other


def _find(read: Read, case: str, key: str) -> Finding:
    """Find a number, or none where these results have none."""
    return read(case).get(key, Finding())


def _draw_bars(unit: str, bars: Mapping[str, Finding]) -> Figure:
    """Draw a bar for each, with its interval where it has one and its number at its end."""
    fig = Figure(figsize=_SIZE, layout="constrained")
    ax = fig.subplots()
    for name, bar in bars.items():
        first = not ax.patches
        ax.barh(name, bar.value, 0.6, color=palette.RUST if first else palette.BLUE)
        if bar.low == bar.low:
            ax.hlines(name, bar.low, bar.high, color=palette.CHARCOAL)
        end = max(bar.value, bar.high if bar.high == bar.high else 0)
        ax.annotate(
            f"{bar.value:.2g}", (end, name), (4, 0), textcoords="offset points", va="center"
        )
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.set(xlabel=unit)
    ax.grid(visible=False)
    return fig


def _draw_hdf5(read: Read) -> Figure:
    default, whole = (
        _find(read, "hdf5-drivers/granule", f"{driver}-s") for driver in ("default", "whole")
    )
    return _draw_bars("seconds", {"s3fs.open, the default": default, "whole, in ranges": whole})


def _draw_zarr(read: Read) -> Figure:
    requests = _find(read, "request-ledger/versions", "requests-of-today")
    return _draw_bars("requests per chunk", {"s3fs, default": requests, "one option": Finding(1.0)})


def _draw_chunks(read: Read) -> Figure:
    default, copies = (
        _find(read, "chunk-shape/in-region", f"{layout}-equal-mix")
        for layout in ("default", "two-copies")
    )
    turned = Finding(1 / copies.value, 1 / copies.high, 1 / copies.low)
    bars = {"Dask's default": default, "a few MB": Finding(1.0), "two copies": turned}
    return _draw_bars("time over that of a few MB", bars)


def _draw_tiles(read: Read) -> Figure:
    """Draw what each cache shows after each change, as the page on caches tabulates it."""
    fig = Figure(figsize=_SIZE, layout="constrained")
    ax = fig.subplots()
    for y, cache in enumerate(_CACHES):
        for x, change in enumerate(_CHANGES):
            shown = _find(read, "caching-costs/in-region", f"shown-{cache}-{change}").verdict
            ax.barh(y, 0.94, 0.86, left=x - 0.47, color=_SHOWN.get(shown, palette.GRID))
            ax.annotate(shown.partition(" ")[0], (x, y), ha="center", va="center", color="white")
    ax.set_yticks(range(len(_CACHES)), [*_CACHES.values()])
    ax.set_xticks(range(len(_CHANGES)), [*_CHANGES.values()])
    ax.xaxis.tick_top()
    ax.invert_yaxis()
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.grid(visible=False)
    return fig


_SOURCES = {
    "abernathey2021": "Abernathey",
    "green2022": "Green",
    "nsidc2024": "NSIDC",
    "developmentseed2023": "Development Seed",
    "rew2013": "Rew",
    "earthmover2025": "Earthmover",
}


def _draw_trust(_read: Read) -> Figure:
    """Draw published ratios of times and ours, on the diagonal where both agree; a band is a factor of `NEAR`. Ratios beyond thirty are outside."""
    ratios = read_published("against-real")
    fig = Figure(figsize=(7.2, 3.2), layout="constrained")
    ax = fig.subplots()
    ends = np.array([0.03, 30.0])
    ax.plot(ends, ends, color=palette.CHARCOAL, linewidth=1)
    ax.fill_between(ends, ends / NEAR, ends * NEAR, color=palette.CHARCOAL, alpha=0.15, linewidth=0)
    for (source, part), marker in zip(ratios.groupby("source", sort=False), "osD^vP", strict=False):
        ax.plot(part["published"], part["ours"], marker, alpha=0.7, label=_SOURCES[str(source)])
    ax.set(
        xscale="log", yscale="log", xlabel="ratio of times, published", ylabel="the same ratio here"
    )
    ax.set(xlim=ends, ylim=ends)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return fig


_PICTURES = {
    "hdf5": _draw_hdf5,
    "zarr": _draw_zarr,
    "chunks": _draw_chunks,
    "tiles": _draw_tiles,
    "trust": _draw_trust,
}


def draw_pictures(read: Read, folder: Path) -> Mapping[str, Callable[[], str]]:
    """Map the name of each picture that the first page includes to what draws it as SVG.

    Of one that is wider than a phone a narrow version goes to a folder, where pages find it.
    """

    def render(draw: Callable[[Read], Figure]) -> str:
        with plt.style.context([*palette.STYLE, {"savefig.bbox": "standard"}]):
            text, fig = io.StringIO(), draw(read)
            fig.savefig(text, format="svg", metadata={"Date": None})
            if fig.get_figwidth() > 1.2 * narrow.WIDTH_IN:
                name = f"{narrow.make_digest(text.getvalue())}.svg"
                (folder / name).write_text(narrow.render_narrow(fig), encoding="utf-8")
        return text.getvalue()

    return {f"home-{name}.svg": partial(render, draw) for name, draw in _PICTURES.items()}
