"""How many requests a process should keep in flight: threads, zarr's concurrency and a pool."""

import math
from collections.abc import Mapping
from typing import Any

from helpers.book.studies import Study, later


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count the chunks and the elements of all reads: a thread reads one step of the array.

    Examples
    --------
    Two threads at most at one concurrency, and two clients that read one step each:

    >>> shapes = {"array_shape": [8, 4, 10, 10], "chunk_shape": [1, 2, 10, 10]}
    >>> asked = {"n_threads": [1, 2], "concurrency": [4], "pools": [0], "n_blocks": 5}
    >>> count_work({**shapes, **asked, "clients": ["a", "b"], "client_chunk_shapes": [[1, 4, 10, 10]]})
    (40.0, 10000)
    """
    n_each = len(values["concurrency"]) * len(values["pools"]) * values["n_blocks"]
    step = math.prod(values["array_shape"][1:])
    n_elements = n_each * sum(values["n_threads"]) * step
    n_reads = len(values["clients"]) * values["n_blocks"]
    of_clients = [step / math.prod(shape) for shape in values["client_chunk_shapes"]]
    n_chunks = n_elements / math.prod(values["chunk_shape"]) + n_reads * sum(of_clients)
    return n_chunks, n_elements + n_reads * step * len(of_clients)


STUDY = Study(
    name="requests-in-flight",
    headline="setting-to-copy",
    by_name=("many-requests", "other-region"),
    # what the published case asks for, scaled
    expect=later(
        "advisors.costs.page_tables", "expect_like", "requests-in-flight/in-region", count_work
    ),
)
