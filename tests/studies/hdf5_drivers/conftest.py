"""A proxy before the server of the tests, and the interpreter of the drivers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.netem.profiles import get_profile
from helpers.netem.proxy import open_proxy
from helpers.objectstore.testbed import Server, Testbed
from studies.hdf5_drivers import session as sessions
from studies.hdf5_drivers.ros3 import find_ros3
from tests.stores import make_location


@pytest.fixture(scope="module")
def testbed(server: Server) -> Iterator[Testbed]:
    """Open the proxy before the server of the tests."""
    near = make_location(server, "hdf5-drivers")
    with open_proxy(str(near.endpoint_url), profile=get_profile("loopback")) as proxy:
        yield Testbed(near, near.through(proxy.endpoint_url), proxy)


@pytest.fixture(scope="module")
def session(testbed: Testbed) -> Iterator[sessions.Session]:
    """Start the interpreter of the drivers, with ROS3 where it was built."""
    with sessions.open_session(testbed.far, find_ros3()) as running:
        yield running
