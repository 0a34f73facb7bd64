"""What a dataset says of its arrays: Zarr, HDF5 or netCDF, on disk, in a bucket or on the web."""

from __future__ import annotations

import atexit
import math
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np

from advisors.decide.layouts import ArrayFacts, Layout
from helpers.errors import UserError, cut, show
from helpers.redaction import redact

_FILES = (".nc", ".nc4", ".h5", ".hdf5", ".he5", ".cdf")
_OTHERS = re.compile(r"\.(tiff?|grib2?|grb2?|parquet|csv|zip|tar|gz|jp2|json|yaml|safe)$", re.I)
_METADATA = {"zarr.json": 3, ".zmetadata": 2, ".zgroup": 2, ".zarray": 2, ".zattrs": 2}
_N_LISTED = 5  # arrays that a message names
_FAR_APART = 1.5  # times as long as its chunks, from which a variable lies among others
_METADATA_NBYTES = 8 * 2**20  # of an object of metadata at most: some thirty thousand arrays
_DISK_S, _FAR_S = 10, 60  # that metadata may take, on disk and elsewhere
_LISTED_S = 5  # that the datasets of a file are looked at
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


def read_dataset(address: str, variable: str = "", together: int = 1) -> ArrayFacts:
    """Read the metadata of an array, the largest unless it is named, and how well it compresses.

    Of a file, also where it lies, with as many others of its shape as are read together.

    What never ends, or is larger than metadata are, is given up.
    """
    is_far = "://" in address
    is_file = address.lower().partition("?")[0].endswith(_FILES)
    try:
        if _OTHERS.search(address.rstrip("/")):
            raise UserError(f"dataset: {address!r}: its format is not read; allowed: {_ALLOWED}")
        if is_file or not (is_far or Path(address).is_dir()):
            return _within(is_far, lambda: _read_hdf5(address, variable.strip("/"), together))
        return _within(is_far, lambda: _read_zarr(address, variable.strip("/")))
    except Exception as error:  # whatever its library makes of a store that is damaged or away
        cause = error.__cause__ if isinstance(error, UserError) else error
        text = " ".join(redact(str(cause)).split()) or type(cause).__name__
        for pattern, reason in _REASONS:
            if cause and re.search(pattern, f"{type(cause).__name__} {text}", re.IGNORECASE):
                raise UserError(f"dataset: {cut(repr(redact(address)))}: {reason}") from error
        if isinstance(error, UserError):
            raise
        told = f"dataset: {cut(repr(redact(address)))}: it is not read ({cut(text)})"
        raise UserError(f"{told}; allowed: {_ALLOWED}") from error


def _within(is_far: bool, read: Callable[[], ArrayFacts]) -> ArrayFacts:
    """Wait no longer than metadata may take for what another thread reads; it ends with the process."""
    seconds, found = _FAR_S if is_far else _DISK_S, list[ArrayFacts | BaseException]()

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


def _choose(arrays: Iterable[ArrayFacts], variable: str) -> ArrayFacts:
    """Take the array that is named, or the largest whose elements have a size."""
    ordered = sorted(arrays, key=lambda one: (-one.nbytes, one.variable))
    names = tuple(one.variable for one in ordered)
    listed = f"{len(names)} arrays, the largest first: {cut(', '.join(names[:_N_LISTED]))}"
    if variable and variable not in names:
        raise UserError(f"variable: {show(variable)}; allowed: of {listed}")
    named = [one for one in ordered if not variable or one.variable == variable]
    usable = [one for one in named if one.shape and one.nbytes and not one.dtype.hasobject]
    if not usable:
        allowed = "an array with elements, of a type of fixed size"
        raise UserError(f"variable: {cut(variable) or listed}; allowed: {allowed}")
    return replace(usable[0], names=names, n_alike=len(_find_alike(ordered, usable[0])))


def _find_alike(arrays: Iterable[ArrayFacts], first: ArrayFacts) -> list[str]:
    """Name the arrays of the same shape and type, the first before the others."""
    same = [one for one in arrays if (one.shape, one.dtype) == (first.shape, first.dtype)]
    names = [one.variable for one in same if one.variable != first.variable]
    return [first.variable, *names]


