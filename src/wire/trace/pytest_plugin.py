"""A fixture that counts what a block of a test asks a store for.

Enable it with ``pytest -p wire.trace.pytest_plugin``, or in a ``conftest.py`` with
``pytest_plugins = ["wire.trace.pytest_plugin"]``, and hold your reads to a budget::

    def test_opening_takes_few_requests(wire_requests):
        store = make_store()
        with wire_requests() as opening:
            xr.open_zarr(store)
        assert opening.n_requests <= 10, str(opening)
        assert opening.nbytes < 1e6
        assert opening.n_waits <= 3
        assert not opening.not_seen

The clients of the test have to be made in the test, or in fixtures that ask for `wire_requests`
first: what was opened before goes past the gateway, and is named in ``not_seen``. `str` of
a block is the report of `wire trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from wire.trace import recording


@pytest.fixture
def wire_requests() -> Iterator[Callable[[], AbstractContextManager[recording.Recording]]]:
    """Return what opens a block: its requests, bytes and waits are counted once it has ended."""
    session = recording.open_session()
    session.enter()
    try:
        yield recording.record
    finally:
        session.leave()
