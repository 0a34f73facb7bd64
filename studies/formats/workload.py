"""One read of a format by a client, and one write of it, in the steps that a measurement needs."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from helpers.arrays import readers, reads, services, stores
from helpers.arrays.reads import count_requests
from helpers.benchmark.contender import CheckError, Contender, Steps
from helpers.registry import leave_out
from studies.formats.formats import FORMATS, StoredFormats, find_values, make_source
from studies.formats.formats import make_formats as make_formats_of
from studies.formats.readers import FORMAT_READERS, FormatReader, list_formats
from studies.formats.source import Box, Read, SourceArray, Values, choose, digest
from wire.bed.locations import Location
from wire.bed.testbed import Testbed
from wire.errors import UserError

CONTROL = "control"
CACHE_STATE = "nothing cached, new clients, warm server"
DATASET = "enlarged-ocean-temperature"


@dataclass(frozen=True, slots=True)
class FormatRead(Steps):
    """An array read in one process, into memory."""

    reader: FormatReader
    formats: StoredFormats
    testbed: Testbed  # the network that it is read over
    n_requests: int  # concurrent ones that a reader may have, where the case says how many
    access: str

    @property
    def box(self) -> Box:
        """Bounds of what is read."""
        return choose(self.access, self.formats.stored)

    @property
    def concurrency(self) -> int:
        """Concurrent requests that the reader may have; zarr's own default where it has one."""
        return self.reader.count_requests(self.n_requests)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of what is read."""
        return tuple(extent.stop - extent.start for extent in self.box)

    def settings(self) -> dict[str, Any]:
        """Declare what a comparison has to hold equal."""
        return {
            "codec": FORMATS[self.reader.format].codec or self.formats.stored.codec,
            "layout": self.reader.format,
            "concurrency": self.concurrency,
            "cache_state": CACHE_STATE,
        }

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the values that are wanted, and their share of those stored."""
        stored = self.formats.stored
        share = math.prod(self.shape) / math.prod(stored.shape)
        stored_nbytes = self.formats.nbytes[find_values(self.reader.format)]
        return int(share * stored.nbytes), max(1, int(share * stored_nbytes))

    def prepare(self) -> None:
        """Forget clients, settings and the trace."""
        zarr_config = {"async.concurrency": self.concurrency, **self.reader.zarr_config}
        readers.forget_clients(zarr_config)
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> Read:
        """Open the format: metadata, where it has any."""
        reached = self.formats.seen_from(self.testbed.far)
        read = self.reader.open(
            reached.locate(self.reader.format), reached.stored, self.concurrency
        )
        self.testbed.set_tag("read")
        return read

    def read(self, opened: Read) -> Values:
        """Read what is asked for into memory."""
        return opened(self.box)

    def check(self, values: Values) -> str:
        """Compare what was read with what was written, value by value."""
        if values.shape != self.shape or digest(values) != self.formats.digests[self.access]:
            raise CheckError(f"{self.reader.name} reads other values than were written")
        return f"xxh3 of {values.size} values"

    def collect(self) -> dict[str, float]:
        """Count what passed over the wire."""
        return count_requests(self.testbed.take_trace(), self.concurrency)


