"""What the format of an array and the client that reads it decide, each as it is usually read."""

import math
from collections.abc import Mapping
from typing import Any

from helpers.parameters import Study, lazy_import


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count the chunks and the elements of all reads: requests grow with the first, bytes with the second.

    Examples
    --------
    >>> read = {"contenders": ["a", "b"], "accesses": ["whole"], "n_blocks": 5}
    >>> count_work({**read, "array_shape": [4, 10], "chunk_shape": [2, 5]})
    (40.0, 400)
    """
    n_reads = len(values["contenders"]) * len(values["accesses"]) * values["n_blocks"]
    n_elements = n_reads * math.prod(values["array_shape"])
    return n_elements / math.prod(values["chunk_shape"]), n_elements


STUDY = Study(
    name="formats",
    headline="fastest",
    by_name=("other-region", "rasters", "tables", "small", "large", "google", "counted"),
    fragments={"formats-table.md": lazy_import("studies.formats.format_table", "render_table")},
    # what the published case asks for, scaled
    expect=lazy_import("helpers.cost_tables", "expect_like", "formats/in-region", count_work),
)
