"""How long reading HDF5 files from object storage takes, by driver and layout."""

from collections.abc import Mapping
from typing import Any

from helpers.parameters import Study, lazy_import


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count reads, and reads times photons: requests grow with the first, bytes with the second.

    Examples
    --------
    >>> count_work({"reads": ["a", "b"], "one_variable": [], "n_blocks": 5, "n_photons": 1000})
    (10, 10000)
    """
    n_reads = (len(values["reads"]) + len(values["one_variable"])) * values["n_blocks"]
    return n_reads, n_reads * values["n_photons"]


STUDY = Study(
    name="hdf5-drivers",
    headline="gain-whole",
    headlines={
        "two-drivers": "gain-fsspec",
        "other-clouds": "gcsfs-over-blocks",
        "share-of-file": "crossing-virtual-10",
    },
    by_name=("two-drivers", "other-clouds", "share-of-file", "all-ways"),
    # what the published case asks for, scaled
    expect=lazy_import("helpers.cost_tables", "expect_like", "hdf5-drivers/granule", count_work),
)
