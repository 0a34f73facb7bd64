"""Throughput of each worker: flat is linear growth, hollow is where CPUs were busy, walls are what all share."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd

from studies.cluster_scaling import figures


def test_each_worker_has_its_part_and_a_wall_comes_down() -> None:
    """One reader that grows linearly until its CPUs are busy, and a bandwidth that all share."""
    rows = pd.DataFrame(
        [("zarr-obstore", n, rate, False) for n, rate in ((1, 100.0), (2, 200.0), (4, 300.0))],
        columns=["contender", "n_workers", "throughput_mb_per_s", "is_ceiling"],
    )
    index = pd.MultiIndex.from_tuples([("zarr-obstore", n) for n in (1, 2, 4)])
    busy = pd.Series([10.0, 20.0, 80.0], index=index)
    _, ax = plt.subplots()
    figures.draw_rate_per_worker(ax, rows, busy, {"shared": 320.0, "high": 1e6})
    line, marks, hollow, wall, high = ax.get_lines()
    assert [*line.get_ydata()] == [*marks.get_ydata()] == [100, 100, 75]
    assert [*hollow.get_xdata()] == [4]
    assert wall.get_ydata()[-1] == 80 and wall.get_label() == "shared"
    assert "above this figure" in str(high.get_label())
    plt.close()
