"""Files as their producers make them, each by another tool: of some MB, with what that tool is known for."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import h5netcdf
import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr


def run_tool(*argv: str | Path) -> None:
    """Run a program, or skip where it is not there."""
    if not shutil.which(str(argv[0])):
        pytest.skip(f"{argv[0]} is not on PATH")
    subprocess.run(list(map(str, argv)), check=True, capture_output=True)


def run_script(script: str, path: Path, *, needs: str) -> None:
    """Run Python in a process of its own, so that a library brings its own HDF5; skip without it."""
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True)


def make_noise(*shape: int, seed: int = 0) -> np.ndarray:
    """Make values that compress about as well as measured ones do."""
    return np.random.default_rng(seed).normal(size=shape).round(2).astype("f4")


def by_netcdf4(path: Path) -> None:
    """Make a gridded file with groups and a record dimension by netCDF4-python."""
    with netCDF4.Dataset(path, "w") as made:
        made.title, made.history = "gridded", "made by netCDF4-python"
        for name, length in (("time", None), ("y", 120), ("x", 160)):
            made.createDimension(name, length)
        for group in ("ocean", "ice"):
            for number, name in enumerate("abc"):
                where = made.createGroup(group)
                new = where.createVariable(
                    name, "f4", ("time", "y", "x"), zlib=True, chunksizes=(2, 60, 80)
                )
                new.units, new.long_name = "K", f"{name} of {group}"
                new[:] = make_noise(10, 120, 160, seed=number)


def by_h5py(path: Path) -> None:
    """Make a file of many small datasets with texts of variable length as attributes by h5py."""
    with h5py.File(path, "w") as made:
        made.attrs["title"] = "many small ones"
        for beam in range(6):
            group = made.create_group(f"gt{beam}")
            for number in range(12):
                new = group.create_dataset(
                    f"v{number}", data=make_noise(40_000, seed=number), chunks=(10_000,),
                    compression="gzip", shuffle=True,
                )  # fmt: skip
                new.attrs["units"], new.attrs["long_name"] = "m", f"height {number} of beam {beam}"
                new.attrs["description"] = "a sentence that says what this is. " * 4


def by_h5py_contiguous(path: Path) -> None:
    """Make a file of small datasets without chunks by h5py."""
    with h5py.File(path, "w") as made:
        for number in range(120):
            new = made.create_dataset(f"v{number:03}", data=make_noise(500 + 10 * number))
            new.attrs["units"] = np.bytes_("m")
        made["image"] = make_noise(900, 900)


def by_h5netcdf(path: Path) -> None:
    """Make a file with names of variable length by h5netcdf."""
    with h5netcdf.File(path, "w") as made:
        made.dimensions = {"station": 2000, "time": 200}
        names = made.create_variable("name", ("station",), h5py.string_dtype())
        names[...] = np.array([f"station number {n}" for n in range(2000)], object)
        for number in range(4):
            new = made.create_variable(
                f"v{number}", ("station", "time"), "f4", chunks=(500, 50), compression="gzip"
            )
            new.attrs["units"], new.attrs["long_name"] = "mm", f"rain gauge {number}"
            new[...] = make_noise(2000, 200, seed=number)


def by_xarray(path: Path) -> None:
    """Make a file with coordinates and a record dimension in small chunks by xarray."""
    times = np.arange("2000-01-01", "2000-04-10", dtype="M8[D]").astype("M8[ns]")
    variables = {
        name: (("time", "lat", "lon"), make_noise(len(times), 90, 120, seed=number))
        for number, name in enumerate(("t2m", "tp"))
    }
    made = xr.Dataset(variables, {"time": times, "lat": np.arange(90.0), "lon": np.arange(120.0)})
    made.attrs = {"title": "daily", "institution": "nobody's", "history": "made by xarray"}
    how = {"zlib": True, "chunksizes": (1, 90, 120)}
    made.to_netcdf(
        path, engine="netcdf4", unlimited_dims=["time"], encoding=dict.fromkeys(variables, how)
    )


def by_ncgen(path: Path) -> None:
    """Make a file from text by ncgen."""
    values = ", ".join(map(str, range(40_000)))
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "made.cdl"
        text.write_text(
            "netcdf made { dimensions: t = UNLIMITED; x = 40000; variables: double t(t); float w(t, x);"
            ' w:units = "m s-1"; w:_ChunkSizes = 1, 40000; int n(x); n:_ChunkSizes = 5000;'
            ' n:_DeflateLevel = 2; :title = "made by ncgen"; data: t = 0, 1, 2, 3, 4, 5, 6, 7;'
            f" w = {', '.join([values] * 8)}; n = {values}; }}"
        )
        run_tool("ncgen", "-4", "-o", path, text)


def by_nccopy(path: Path) -> None:
    """Compress and rechunk a file by nccopy."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.nc"
        by_netcdf4(source)
        run_tool("nccopy", "-d1", "-s", "-c", "time/1,y/40,x/40", source, path)


