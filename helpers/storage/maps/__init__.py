"""Maps: datasets on a longitude-latitude grid, as a tile service meets them.

Layouts differ in what opening costs: consolidated metadata or not, coordinates
in one chunk or many, a netCDF-4 file, references to one. A map is made once and
named by what made it.
"""

from helpers.storage.maps.making import make_dataset, prepare_maps
from helpers.storage.maps.opening import open_map
from helpers.storage.maps.specs import VARIABLE, MapKind, Maps, MapSpec

__all__ = ["VARIABLE", "MapKind", "MapSpec", "Maps", "make_dataset", "open_map", "prepare_maps"]
