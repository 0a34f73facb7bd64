"""How read throughput grows with the number of workers, and what ends the growth."""

import math
from collections.abc import Mapping
from typing import Any

from helpers.parameters import Study, lazy_import


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count the chunks that a case reads, and their bytes in memory, calibration included.

    Examples
    --------
    Three contenders with their ceiling, at two sizes twice to calibrate and then in five blocks
    with the control, which are 61 reads of two chunks:

    >>> shapes = {"array_shape": [1, 5, 180, 240], "chunk_shape": [1, 5, 90, 240]}
    >>> count_work({**shapes, "contenders": ["a", "b", "c"], "n_workers": [1, 2], "n_blocks": 5})
    (122.0, 52704000.0)
    """
    shape, sizes = values["array_shape"], sorted(values["n_workers"])
    n_each, steps = len(values["contenders"]) + 1, values.get("steps_per_worker", 0)
    edges = sizes[:1] if steps else {sizes[0], sizes[-1]}
    n_reads = {n: n_each * (values["n_blocks"] + 2 * (n in edges)) for n in sizes}
    n_reads[sizes[-1]] += values["n_blocks"]
    n_arrays = sum(n * (size * steps / shape[0] if steps else 1) for size, n in n_reads.items())
    n_chunks = math.prod(
        math.ceil(n / chunk) for n, chunk in zip(shape, values["chunk_shape"], strict=True)
    )
    return float(n_arrays * n_chunks), float(n_arrays * 4 * math.prod(shape))


STUDY = Study(
    name="cluster-scaling",
    headline="best-throughput",
    by_name=("weak-scaling",),
    cover=("in-region", "fig-scaling"),
    # what the published case asks for, scaled
    expect=lazy_import(
        "helpers.cost_tables", "expect_like", "cluster-scaling/in-region", count_work
    ),
)
