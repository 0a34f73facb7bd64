"""Fixtures that several test modules use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.storage.server import Server, open_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve an empty folder over S3 for all tests: choose bucket names of your own."""
    with open_server(tmp_path_factory.mktemp("store") / "of tests") as running:
        yield running
