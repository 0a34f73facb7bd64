"""What a dataset says of its arrays: Zarr, HDF5 or netCDF, on disk, in a bucket or on the web."""

from __future__ import annotations

import math
import re
import stat
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

import h5py
import numpy as np
import obstore
import obstore.store
import zarr
from obstore.exceptions import NotSupportedError, PermissionDeniedError, UnauthenticatedError
from zarr.storage import ObjectStore

from wire.bed.locations import open_location
from wire.deadline import deadline
from wire.decide.layouts import MOST_ARRAY_NBYTES, MOST_EXTENT, ArrayFacts, Layout
from wire.errors import UserError, cut, describe_system_error, redact, show
from wire.hdf5.files import Deadline, open_hdf5, open_source, walk
from wire.hdf5.inspection import record_reads
from wire.untrusted import UntrustedFolder

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

_SIGNATURES = (b"\x89HDF\r\n\x1a\n", b"CDF")  # with which HDF5 and netCDF-3 begin
_METADATA = ("zarr.json", ".zmetadata", ".zgroup", ".zarray")
_N_LISTED = 5  # arrays that a message names
_FAR_APART = 1.5  # times as long as its chunks, from which a variable lies among others
_METADATA_NBYTES = 8 * 2**20  # of an object of metadata at most: some thirty thousand arrays
_DISK_S, _FAR_S = 10, 60  # that metadata may take, on disk and elsewhere
_LISTED_S = 5  # that the datasets of a file are looked at
_ALLOWED = "a Zarr store, or an HDF5 or netCDF-4 file, on disk, under s3:// or https://"
# What libraries say, and what to do.
_REASONS: Sequence[tuple[str, str, str]] = (
    (r"signature not found", "it is not HDF5", _ALLOWED),
    (
        r"slow ?down|\b503\b|\b429\b|too many requests|reduce your request rate",
        "the store asks to wait (SlowDown)",
        "the same again in a minute",
    ),
    (
        r"\b40[13]\b|denied|forbidden|credential|unauthor|signature|InvalidAccessKeyId",
        "access is refused",
        "credentials that may read it (AWS_ACCESS_KEY_ID and"
        " AWS_SECRET_ACCESS_KEY, a profile or a role), or a public dataset",
    ),
    (r"not done in", "its metadata take too long", "what is read in time"),
    (
        r"timed? ?out|connect|dns|resolve|unreachable|error sending request|endpoint",
        "its server does not answer",
        "an address that this machine reaches",
    ),
    (r"not ?found|\b404\b|no such file|nosuch", "nothing is there", _ALLOWED),
    (
        r"data ?type|dtype",
        "its type of data is none that is known here",
        "one that zarr reads",
    ),
    (r"codec|compressor|filter", "its codec is none that is installed", "one of zarr's"),
    (
        r"^KeyError|^TypeError|^ValueError|^AttributeError|^IndexError|^AssertionError|Decode"
        r"|^Metadata|^RecursionError|^OverflowError|^ZeroDivision|Validation",
        "its metadata make no sense",
        _ALLOWED,
    ),
)


def read_dataset(address: str, variable: str = "", together: int = 1) -> ArrayFacts:
    """Read the metadata of an array, the largest unless it is named, and how well it compresses.

    Of a file, also where it lies, with as many others of its shape as are read together.
    What never ends, or is larger than metadata are, is given up.
    """
    name = variable.strip("/")
    try:
        with warnings.catch_warnings(action="ignore"):  # the store is another's, as it is
            if "://" in address:
                return _read_far(address, name, together)
            if not Path(address).is_dir():
                return _read_hdf5(address, name, together)
            with deadline(_DISK_S):
                return _read_zarr(address, name)
    except Exception as error:  # whatever its library makes of a store that is damaged or away
        cause = error.__cause__ if isinstance(error, UserError) else error
        text = " ".join(redact(str(cause)).split()) or type(cause).__name__
        shown = cut(repr(redact(address)))
        for pattern, reason, allowed in _REASONS:
            if cause and re.search(pattern, f"{type(cause).__name__} {text}", re.IGNORECASE):
                raise UserError("dataset", f"{shown}: {reason}", allowed) from error
        if isinstance(error, UserError):
            raise
        reason = "it cannot be read"
        if isinstance(error, OSError) and error.errno:
            reason = describe_system_error(error)
        raise UserError("dataset", f"{shown}: {reason}", _ALLOWED) from error


def _read_far(address: str, variable: str, together: int) -> ArrayFacts:
    """Read a dataset that is not on disk: a file by its first bytes, whatever it is called, or a Zarr store."""
    with deadline(_FAR_S):
        begin = _fetch_begin(address)
        if begin is None or not begin.startswith(_SIGNATURES):
            try:
                return _read_zarr(address, variable)
            except FileNotFoundError:
                if begin is None:
                    raise
    # what no signature begins may be HDF5 nevertheless, after a block of its user's own
    return _read_hdf5(address, variable, together)


