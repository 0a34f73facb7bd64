"""What figures of several studies share: plain numbers along logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

_FEW_DECADES = 2.5  # of an axis: 1, 2 and 5 have room


class _Ticks(LogLocator):
    """At 1, 2 and 5 of each decade where there is room, else at 1 and 3, else at powers of ten."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Choose by the decades in view and the letters along the axis."""
        decades = abs(np.log10(vmax / vmin)) if min(vmin, vmax) > 0 else np.inf
        room = float(self.axis.get_tick_space()) if isinstance(self.axis, Axis) else 9.0
        if isinstance(self.axis, XAxis):  # that counts on four letters a number
            room *= 4 / max(4, *(len(_format_tick(float(f"{end:.0e}"))) for end in (vmin, vmax)))
        is_narrow = decades <= _FEW_DECADES
        fitting = (
            subs for subs in ((1, 2, 5), (1, 3)) if is_narrow and len(subs) * decades <= room
        )
        self.set_params(subs=next(fitting, (1,)), numticks=max(2, int(room)))
        return super().tick_values(vmin, vmax)


def _format_tick(value: float, _place: int | None = None) -> str:
    """Write a number along an axis as tables have it."""
    return f"{value:,.0f}" if value >= 10_000 else f"{value:g}"


def put_legend_below(ax: Axes, *, n_columns: int = 2) -> None:
    """Move the legend of the only axes of a figure below them, where it covers no data."""
    handles, labels = ax.get_legend_handles_labels()
    if (legend := ax.get_legend()) is not None:
        legend.remove()
    if isinstance(ax.figure, Figure):
        ax.figure.legend(
            handles, labels, loc="outside lower center", ncols=n_columns, frameon=False
        )


def number_axis(axis: Axis) -> None:
    """Write plain numbers along a logarithmic axis, no more than find room."""
    axis.set_major_locator(_Ticks())
    axis.set_major_formatter(FuncFormatter(_format_tick))
    axis.set_minor_locator(NullLocator())
