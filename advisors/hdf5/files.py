"""HDF5 files on disk, in object storage or behind a web server: opened, walked, and their chunks found."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import aiohttp
import fsspec
import h5py
import hdf5plugin  # noqa: F401  # teaches h5py to read Blosc and its kin
from botocore.exceptions import BotoCoreError, ClientError
from fsspec.spec import AbstractBufferedFile

from helpers.errors import UserError, cut
from helpers.objectstore.locations import Location, parse_location
from helpers.redaction import redact

_BLOCK_NBYTES = 8 * 2**20
MAX_LINKS = 200_000
"""Links of a file up to which it is walked; each costs a step, and each object more."""

Source = str | Location
"""A path on disk, an address (s3, gs, https), or a place in a store with its credentials."""


def is_near(source: Source) -> bool:
    """Tell whether a source is a path on disk."""
    return isinstance(source, str) and "://" not in source


def name_source(source: Source) -> str:
    """Return how messages call a source: by its path, or its address without secrets."""
    return source.url if isinstance(source, Location) else redact(source)


@contextmanager
def open_source(source: Source) -> Iterator[BinaryIO]:
    """Open an HDF5 file for reading, with a cache of large blocks if it is far away."""
    with _explain(source):
        file = _open_bytes(source)
    with file:
        yield file


def _open_bytes(source: Source) -> BinaryIO:
    if isinstance(source, str) and is_near(source):
        path = Path(source)
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "no regular file but a pipe or a device"
            raise UserError(f"file: {source} is {what}; allowed: an HDF5 file")
        return path.open("rb")
    how: dict[str, Any] = {"block_size": _BLOCK_NBYTES, "cache_type": "blockcache"}
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        file = fsspec.filesystem("https", skip_instance_cache=True).open(source, **how)
        if not isinstance(file, AbstractBufferedFile) or not file.size:
            raise UserError(
                f"file: {name_source(source)}: its server does not serve ranges of bytes;"
                " allowed: one that does, or the file on disk"
            )
        return cast(BinaryIO, file)
    location = source if isinstance(source, Location) else parse_location(source)
    return cast(BinaryIO, location.fsspec(skip_instance_cache=True).open(location.path, **how))


@contextmanager
def _explain(source: Source) -> Iterator[None]:
    """Say in one line why a source cannot be read."""
    try:
        yield
    except UserError:
        raise
    except (OSError, aiohttp.ClientError, BotoCoreError, ClientError) as error:
        why = redact(" ".join(str(error).split()))
        told = f" cannot be read ({why}); allowed: a file that can be"
        if isinstance(error, FileNotFoundError):
            told = " is not there; allowed: a file that exists"
        elif isinstance(error, PermissionError):
            told = ": no permission to read it; allowed: a file that you may read"
        raise UserError(f"file: {name_source(source)}{told}") from error


LIBRARY_ERRORS = (OSError, RuntimeError, LookupError, ValueError, TypeError, ArithmeticError, MemoryError)  # fmt: skip
"""What h5py raises of a file whose metadata make no sense, next to its own OSError."""


@contextmanager
def open_hdf5(file: Any, name: str, **options: Any) -> Iterator[h5py.File]:
    """Open an HDF5 file over a file object, and say in one line what the library cannot read of it."""
    try:
        with h5py.File(file, "r", **options) as opened:
            yield opened
    except UserError:
        raise
    except LIBRARY_ERRORS as error:
        text = shorten_error(error)
        told = f"cannot be read ({text}); allowed: a sound file that nothing writes to"
        if "file signature not found" in text:
            told = "is not HDF5; allowed: an HDF5 or netCDF-4 file"
        elif "truncated" in text:
            told = f"is truncated ({text.partition('(')[2].rstrip(')')}); allowed: a whole file"
        raise UserError(f"file: {name} {told}") from error


def shorten_error(error: BaseException) -> str:
    """Give what an error says in one line; its kind where it says nothing."""
    return cut(" ".join(str(error).split()).strip("'\"")) or type(error).__name__


def check_links(file: h5py.File, name: str) -> None:
    """Refuse a file with more links than anyone would walk for an answer."""
    counted = itertools.count(1)

    def stop(_: str) -> bool | None:  # any value ends the visit
        return True if next(counted) > MAX_LINKS else None

    if file.id.links.visit(stop):
        raise UserError(
            f"file: {name} has more than {MAX_LINKS:,} links, and is not walked further;"
            " allowed: a file with fewer"
        )


def list_datasets(file: h5py.File) -> list[str]:
    """Return the paths of every dataset, each once."""
    names: list[str] = []
    file.visititems(lambda key, item: names.append(key) if isinstance(item, h5py.Dataset) else None)
    return names


def find_dataset(file: h5py.File, variable: str, name: str) -> h5py.Dataset:
    """Return a dataset by its path."""
    found = file.get(variable)
    if isinstance(found, h5py.Dataset):
        return found
    names = list_datasets(file)
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    raise UserError(f"variables: {variable!r} is not in {name}; allowed: {shown or 'none'}")


def get_page_nbytes(file: h5py.File) -> int:
    """Return the bytes of a page, 0 where file space is not paged."""
    plist = file.id.get_create_plist()
    is_paged = plist.get_file_space_strategy()[0] == h5py.h5f.FSPACE_STRATEGY_PAGE
    return int(plist.get_file_space_page_size()) if is_paged else 0


def get_filters(dataset: h5py.Dataset) -> list[tuple[Any, ...]]:
    """Return number, flags, options and name of each filter."""
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(number) for number in range(plist.get_nfilters())]


def is_variable_length(dtype: Any) -> bool:
    """Tell whether values of a type, or parts of them, lie in heaps."""
    if dtype.subdtype is not None:
        return is_variable_length(dtype.subdtype[0])
    if dtype.fields:
        return any(is_variable_length(field[0]) for field in dtype.fields.values())
    return h5py.check_vlen_dtype(dtype) is not None or (
        (info := h5py.check_string_dtype(dtype)) is not None and info.length is None
    )


MAX_IN_HEAPS = 200_000
"""Values of variable length of a dataset up to which they are read, so that their heaps are known."""


def has_readable_heaps(dataset: h5py.Dataset) -> bool:
    """Tell whether values of a dataset lie in heaps, and are few enough to be read for that."""
    if not is_variable_length(dataset.dtype) or not dataset.id.get_storage_size():
        return False
    is_readable = all(h5py.h5z.filter_avail(number) for number, *_ in get_filters(dataset))
    return 0 < dataset.size <= MAX_IN_HEAPS and is_readable


def iterate_chunks(dataset: h5py.Dataset) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Give the corner, the offset and the bytes of each stored chunk."""
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        nbytes = dataset.id.get_storage_size()
        if offset is not None and nbytes:
            yield (0,) * dataset.ndim, offset, nbytes
        return
    found: list[tuple[tuple[int, ...], int, int]] = []
    dataset.id.chunk_iter(
        lambda info: found.append((info.chunk_offset, info.byte_offset, info.size))
    )
    yield from sorted(found)