def _read_zarr(address: str, variable: str) -> ArrayFacts:
    import obstore  # here, as numbers alone need no library of a format
    import zarr
    from zarr.storage import ObjectStore

    store = _open_store(address)
    version = _find_version(store, variable)
    node = zarr.open(ObjectStore(store, read_only=True), mode="r", zarr_format=version)
    if isinstance(node, zarr.Array):
        found = {redact(address).rstrip("/").rpartition("/")[2]: node}
        variable = ""
    elif variable and isinstance(one := node.get(variable), zarr.Array):
        found = {variable: one}  # the others may be of types that zarr cannot read
    else:
        members = node.members(max_depth=None)
        found = {name: one for name, one in members if isinstance(one, zarr.Array)}
    chosen = _choose([_describe_zarr(name, one) for name, one in found.items()], variable)
    array, sizes = found[chosen.variable], list[int]()
    object_shape = array.shards or array.chunks
    grid = [-(-n // c) for n, c in zip(array.shape, object_shape, strict=True)]
    for part in (0.15, 0.35, 0.5, 0.65, 0.85):
        place = tuple(int(part * (n - 1)) for n in grid)
        key = f"{array.path}/{array.metadata.encode_chunk_key(place)}".strip("/")
        with suppress(FileNotFoundError):  # a chunk of fill values alone
            sizes.append(obstore.head(store, key)["size"])
    nbytes = math.prod(object_shape) * chosen.dtype.itemsize
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


def _find_version(store: Any, variable: str) -> Literal[2, 3]:
    """Find the version of Zarr by the names that it has, and refuse those that are no metadata to read.

    zarr asks for several at once, and loses their errors. A pipe and a device have no bytes.
    """
    import obstore

    version: Any = None
    error: Exception = FileNotFoundError("no Zarr")
    for name in [*_METADATA, *(f"{variable}/{one}" for one in _METADATA if variable)]:
        if version == 3 and not name.endswith("zarr.json"):
            continue
        try:
            size = obstore.head(store, name)["size"]
        except FileNotFoundError:
            continue
        except Exception as refused:  # a bucket that may not be listed refuses what is not there
            error = refused
            continue
        if not 0 < size <= _METADATA_NBYTES:
            allowed = f"a file of 1 to {_METADATA_NBYTES:,} bytes"
            raise UserError(f"dataset: {cut(name)} is none to read; allowed: {allowed}")
        version = version or _METADATA[name]
    if version is None:
        raise error
    return 3 if version == 3 else 2


def _describe_zarr(name: str, array: Any) -> ArrayFacts:
    old = array.attrs.get("_ARRAY_DIMENSIONS", ())  # of version 2, as xarray writes them
    codecs = [type(one).__name__.removesuffix("Codec").lower() for one in array.compressors]
    return ArrayFacts(
        name,
        tuple(array.shape),
        np.dtype(array.dtype),
        Layout(tuple(array.chunks), tuple(array.shards) if array.shards else None),
        "zarr",
        tuple(str(one) for one in getattr(array.metadata, "dimension_names", None) or old),
        ", ".join(codecs) or "none",
    )


def _read_hdf5(address: str, variable: str, together: int) -> ArrayFacts:

    import h5py

    from advisors.hdf5.files import Deadline, open_hdf5, open_source, walk
    from advisors.hdf5.inspection import record_reads

    shown, found = cut(redact(address)), list[ArrayFacts]()
    with open_source(address) as file:
        if file.read(3) == b"CDF":
            raise UserError(
                f"dataset: {shown} is netCDF-3, which has no chunks; allowed: {_ALLOWED}"
            )
        file.seek(0)
        with open_hdf5(file, shown) as root:
            for path, one in walk(root, deadline := Deadline(_LISTED_S)):
                if isinstance(one, h5py.h5d.DatasetID):
                    with suppress(TypeError):  # of a type that numpy lacks
                        found.append(_describe_hdf5(path.strip("/"), h5py.Dataset(one)))
            if deadline.n_left_out and variable not in {one.variable for one in found}:
                if variable not in root:
                    told = f"{shown} has more datasets than are looked at in {_LISTED_S} s"
                    raise UserError(f"dataset: {told}; allowed: one that --variable names")
                found.append(_describe_hdf5(variable, root[variable]))
            chosen = _choose(found, variable)
            is_scattered = _is_scattered(root[chosen.variable])
        names = _find_alike(found, chosen)[:together]
        groups = {one.rpartition("/")[0] for one in names}
        lies = record_reads(file, shown, names, groups=groups)
    return replace(chosen, is_scattered=is_scattered, lies=lies)


def _is_scattered(node: Any) -> bool:
    """Tell from the first chunk and the last whether others lie between those of a dataset."""
    n = node.id.get_num_chunks() if node.chunks else 0
    if n < 2:
        return False
    ends = [node.id.get_chunk_info(i).byte_offset for i in (0, n - 1)]
    return bool(max(ends) - min(ends) > _FAR_APART * node.id.get_storage_size())


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
