"""Files of the structure of published products: groups, variables, chunks, filters and file space.

Lengths are cut where they only make files large. What is not published is HDF5's or h5py's default,
and said so. Values are noise that compresses about as well as measured ones.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import yaml

from studies.hdf5_drivers.files import BEAMS, PHOTONS_PER_SEGMENT
from tests.advisors.hdf5.producers import make_noise

_LAND = (
    "asr atlas_pa beam_azimuth beam_coelev brightness_flag cloud_flag_atm cloud_fold_flag delta_time"
    " delta_time_beg delta_time_end dem_flag dem_h dem_removal_flag h_dif_ref last_seg_extend latitude"
    " layer_flag longitude msw_flag n_seg_ph night_flag ph_ndx_beg ph_removal_flag psf_flag rgt"
    " segment_id_beg segment_id_end segment_landcover segment_snowcover segment_watermask sigma_across"
    " sigma_along sigma_atlas_land sigma_h sigma_topo snr solar_azimuth solar_elevation surf_type"
    " terrain_flg urban_flag"
)
_CANOPY = (
    "canopy_flag canopy_h_metrics canopy_h_metrics_abs canopy_openness canopy_rh_conf centroid_height"
    " h_canopy h_canopy_abs h_canopy_quad h_canopy_uncertainty h_dif_canopy h_max_canopy"
    " h_max_canopy_abs h_mean_canopy h_mean_canopy_abs h_median_canopy h_median_canopy_abs h_min_canopy"
    " h_min_canopy_abs landsat_flag landsat_perc n_ca_photons n_toc_photons toc_roughness"
)
_SIGNAL = "classed_pc_flag classed_pc_indx d_flag delta_time ph_segment_id"
_ABOUT = ("CompletenessOmission", "DomainConsistency", "Extent", "Lineage", "ProcessStep")


def _add(group: Any, name: str, values: Any, *, text: type = str, **how: Any) -> None:
    """Make a variable with attributes: texts of variable length, or of fixed length as `np.bytes_`."""
    _describe(group.create_dataset(name, data=values, **how), text)


def _describe(new: h5py.Dataset, text: type) -> None:
    for attribute in ("long_name", "units", "description", "source"):
        told = (
            f"{attribute} of {Path(new.name).name}, " + "as the product's dictionary has it. " * 2
        )
        new.attrs[attribute] = np.bytes_(told) if text is np.bytes_ else told


def atl03(
    path: Path, n_beams: int = 6, *, n_photons: int = 12_000, is_hollow: bool = False
) -> None:
    """Make ICESat-2's ATL03: 1,003 variables of six beams; photons are of each beam.

    Names: those that NASA's subsetter has of release 005, as many as NSIDC counts in its report on
    cloud-optimised ATL03. From there also chunks of 10,000 elements, and metadata of mostly less than
    8 MB, in large files of more than 30. Not published: chunks of other groups, texts, and the types.
    Beams are of one length here, and values of a hollow file are zeros, which take hardly any room.
    """
    names: dict[str, list[str]] = yaml.safe_load(
        Path(__file__).with_name("atl03.yaml").read_text("utf-8")
    )
    with h5py.File(path, "w") as made:
        for name in _ABOUT:
            made.create_group(f"METADATA/{name}").attrs["description"] = f"{name} " * 30
        for where, group in names.items():
            for place in dict.fromkeys(where.replace("BEAM", beam) for beam in BEAMS[:n_beams]):
                n = n_photons if where.endswith("heights") else n_photons // PHOTONS_PER_SEGMENT
                for name in group:
                    if where.startswith("BEAM"):
                        _add_track(made.require_group(place), name, n, is_hollow=is_hollow)
                    else:
                        is_text = name.endswith("utc") or name in ("control", "release", "version")
                        _add(made.require_group(place or "/"), name, [name] if is_text else [1.0])


_BYTES = ("quality_ph", "signal_conf_ph", "ph_id_channel", "ph_id_count", "ph_id_pulse")


def _add_track(group: h5py.Group, name: str, n: int, *, is_hollow: bool) -> None:
    """Add a variable that has grown along a track, with its values or with zeros, a chunk at a time."""
    extent = (5,) if name == "signal_conf_ph" else ()
    kind = "f8" if name.endswith(("time", "lat", "lon", "lat_ph", "lon_ph")) else "f4"
    new = group.create_dataset(
        name, (n, *extent), "i1" if name in _BYTES else kind, chunks=(10_000, *extent),
        maxshape=(None, *extent), compression="gzip", compression_opts=6, shuffle=True,
    )  # fmt: skip
    if is_hollow:
        zeros = zlib.compress(bytes(new.dtype.itemsize * math.prod(new.chunks)), 6)
        for at in range(0, n, 10_000):
            new.id.write_direct_chunk((at, *(0 for _ in extent)), zeros)
    else:
        new[...] = make_noise(n, *extent)
    _describe(new, str)


def atl08(path: Path, n_beams: int = 6) -> None:
    """Make ICESat-2's ATL08: six beams, of which each has land segments, canopy and signal photons.

    Names: opendap.org's listing of ATL08_20181016124656_02730110_002_01.h5. Not published: chunks,
    which are those of ATL03 here, and the length, which is that of a short granule.
    """
    how: dict[str, Any] = {
        "compression": "gzip",
        "compression_opts": 6,
        "shuffle": True,
        "chunks": (10_000,),
    }
    values = make_noise(3000)
    with h5py.File(path, "w") as made:
        for name in _ABOUT:
            made.create_group(f"METADATA/{name}").attrs["description"] = f"{name} " * 30
        for beam in BEAMS[:n_beams]:
            parts = {
                "land_segments": _LAND,
                "land_segments/canopy": _CANOPY,
                "signal_photons": _SIGNAL,
            }
            for part, names in parts.items():
                group = made.create_group(f"{beam}/{part}")
                for name in names.split():
                    _add(group, name, values, maxshape=(None,), **how)


def gedi(path: Path, n_beams: int = 8) -> None:
    """Make GEDI's L2A: eight beams with 156 layers each, of which the relative heights have 101 columns.

    Numbers: earthdata.nasa.gov on GEDI02_A version 2. Not published: chunks, which h5py chooses here,
    and names of the layers; the length is cut.
    """
    values, heights = make_noise(1500), make_noise(1500, 101)
    with h5py.File(path, "w") as made:
        for beam in ("0000", "0001", "0010", "0011", "0101", "0110", "1000", "1011")[:n_beams]:
            group = made.create_group(f"BEAM{beam}")
            group.create_dataset("rh", data=heights, chunks=True, compression="gzip")
            for number in range(155):
                new = group.create_dataset(
                    f"layer{number:03}", data=values, chunks=True, compression="gzip"
                )
                new.attrs["long_name"], new.attrs["units"] = f"layer {number}", "m"


def cmip6(path: Path) -> None:
    """Make a variable of a climate model as netCDF-C appends it: a chunk a step, times in short chunks.

    Shapes: the example of the manual of cmip7repack 0.6, `pr` of (1800, 144, 192) in chunks of a
    step, `time` in chunks of 512 and `time_bnds` in chunks of a step; a tenth of the steps here.
    """
    n = 180
    with netCDF4.Dataset(path, "w", format="NETCDF4_CLASSIC") as made:
        made.variable_id, made.Conventions, made.mip_era = "pr", "CF-1.7 CMIP-6.2", "CMIP6"
        for name, length in {"time": None, "lat": 144, "lon": 192, "bnds": 2}.items():
            made.createDimension(name, length)
        new = {
            "time": made.createVariable("time", "f8", ("time",), chunksizes=(512,)),
            "time_bnds": made.createVariable("time_bnds", "f8", ("time", "bnds"), chunksizes=(1, 2)),
            "lat": made.createVariable("lat", "f8", ("lat",)),
            "lon": made.createVariable("lon", "f8", ("lon",)),
            "pr": made.createVariable(
                "pr", "f4", ("time", "lat", "lon"), zlib=True, complevel=2, shuffle=True,
                chunksizes=(1, 144, 192),
            ),
        }  # fmt: skip
        new["time"].bounds, new["time"].units = "time_bnds", "days since 1850-01-01"
        new["pr"].units, new["pr"].long_name = "kg m-2 s-1", "Precipitation"
        new["lat"][:], new["lon"][:] = np.linspace(-90, 90, 144), np.linspace(0, 358, 192)
        rain = make_noise(12, 144, 192)
        for step in range(n):  # as a model writes it
            new["time"][step], new["time_bnds"][step] = step + 0.5, (step, step + 1)
            new["pr"][step] = rain[step % 12]


def gpm(path: Path) -> None:
    """Make GPM's half-hourly IMERG: a step of the globe, in chunks of 145 longitudes and all latitudes.

    Names: opendap.org's listing of 3B-HHR.MS.MRG.3IMERG.19980101 V07B. Chunks and filters: (1, 145,
    1800) of (1, 3600, 1800) with gzip at 6, 291 longitudes of two-byte integers, `time` in 32, as
    measured of granules of version 7. Texts of fixed length, as readers decode them. A fifth of the longitudes here.
    """
    n_lon = 725
    how: dict[str, Any] = {"compression": "gzip", "compression_opts": 6, "text": np.bytes_}
    rain = np.maximum(make_noise(1, n_lon, 1800), 0)
    with h5py.File(path, "w") as made:
        made.attrs["FileHeader"] = np.bytes_(
            "DOI=10.5067/GPM/IMERG/3B-HH/07;\n" + "Key=value;\n" * 16
        )
        grid = made.create_group("Grid")
        for name, extent, chunk in (("time", 1, 32), ("lon", n_lon, n_lon), ("lat", 1800, 1800)):
            _add(
                grid,
                name,
                np.arange(extent, dtype="f4"),
                text=np.bytes_,
                maxshape=(None,),
                chunks=(chunk,),
            )
        floats = ("precipitation", "randomError", "precipitationQualityIndex")
        later = ("Intermediate/MWprecipitation", "Intermediate/IRprecipitation")
        for name in floats + later:
            _add(grid, name, rain, maxshape=(None, n_lon, 1800), chunks=(1, 145, 1800), **how)
        likely = np.zeros((1, n_lon, 1800), "i2")
        for name in ("probabilityLiquidPrecipitation", "Intermediate/MWobservationTime"):
            _add(grid, name, likely, maxshape=(None, n_lon, 1800), chunks=(1, 291, 1800), **how)


def nisar(path: Path) -> None:
    """Make a product like NISAR's: pages of 4 MiB, chunks of 512 by 512, groups six deep, scalars as metadata.

    Path: ASF's documentation of NISAR's HDF5. Texts of fixed length: the specification of nisarqa. File space, pages, chunks, shuffle and level: the run
    configuration of isce3's `gslc`, which makes such products. Two polarisations and 1536 by 1536
    pixels here, and 60 scalars.
    """
    how: dict[str, Any] = {
        "chunks": (512, 512),
        "compression": "gzip",
        "compression_opts": 1,
        "shuffle": True,
    }
    how["text"] = np.bytes_
    image = make_noise(1536, 1536)
    with h5py.File(path, "w", fs_strategy="page", fs_page_size=4 * 2**20) as made:
        grids = made.create_group("science/LSAR/GCOV/grids/frequencyA")
        for name in ("HHHH", "HVHV", "mask"):
            _add(grids, name, image if name != "mask" else image.astype("u1"), **how)
        for name in ("xCoordinates", "yCoordinates"):
            _add(grids, name, np.arange(1536.0), text=np.bytes_)
        told = made.create_group("science/LSAR/GCOV/metadata/processingInformation/parameters")
        for number in range(60):
            _add(told, f"parameter{number}", float(number), text=np.bytes_)


PRODUCTS: dict[str, Callable[[Path], None]] = {
    "atl03": atl03,
    "atl08": atl08,
    "gedi": gedi,
    "cmip6": cmip6,
    "gpm": gpm,
    "nisar": nisar,
}
"""A file of the structure of each product."""

SCORED: dict[str, Callable[[Path], None]] = {
    "atl03-beam": functools.partial(atl03, n_beams=1),
    "atl08-beam": functools.partial(atl08, n_beams=1),
    "cmip6": cmip6,
    "gpm": gpm,
    "nisar": nisar,
}
"""Those that are read without a cache in a minute; all beams of one would take minutes."""
