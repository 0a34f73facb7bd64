"""OPeNDAP: a server process between store and reader, and the clients that ask it for subsets."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import xarray as xr

from helpers.arrays.stores import StoredArray
from helpers.objectstore.locations import Location
from helpers.objectstore.processes import start_child
from studies.formats.formats import Read


@contextmanager
def open_service(folder: Location, variable: str) -> Iterator[str]:
    """Serve the array of a folder as long as the context lasts, and give the server's address."""
    who = {
        "AWS_ENDPOINT_URL": folder.endpoint_url,
        "AWS_ACCESS_KEY_ID": folder.access_key,
        "AWS_SECRET_ACCESS_KEY": folder.secret_key,
        "AWS_SESSION_TOKEN": folder.session_token,
        "AWS_REGION": folder.region,
    }
    kept = {name: value for name, value in os.environ.items() if name not in who}
    environment = kept | {name: value for name, value in who.items() if value}
    command = [sys.executable, "-m", "studies.formats.opendap_process", folder.url, variable]
    with start_child(command, env=environment) as child:
        child.wait_until(lambda: child.last_log_line().strip().isdigit())
        yield f"http://127.0.0.1:{child.last_log_line().strip()}"


def open_by_netcdf4(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read by the netCDF library, which speaks DAP 2 by itself."""
    return _open(folder, stored, engine="netcdf4")


def open_by_pydap(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read by pydap's own client."""
    return _open(folder, stored, engine="pydap")


def _open(folder: Location, stored: StoredArray, *, engine: str) -> Read:
    address = f"{folder.endpoint_url}/array"
    how: dict[str, Any] = {"engine": engine, "mask_and_scale": False, "decode_times": False}
    with warnings.catch_warnings():
        # that DAP 2 is old: it is what servers everywhere speak, and what both clients are asked for
        warnings.filterwarnings("ignore", "PyDAP was unable to determine", UserWarning)
        # and that a notebook has no bar of progress, which pydap imports
        warnings.filterwarnings("ignore", "IProgress not found")
        dataset = xr.open_dataset(address, **how)
    return lambda box: np.asarray(dataset[stored.variable][box].to_numpy(), np.float32)