_BLOCK_OF_VALUES_NBYTES = 64 * 2**20  # of values that are held at once
_MAX_BLOCKS = 10**6


def iterate_blocks(dataset: h5py.Dataset, *others: h5py.Dataset) -> Iterator[tuple[slice, ...]]:
    """Give blocks of some tens of MB that together hold every stored value of datasets of one shape.

    They are whole chunks of the first. An extent costs nothing where nothing is stored,
    for arrays may be declared that no disk would hold.
    """
    held = (one.is_virtual or one.id.get_storage_size() for one in (dataset, *others))
    if dataset.chunks is None and not any(held):
        return
    shape, base = dataset.shape, dataset.chunks or (1,) * dataset.ndim
    block = list(base)
    for axis in reversed(range(dataset.ndim)):
        room = _BLOCK_OF_VALUES_NBYTES // max(1, math.prod(block) * dataset.dtype.itemsize)
        n_chunks = -(-shape[axis] // base[axis])
        block[axis] *= max(1, min(room, n_chunks))
    if dataset.chunks is None or any(other.chunks is None for other in others):
        counts = [-(-n // b) for n, b in zip(shape, block, strict=True)]
        if math.prod(counts) > _MAX_BLOCKS:
            raise UserError(
                f"file: {dataset.file.filename}: {dataset.name!r} has {math.prod(shape):.3g} elements, too many to copy and"
                f" compare; allowed: at most {_MAX_BLOCKS:,} blocks of 64 MiB"
            )
        places: Iterable[tuple[int, ...]] = itertools.product(*map(range, counts))
    else:
        places = sorted(set().union(*(_find_touched(one, block) for one in (dataset, *others))))
    for place in places:
        starts = [at * b for at, b in zip(place, block, strict=True)]
        yield tuple(
            slice(at, min(at + b, n)) for at, b, n in zip(starts, block, shape, strict=True)
        )


def _find_touched(dataset: h5py.Dataset, block: Sequence[int]) -> set[tuple[int, ...]]:
    """Return the places, in blocks, that stored chunks of a dataset touch."""
    found = set[tuple[int, ...]]()
    for corner, *_ in iterate_chunks(dataset):
        stops = map(min, map(sum, zip(corner, dataset.chunks, strict=True)), dataset.shape)
        parts = zip(corner, stops, block, strict=True)
        found.update(itertools.product(*(range(at // b, -(-end // b)) for at, end, b in parts)))
    return found