def _fetch_begin(address: str) -> bytes | None:
    """Fetch the first bytes of an object; None where there is none, none where they are not served.

    Access that is refused is reported by whoever reads next: some stores refuse what is not there.
    """
    try:
        return bytes(obstore.get_range(_open_store(address), "", start=0, end=8))
    except (FileNotFoundError, PermissionDeniedError, UnauthenticatedError):
        return None
    except NotSupportedError:  # of ranges of bytes
        return b""


def _choose(arrays: Iterable[ArrayFacts], variable: str) -> ArrayFacts:
    """Take the array that is named, or the largest whose elements have a size."""
    ordered = sorted(arrays, key=lambda array: (-array.nbytes, array.variable))
    names = tuple(array.variable for array in ordered)
    listed = f"{len(names)} arrays, the largest first: {cut(', '.join(names[:_N_LISTED]))}"
    if variable and variable not in names:
        raise UserError("variable", show(variable), f"of {listed}")
    named = [array for array in ordered if not variable or array.variable == variable]
    usable = [
        array for array in named if array.shape and array.nbytes and not array.dtype.hasobject
    ]
    if not usable:
        allowed = "an array with elements, of a type of fixed size"
        raise UserError("variable", cut(variable) or listed, allowed)
    _check_extents(usable[0])
    return replace(usable[0], names=names, n_alike=len(_find_alike(ordered, usable[0])))


def _check_extents(array: ArrayFacts) -> None:
    """Refuse an array, or chunks, of more elements than can be counted, or of none."""
    layout = array.layout
    parts = [array.shape]
    if layout:
        parts += [layout.chunk_shape, layout.object_shape]
    for extents in parts:
        nbytes = math.prod(extents) * array.dtype.itemsize
        if not all(1 <= n <= MOST_EXTENT for n in extents) or nbytes > MOST_ARRAY_NBYTES:
            allowed = f"extents from 1 to {MOST_EXTENT}, and {MOST_ARRAY_NBYTES} bytes"
            problem = f"{cut(array.variable)} has extents {show([*extents])}"
            raise UserError("variable", problem, allowed)


def _find_alike(arrays: Iterable[ArrayFacts], first: ArrayFacts) -> list[str]:
    """Name the arrays of the same shape and type, the first before the others."""
    alike = [array for array in arrays if (array.shape, array.dtype) == (first.shape, first.dtype)]
    names = [array.variable for array in alike if array.variable != first.variable]
    return [first.variable, *names]


def _read_zarr(address: str, variable: str) -> ArrayFacts:
    store = _open_store(address)
    version = _find_version(store, address)
    folder = None if "://" in address else UntrustedFolder(Path(address), "dataset")
    bounded = _Bounded(store, folder)
    try:
        return _find_array(bounded, store, address, variable, version)
    finally:
        if bounded.refusal:  # zarr, which asks for several at once, may have lost it
            raise bounded.refusal


