"""Files with holes where zeros are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

_HOLE_NBYTES = 4096


class SparseFile:
    """A file object that leaves holes where zeros are written.

    Parameters
    ----------
    path : Path
        File to make.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._nbytes = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Tell the place."""
        return self._file.tell()

    def read(self, nbytes: int = -1) -> bytes:
        """Read bytes."""
        return self._file.read(nbytes)

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer."""
        return self._file.readinto(buffer)

    def write(self, data: Any) -> int:
        """Write bytes, or a hole."""
        values = np.frombuffer(data, np.uint8)
        at = self._file.tell()
        if values.size < _HOLE_NBYTES or at < self._nbytes or values.any():
            self._file.write(data)
        else:
            self._file.truncate(at + values.size)
            self._file.seek(at + values.size)
        self._nbytes = max(self._nbytes, at + values.size)
        return int(values.size)

    def truncate(self, nbytes: int) -> int:
        """Cut or lengthen the file."""
        self._nbytes = nbytes
        return self._file.truncate(nbytes)

    def flush(self) -> None:
        """Hand what is buffered to the system."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
