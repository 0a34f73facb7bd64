"""Small datasets in the store of the tests."""

from __future__ import annotations

from helpers.objectstore.testbed import Server
from studies.caching_costs.datasets import Datasets, make_specs, prepare_datasets
from tests.stores import make_location

WHOLE = ("single-4mib", "chunked-64mib", "netcdf")
NAMES = (*WHOLE, "broken")


def make_datasets(server: Server, names: tuple[str, ...] = NAMES) -> Datasets:
    """Store datasets of a sixteenth of the published sides, unless they are there."""
    location = make_location(server, "maps")
    return prepare_datasets(location, make_specs(names, scale=1 / 16), seed=1)
