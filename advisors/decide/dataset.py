"""What a dataset says of its arrays: Zarr, HDF5 or netCDF, on disk, in a bucket or on the web."""

from __future__ import annotations

import atexit
import math
import re
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from advisors.decide.layouts import Layout
from helpers.arrays.chunks import Shape
from helpers.errors import UserError, cut, show
from helpers.redaction import redact

if TYPE_CHECKING:
    from advisors.hdf5.inspection import FileLayout

Format = Literal["none", "zarr", "hdf5"]

_FILES = (".nc", ".nc4", ".h5", ".hdf5", ".he5", ".cdf")
_OTHERS = re.compile(r"\.(tiff?|grib2?|grb2?|parquet|csv|zip|tar|gz|jp2|json|yaml|safe)$", re.I)
_METADATA = ("zarr.json", ".zmetadata", ".zgroup", ".zarray")
_BLOCK_NBYTES = 2**20  # of a file far away, whose metadata are read
_N_LISTED = 5  # arrays that a message names
_FAR_APART = 1.5  # times as long as its chunks, from which a variable lies among others
_N_MOST = 20_000  # datasets of a file that are looked at
_METADATA_NBYTES = 8 * 2**20  # of an object of metadata at most: some thirty thousand arrays
_DISK_S, _FAR_S = 10, 60  # that metadata may take, on disk and elsewhere
_ALLOWED = "a Zarr store, or an HDF5 or netCDF-4 file, on disk, under s3:// or https://"
# What libraries say, and what to do.
_REASONS: Sequence[tuple[str, str]] = (
    (
        r"slow ?down|\b503\b|\b429\b|too many requests|reduce your request rate",
        "the store asks to wait (SlowDown); allowed: the same again in a minute",
    ),
    (
        r"\b40[13]\b|denied|forbidden|credential|unauthor|signature|InvalidAccessKeyId",
        "access is refused; allowed: credentials that may read it (AWS_ACCESS_KEY_ID and"
        " AWS_SECRET_ACCESS_KEY, a profile or a role), or a public dataset",
    ),
    (
        r"timed? ?out|connect|dns|resolve|unreachable|error sending request|endpoint",
        "its server does not answer; allowed: an address that this machine reaches",
    ),
    (r"not ?found|\b404\b|no such file|nosuch", f"nothing is there; allowed: {_ALLOWED}"),
)


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """What is known of an array."""

    variable: str  # name in the store, after the groups that it lies in
    shape: Shape  # elements for each dimension
    dtype: np.dtype[Any]  # type of an element
    layout: Layout | None = None  # None where it is stored without chunks, or not yet
    format: Format = "none"
    dimensions: tuple[str, ...] = ()  # their names, where they have some
    codec: str = ""
    compression: float | None = None  # array bytes over stored bytes; None where nothing tells
    names: tuple[str, ...] = ()  # all arrays of the dataset, the largest first
    n_alike: int = 1  # arrays of this shape and type
    file_nbytes: int | None = None  # of the file that holds it, if one does
    is_scattered: bool | None = None  # whether its chunks in a file lie far apart; None if unknown
    lies: FileLayout | None = None  # where it lies in its file, and others that are read with it

    @property
    def nbytes(self) -> int:
        """Bytes in the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_dataset(address: str, variable: str = "", together: int = 1) -> ArrayFacts:
    """Read the metadata of an array, the largest unless it is named, and how well it compresses.

    Of a file, also where it lies, with as many others of its shape as are read together.

    What never ends, or is larger than metadata are, is given up.
    """
    try:
        is_far = "://" in address
        seconds = _FAR_S if is_far else _DISK_S
        return _within(seconds, lambda: _read(address, variable.strip("/"), together))
    except UserError:
        raise
    except Exception as error:  # whatever its library makes of a store that is damaged or away
        text = " ".join(redact(str(error)).split()) or type(error).__name__
        reason = f"it is not read ({cut(text)}); allowed: {_ALLOWED}"
        for pattern, told in _REASONS:
            if re.search(pattern, f"{type(error).__name__} {text}", re.IGNORECASE):
                reason = told
                break
        raise UserError(f"dataset: {cut(repr(redact(address)))}: {reason}") from error


def _within(seconds: float, read: Callable[[], ArrayFacts]) -> ArrayFacts:
    """Wait no longer than that for what another thread reads; it ends with the process."""
    found: list[ArrayFacts | BaseException] = []

    def run() -> None:
        try:
            with warnings.catch_warnings(action="ignore"):  # the store is another's, as it is
                found.append(read())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        if "zarr" in sys.modules:  # whose loop still runs, and would complain of its end
            from zarr.core.sync import cleanup_resources

            atexit.unregister(cleanup_resources)
        raise UserError(f"dataset: its metadata take more than {seconds} s; allowed: less")
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def _read(address: str, variable: str, together: int) -> ArrayFacts:
    if _OTHERS.search(address.rstrip("/")):
        raise UserError(f"dataset: {address!r}: its format is not read; allowed: {_ALLOWED}")
    if "://" not in address:
        is_file = _check_on_disk(Path(address), variable)
    else:
        is_file = address.lower().partition("?")[0].endswith(_FILES)
    return _read_hdf5(address, variable, together) if is_file else _read_zarr(address, variable)


def _check_on_disk(path: Path, variable: str) -> bool:
    """Refuse what ends nowhere or is no array, before it is opened; tell a file from a folder."""
    shown, mode = cut(repr(str(path))), path.stat().st_mode
    if stat.S_ISDIR(mode):
        for name in (*_METADATA, *(f"{variable}/{one}" for one in (*_METADATA, ".zattrs"))):
            one = path / name
            if one.exists() and not (one.is_file() and one.stat().st_size <= _METADATA_NBYTES):
                allowed = f"a file of {_METADATA_NBYTES // 2**20} MiB at most"
                raise UserError(f"dataset: {shown}: {name} is none to read; allowed: {allowed}")
        return False
    if not stat.S_ISREG(mode):
        raise UserError(f"dataset: {shown} is neither a file nor a folder; allowed: {_ALLOWED}")
    if not path.stat().st_size:
        raise UserError(f"dataset: {shown} is empty; allowed: {_ALLOWED}")
    with path.open("rb") as file:
        if file.read(3) == b"CDF":
            raise UserError(
                f"dataset: {shown} is netCDF-3, which has no chunks; allowed: {_ALLOWED}"
            )
    return True


def _choose(arrays: Iterable[ArrayFacts], variable: str) -> ArrayFacts:
    """Take the array that is named, or the largest whose elements have a size."""
    ordered = sorted(arrays, key=lambda one: -one.nbytes)
    names = tuple(one.variable for one in ordered)
    largest = cut(", ".join(names[:_N_LISTED]))
    listed = f"{len(names)} arrays, the largest first: {largest}"
    if variable:
        ordered = [one for one in ordered if one.variable == variable]
        if not ordered:
            raise UserError(f"variable: {show(variable)}; allowed: of {listed}")
    usable = [one for one in ordered if one.shape and one.nbytes and not one.dtype.hasobject]
    if not usable:
        raise UserError(
            f"variable: {cut(variable) or listed}; allowed: an array with elements, of a type of fixed size"
        )
    first = usable[0]
    alike = [one for one in arrays if (one.shape, one.dtype) == (first.shape, first.dtype)]
    return replace(first, names=names, n_alike=max(1, len(alike)))


def _read_zarr(address: str, variable: str) -> ArrayFacts:
    import obstore  # here, as numbers alone need no library of a format
    import zarr
    from zarr.storage import ObjectStore

    store = _open_store(address)
    version: Literal[2, 3] = 3 if _find_metadata(store) == "zarr.json" else 2
    node = zarr.open(ObjectStore(store, read_only=True), mode="r", zarr_format=version)
    if isinstance(node, zarr.Array):
        found = {redact(address).rstrip("/").rpartition("/")[2]: node}
        variable = ""
    elif variable and isinstance(one := node.get(variable), zarr.Array):
        found = {variable: one}  # the others may be of types that zarr cannot read
    else:
        members = node.members(max_depth=None)
        found = {name: one for name, one in members if isinstance(one, zarr.Array)}
    chosen = _choose([_describe(name, one) for name, one in found.items()], variable)
    array = found[chosen.variable]
    layout = chosen.layout
    assert layout is not None  # every array of Zarr has chunks
    grid = [-(-n // c) for n, c in zip(array.shape, layout.object_shape, strict=True)]
    sizes = []
    for part in (0.15, 0.35, 0.5, 0.65, 0.85):
        place = tuple(int(part * (n - 1)) for n in grid)
        key = f"{array.path}/{array.metadata.encode_chunk_key(place)}".strip("/")
        with suppress(FileNotFoundError):  # a chunk of fill values alone
            sizes.append(obstore.head(store, key)["size"])
    nbytes = math.prod(layout.object_shape) * chosen.dtype.itemsize
    return replace(chosen, compression=nbytes * len(sizes) / sum(sizes) if sum(sizes) else None)


def _open_store(address: str) -> Any:
    """Open a folder, a bucket or a web server, which is asked again only twice."""
    import obstore.store

    patience: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}
    if "://" not in address:
        return obstore.store.LocalStore(Path(address).resolve())
    if address.startswith(("http://", "https://")):
        options: Any = {"allow_http": True, "connect_timeout": "5 seconds", "timeout": "30 seconds"}
        return obstore.store.HTTPStore(address, client_options=options, retry_config=patience)
    from helpers.objectstore.locations import parse_location

    return parse_location(address).obstore(patience)


def _find_metadata(store: Any) -> str:
    """Find a name that every Zarr of its version has; zarr asks for several at once, and loses their errors."""
    import obstore

    error: Exception = FileNotFoundError("no Zarr")
    for name in _METADATA:
        try:
            size = obstore.head(store, name)["size"]
        except FileNotFoundError:
            continue
        except Exception as refused:  # a bucket that may not be listed refuses what is not there
            error = refused
            continue
        if size > _METADATA_NBYTES:
            told = f"{name} has {size:,} bytes; allowed: {_METADATA_NBYTES:,}"
            raise UserError(f"dataset: {told}")
        return name
    raise error


def _describe(name: str, array: Any) -> ArrayFacts:
    layout = Layout(tuple(array.chunks), tuple(array.shards) if array.shards else None)
    codecs = [type(one).__name__.removesuffix("Codec").lower() for one in array.compressors]
    dimensions = getattr(array.metadata, "dimension_names", None) or array.attrs.get(
        "_ARRAY_DIMENSIONS", ()
    )
    return ArrayFacts(
        name,
        tuple(array.shape),
        np.dtype(array.dtype),
        layout,
        "zarr",
        tuple(str(one) for one in dimensions),
        ", ".join(codecs) or "none",
    )


def _read_hdf5(address: str, variable: str, together: int) -> ArrayFacts:
    import h5py
    from fsspec.core import url_to_fs

    from advisors.hdf5.inspection import record_reads

    options: Mapping[str, Any] = {}
    if address.startswith(("s3://", "gs://")):
        from helpers.objectstore.locations import parse_location

        options = parse_location(address).fsspec_options()
    files, path = url_to_fs(address, **options)
    how = {"cache_type": "blockcache", "block_size": _BLOCK_NBYTES} if "://" in address else {}
    found: list[ArrayFacts] = []

    def visit(name: str, node: Any) -> bool | None:
        if isinstance(node, h5py.Dataset) and node.shape:
            with suppress(TypeError):  # of a type that numpy lacks
                found.append(_describe_hdf5(name, node))
        return len(found) >= _N_MOST or None  # which ends the visit

    with files.open(path, "rb", **how) as file:
        with h5py.File(file) as root:
            root.visititems(visit)
            chosen = _choose(found, variable)
            is_scattered = _is_scattered(root[chosen.variable])
        alike = [
            one.variable for one in found if (one.shape, one.dtype) == (chosen.shape, chosen.dtype)
        ]
        names = [chosen.variable, *(one for one in alike if one != chosen.variable)][:together]
        groups = {one.rpartition("/")[0] for one in names}
        lies = record_reads(file, cut(redact(address)), names, groups=groups)
    return replace(chosen, file_nbytes=lies.file_nbytes, is_scattered=is_scattered, lies=lies)


def _is_scattered(node: Any) -> bool:
    """Tell from the first chunk and the last whether others lie between those of a dataset."""
    n = node.id.get_num_chunks() if node.chunks else 0
    if n < 2:
        return False
    ends = [node.id.get_chunk_info(i).byte_offset for i in (0, n - 1)]
    return bool(max(ends) - min(ends) > _FAR_APART * node.id.get_storage_size())


def _describe_hdf5(name: str, node: Any) -> ArrayFacts:
    stored = node.id.get_storage_size()
    filters = [node.compression or "", "shuffle" if node.shuffle else ""]
    return ArrayFacts(
        name,
        tuple(node.shape),
        node.dtype,
        Layout(tuple(node.chunks)) if node.chunks else None,
        "hdf5",
        (),
        ", ".join(part for part in filters if part) or "none",
        math.prod(node.shape) * node.dtype.itemsize / stored if stored else None,
    )
