"""Small multiples of the ledger: what one access of each client requested, release by release."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.plotting import palette
from studies.request_jumps.findings import YEARS, list_dates
from wire.ledger.jumps import Jump, MeasuredAccess, find_jumps

_SMALL = 10  # points of the letters, which a phone shows 10 px high


def choose_series(accesses: Sequence[MeasuredAccess]) -> dict[str, list[MeasuredAccess]]:
    """Choose for each client the access whose requests vary most over the releases, in their order."""
    series: dict[tuple[str, str, str, str], list[MeasuredAccess]] = {}
    for entry in sorted(accesses, key=lambda entry: entry.place):
        if entry.package != YEARS and (entry.package, entry.version) in list_dates():
            series.setdefault(entry.key, []).append(entry)

    def spread(entries: Sequence[MeasuredAccess]) -> tuple[float, int]:
        counts = [entry.bounds("n_requests")[0] for entry in entries]
        return math.log(max(counts) / min(counts)), len(entries)

    chosen: dict[str, list[MeasuredAccess]] = {}
    for (client, *_), entries in series.items():
        if len(entries) > 1 and (client not in chosen or spread(entries) > spread(chosen[client])):
            chosen[client] = entries
    return dict(sorted(chosen.items(), key=lambda item: spread(item[1]), reverse=True))


def draw_releases(accesses: Sequence[MeasuredAccess], *, n_columns: int = 2) -> Figure:
    """Draw the requests of each client by the day of the release, with its jumps named."""
    chosen = choose_series(accesses)
    n_rows = max(1, math.ceil(len(chosen) / n_columns))
    fig, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=(7.2, 1.55 * n_rows + 0.4),
        layout="constrained",
        squeeze=False,
    )
    for ax in axes.flat[len(chosen) :]:
        ax.set_visible(False)
    for ax, (client, entries) in zip(axes.flat, chosen.items(), strict=False):
        days = [list_dates()[entry.package, entry.version] for entry in entries]
        counts = [entry.bounds("n_requests")[0] for entry in entries]
        numbers = dates.date2num(days)  # type: ignore[no-untyped-call]
        ax.plot(numbers, counts, marker="o", markersize=3, color=palette.BLUE)
        for jump in find_jumps(entries):
            _name_jump(ax, jump, middle=(numbers[0] + numbers[-1]) / 2)
        ax.set_title(f"{client}\n{entries[0].access}, {entries[0].layout}", fontsize=_SMALL)
        ax.set_ylim(0, 1.25 * max(counts))
        ax.set_xticks([numbers[0], numbers[-1]])
        ax.xaxis.set_major_formatter(dates.DateFormatter("%b %y"))  # type: ignore[no-untyped-call]
        ax.tick_params(labelsize=_SMALL)
    for ax in axes[:, 0]:
        ax.set_ylabel("requests", fontsize=_SMALL)
    return fig


def _name_jump(ax: Axes, jump: Jump, *, middle: float) -> None:
    """Mark a jump and name its release, toward the middle of the axis, where there is room."""
    day = list_dates()[jump.after.package, jump.after.version]
    count = jump.after.bounds("n_requests")[0]
    color = palette.RUST if jump.is_worse else palette.GREEN
    place = float(dates.date2num(day)), count  # type: ignore[no-untyped-call]
    is_early = place[0] < middle
    ax.plot(*place, marker="o", markersize=4, color=color)
    ax.annotate(
        f"{jump.after.package} {jump.after.version}",
        place,
        (4 if is_early else -3, 4),
        textcoords="offset points",
        ha="left" if is_early else "right",
        fontsize=_SMALL,
        color=color,
    )
