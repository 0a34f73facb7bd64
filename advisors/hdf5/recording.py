"""HDF5 files on disk and in object storage, and which bytes the library asks of them.

Metadata are read, and noted. Chunks are not: where they lie is in the metadata, and the
library reads each of them whole, in the order of their places in the array.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import botocore.exceptions
import h5py
import hdf5plugin  # noqa: F401  # teaches h5py to read Blosc and its kin

from helpers.errors import UserError, cut
from helpers.objectstore.locations import Location, parse_location

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_HEAP_SIGNATURE = b"GCOL"
_HEAP_HEADER_NBYTES = 16  # signature, version, and from byte 8 on the bytes of the whole heap
_BLOCK_NBYTES = 8 * 2**20


class LoggedFile:
    """A file object that notes each read, as HDF5 asks for it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell
        self.spans: list[tuple[int, int]] = []
        """Offset and length of each read so far."""
        self.heaps: set[int] = set()
        """Offsets of reads that brought heaps of values of variable length."""
        self._heap_stop = 0  # where the heap that was read last ends

    def read(self, nbytes: int = -1) -> bytes:
        """Read and note it, as `readinto` does."""
        at = self._file.tell()
        found = self._file.read(nbytes)
        self._note(at, len(found), found[:_HEAP_HEADER_NBYTES])
        return found

    def readinto(self, buffer: Any) -> int:
        """Read and note it."""
        at = self._file.tell()
        nbytes = int(cast(Any, self._file).readinto(buffer))
        self._note(at, len(buffer), bytes(memoryview(buffer)[:_HEAP_HEADER_NBYTES]))
        return nbytes

    def _note(self, offset: int, nbytes: int, beginning: bytes) -> None:
        before = self.spans[-1] if self.spans else (-1, 0)
        if beginning.startswith(_HEAP_SIGNATURE):
            self._heap_stop = offset + int.from_bytes(beginning[8:], "little")
            self.heaps.add(offset)
        # of a heap above 4 KiB the library reads the beginning, and then the rest
        elif before[0] in self.heaps and offset == sum(before) and offset < self._heap_stop:
            self.heaps.add(offset)
        self.spans.append((offset, nbytes))

    def flush(self) -> None:
        """Do nothing: nothing is written."""


def find_location(source: str | Location) -> Location | None:
    """Return where an object lies; None for a path on disk.

    Examples
    --------
    >>> find_location("granule.h5") is None
    True
    """
    if isinstance(source, Location):
        return source
    return parse_location(source) if "://" in source else None


@contextmanager
def open_source(source: str | Location) -> Iterator[BinaryIO]:
    """Open an HDF5 file for reading, with a cache of large blocks if it is far away."""
    with _explain(source):
        file = _open_bytes(source)
    with file:
        with _explain(source):
            _check_signature(file, name_source(source))
        yield file


def name_source(source: str | Location) -> str:
    """Return how messages call a source: by its path or its address."""
    return source.url if isinstance(source, Location) else source


def _open_bytes(source: str | Location) -> BinaryIO:
    location = find_location(source)
    if location is None:
        if Path(name_source(source)).is_dir():
            raise UserError(f"file: {source} is a folder; allowed: an HDF5 file")
        return Path(name_source(source)).open("rb")
    files = location.fsspec(skip_instance_cache=True)
    opened = files.open(
        location.path,
        block_size=_BLOCK_NBYTES,
        cache_type="blockcache",
    )
    return cast(BinaryIO, opened)


