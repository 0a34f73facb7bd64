"""Show the chunk shapes that a search found, in words and as a picture of the array cut into chunks.

They stand at the head of the findings of every case whose record names such layouts, and on
a text page where it writes ``{shapes}`` with a case.
"""

# ruff: noqa: RUF001 - shapes are written with a sign of multiplication

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from helpers.benchmark.record import read_records
from helpers.plotting.palette import BLUE, PAPER, TEXT
from studies.chunk_shape.findings import MIX_NAMES
from studies.chunk_shape.layouts import PATTERNS, ChunkLayout, scale_shape, shard_of

Shape = tuple[int, ...]

_HEIGHT, _SERIES_WIDTH = 84, 400  # of the two faces, in units of the picture
_MOST_LINES = 100  # beyond these a face is grey


def read_shapes(path: Path) -> Iterator[tuple[str, str, Shape, Shape]]:
    """Read medium, layout, array and chunk shape of every layout that was searched for."""
    rows = read_records([path])
    searched = rows[rows["contender"].str.startswith("ours")].drop_duplicates("contender")
    for row in searched.to_dict("records"):
        settings, given = json.loads(row["settings"]), json.loads(row["parameters"])
        if settings.get("chunks") and "scale_factor" in given:
            chunks = tuple(map(int, settings["chunks"].split("x")))
            yield settings["layout"], row["contender"], scale_shape(given["scale_factor"]), chunks


def tell(medium: str, name: str, array: Shape, chunks: Shape) -> str:
    """Say a shape, what it was chosen for, and what one series and one slice touch of it."""
    pattern = "the worst access" if "worst" in name else MIX_NAMES[PATTERNS[name]]
    counts = [math.ceil(n / c) for n, c in zip(array, chunks, strict=True)]
    kilobytes = 4 * math.prod(chunks) / 1e3
    shard = shard_of(medium, array, ChunkLayout(name, chunks))
    shards = f", in shards of {_times(shard)}" if shard else ""
    return (
        f"For {pattern}: chunks of {_times(chunks)} (time, y, x), {kilobytes:,.3g} kB{shards}."
        f" A series touches {counts[0]} of them, a slice {counts[1] * counts[2]}."
    )


def _times(shape: Shape) -> str:
    return " × ".join(map(str, shape))


def draw(array: Shape, chunks: Shape) -> str:
    """Draw the array seen from the side, time across, and from the front, each cut into chunks."""
    t, y, x = array
    width = min(2 * _HEIGHT, round(_HEIGHT * x / y))
    total = _SERIES_WIDTH + width + 62  # with names at the left and half a line at the right
    faces = [
        _face(0, _SERIES_WIDTH, (t, y), (chunks[0], chunks[1]), ("time", "y")),
        _face(_SERIES_WIDTH + 40, width, (x, y), (chunks[2], chunks[1]), ("x", "y")),
    ]
    told = (
        f"An array of {_times(array)} cut into chunks of {_times(chunks)}; one of them is filled."
    )
    return (
        f'<svg class="chunks" role="img" aria-label="{told}" viewBox="-20 -4 {total} {_HEIGHT + 24}">'
        f"{''.join(faces)}</svg>"
    )


def _face(left: int, width: int, whole: Shape, part: Shape, names: tuple[str, str]) -> str:
    """Draw one face: its border, its cuts, one chunk filled, and what lies along its edges."""
    size = (width, _HEIGHT)
    first = [max(1.5, edge * p / n) for edge, p, n in zip(size, part, whole, strict=True)]
    n_cuts = [math.ceil(n / p) - 1 for n, p in zip(whole, part, strict=True)]
    across, down = (
        [k * edge * p / n for k in range(1, cuts + 1)] if cuts <= _MOST_LINES else []
        for edge, p, n, cuts in zip(size, part, whole, n_cuts, strict=True)
    )
    lines = [f"M{left + at:.1f} 0V{_HEIGHT}" for at in across]
    lines += [f"M{left} {at:.1f}H{left + width}" for at in down]
    return (
        f'<rect x="{left}" y="0" width="{width}" height="{_HEIGHT}" fill="{PAPER}" stroke="{TEXT}"/>'
        f'<rect x="{left}" y="0" width="{first[0]:.1f}" height="{first[1]:.1f}" fill="{BLUE}"/>'
        f'<path d="{"".join(lines)}" stroke="{TEXT}" stroke-width="0.5" fill="none"/>'
        f'<text x="{left + width / 2}" y="{_HEIGHT + 14}" text-anchor="middle" font-size="12">{names[0]}: {whole[0]} in {n_cuts[0] + 1}</text>'
        f'<text x="{left - 6}" y="{_HEIGHT / 2}" text-anchor="end" font-size="12">{names[1]}</text>'
    )


def list_shapes(path: Path) -> list[nodes.Node]:
    """List every shape of a record, a picture below its words; the same shape once."""
    told: list[nodes.Node] = []
    seen: set[Shape] = set()
    for medium, name, array, chunks in read_shapes(path):
        told.append(nodes.paragraph("", tell(medium, name, array, chunks)))
        if chunks not in seen:
            told.append(nodes.raw("", draw(array, chunks), format="html"))
        seen.add(chunks)
    return told


class Shapes(SphinxDirective):
    """The directive, which reads the record that lies beside the staged page of a case."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Write the shapes."""
        path = Path(self.env.srcdir) / "notebooks" / f"{self.arguments[0]}.csv"
        return list_shapes(path) if path.exists() else []


def add_shapes(app: Sphinx, doctree: Any) -> None:
    """Put the shapes of a case at the head of its findings."""
    path = Path(app.srcdir) / f"{app.env.docname}.csv"
    if not path.exists() or '""chunks"": ""' not in path.read_text(encoding="utf-8"):
        return
    for section in doctree.findall(nodes.section):
        if section.next_node(nodes.title).astext().startswith("Findings"):
            section[1:1] = list_shapes(path)
            return


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive, and listen for pages of cases."""
    app.add_directive("shapes", Shapes)
    app.connect("doctree-read", add_shapes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
