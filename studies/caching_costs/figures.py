"""The figure that no library draws: what the time of a tile is made of, by dataset and cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from studies.caching_costs.datasets import label_datasets

OPEN_COLOUR, MAKE_COLOUR = "#56b4e9", "#e69f00"


def tabulate_tiles(requests: pd.DataFrame) -> pd.DataFrame:
    """Tabulate medians `open_s`, `make_s` and `cpu_s` of a tile, by dataset and contender.

    `requests` are those of `findings.list_requests`; the control is left out.
    """
    part = requests[requests["contender"] != "control"]
    return part.groupby(["dataset", "contender"])[["open_s", "make_s", "cpu_s"]].median()


def draw_tiles(requests: pd.DataFrame, names: Mapping[str, str], caches: Sequence[str]) -> Figure:
    """Draw a panel a dataset: the seconds of a tile with each cache, opening first, then all else.

    A mark is the CPU time within both. `names` are what readers call the caches.
    """
    table = tabulate_tiles(requests)
    datasets = sorted({*table.index.get_level_values("dataset")})
    n_rows = -(-len(datasets) // 2)
    height = 0.9 + n_rows * (0.7 + 0.28 * len(caches))
    fig, axes = plt.subplots(n_rows, 2, figsize=(7.6, height), squeeze=False, layout="constrained")
    for ax, dataset in zip(axes.flat, datasets, strict=False):
        part = table.loc[dataset].reindex(list(caches)[::-1])
        labels = [names[cache] for cache in part.index]
        ax.barh(labels, part["open_s"], color=OPEN_COLOUR, label="open the dataset")
        ax.barh(
            labels,
            part["make_s"],
            left=part["open_s"],
            color=MAKE_COLOUR,
            label="fetch chunks, decode and draw",
        )
        ax.plot(part["cpu_s"], labels, "|", color="black", markersize=9, label="CPU time of both")
        ax.set(title=label_datasets()[dataset], xlim=(0, None))
        ax.grid(visible=False, axis="y")
    for ax in list(axes.flat)[len(datasets) :]:
        ax.set_visible(False)
    for ax in axes[:, 1]:
        ax.tick_params(labelleft=False)
    for ax in axes[-1]:
        ax.set_xlabel("time of a tile (s)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper left", ncols=3, frameon=False)
    return fig