@contextmanager
def _explain(source: str | Location) -> Iterator[None]:
    """Say in one line why a source cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(
            f"file: {name_source(source)} is not there; allowed: a file that exists"
        ) from error
    except PermissionError as error:
        raise UserError(
            f"file: {name_source(source)}: no permission to read it; allowed: a file that you may read"
        ) from error
    except (OSError, botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        text = " ".join(str(error).split())
        raise UserError(
            f"file: {name_source(source)} cannot be read ({text}); allowed: a file that can be"
        ) from error


def _check_signature(file: BinaryIO, name: str) -> None:
    """Look for HDF5's signature where it may be: at 0, 512, 1024, and so on."""
    file_nbytes, offset = file.seek(0, 2), 0
    while offset + len(SIGNATURE) <= file_nbytes:
        file.seek(offset)
        if file.read(len(SIGNATURE)) == SIGNATURE:
            return
        offset = max(512, 2 * offset)
    raise UserError(f"file: {name} is not HDF5; allowed: an HDF5 or netCDF-4 file")


LIBRARY_ERRORS = (
    OSError,
    RuntimeError,
    KeyError,
    ValueError,
    TypeError,
    ArithmeticError,
    MemoryError,
)
"""What h5py raises of a file whose metadata make no sense, beside its own OSError."""


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
        if "truncated" in text:
            raise UserError(
                f"file: {name} is truncated ({text.partition('(')[2].rstrip(')')});"
                " allowed: a whole file"
            ) from error
        raise UserError(
            f"file: {name} cannot be read ({text}); allowed: a sound file that nothing writes to"
        ) from error


def shorten_error(error: BaseException) -> str:
    """Give what an error says in one line; its kind where it says nothing."""
    return cut(" ".join(str(error).split()).strip("'\"")) or type(error).__name__


CHUNK_CACHE_NBYTES = 8 * 2**20
"""Chunk cache for each dataset; an uncompressed chunk that is larger is read row by row."""


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


def iterate_raw_reads(dataset: h5py.Dataset) -> Iterator[tuple[int, int]]:
    """Give the bytes that the library asks for to read a whole dataset.

    Chunks that are compressed, or that fit the chunk cache, are read whole;
    of others, each run of bytes that is contiguous in memory as well.
    """
    is_whole = dataset.chunks is None or dataset.id.get_create_plist().get_nfilters()
    for corner, offset, nbytes in iterate_chunks(dataset):
        if is_whole or nbytes <= CHUNK_CACHE_NBYTES:
            yield offset, nbytes
        else:
            yield from _iterate_rows(dataset, corner, offset)


def _iterate_rows(
    dataset: h5py.Dataset, corner: tuple[int, ...], offset: int
) -> Iterator[tuple[int, int]]:
    chunk_shape, shape = dataset.chunks, dataset.shape
    extents = [min(c, n - at) for c, n, at in zip(chunk_shape, shape, corner, strict=True)]
    outer = dataset.ndim - 1
    while outer and extents[outer] == chunk_shape[outer] == shape[outer]:
        outer -= 1
    run_nbytes = math.prod(extents[outer:]) * dataset.dtype.itemsize
    for index in itertools.product(*map(range, extents[:outer])):
        start = sum(i * math.prod(chunk_shape[dim + 1 :]) for dim, i in enumerate(index))
        yield offset + start * dataset.dtype.itemsize, run_nbytes


MAX_IN_HEAPS = 200_000
"""Values of variable length of a dataset up to which they are read, so that their heaps are known."""


def is_variable_length(dtype: Any) -> bool:
    """Tell whether values of a type, or parts of them, lie in heaps."""
    if dtype.subdtype is not None:
        return is_variable_length(dtype.subdtype[0])
    if dtype.fields:
        return any(is_variable_length(field[0]) for field in dtype.fields.values())
    return h5py.check_vlen_dtype(dtype) is not None or (
        (info := h5py.check_string_dtype(dtype)) is not None and info.length is None
    )


def has_readable_heaps(dataset: h5py.Dataset) -> bool:
    """Tell whether values of a dataset lie in heaps, and are few enough to be read for that."""
    if not is_variable_length(dataset.dtype) or not dataset.id.get_storage_size():
        return False
    plist = dataset.id.get_create_plist()
    filters = (plist.get_filter(number)[0] for number in range(plist.get_nfilters()))
    return 0 < dataset.size <= MAX_IN_HEAPS and all(map(h5py.h5z.filter_avail, filters))


