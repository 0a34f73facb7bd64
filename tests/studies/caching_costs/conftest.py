"""A Redis and small datasets for the tests of this study."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from studies.caching_costs.caches import open_valkey
from studies.caching_costs.datasets import Datasets, make_specs, prepare_datasets
from tests.stores import make_location
from wire.bed.testbed import Server


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """Serve a Redis for all of them."""
    with open_valkey() as url:
        yield url


@pytest.fixture(scope="module")
def datasets(server: Server) -> Datasets:
    """Datasets of a sixteenth of the published sides, in the store of the tests."""
    specs = make_specs(["single-4mib", "chunked-64mib", "netcdf", "broken"], scale=1 / 16)
    return prepare_datasets(make_location(server, "maps"), specs, seed=1)
