"""Virtual Zarr with more concurrent requests than zarr makes by itself."""

from __future__ import annotations

import zarr

from helpers.plotting import palette
from studies.hdf5_drivers.drivers import DRIVERS, Driver, Settings, Tree, open_references
from wire.bed.locations import Location
from wire.clients import CLIENTS
from wire.hdf5.prediction import ReadMethod

MANY = 64
"""Concurrent requests, which a download in ranges does not need to be fast."""


def open_references_for_many(location: Location, settings: Settings) -> Tree:
    """Open references to a file as Zarr through obstore, with so many concurrent requests.

    The setting is that of the process, which `forget_clients` takes back before the next read.
    """
    zarr.config.set({"async.concurrency": settings["concurrency"]})
    return open_references(location, settings)


DRIVERS.register(
    Driver(
        name="references-64",
        label="virtual Zarr, 64 requests",
        color=palette.PLUM,
        marker="H",
        open=open_references_for_many,
        description=f"virtual references to the chunks of the file, read as Zarr through obstore with {MANY} concurrent requests",
        packages=CLIENTS["references"].packages,
        method=ReadMethod("references, 64 in flight", "references", in_flight=MANY),
        settings={"concurrency": MANY},
    )
)