Phase = Literal["open", "read"]


@dataclass(frozen=True, slots=True)
class LibraryRead:
    """Bytes that the library asks of its driver."""

    offset: int  # where they begin, and how many
    nbytes: int
    # whether they are metadata; raw data otherwise, to which HDF5 counts the heaps of strings of
    # variable length
    is_metadata: bool
    phase: Phase  # opening with the listing of the tree, or reading of variables
    is_heap: bool = False  # whether it is a heap, of attributes or of values of variable length


@dataclass(frozen=True, slots=True)
class Recording:
    """What the library asks for, without a page buffer."""

    reads: tuple[LibraryRead, ...]  # in order
    file_nbytes: int  # length of the file
    page_nbytes: int  # bytes of a page; 0 where file space is not paged
    n_first_past: int  # reads at the beginning that a page buffer does not see
    n_listed: int = 0  # objects and attributes that the tree has


def get_page_nbytes(file: h5py.File) -> int:
    """Return the bytes of a page, 0 where file space is not paged."""
    plist = file.id.get_create_plist()
    is_paged = plist.get_file_space_strategy()[0] == h5py.h5f.FSPACE_STRATEGY_PAGE
    return int(plist.get_file_space_page_size()) if is_paged else 0


def list_tree(file: h5py.File) -> int:
    """Open each object of a file and read its attributes, as readers of netCDF do; count both."""
    n_listed = 0

    def visit(_: str, found: Any) -> None:  # any value returned would end the visit
        nonlocal n_listed
        n_listed += 1 + len(list(found.attrs.values()))

    visit("/", file)
    file.visititems(visit)
    return n_listed


def record_reads(
    file: BinaryIO, name: str, variables: Sequence[str], *, is_listed: bool = True
) -> Recording:
    """Note what the library asks for to open a file, to list it if asked, and to read variables.

    Values are read of datasets alone that have them in heaps, for nothing else says where.
    """
    log = LoggedFile(file)
    with open_hdf5(log, name) as opened:
        page_nbytes = get_page_nbytes(opened)
        n_open = len(log.spans)
        n_listed = list_tree(opened) if is_listed else 0
        found = [find_dataset(opened, variable, name) for variable in variables]
        reads = _classify(log, 0, "open")
        for dataset in found:
            n_before = len(log.spans)
            raw = list(iterate_raw_reads(dataset))
            if has_readable_heaps(dataset):
                dataset[()]
                reads += _classify(log, n_before, "read", raw)
            else:
                reads += _classify(log, n_before, "read")
                reads += [LibraryRead(*span, False, "read") for span in raw]
    n_first_past = _count_first_past(file, name, page_nbytes, log.spans[:n_open])
    return Recording(tuple(reads), file.seek(0, 2), page_nbytes, n_first_past, n_listed)


def _classify(
    log: LoggedFile, start: int, phase: Phase, raw: Sequence[tuple[int, int]] = ()
) -> list[LibraryRead]:
    """Tell metadata, heaps and raw data apart in what was read from a place of the log on."""
    ordered = sorted(raw)
    starts, reads = [at for at, _ in ordered], list[LibraryRead]()
    for offset, nbytes in log.spans[start:]:
        place = bisect_right(starts, offset) - 1
        is_raw = place >= 0 and offset < sum(ordered[place])
        is_heap = offset in log.heaps
        reads.append(LibraryRead(offset, nbytes, not is_raw and not is_heap, phase, is_heap))
    return reads


def _count_first_past(
    file: BinaryIO, name: str, page_nbytes: int, spans: Sequence[tuple[int, int]]
) -> int:
    """Count the reads that come before the library has its page buffer."""
    if not page_nbytes:
        return 0
    log = LoggedFile(file)
    with open_hdf5(log, name, page_buf_size=page_nbytes):
        pairs = zip(spans, log.spans, strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


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
    raise UserError(f"variable: {variable!r} is not in {name}; allowed: {shown or 'none'}")
