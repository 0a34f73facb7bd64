"""Small maps in the store of the tests."""

from __future__ import annotations

from helpers.storage.maps import Maps, prepare_maps
from helpers.storage.server import Server
from helpers.tiles.matrix import make_specs
from tests.stores import make_location

NAMES = ("single-4mib", "chunked-64mib", "unconsolidated", "chunked-coordinates")
NAMES += ("netcdf", "references", "broken")


def make_maps(server: Server, names: tuple[str, ...] = NAMES) -> Maps:
    """Store maps of a sixteenth of the published sides, unless they are there."""
    location = make_location(server, "maps")
    return prepare_maps(location, make_specs(names, scale=1 / 16), seed=1)
