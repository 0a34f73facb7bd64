"""Google Cloud Storage: file objects of gcsfs, and a download of the whole file."""

from __future__ import annotations

from typing import Any

from helpers.plotting import palette
from helpers.registry import list_missing
from studies.hdf5_drivers.drivers import DRIVERS, Driver, open_whole, open_with_fsspec
from wire.bed.emulators import explain_no_google
from wire.clients import CLIENTS
from wire.hdf5.prediction import MIB, ReadMethod

_GCSFS = ("h5py", "gcsfs")


def _explain_no_gcsfs() -> str:
    """Explain how to get gcsfs or the emulator where one is missing; return nothing where both are."""
    return (
        " ".join(["pip install", *lacking])
        if (lacking := list_missing(("gcsfs",)))
        else explain_no_google()
    )


_GOOGLE: dict[str, Any] = {
    "color": palette.CHARCOAL,
    "open": open_with_fsspec,
    "packages": _GCSFS,
    "service": "google",
    "explain_absence": _explain_no_gcsfs,
}
_WHOLE = CLIENTS["obstore-whole"].concurrency

DRIVERS.register(
    Driver(
        **_GOOGLE,
        name="gcsfs",
        label="gcsfs, default",
        marker="+",
        description="h5py over `gcsfs.open(path)`, nothing set: it fetches ahead where reads follow one another",
        # the model leaves out what it fetches ahead, which of scattered chunks is little
        method=ReadMethod("gcsfs.open", cache_type="none"),
        n_concurrent=4,
    ),
    Driver(
        **_GOOGLE,
        name="gcsfs-blocks",
        label="gcsfs, 8 MiB blocks",
        marker="x",
        description="h5py over a gcsfs file object that keeps blocks of 8 MiB",
        method=ReadMethod("gcsfs, blocks of 8 MiB"),
        settings={"cache_type": "blockcache", "block_size": 8 * MIB},
    ),
    Driver(
        name="google-whole",
        label="whole file, obstore on Google",
        color=palette.GREEN,
        marker="P",
        open=open_whole,
        description="h5py in memory, after obstore fetched the file from Google in ranges of 8 MiB, ten at once",
        packages=("h5py", "obstore"),
        method=ReadMethod("whole", "whole", in_flight=_WHOLE),
        settings={"part_nbytes": 8 * MIB, "max_workers": _WHOLE},
        service="google",
        explain_absence=explain_no_google,
    ),
)
