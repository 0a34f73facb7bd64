"""How many requests a process should keep in flight: threads and zarr's concurrency."""

import math
from collections.abc import Mapping
from typing import Any

from helpers.parameters import Study, lazy_import


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count the chunks and the elements of all reads: a thread reads one step of the array.

    Examples
    --------
    Two threads at most at one concurrency, and two clients that read two chunks each:

    >>> shapes = {"array_shape": [8, 4, 10, 10], "chunk_shape": [1, 2, 10, 10]}
    >>> asked = {"n_threads": [1, 2], "concurrency": [4], "n_blocks": 5, "clients": ["a", "b"]}
    >>> count_work({**shapes, **asked, "client_chunk_shapes": [[1, 4, 10, 10]], "client_n_chunks": [2]})
    (50.0, 14000)
    """
    counts = [values.get("n_steps") or n for n in values["n_threads"]]  # older records have no such
    n_steps = len(values["concurrency"]) * values["n_blocks"] * sum(counts)
    n_elements = n_steps * math.prod(values["array_shape"][1:])
    n_chunks = n_elements / math.prod(values["chunk_shape"])
    n_reads = len(values["clients"]) * values["n_blocks"]
    for n, shape in zip(values["client_n_chunks"], values["client_chunk_shapes"], strict=True):
        n_chunks, n_elements = n_chunks + n_reads * n, n_elements + n_reads * n * math.prod(shape)
    return n_chunks, n_elements


STUDY = Study(
    name="requests-in-flight",
    headline="setting-to-copy",
    by_name=("other-region", "fixed-delay", "one-pipe", "real-s3"),
    # what the published case asks for, scaled
    expect=lazy_import(
        "helpers.cost_tables", "expect_like", "requests-in-flight/in-region", count_work
    ),
)
