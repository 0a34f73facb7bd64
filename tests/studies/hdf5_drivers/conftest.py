"""A proxy before the server of the tests, and a granule behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.arrays.services import open_services
from studies.hdf5_drivers import files
from studies.hdf5_drivers.drivers import DRIVERS
from studies.hdf5_drivers.files import FILE_LAYOUTS, Granule
from studies.hdf5_drivers.workload import FileRead, list_services
from tests.stores import make_location
from wire.bed.networks import get_profile
from wire.bed.proxy import open_proxy
from wire.bed.testbed import Server, Testbed


@pytest.fixture(scope="module")
def services(way: FileRead) -> Iterator[dict[str, Testbed]]:
    """Serve the granule behind the interfaces of the providers whose emulators are here."""
    names = [name for name, driver in DRIVERS.items() if driver.service != "s3"]
    reads = [f"{name} on original" for name in names if not DRIVERS[name].explain_absence()]
    loopback = get_profile("loopback")
    with open_services(*list_services(reads, way.stored), loopback) as opened:
        yield {"s3": way.testbed, **opened}


@pytest.fixture(scope="module")
def way(server: Server) -> Iterator[FileRead]:
    """Store a small granule behind a proxy; the read of it by the default."""
    near = make_location(server, "hdf5-drivers")
    with open_proxy(str(near.endpoint_url), profile=get_profile("loopback")) as proxy:
        testbed = Testbed(near, near.through(proxy.endpoint_url), proxy)
        stored = files.prepare_granule(Granule(60_000), near, layouts=[*FILE_LAYOUTS])
        yield FileRead(stored, testbed, DRIVERS["fsspec-readahead"], "original")