@dataclass(frozen=True, slots=True)
class FormatWrite(Steps):
    """A format written from values in memory, without the network."""

    name: str  # of the format
    source: SourceArray
    formats: StoredFormats

    @property
    def folder(self) -> Location:
        """Where it is written, next to what is read."""
        return self.formats.folder / "again" / self.name

    def settings(self) -> dict[str, Any]:
        """Declare what a comparison has to hold equal."""
        codec = FORMATS[self.name].codec or self.source.codec
        return {"codec": codec, "layout": self.name, "cache_state": "values in memory, warm server"}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the values, and of what is stored."""
        return self.source.values.nbytes, max(1, self.formats.nbytes[self.name])

    def prepare(self) -> None:
        """Remove what was written before; imports are no part of a write."""
        self.folder.clear()
        for package in FORMATS[self.name].packages:
            importlib.import_module(package)

    def read(self, _opened: object) -> None:
        """Write: that is what is timed."""
        FORMATS[self.name].write(self.folder, self.source)

    def check(self, _nothing: object) -> str:
        """Read back what was written, compare it, and remove it."""
        reader = next(
            candidate for candidate in FORMAT_READERS.values() if candidate.format == self.name
        )
        readers.forget_clients({})
        values = reader.open(self.folder, self.formats.stored, 1)(
            choose("whole", self.formats.stored)
        )
        if digest(values) != self.formats.digests["whole"]:
            raise CheckError(f"{self.name} holds other values than were written")
        self.folder.clear()
        return f"xxh3 of {values.size} values"


def make_formats(
    names: Sequence[str], location: Location, settings: Mapping[str, Any]
) -> StoredFormats:
    """Make the formats that contenders read, at a location, unless they are there.

    `settings` are the parameters of the case. Zarr is always made: the others are made from it.
    """
    needed = list_formats(names)
    layouts = {"zarr", *needed, *(find_values(name) for name in needed)}
    stored = stores.open_or_make_array(
        DATASET,
        location,
        shape=tuple(settings["array_shape"]),
        chunk_shape=tuple(settings["chunk_shape"]),
        codec=settings["codec"],
        layouts=sorted(layout for layout in layouts if FORMATS[layout].is_shared),  # type: ignore[misc]  # these are layouts
        seed=settings["seed"],
    )
    return make_formats_of(stored, needed)


def list_services(
    names: Sequence[str], formats: StoredFormats
) -> tuple[set[str], Location, list[str]]:
    """List the services beside S3 that contenders read from, and a place and keys of what they read."""
    elsewhere = [reader for name in names if (reader := FORMAT_READERS[name]).service != "s3"]
    folders = {reader.format: formats.locate(reader.format) for reader in elsewhere}
    keys = [key for folder in folders.values() for key in services.list_keys(folder)]
    return {reader.service for reader in elsewhere}, formats.stored.location, keys


def make_contenders(
    names: Sequence[str],
    accesses: Sequence[str],
    formats: StoredFormats,
    testbed: Testbed,
    *,
    n_requests: int,
    read: Callable[[Read, Box], Values],
    elsewhere: Mapping[str, Testbed] = MappingProxyType({}),
) -> list[Contender]:
    """Make a contender of each access by each reader; `read` is what is timed after the opening.

    `elsewhere` are the services where readers read that do not speak S3.
    """
    planned = []
    for access in accesses:
        for name in names:
            reader = FORMAT_READERS[name]
            place = {"s3": testbed, **elsewhere}[reader.service]
            steps = FormatRead(reader, formats, place, n_requests, access)
            timed = partial(_read_box, read, steps.box)
            planned.append(
                Contender(name, steps, point={"access": access}, group=access, read=timed)
            )
    return planned


def _read_box(read: Callable[[Read, Box], Values], box: Box, opened: Read) -> Values:
    """Read bounds of what is open."""
    return read(opened, box)


def make_controls(planned: Sequence[Contender]) -> list[Contender]:
    """Make a second copy of one contender for each access."""
    first = choose_control([contender.name for contender in planned])
    chosen = [contender for contender in planned if contender.name == first]
    return [replace(contender, name=CONTROL, control_of=first) for contender in chosen]


def make_ceiling(
    planned: Sequence[Contender], formats: StoredFormats, testbed: Testbed
) -> Contender:
    """Make the raw reads of the Zarr array, with as many concurrent requests as any contender."""
    most = max(
        contender.steps.concurrency
        for contender in planned
        if isinstance(contender.steps, FormatRead)
    )
    raw = reads.RawRead.of_array(formats.stored, testbed, n_connections=most)
    return Contender(
        "raw",
        raw,
        point={"access": "whole"},
        group="whole",
        read=raw.read,
        settings={"concurrency": most},
        is_ceiling=True,
    )


def make_write_contenders(names: Sequence[str], formats: StoredFormats) -> list[Contender]:
    """Make a contender of the write of each format that contenders read."""
    source = make_source(formats.stored)
    return [
        Contender(
            name,
            FormatWrite(name, source, formats),
            point={"access": "write"},
            group="write",
        )
        for name in list_formats(names)
    ]


def list_missing(names: Sequence[str]) -> dict[str, str]:
    """Name the contenders that cannot run here, and what to install for each.

    Where a page is rendered from its record, one that is not installed is refused.
    """
    missing = {name: FORMAT_READERS[name].missing() for name in names}
    reasons = {
        name: f"pip install {' '.join(lacking)}"
        if lacking
        else FORMAT_READERS[name].explain_absence()
        for name, lacking in missing.items()
    }
    return leave_out({name: reason for name, reason in reasons.items() if reason})


def choose_control(names: Sequence[str]) -> str:
    """Choose the contender that is measured twice: Zarr through obstore, or the first.

    Examples
    --------
    >>> choose_control(["netcdf-s3fs", "zarr-obstore"])
    'zarr-obstore'
    """
    if not names:
        raise UserError("contenders", "none can run here", "with one that is installed")
    return "zarr-obstore" if "zarr-obstore" in names else names[0]
