"""How long reading HDF5 files from object storage takes, by driver and layout."""

from collections.abc import Mapping
from typing import Any

from helpers.book.studies import Study, later


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count reads, and reads times photons: requests grow with the first, bytes with the second.

    Examples
    --------
    >>> drivers = {"drivers": ["a", "b"], "file_layouts": ["x"], "more_drivers": [], "more_layouts": []}
    >>> count_work({**drivers, "n_blocks": 5, "n_photons": 1000})
    (10, 10000)
    """
    pairs = (("drivers", "file_layouts"), ("more_drivers", "more_layouts"))
    n_reads = sum(len(values[one]) * len(values[other]) for one, other in pairs)
    n_reads *= values["n_blocks"]
    return n_reads, n_reads * values["n_photons"]


STUDY = Study(
    name="hdf5-drivers",
    headline="gain-both",
    by_name=("in-region",),
    # what the published case asks for, scaled
    expect=later("advisors.costs.page_tables", "expect_like", "hdf5-drivers/in-region", count_work),
)
