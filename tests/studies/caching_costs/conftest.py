"""A Redis for the tests of this study."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from studies.caching_costs.valkey import Valkey, open_valkey


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    """Serve a Redis for all of them."""
    with open_valkey() as running:
        yield running
