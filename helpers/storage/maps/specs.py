"""What a map is made like, and where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from helpers.errors import UserError
from helpers.storage.locations import Location

VARIABLE = "temperature"
"""The variable of every map."""

MapKind = Literal["zarr", "netcdf", "references", "broken"]


@dataclass(frozen=True, slots=True)
class MapSpec:
    """What a map is made like.

    Parameters
    ----------
    name : str
        Name in requests, records and figures.
    kind : {"zarr", "netcdf", "references", "broken"}
        Layout; a broken map is a netCDF-4 file that ends too early.
    shape, chunk_shape : tuple of int
        Elements (latitude, longitude); float64, as those of the published study.
    coordinate_chunk : int
        Elements of a chunk of each coordinate; 0 for one chunk.
    is_consolidated : bool
        Whether the Zarr group holds the metadata of its arrays.
    """

    name: str
    kind: MapKind
    shape: tuple[int, int]
    chunk_shape: tuple[int, int]
    coordinate_chunk: int = 0
    is_consolidated: bool = True

    def __post_init__(self) -> None:
        if any(not 1 <= c <= n for c, n in zip(self.chunk_shape, self.shape, strict=True)):
            raise UserError(
                f"chunk_shape: {list(self.chunk_shape)} of {self.name};"
                f" allowed: between 1 and {list(self.shape)}"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of the values in memory."""
        return 8 * self.shape[0] * self.shape[1]

    @property
    def is_whole(self) -> bool:
        """Whether it can be opened."""
        return self.kind != "broken"


@dataclass(frozen=True, slots=True)
class Maps:
    """Maps in a store.

    Parameters
    ----------
    location : Location
        Folder that holds a folder for each map.
    specs : tuple of MapSpec
        What they are.
    stored_nbytes : dict of str to int
        Bytes that each takes in the store.
    """

    location: Location
    specs: tuple[MapSpec, ...]
    stored_nbytes: dict[str, int]