def by_h5repack(path: Path) -> None:
    """Put a file in small pages by h5repack."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.h5"
        by_h5py(source)
        run_tool("h5repack", "-S", "PAGE", "-G", "65536", source, path)


_PYTABLES = """
import sys
import numpy as np
import tables

rng = np.random.default_rng(0)
with tables.open_file(sys.argv[1], "w", title="made by PyTables") as made:
    how = tables.Filters(complevel=1, complib="zlib", shuffle=True)
    table = np.zeros(60_000, [("time", "f8"), ("name", "S8"), ("value", "f4", (3,))])
    table["time"], table["value"] = np.arange(60_000), rng.normal(size=(60_000, 3)).round(2)
    made.create_table("/", "readings", table, "readings", filters=how)
    group = made.create_group("/", "images")
    for number in range(8):
        values = rng.normal(size=(40, 60, 60)).round(2).astype("f4")
        made.create_carray(group, f"image{number}", obj=values, filters=how, chunkshape=(2, 60, 60))
        made.create_array(group, f"axis{number}", np.arange(60.0), f"an axis {number}")
    grown = made.create_earray("/", "grown", tables.Float32Atom(), (0, 50), filters=how)
    for _ in range(20):
        grown.append(rng.normal(size=(100, 50)).round(2).astype("f4"))
    ragged = made.create_vlarray("/", "ragged", tables.Int32Atom())
    for n in range(200):
        ragged.append(np.arange(n % 17 + 1))
"""


def by_pytables(path: Path) -> None:
    """Make a file with a table, arrays and ragged rows by PyTables."""
    run_script(_PYTABLES, path, needs="tables")


_PANDAS = """
import sys
import numpy as np
import pandas as pd

rng, names = np.random.default_rng(0), ["depth", "salinity", "temperature"]
made = pd.DataFrame(rng.normal(size=(50_000, 3)).round(2).astype("f4"), columns=names)
made["station"] = np.arange(len(made)) // 100
how = {"complevel": 1, "complib": "zlib"}
made.to_hdf(sys.argv[1], key="casts", format="table", data_columns=["station"], mode="w", **how)
for number in range(6):
    made[names].iloc[number::6].to_hdf(sys.argv[1], key=f"parts/part{number}", mode="a", **how)
"""


def by_pandas(path: Path) -> None:
    """Make a file with an indexed table and with frames in the fixed format by pandas."""
    run_script(_PANDAS, path, needs="tables")


_GDAL = """
import os
import sys
import numpy as np
import rasterio
import rasterio.shutil
from rasterio.transform import from_origin

rng, image = np.random.default_rng(0), sys.argv[1] + ".tif"
how = {"width": 700, "height": 200, "count": 4, "dtype": "float32", "crs": "EPSG:4326"}
with rasterio.open(image, "w", driver="GTiff", transform=from_origin(5, 50, 0.01, 0.01), **how) as made:
    made.write(rng.normal(size=(4, 200, 700)).round(2).astype("f4"))
rasterio.shutil.copy(image, sys.argv[1] + ".nc", driver="netCDF", strict=False, FORMAT="NC4", COMPRESS="DEFLATE")
os.remove(image)
os.rename(sys.argv[1] + ".nc", sys.argv[1])  # after its suffix GDAL takes another driver
"""


def by_gdal(path: Path) -> None:
    """Make a file of four bands by GDAL."""
    run_script(_GDAL, path, needs="rasterio")


PRODUCERS: dict[str, Callable[[Path], None]] = {
    "netcdf4-python": by_netcdf4,
    "h5py": by_h5py,
    "h5py-contiguous": by_h5py_contiguous,
    "h5netcdf": by_h5netcdf,
    "xarray": by_xarray,
    "ncgen": by_ncgen,
    "nccopy": by_nccopy,
    "h5repack": by_h5repack,
    "pytables": by_pytables,
    "pandas": by_pandas,
    "gdal": by_gdal,
}
"""A file of each, by the name of its producer."""


def make_all(
    folder: Path, makers: Mapping[str, Callable[[Path], None]] = PRODUCERS
) -> dict[str, Path]:
    """Make a file by each producer whose tool is there.

    ``python -m tests.advisors.hdf5.producers FOLDER`` does it for ``wire hdf5 score FOLDER``, with
    files of the structure of products among them.
    """
    found: dict[str, Path] = {}
    for name, produce in makers.items():
        path = folder / f"{name}.h5"
        try:
            produce(path)
        except pytest.skip.Exception:
            continue
        found[name] = path
    return found


if __name__ == "__main__":
    from tests.advisors.hdf5.products import SCORED  # which are made of what is above

    chosen = PRODUCERS | {f"like-{name}": make for name, make in SCORED.items()}
    sys.stdout.write("\n".join(map(str, make_all(Path(sys.argv[1]), chosen).values())) + "\n")
