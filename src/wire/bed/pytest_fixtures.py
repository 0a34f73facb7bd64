"""A fixture of pytest: ``pytest_plugins = ["wire.bed.pytest_fixtures"]`` in a ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wire.bed.store import EmulatedStore, open_store


@pytest.fixture
def emulated_store(request: pytest.FixtureRequest) -> Iterator[EmulatedStore]:
    """Open an empty bucket behind an emulated network, by default one in the same region.

    Another is named by a mark: ``@pytest.mark.parametrize("emulated_store", ["wide-area"], indirect=True)``.
    """
    with open_store(getattr(request, "param", "same-region")) as store:
        yield store
