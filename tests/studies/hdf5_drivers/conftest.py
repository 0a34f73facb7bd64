"""A proxy before the server of the tests, a granule, and the interpreter of the drivers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.netem.profiles import get_profile
from helpers.netem.proxy import open_proxy
from helpers.objectstore.testbed import Server, Testbed
from studies.hdf5_drivers import files
from studies.hdf5_drivers import session as sessions
from studies.hdf5_drivers.file_layouts import CONVERSIONS
from studies.hdf5_drivers.files import Granule
from studies.hdf5_drivers.workload import Bench
from tests.stores import make_location

LAYOUTS = ["original", "paged-4mib", *CONVERSIONS]


@pytest.fixture(scope="module")
def bench(server: Server) -> Iterator[Bench]:
    """Store a small granule behind a proxy, and start the interpreter of the drivers."""
    near = make_location(server, "hdf5-drivers")
    with open_proxy(str(near.endpoint_url), profile=get_profile("loopback")) as proxy:
        testbed = Testbed(near, near.through(proxy.endpoint_url), proxy)
        asked = {"layouts": LAYOUTS, "group": "gt1l/heights"}
        stored = files.prepare_granule(Granule(60_000), near, **asked)
        with sessions.open_session(testbed.far) as running:
            yield Bench(stored, testbed, running)
