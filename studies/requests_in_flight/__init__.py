"""How many requests a process should keep in flight: threads, zarr's concurrency and a pool."""

import math
from collections.abc import Mapping
from typing import Any

from helpers.book.studies import Study, later


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count the chunks and the elements of all reads: a thread reads one step of the array.

    Examples
    --------
    >>> shapes = {"array_shape": [8, 4, 10, 10], "chunk_shape": [1, 2, 10, 10]}
    >>> count_work({**shapes, "n_threads": [1, 2], "concurrency": [4], "pools": [0], "n_blocks": 5})
    (30.0, 6000)
    """
    n_each = len(values["concurrency"]) * len(values["pools"]) * values["n_blocks"]
    n_elements = n_each * sum(values["n_threads"]) * math.prod(values["array_shape"][1:])
    return n_elements / math.prod(values["chunk_shape"]), n_elements


STUDY = Study(
    name="requests-in-flight",
    headline="setting-to-copy",
    # what the published case asks for, scaled
    expect=later(
        "advisors.costs.page_tables", "expect_like", "requests-in-flight/in-region", count_work
    ),
)
