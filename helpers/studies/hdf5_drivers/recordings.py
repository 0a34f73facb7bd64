"""What the library asks for, from the trace of a driver without a cache, and the caches of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.models import caches
from helpers.storage.drivers import DRIVERS, Driver, Session
from helpers.storage.drivers.registry import MIB
from helpers.storage.hdf5.files import StoredFile
from helpers.storage.repairs import open_source, record_reads
from helpers.storage.repairs.chunks import iterate_chunks
from helpers.storage.repairs.sources import open_hdf5
from helpers.storage.wires import Wire
from helpers.studies.hdf5_drivers.contenders import FileRead
from helpers.studies.hdf5_drivers.looks import look_once

RECORDED = "fsspec-none"
"""The driver whose trace is what the library asks for: nothing lies between."""

CALIBRATED = {"fsspec": "fsspec-none", "ros3": "ros3-none", "obstore": "obstore"}
"""The untuned driver of each client, whose times without a network calibrate the client."""

_READ_AHEAD_NBYTES = 50 * MIB  # of s3fs
_ROS3_PAGE_BUFFER_NBYTES = 64 * MIB  # of HDF5 2.x, where nothing is asked


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the library asks for to open a layout and read the variables.

    Parameters
    ----------
    reading : Reading
        Its reads, in order; think times are left to the calibration.
    n_without_bytes : int
        Requests that bring no bytes, as for the length of the file.
    file_nbytes, page_nbytes : int
        Lengths of the file and of its pages; 0 where it is not paged.
    n_first_past : int
        Reads that come before the library has a page buffer.
    chunk_offsets : tuple of int
        Where the chunks of the variables begin.
    """

    reading: caches.Reading
    n_without_bytes: int
    file_nbytes: int
    page_nbytes: int
    n_first_past: int
    chunk_offsets: tuple[int, ...]


def calibrated_drivers(drivers: Sequence[Driver]) -> list[Driver]:
    """Choose the drivers whose times without a network calibrate those to be foretold.

    Parameters
    ----------
    drivers : sequence of Driver
        Those that run in the study.

    Returns
    -------
    list of Driver
        The untuned one of each client.
    """
    families = dict.fromkeys(driver.name.partition("-")[0] for driver in drivers)
    return [DRIVERS[CALIBRATED[name]] for name in families if name in CALIBRATED]


def record_library(
    stored: StoredFile, layouts: Sequence[str], wire: Wire, session: Session
) -> dict[str, Recorded]:
    """Record what the library asks for on each layout, by a driver without a cache.

    Parameters
    ----------
    stored : StoredFile
        The file.
    layouts : sequence of str
        Arrangements of it.
    wire : Wire
        The network; what is recorded does not depend on its profile.
    session : Session
        The interpreter of the drivers.

    Returns
    -------
    dict of str to Recorded
        By layout; those without an HDF5 file are left out.
    """
    return {
        layout: _record_one(FileRead(stored, layout, "variables", DRIVERS[RECORDED], wire, session))
        for layout in layouts
        if layout in stored.properties
    }


def _record_one(way: FileRead) -> Recorded:
    trace = sorted(look_once(way), key=lambda request: request.start_s)
    found = way.stored.properties[way.layout]
    chunks, n_first_past = _find_chunks(way, is_paged=found.page_nbytes > 0)
    asked = [(each.range_start or 0, each.nbytes) for each in trace if each.nbytes]
    reads = tuple(caches.Read(*span, is_metadata=span[0] not in chunks) for span in asked)
    n_without_bytes = len(trace) - len(reads)
    return Recorded(
        caches.Reading(reads),
        n_without_bytes,
        found.file_nbytes,
        found.page_nbytes,
        n_first_past,
        tuple(sorted(chunks)),
    )


def _find_chunks(way: FileRead, *, is_paged: bool) -> tuple[set[int], int]:
    """Find where the chunks of the variables lie, and which reads go past a page buffer."""
    location, names = way.stored.at(way.layout), way.stored.tasks["variables"].variables
    with open_source(location) as file:
        n_first_past = record_reads(file, way.layout, ()).n_first_past if is_paged else 0
        with open_hdf5(file, way.layout) as opened:
            places = {at for name in names for _, at, _ in iterate_chunks(opened[name])}
    return places, n_first_past


def caches_of(driver: Driver, recorded: Recorded) -> list[caches.Cache] | None:
    """Name the caches between the library and the wire, from the settings of a driver.

    Parameters
    ----------
    driver : Driver
        Over a file object, or ROS3.
    recorded : Recorded
        Tells whether file space is paged.

    Returns
    -------
    list of Cache or None
        From the library down; None for readers that bypass the library.
    """
    family, settings = driver.registered_name.partition("-")[0], driver.settings
    if family not in CALIBRATED or driver.name == "obstore":
        return None
    if "block_cache" in settings:
        return [caches.Parts()]
    is_paged = recorded.page_nbytes > 0
    default = _ROS3_PAGE_BUFFER_NBYTES if family == "ros3" else 0
    buffer_nbytes = int(settings.get("page_buf_size", default)) if is_paged else 0
    pages = caches.PageBuffer(
        max(1, recorded.page_nbytes),
        max(1, recorded.page_nbytes, buffer_nbytes),
        n_first_past=recorded.n_first_past,
    )
    above: list[caches.Cache] = [pages] if buffer_nbytes else []
    if family == "ros3":
        return [*above, caches.Ros3Cache(is_paged=is_paged), caches.Parts()]
    return [*above, _file_cache(settings)]


def _file_cache(settings: Mapping[str, Any]) -> caches.Cache:
    block_nbytes = int(settings.get("block_size", _READ_AHEAD_NBYTES))
    made: dict[str, caches.Cache] = {
        "none": caches.NoCache(),
        "readahead": caches.ReadAheadCache(block_nbytes),
        "first": caches.FirstCache(block_nbytes),
        "background": caches.BackgroundCache(block_nbytes),
        "blockcache": caches.BlockCache(block_nbytes),
    }
    return made[str(settings.get("cache_type", "blockcache"))]
