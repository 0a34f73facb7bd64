"""Readers of arrays that no line of the studies names: each reads the array of a cluster here too."""

from __future__ import annotations

from helpers.arrays.readers import READERS
from studies.cluster_studies.sources import SOURCES, ClusterSource, open_by

_WORDS = {"zarr": "Zarr, ", "netcdf": ""}
"""How a label begins, by layout; these are made for every case."""

_named = {source.shared.name for source in SOURCES.values() if source.shared}
SOURCES.register(
    *(
        ClusterSource(
            name,
            f"{_WORDS[reader.layout]}{reader.label}",
            (),
            reader.layout,
            open_by(reader),
            is_of_today=True,
            packages=reader.packages,
        )
        for name, reader in READERS.items()
        if reader.layout in _WORDS and name not in _named and name not in SOURCES
    )
)
