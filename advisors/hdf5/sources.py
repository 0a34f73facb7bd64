"""HDF5 files on disk and in object storage, and what the library asks of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import botocore.exceptions
import h5py
import hdf5plugin  # noqa: F401  # teaches h5py to read Blosc and its kin

from helpers.errors import UserError
from helpers.objectstore.locations import Location, parse_location

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_HEAP_SIGNATURE = b"GCOL"
_BLOCK_NBYTES = 8 * 2**20


class LoggedFile:
    """A file object that notes each read, as HDF5 asks for it.

    Parameters
    ----------
    file : file object
        Where bytes come from.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.spans: list[tuple[int, int]] = []
        """Offset and length of each read so far."""
        self.heaps: set[int] = set()
        """Offsets of reads that brought heaps of values of variable length."""

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Tell the place."""
        return self._file.tell()

    def read(self, nbytes: int = -1) -> bytes:
        """Read and note it, as `readinto` does."""
        at = self._file.tell()
        found = self._file.read(nbytes)
        self._note(at, len(found), found[:4])
        return found

    def readinto(self, buffer: Any) -> int:
        """Read and note it."""
        at = self._file.tell()
        nbytes = int(cast(Any, self._file).readinto(buffer))
        self._note(at, len(buffer), bytes(memoryview(buffer)[:4]))
        return nbytes

    def _note(self, offset: int, nbytes: int, beginning: bytes) -> None:
        self.spans.append((offset, nbytes))
        if beginning == _HEAP_SIGNATURE:
            self.heaps.add(offset)

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
            _check_signature(file, name(source))
        yield file


def name(source: str | Location) -> str:
    """Return how messages call a source.

    Parameters
    ----------
    source : str or Location
        Path, address of an object, or its location.

    Returns
    -------
    str
        Path or address.
    """
    return source.url if isinstance(source, Location) else source


def _open_bytes(source: str | Location) -> BinaryIO:
    location = find_location(source)
    if location is None:
        if Path(name(source)).is_dir():
            raise UserError(f"file: {source} is a folder; allowed: an HDF5 file")
        return Path(name(source)).open("rb")
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
            f"file: {name(source)} is not there; allowed: a file that exists"
        ) from error
    except PermissionError as error:
        raise UserError(
            f"file: {name(source)}: no permission to read it; allowed: a file that you may read"
        ) from error
    except (OSError, botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        text = " ".join(str(error).split())
        raise UserError(
            f"file: {name(source)} cannot be read ({text}); allowed: a file that can be"
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


@contextmanager
def open_hdf5(file: Any, name: str, **options: Any) -> Iterator[h5py.File]:
    """Open an HDF5 file over a file object."""
    try:
        opened = h5py.File(file, "r", **options)
    except (OSError, RuntimeError, ValueError) as error:
        text = " ".join(str(error).split())
        if "truncated" in text:
            raise UserError(
                f"file: {name} is truncated ({text.partition('(')[2].rstrip(')')});"
                " allowed: a whole file"
            ) from error
        raise UserError(f"file: {name} cannot be opened ({text}); allowed: a sound file") from error
    with opened:
        yield opened
