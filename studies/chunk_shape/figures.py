"""What no library draws: an array cut into chunks."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.arrays.chunks import Shape
from helpers.plotting.palette import OURS, RULE, TEXT

_MOST_LINES = 100  # beyond these cuts would fill a face


def draw_chunks(axes: Sequence[Axes], array: Shape, chunk: Shape, name: str) -> None:
    """Draw an array cut into chunks, from the side and from the front; one chunk is filled.

    Parameters
    ----------
    axes : sequence of Axes
        Two: time lies across the first, x across the second, y along both.
    array, chunk : tuple of int
        Elements for each dimension (time, y, x).
    name : str
        What the layout is called, for the title.
    """
    for ax, (across, label) in zip(axes, ((0, "time"), (2, "x")), strict=True):
        n_cuts = [-(-array[i] // chunk[i]) - 1 for i in (across, 1)]
        for i, n, line in ((across, n_cuts[0], ax.axvline), (1, n_cuts[1], ax.axhline)):
            for at in range(chunk[i], array[i], chunk[i]) if n <= _MOST_LINES else ():
                line(at, color=RULE, linewidth=0.5)
        ax.add_patch(Rectangle((0, 0), chunk[across], chunk[1], color=OURS))
        ax.set(xlim=(0, array[across]), ylim=(array[1], 0), xticks=[], yticks=[])
        ax.set_xlabel(f"{label}: {array[across]} in {n_cuts[0] + 1}")
        ax.set_ylabel(f"y: {array[1]} in {n_cuts[1] + 1}")
        ax.grid(visible=False)
        for edge in ax.spines.values():
            edge.set(visible=True, color=TEXT)
    axes[0].set_title(f"{name}: {' x '.join(map(str, chunk))}", loc="left")
