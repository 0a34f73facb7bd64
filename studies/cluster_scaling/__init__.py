"""How read throughput grows with the number of workers, and what ends the growth."""

import math
from collections.abc import Mapping
from typing import Any

from helpers.book.studies import Study, later


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
    shape, n_each = values["array_shape"], len(values["contenders"]) + 1
    sizes = len(values["n_workers"])
    n_reads = values["n_blocks"] * (sizes * n_each + 1) + 2 * min(sizes, 2) * n_each
    n_chunks = math.prod(
        math.ceil(n / chunk) for n, chunk in zip(shape, values["chunk_shape"], strict=True)
    )
    return float(n_reads * n_chunks), float(n_reads * 4 * math.prod(shape))


STUDY = Study(
    name="cluster-scaling",
    headline="best-throughput",
    by_name=("weak-scaling",),
    cover=("in-region", "fig-scaling"),
    # what the published case asks for, scaled
    expect=later(
        "advisors.costs.page_tables", "expect_like", "cluster-scaling/in-region", count_work
    ),
)