def _find_array(
    bounded: _Bounded, store: Any, address: str, variable: str, version: Literal[2, 3]
) -> ArrayFacts:
    """Read the metadata of arrays, and the sizes of some chunks of the one that is meant."""
    node = zarr.open(bounded, mode="r", zarr_format=version)
    if isinstance(node, zarr.Array):
        arrays = {redact(address).rstrip("/").rpartition("/")[2]: node}
        variable = ""
    elif variable and isinstance(member := node.get(variable), zarr.Array):
        arrays = {variable: member}  # the others may be of types that zarr cannot read
    else:
        members = node.members(max_depth=None)
        arrays = {name: array for name, array in members if isinstance(array, zarr.Array)}
    chosen = _choose([_describe_zarr(name, array) for name, array in arrays.items()], variable)
    array, sizes = arrays[chosen.variable], list[int]()
    object_shape = array.shards or array.chunks
    grid = [-(-n // c) for n, c in zip(array.shape, object_shape, strict=True)]
    for part in (0.15, 0.35, 0.5, 0.65, 0.85):
        place = tuple(int(part * (n - 1)) for n in grid)
        key = f"{array.path}/{array.metadata.encode_chunk_key(place)}".strip("/")
        with suppress(FileNotFoundError):  # a chunk of fill values alone
            sizes.append(obstore.head(store, key)["size"])
    nbytes = math.prod(object_shape) * chosen.dtype.itemsize
    return replace(chosen, compression=nbytes * len(sizes) / sum(sizes) if sum(sizes) else None)


class _Bounded(ObjectStore[Any]):
    """A store of which zarr reads metadata alone: none without an end, and of a folder no pipe and no link."""

    def __init__(self, store: Any, folder: UntrustedFolder | None = None) -> None:
        super().__init__(store, read_only=True)
        self._folder = folder
        self.refusal: UserError | None = None
        """The first that was refused."""

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read an object of metadata; None where there is none."""
        try:
            content = self._read_file(key) if self._folder else await self._fetch(key)
        except UserError as error:
            self.refusal = self.refusal or error
            raise
        return None if content is None else prototype.buffer.from_bytes(content)

    def _read_file(self, key: str) -> bytes | None:
        assert self._folder
        try:
            return self._folder.read_bytes(key, max_nbytes=_METADATA_NBYTES)
        except UserError as error:
            parents = [self._folder.folder / parent for parent in PurePosixPath(key).parents]
            is_linked = any(parent.is_symlink() for parent in parents[:-1])
            if (
                isinstance(error.__cause__, FileNotFoundError | NotADirectoryError)
                and not is_linked
            ):
                return None
            raise

    async def _fetch(self, key: str) -> bytes | None:
        """Fetch an object piece by piece, for its server may say less than it sends."""
        content = bytearray()
        try:
            result = await obstore.get_async(self.store, key)
            size = result.meta["size"]
            async for block in result.stream():
                content += bytes(block)
                if max(size, len(content)) > _METADATA_NBYTES:
                    problem = f"{cut(key)} is none to read"
                    raise UserError("dataset", problem, f"at most {_METADATA_NBYTES:,} bytes")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        return bytes(content)


def _open_store(address: str) -> Any:
    """Open a folder, a bucket or a web server, which is asked again only twice."""
    patience: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}
    if "://" not in address:
        return obstore.store.LocalStore(Path(address).resolve())
    if address.startswith(("http://", "https://")):
        options: Any = {"allow_http": True, "connect_timeout": "5 seconds", "timeout": "30 seconds"}
        return obstore.store.HTTPStore(address, client_options=options, retry_config=patience)
    return open_location(address, below=_METADATA[0]).obstore(patience)


def _find_version(store: Any, address: str) -> Literal[2, 3]:
    """Refuse what has no metadata, or none to read; zarr asks for several at once, and loses their errors."""
    error: Exception = FileNotFoundError("no Zarr")
    for name in _METADATA:
        try:
            if "://" in address:
                size = obstore.head(store, name)["size"]
            else:
                status = (Path(address) / name).stat()  # of a pipe and a device none
                size = status.st_size * stat.S_ISREG(status.st_mode)
        except FileNotFoundError:
            continue
        except Exception as refused:  # a bucket that may not be listed refuses what is not there
            error = refused
            continue
        if not 0 < size <= _METADATA_NBYTES:
            allowed = f"a file of 1 to {_METADATA_NBYTES:,} bytes"
            raise UserError("dataset", f"{name} is none to read", allowed)
        return 3 if name == "zarr.json" else 2
    raise error


def _describe_zarr(name: str, array: Any) -> ArrayFacts:
    old = array.attrs.get("_ARRAY_DIMENSIONS", ())  # of version 2, as xarray writes them
    codecs = [type(codec).__name__.removesuffix("Codec").lower() for codec in array.compressors]
    return ArrayFacts(
        name,
        tuple(array.shape),
        np.dtype(array.dtype),
        Layout(tuple(array.chunks), tuple(array.shards) if array.shards else None),
        "zarr",
        tuple(
            str(dimension) for dimension in getattr(array.metadata, "dimension_names", None) or old
        ),
        ", ".join(codecs) or "none",
    )


def _read_hdf5(address: str, variable: str, together: int) -> ArrayFacts:
    shown, arrays = cut(redact(address)), list[ArrayFacts]()
    with open_source(address, _FAR_S) as file:
        if file.read(3) == b"CDF":
            problem = f"{shown} is netCDF-3, which has no chunks"
            raise UserError("dataset", problem, _ALLOWED)
        file.seek(0)
        with open_hdf5(file, shown) as root:
            for path, object_id in walk(root, limit := Deadline(_LISTED_S)):
                if isinstance(object_id, h5py.h5d.DatasetID):
                    with suppress(TypeError):  # of a type that numpy lacks
                        arrays.append(_describe_hdf5(path.strip("/"), h5py.Dataset(object_id)))
            if limit.n_left_out and variable not in {array.variable for array in arrays}:
                if variable not in root:
                    problem = f"{shown} has more datasets than are looked at in {_LISTED_S} s"
                    raise UserError("dataset", problem, "one that --variable names")
                arrays.append(_describe_hdf5(variable, root[variable]))
            chosen = _choose(arrays, variable)
            is_scattered, node = False, root[chosen.variable]
            # whether others lie between its first chunk and the last
            if (n := node.id.get_num_chunks() if node.chunks else 0) > 1:
                first, last = (node.id.get_chunk_info(i).byte_offset for i in (0, n - 1))
                is_scattered = abs(last - first) > _FAR_APART * node.id.get_storage_size()
        names = _find_alike(arrays, chosen)[:together]
        lies = record_reads(file, shown, names, groups=())
    return replace(chosen, is_scattered=is_scattered, lies=lies)


def _describe_hdf5(name: str, node: Any) -> ArrayFacts:
    shape, stored = node.shape or (), node.id.get_storage_size()
    filters = [node.compression or "", "shuffle" if node.shuffle else ""]
    return ArrayFacts(
        name,
        tuple(shape),
        node.dtype,
        Layout(tuple(node.chunks)) if node.chunks else None,
        "hdf5",
        (),
        ", ".join(part for part in filters if part) or "none",
        math.prod(shape) * node.dtype.itemsize / stored if stored else None,
    )
