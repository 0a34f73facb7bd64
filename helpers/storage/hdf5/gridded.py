"""Files that other tools write: gridded netCDF-4 of real fields, and copies of it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import netCDF4
import numpy as np

from helpers.errors import UserError
from helpers.storage.data import SampleArray

VARIABLES = ("ocean/temperature", "ice/temperature")
"""Two of the four variables of a gridded file."""

_GROUPS = ("ocean", "ice")
_NAMES = ("temperature", "anomaly")
_TIMEOUT_S = 120
_SMALL_PAGE_NBYTES = 65_536  # as small as some producers leave them


def write_with_netcdf4(sample: SampleArray, path: Path) -> Path:
    """Write the top level of a real field, twice enlarged, as netCDF4-python does.

    Parameters
    ----------
    sample : SampleArray
        Real field, enlarged.
    path : Path
        File to make.

    Returns
    -------
    Path
        The file.
    """
    stop = (sample.shape[0], 1, *sample.shape[2:])
    top = sample.block((0, 0, 0, 0), stop)[:, 0]
    with netCDF4.Dataset(path, "w") as made:
        made.title = "a gridded file of real fields"
        for name, length in zip(("time", "y", "x"), (None, *top.shape[1:]), strict=True):
            made.createDimension(name, length)
        for group in _GROUPS:
            for number, name in enumerate(_NAMES):
                chunk = (1, -(-top.shape[1] // 4), -(-top.shape[2] // 4))
                new = made.createGroup(group).createVariable(
                    name, "f4", ("time", "y", "x"), zlib=True, chunksizes=chunk
                )
                new.units, new.long_name = "degC", f"{name} of {group}"
                new[:] = top + np.float32(number)
    return path


def write_with_ncgen(source: Path, path: Path) -> Path:
    """Write a file again from its text: ncdump's output through ncgen.

    Parameters
    ----------
    source, path : Path
        A netCDF-4 file, and the one to make.

    Returns
    -------
    Path
        The file.
    """
    text = path.with_suffix(".cdl")
    with text.open("w") as out:
        _run(["ncdump", "-s", str(source)], stdout=out)
    _run(["ncgen", "-4", "-o", str(path), str(text)])
    text.unlink()
    return path


def write_with_h5repack(source: Path, path: Path) -> Path:
    """Write a file again in pages of 64 KiB, by h5repack.

    Parameters
    ----------
    source, path : Path
        A netCDF-4 file, and the one to make.

    Returns
    -------
    Path
        The file.
    """
    _run(["h5repack", "-S", "PAGE", "-G", str(_SMALL_PAGE_NBYTES), str(source), str(path)])
    return path


_REWRITERS: Mapping[str, tuple[tuple[str, ...], Callable[[Path, Path], Path]]] = {
    "ncgen": (("ncdump", "ncgen"), write_with_ncgen),
    "h5repack": (("h5repack",), write_with_h5repack),
}


def write_all(sample: SampleArray, folder: Path) -> dict[str, Path]:
    """Write a gridded file by each tool that is on PATH.

    Parameters
    ----------
    sample : SampleArray
        Real field, enlarged.
    folder : Path
        Where.

    Returns
    -------
    dict of str to Path
        By the tool; netCDF4-python is always there.
    """
    first = write_with_netcdf4(sample, folder / "gridded-netcdf4.nc")
    made = {"netCDF4-python": first}
    for name, (programs, write) in _REWRITERS.items():
        if all(map(shutil.which, programs)):
            made[name] = write(first, folder / f"gridded-{name}.nc")
    return made


def _run(argv: list[str], **options: object) -> None:
    done = subprocess.run(  # type: ignore[call-overload]
        argv, stderr=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=False, **options
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise UserError(f"{argv[0]}: {said[-1] if said else f'exit code {done.returncode}'}")
