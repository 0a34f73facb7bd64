"""Zarr on Google Cloud, read through gcsfs and obstore."""

from __future__ import annotations

from typing import Any

import xarray as xr
from zarr.storage import FsspecStore

from helpers.arrays.stores import StoredArray
from studies.formats.readers import FORMAT_READERS, FormatReader, open_shared
from studies.formats.source import Box, Read, Values
from wire.bed.emulators import explain_no_google
from wire.bed.locations import Location


def open_with_gcsfs(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read through gcsfs, as `xarray.open_zarr("gs://...")` does."""
    client = folder.fsspec(asynchronous=True, skip_instance_cache=True)
    store = FsspecStore(client, read_only=True, path=folder.path)
    dataset = xr.open_zarr(store, mask_and_scale=False, decode_times=False, chunks=None)
    variable = dataset[stored.variable]

    def read(box: Box) -> Values:
        values: Values = variable[box].to_numpy()
        return values

    return read


_GOOGLE: dict[str, Any] = {
    "format": "zarr",
    "concurrency": 10,  # zarr's own
    "service": "google",
    "explain_absence": explain_no_google,
}

FORMAT_READERS.register(
    FormatReader(
        **_GOOGLE,
        name="zarr-gcsfs",
        label="Zarr, gcsfs default",
        open=open_with_gcsfs,
        packages=("gcsfs",),
    ),
    FormatReader(
        **_GOOGLE,
        name="zarr-obstore-google",
        label="Zarr, obstore on Google",
        open=open_shared("zarr-obstore"),
    ),
)
