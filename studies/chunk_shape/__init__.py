"""Which chunk shape serves which accesses, on a disk and in an object store."""

from collections.abc import Mapping
from typing import Any

from helpers.parameters import Study, lazy_import


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count positions times the elements of the array: requests and bytes of reads grow with both.

    Examples
    --------
    >>> count_work({"media": ["zarr"], "n_blocks": 2, "n_boxes": 10, "scale_factor": 2.0})
    (2.5, 2.5)
    """
    n_objects = sum(medium != "hdf5" for medium in values["media"])
    n_positions = n_objects * values["n_blocks"] * values["n_boxes"]
    return (n_positions / values["scale_factor"] ** 3,) * 2


STUDY = Study(
    name="chunk-shape",
    headline="bytes-equal-mix",
    headlines={"balanced": "bias-contiguous"},
    by_name=("other-region", "balanced", "large"),
    # what the published case asks for, scaled
    expect=lazy_import("helpers.cost_tables", "expect_like", "chunk-shape/in-region", count_work),
)
