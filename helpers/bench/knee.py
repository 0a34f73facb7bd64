"""The knee: what a chunk costs when its bytes cost next to nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from helpers.bench.bars import BEST, RESULTS, Bar, Bench
from helpers.measurement import figures


def check_knee(bench: Bench) -> list[Bar]:
    """Read the same bytes in 100, 1,000 and 10,000 chunks: a task a chunk, and in batches."""
    lines = []
    for n_chunks, chunk_shape in (
        (100, (1, 10, 200, 250)),
        (1000, (1, 1, 200, 250)),
        (10000, (1, 1, 20, 250)),
    ):
        stored = bench.array((20, 50, 200, 250), chunk_shape)
        ways = [("a task a chunk", "zarr-obstore", 1), ("batches", BEST, max(4, n_chunks // 100))]
        contenders = [bench.contend(stored, name, 8, batch) for _, name, batch in ways]
        small = dataclasses.replace(bench, n_blocks=3)
        rows = small.measure(f"knee {n_chunks}", contenders, "loopback")
        times = rows.groupby("contender")["read_s"].median()
        lines += [
            (n_chunks, label, times[name], times[name] / stored.n_chunks) for label, name, _ in ways
        ]
    knee = pd.DataFrame(lines, columns=["chunks", "way", "read_s", "s_per_chunk"])
    bench.say(knee.to_string(index=False, float_format="{:.4g}".format))
    knee.to_csv(RESULTS / "bench-knee.csv", index=False)
    draw_knee(knee, RESULTS / "bench-knee.svg")
    per_chunk = {str(way): overhead_s(part) for way, part in knee.groupby("way")}
    how = "slope of read time against the number of chunks, 1,000 to 10,000, same bytes, nothing imposed, 8 workers: {}"
    return [
        Bar(f"milliseconds for each more chunk, {way}", 1000 * s, np.inf, False, how.format(way))
        for way, s in per_chunk.items()
    ]


def overhead_s(part: pd.DataFrame) -> float:
    """Compute the seconds that each more chunk costs, between the two largest numbers."""
    low, high = part.sort_values("chunks").iloc[-2:].to_dict("records")
    return float((high["read_s"] - low["read_s"]) / (high["chunks"] - low["chunks"]))


def draw_knee(knee: pd.DataFrame, path: Path) -> None:
    """Draw seconds for each chunk against their number."""
    plt.style.use(figures.STYLE)
    figure, ax = plt.subplots(figsize=(7.2, 3.8))
    looks = figures.contender_palette()
    for (way, part), name in zip(knee.groupby("way"), ("zarr-obstore", BEST), strict=True):
        ax.plot(
            part["chunks"],
            1000 * part["s_per_chunk"],
            marker=looks[name].marker,
            color=looks[name].color,
        )
        last = part.iloc[-1]
        at = (last["chunks"], 1000 * last["s_per_chunk"])
        ax.annotate(
            str(way),
            at,
            xytext=(8, 0),
            textcoords="offset points",
            color=looks[name].color,
            va="center",
        )
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="chunks, of the same bytes in all",
        ylabel="time for each chunk (ms)",
    )
    ax.margins(x=0.25)
    figure.savefig(path)
    plt.close(figure)
