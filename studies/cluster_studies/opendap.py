"""OPeNDAP: a server of an array in memory, by pydap under gunicorn, and who asks it for chunks.

pydap's handler of arrays is taken, and not that of netCDF files: the latter shortens what only a
part is asked of, and clients take what follows for values.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
import zarr
from zarr.storage import ObjectStore

from helpers.arrays.readers import ArrayReader, Chunks
from helpers.arrays.stores import StoredArray
from studies.cluster_studies.apart import make_store_environment
from wire.bed.locations import Location, parse_location
from wire.bed.networks import Profile
from wire.bed.testbed import Testbed, open_behind

N_PROCESSES = 2
"""Of the server; each answers one request at a time."""


def make_application(url: str, variable: str) -> Any:
    """Read an array into memory, and make the application that serves it; gunicorn calls this once."""
    from pydap.handlers.lib import BaseHandler
    from pydap.model import BaseType, DatasetType

    group = zarr.open_group(ObjectStore(parse_location(url).obstore(), read_only=True), mode="r")
    stored: Any = group[variable]
    dataset = DatasetType("array")
    dataset[variable] = BaseType(
        variable, np.asarray(stored[...]), dims=stored.metadata.dimension_names
    )
    return BaseHandler(dataset)


def open_service(
    stored: StoredArray, profile: Profile, *, seed: int
) -> AbstractContextManager[Testbed]:
    """Serve an array over an emulated network of its own, in real time, while the context lasts.

    The server computes as much as its clients wait for, and this machine is no faster than one in
    an archive: with a dilation it would be.
    """
    place = stored.locate("zarr")
    application = f"{__name__}:make_application({place.url!r}, {stored.variable!r})"
    flags = ["--preload", f"--workers={N_PROCESSES}", "--timeout=300", "--log-level=critical"]
    command = [sys.executable, "-m", "gunicorn", *flags, application]
    return open_behind(
        lambda address: [*command, f"--bind={address}"],
        place,
        profile,
        seed=seed,
        env=make_store_environment(place),
    )


def serve_layout(stored: StoredArray) -> StoredArray:
    """Add what is served to the layouts of an array: nothing of it is compressed."""
    return replace(stored, stored_nbytes={**stored.stored_nbytes, "opendap": stored.nbytes})


def _open_opendap(location: Location, chunks: Chunks) -> xr.Dataset:
    """Open by the netCDF library, xarray's own choice for such an address."""
    address = f"{location.endpoint_url}/array"
    return xr.open_dataset(
        address, engine="netcdf4", mask_and_scale=False, decode_times=False, chunks=chunks
    )


OPENDAP = ArrayReader(
    name="opendap",
    label="OPeNDAP",
    color="",  # figures draw it as the stores that it stands next to
    marker="",
    layout="opendap",
    open=_open_opendap,
    description="OPeNDAP through the netCDF library",
    packages=("netCDF4",),
    concurrency=1,
    is_serial=True,
)
