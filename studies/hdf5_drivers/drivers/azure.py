"""Azure Blob Storage: file objects of adlfs, and a download of the whole file."""

from __future__ import annotations

from functools import cache
from typing import Any

from helpers.plotting import palette
from helpers.registry import list_missing
from studies.hdf5_drivers.drivers import DRIVERS, Driver, open_whole, open_with_fsspec
from wire.bed.emulators import explain_no_azure
from wire.clients import CLIENTS
from wire.hdf5.prediction import MIB, ReadMethod

_explain_no_azure = cache(explain_no_azure)  # it installs, and looks at all that is installed


def _explain_no_adlfs() -> str:
    """Explain how to get adlfs or the emulator where one is missing; return nothing where both are."""
    return (
        " ".join(["pip install", *lacking])
        if (lacking := list_missing(("adlfs",)))
        else _explain_no_azure()
    )


_AZURE: dict[str, Any] = {
    "color": palette.PURPLE,
    "open": open_with_fsspec,
    "packages": ("h5py", "adlfs"),
    "service": "azure",
    "explain_absence": _explain_no_adlfs,
}
_WHOLE = CLIENTS["obstore-whole"].concurrency

DRIVERS.register(
    Driver(
        **_AZURE,
        name="adlfs",
        label="adlfs, default",
        marker="8",
        description="h5py over `adlfs.open(path)`, nothing set: it reads 50 MiB ahead",
        method=ReadMethod("adlfs.open", cache_type="readahead", block_nbytes=50 * MIB),
    ),
    Driver(
        **_AZURE,
        name="adlfs-blocks",
        label="adlfs, 8 MiB blocks",
        marker="1",
        description="h5py over an adlfs file object that keeps blocks of 8 MiB",
        method=ReadMethod("adlfs, blocks of 8 MiB"),
        settings={"cache_type": "blockcache", "block_size": 8 * MIB},
    ),
    Driver(
        name="azure-whole",
        label="whole file, obstore on Azure",
        color=palette.GREEN,
        marker="X",
        open=open_whole,
        description="h5py in memory, after obstore fetched the file from Azure in ranges of 8 MiB, ten at once",
        packages=("h5py", "obstore"),
        method=ReadMethod("whole", "whole", in_flight=_WHOLE),
        settings={"part_nbytes": 8 * MIB, "max_workers": _WHOLE},
        service="azure",
        explain_absence=_explain_no_azure,
    ),
)
