"""Readers of arrays that no line of the study names: each reads its own layout here too."""

from __future__ import annotations

from helpers.arrays.readers import READERS
from studies.formats.readers import FORMAT_READERS, FormatReader, open_shared

_WORDS = {"zarr": "Zarr, ", "netcdf": "", "references": ""}

_named = {reader.shared for reader in FORMAT_READERS.values()}
FORMAT_READERS.register(
    *(
        FormatReader(
            name,
            f"{_WORDS[reader.layout]}{reader.label}",
            reader.layout,
            open_shared(name),
            reader.concurrency,
            reader.packages,
        )
        for name, reader in READERS.items()
        if reader.layout in _WORDS and name not in _named
    )
)
