"""Stored arrays, and whatever else is made once, named by what makes it and checked when it is found.

A place is a folder on local disk or a prefix in an object store. Its entry is
written last and lists every object with its size and ETag. A place without
an entry, or with one that no longer holds, is made anew, so that neither a
kill, nor a full disk, nor another codec leaves bytes that would be measured.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import intake
import numpy as np
import obstore
import xxhash
from filelock import FileLock
from fsspec.core import strip_protocol
from intake.readers import datatypes
from intake.readers.readers import BaseReader
from numpy.typing import NDArray

from helpers.arrays import readers
from helpers.arrays.fields import SampleArray
from helpers.arrays.readers import Block, Codec, Layout
from helpers.paths import CATALOG
from wire.bed.locations import Location, parse_location
from wire.errors import UserError
from wire.files import cache_folder, check_file, make_private

_GENERATION = 2  # raise it when the same arguments make other bytes

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """What lies at a place."""

    made_by: Any  # everything that decides the bytes, as JSON has it
    files: dict[str, list[Any]]  # size in bytes, and the store's ETag, of each object
    facts: dict[str, Any]  # what its maker tells of it

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(int(size) for size, _ in self.files.values())


def hash_recipe(made_by: object) -> str:
    """Name a place by a hash of everything that decides its bytes."""
    return hashlib.sha256(json.dumps(made_by).encode()).hexdigest()[:16]


def prepare[Place: (Path, Location)](
    place: Place,
    made_by: object,
    write: Callable[[Place], Mapping[str, Any]],
    *,
    name: str = "entry",
    prefixes: Sequence[str] = ("",),
) -> Entry:
    """Make what is wanted at a place, unless it is there and whole.

    One process writes at a time; the others wait and find it made. What lies there `prefixes` these
    prefixes counts only once the entry does, which is put when all is on the disk.
    """
    location: Location | Path = place
    if isinstance(location, Path):
        location = Location("file", "", str(location.absolute()).strip("/"))
    client, entry, recipe = location.obstore(), f"{name}.json", json.loads(json.dumps(made_by))
    cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    make_private(locks := cache_folder() / "locks")
    with FileLock(locks / f"{hash_recipe([location.endpoint_url, location.url, name])}.lock"):
        old_entry: Entry | None = None  # of another form is as good as none
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            content = json.loads(bytes(obstore.get(client, entry).bytes()))
            old_entry = Entry(content["made_by"], content["files"], content["facts"])
        files: dict[str, list[Any]] = _list_files(client, tuple(prefixes), but=entry)
        if old_entry and old_entry.made_by == recipe and old_entry.files == files:
            return old_entry
        if old_entry or files:
            obstore.put(client, entry, b"")  # before what it lists goes
            obstore.delete(client, [*files])
        with location.writing():
            facts = write(place)
            if location.scheme == "file":
                os.sync()  # clean pages alone can be dropped
            new_entry = Entry(recipe, _list_files(client, tuple(prefixes), but=entry), dict(facts))
            obstore.put(client, entry, json.dumps(asdict(new_entry)).encode())
        return new_entry


def _list_files(client: Any, prefixes: tuple[str, ...], *, but: str) -> dict[str, list[Any]]:
    items = [item for page in obstore.list(client) for item in page]
    return {
        item["path"]: [item["size"], item["e_tag"]]
        for item in sorted(items, key=lambda item: item["path"])
        if item["path"].startswith(prefixes) and item["path"] != but
    }


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array in a store, in one or more layouts, and what it must read as."""

    location: Location  # folder that holds one folder for each layout
    variable: str  # name of the array in each layout
    shape: tuple[int, ...]  # elements for each dimension, and so are those of a chunk
    chunk_shape: tuple[int, ...]
    codec: str  # compression of the chunks
    checksums: NDArray[np.uint64]  # XXH3 of each chunk's values, one element for each chunk
    stored_nbytes: dict[str, int]  # by layout
    dimensions: tuple[str, ...] = readers.DIMENSIONS
    is_made: bool = True  # whether it was made here; otherwise `location` is the array of others

    def locate(self, layout: Layout) -> Location:
        """Return where a layout lies; an array of others is its own only layout."""
        return self.location / layout if self.is_made else self.location

    def seen_from(self, location: Location) -> StoredArray:
        """Return the same array, reached as `location` is."""
        return replace(self, location=self.location.through(location.endpoint_url))

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory."""
        return 4 * math.prod(self.shape)

    @property
    def n_chunks(self) -> int:
        """Number of stored chunks."""
        return self.checksums.size


def check_chunk_shape(shape: Sequence[int], chunk_shape: Sequence[int]) -> None:
    """Refuse a chunk shape that does not fit an array."""
    if len(shape) != len(chunk_shape):
        raise UserError(
            "chunk_shape", list(chunk_shape), f"{len(shape)} extents, as array_shape has"
        )
    if any(not 1 <= c <= n for c, n in zip(chunk_shape, shape, strict=True)):
        raise UserError(
            "chunk_shape", list(chunk_shape), f"between 1 and array_shape {list(shape)}"
        )


def checksum(values: NDArray[Any]) -> int:
    """Compute the 64-bit XXH3 of an array's bytes in C order.

    It runs at the speed of memory, so that it can stay inside the clock.
    """
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(values).data)


def arrange_checksums(
    checksums: Iterable[int], shape: tuple[int, ...], chunk_shape: tuple[int, ...]
) -> NDArray[np.uint64]:
    """Lay the checksums of chunks, the last dimension fastest, into an array: an element a chunk."""
    grid = [-(-n // c) for n, c in zip(shape, chunk_shape, strict=True)]
    return np.asarray([*checksums], np.uint64).reshape(grid)


def prepare_array(
    sample: SampleArray,
    location: Location,
    *,
    chunk_shape: tuple[int, ...],
    codec: Codec,
    layouts: Sequence[Layout],
    progress: Progress = lambda message: None,
) -> StoredArray:
    """Store a sample array below `location` in each layout, unless it is there already.

    The array is made chunk by chunk, so memory holds a few chunks. ``"references"`` brings
    ``"netcdf"`` with it.
    """
    source = hashlib.sha256(sample.source.read_bytes()).hexdigest()
    made_by = [_GENERATION, source, sample.variable, sample.shape, sample.seed, chunk_shape, codec]
    made_by += [sample.amplitude, sample.decimals]
    target = location / hash_recipe(made_by)
    wanted = sorted(
        {"netcdf", *layouts} if "references" in layouts else {*layouts}, key=readers.LAYOUTS.index
    )
    entries: dict[str, Entry] = {}
    for layout in wanted:
        # references hold places in the file, and go with it
        of = entries["netcdf"].files if layout == "references" else None

        def write(place: Location, layout: Layout = layout) -> dict[str, Any]:
            progress(f"writing {sample.nbytes / 1e6:.0f} MB as {layout}")
            checksums: list[int] = []

            def blocks() -> Iterator[tuple[Block, NDArray[np.float32]]]:
                for block in readers.iterate_blocks(sample.shape, chunk_shape):
                    corners = tuple(s.start for s in block), tuple(s.stop for s in block)
                    values = sample.block(*corners)
                    checksums.append(checksum(values))
                    yield block, values

            if layout == "references":
                readers.write_references(place / layout, place / "netcdf", variable=sample.variable)
            else:
                options = {"shape": sample.shape, "chunk_shape": chunk_shape, "codec": codec}
                readers.WRITERS[layout](place / layout, blocks, variable=sample.variable, **options)
            return {"checksums": checksums}

        entries[layout] = prepare(
            target, [made_by, of], write, name=layout, prefixes=[f"{layout}/"]
        )
    checksums = next(
        sums for layout_entry in entries.values() if (sums := layout_entry.facts["checksums"])
    )
    return StoredArray(
        target,
        sample.variable,
        sample.shape,
        chunk_shape,
        codec,
        arrange_checksums(checksums, sample.shape, chunk_shape),
        {layout: entry.nbytes for layout, entry in entries.items()},
    )


class EccoReader(BaseReader):  # type: ignore[misc]
    """Read the ECCO data portal through `xmitgcm`, which knows its compressed files and its grid."""

    imports = {"xmitgcm"}  # noqa: RUF012  # as Intake declares it
    func = "xmitgcm.llcreader:ECCOPortalLLC2160Model"
    output_instance = "xarray:Dataset"

    def _read(self, **selection: Any) -> Any:
        return self._func().get_dataset(**selection)


def open_entry(name: str, path: Path = CATALOG) -> Any:
    """Open an entry of the catalogue as an Intake reader."""
    catalog = intake.open_catalog(str(check_file(path)))
    if name not in catalog.entries:
        raise UserError("dataset", f"{name!r}", ", ".join(catalog.entries))
    return catalog[name]


def open_or_make_array(
    dataset: str,
    location: Location,
    *,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    codec: Codec,
    layouts: Sequence[Layout],
    seed: int = 0,
    path: Path = CATALOG,
    progress: Progress = lambda message: None,
) -> StoredArray:
    """Find the array of a dataset, and make it first if the catalogue says of what.

    What is made lies below `location`, with that codec and seed, and `progress` is told
    in one line what takes time. Of an array of others, `shape` is the corner that is read,
    in elements, and `chunk_shape` must be its own; an entry that is not there, or shapes
    and layouts that do not fit it, are refused.
    """
    entry = open_entry(dataset, path)
    if "made_from" not in entry.metadata:
        array_location = _locate(dataset, entry, layouts)
        if (array_location.scheme, array_location.endpoint_url) != (
            location.scheme,
            location.endpoint_url,
        ):
            # reads over its network would go astray
            raise UserError(
                "store",
                location.url,
                (
                    f"{array_location.scheme}://{array_location.bucket}, where dataset {dataset!r} is, with its "
                    "endpoint"
                ),
            )
        return _describe_existing(dataset, entry, array_location, shape, chunk_shape)
    source = open_entry(entry.metadata["made_from"], path)
    sample = SampleArray(
        _find_file(source),
        source.metadata["variable"],
        shape,
        seed,
        **source.metadata.get("enlarged", {}),
    )
    return prepare_array(
        sample, location, chunk_shape=chunk_shape, codec=codec, layouts=layouts, progress=progress
    )


def _find_file(entry: Any) -> Path:
    """Return the file of an entry; its address is no URL but a path as it is, with `%` and `#`."""
    return Path(strip_protocol(entry.kwargs["args"][0].url))


def _describe_existing(
    dataset: str,
    entry: Any,
    location: Location,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
) -> StoredArray:
    """Describe an array of others, not as what it is not; a first read by Intake gives its checksums."""
    # undecoded, as the readers of the book read it: a mask would put other numbers in
    variable = entry.read(mask_and_scale=False, decode_times=False)[entry.metadata["variable"]]
    own_chunk_shape = tuple(extents[0] for extents in variable.chunks or ())
    if variable.dtype != np.float32:
        raise UserError("dataset", f"{dataset!r} holds {variable.dtype}", "float32")
    if len(shape) != variable.ndim or any(
        n > m for n, m in zip(shape, variable.shape, strict=True)
    ):
        raise UserError(
            "array_shape", list(shape), f"at most {list(variable.shape)}, that of {dataset!r}"
        )
    if chunk_shape != own_chunk_shape:
        raise UserError(
            "chunk_shape", list(chunk_shape), f"{list(own_chunk_shape)}, that of {dataset!r}"
        )
    blocks = readers.iterate_blocks(shape, chunk_shape)
    sums = (checksum(variable[block].to_numpy()) for block in blocks)
    return StoredArray(
        location,
        str(variable.name),
        shape,
        chunk_shape,
        str(variable.encoding.get("compressors", "as stored")),
        arrange_checksums(sums, shape, chunk_shape),
        {"zarr": 4 * math.prod(shape)},
        tuple(str(name) for name in variable.dims),
        is_made=False,
    )


def _locate(dataset: str, entry: Any, layouts: Sequence[Layout]) -> Location:
    """Find where an entry's Zarr group lies, by its URL, its options and the environment."""
    data = entry.kwargs["args"][0]
    if not isinstance(data, datatypes.Zarr):
        raise UserError(
            "dataset", f"{dataset!r} is no Zarr group", "one that is, or is made from another"
        )
    if set(layouts) != {"zarr"}:
        allowed = [name for name, reader in readers.READERS.items() if reader.layout == "zarr"]
        raise UserError("contenders", f"dataset {dataset!r} has only Zarr", ", ".join(allowed))
    location, options = parse_location(data.url), data.storage_options or {}
    if location.scheme == "s3" and options.get("anon"):
        location = replace(location, access_key=None, secret_key=None, session_token=None)
    return location.through(options.get("endpoint_url", location.endpoint_url))
