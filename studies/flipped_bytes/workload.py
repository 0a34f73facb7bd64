"""Reading a sound copy, timed, and copies of which one byte is another, counted."""

from __future__ import annotations

import hashlib
import multiprocessing
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from helpers.benchmark.contender import CheckError, Steps
from studies.flipped_bytes.protection import FORMATS, Array, Shape
from wire.host import installed

Ended = Literal["right", "refused", "silent", "crashed"]
ENDED: tuple[Ended, ...] = ("right", "refused", "silent", "crashed")
"""How a read ends of which a byte was flipped: `silent` returns other values and no error."""


def list_files(folder: Path) -> list[Path]:
    """List the files of a format in an order that does not depend on the file system."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextmanager
def flipped(folder: Path, rng: np.random.Generator) -> Iterator[None]:
    """Change one byte of a folder's files to another value, each byte as likely as any other."""
    files = list_files(folder)
    ends = np.cumsum([path.stat().st_size for path in files])
    position = int(rng.integers(ends[-1]))
    nth = int(np.searchsorted(ends, position, side="right"))
    sound = files[nth].read_bytes()
    damaged = bytearray(sound)
    damaged[position - int(ends[nth])] ^= int(rng.integers(1, 256))  # from its end
    try:
        files[nth].write_bytes(damaged)
        yield
    finally:
        files[nth].write_bytes(sound)


def sum_values(array: Any) -> str:
    """Hash values in their order, whatever the shape that a format gives them."""
    return hashlib.sha256(np.ascontiguousarray(array, np.float32)).hexdigest()


def read_flipped(name: str, folder: Path, sum_sound: str) -> Ended:
    """Read a damaged copy and compare: a refusal is any error that the library raises."""
    try:
        values = FORMATS[name].read(folder)
    except Exception:  # whatever it says, the reader knows
        return "refused"
    return "right" if sum_values(values) == sum_sound else "silent"


class Trial:
    """Reads damaged copies in a process of its own, which a damaged file may crash."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def read(self, name: str, folder: Path, sum_sound: str, rng: np.random.Generator) -> Ended:
        """Flip a byte, read, and put the byte back."""
        with flipped(folder, rng):
            try:
                return self._pool.submit(read_flipped, name, folder, sum_sound).result()
            except BrokenProcessPool:
                self._start()
                return "crashed"

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown()


@dataclass(slots=True)
class FlippedRead(Steps):
    """A format's sound copy, read some times; what flips did to damaged ones is its trace."""

    name: str
    folder: Path
    array: Array
    chunk_shape: Shape
    trial: Trial
    n_flips: int
    n_reads: int
    seed: int
    _block: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
            FORMATS[self.name].write(self.array, self.chunk_shape, self.folder)

    def settings(self) -> dict[str, Any]:
        """Return what a comparison has to declare."""
        checksum = FORMATS[self.name].checksum or "none"
        return {"checksum": checksum, "cache_state": "files in the page cache"}

    def versions(self) -> Mapping[str, str]:
        """Look up the versions of the extras that read the format, imported by now or not."""
        return installed(FORMATS[self.name].packages)

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes that are read, and those of one copy's files."""
        stored = sum(path.stat().st_size for path in list_files(self.folder))
        return self.n_reads * self.array.nbytes, stored

    def enter_block(self, block: int) -> None:
        """Give each block bytes of its own to flip."""
        self._block = block

    def open(self) -> FlippedRead:
        """Open nothing: the notebook reads."""
        return self

    def check(self, endings: Any) -> str:
        """Compare every value with what was written."""
        if sum_values(endings) != sum_values(self.array):
            raise CheckError(f"{self.name}: the sound copy is not what was written")
        return f"sha256 of all {self.array.size} values"

    def collect(self) -> dict[str, int]:
        """Flip bytes, which is not timed, and count how reads end."""
        seeds = [(self.seed, self._block, number) for number in range(self.n_flips)]
        arguments = self.name, self.folder, sum_values(self.array)
        ended = Counter(self.trial.read(*arguments, np.random.default_rng(seed)) for seed in seeds)
        return {f"n_{ending}": ended[ending] for ending in ENDED}
