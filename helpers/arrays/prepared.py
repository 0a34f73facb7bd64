"""What is made once and kept: named by what makes it, written aside, checked whenever it is found.

A place is a folder on local disk or a prefix in an object store. Its entry is
written last and lists every file with its size and checksum. A place without
an entry, or with one that no longer holds, is made anew, so that neither a
kill, nor a full disk, nor another codec leaves bytes that would be measured.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import obstore
import xxhash
from filelock import FileLock, Timeout

from helpers.objectstore.locations import Location
from helpers.paths import cache_folder

_ENTRY = "entry.json"
_DRAFT = ".part"
_READ_NBYTES = 2**22  # of a file in memory at a time


@dataclass(frozen=True, slots=True)
class Entry:
    """What lies at a place."""

    made_by: Any  # everything that decides the bytes, as JSON has it
    # size in bytes, and XXH3 or the store's ETag, of each file or object
    files: dict[str, list[Any]]
    facts: dict[str, Any]  # what its maker tells of it

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(int(size) for size, _ in self.files.values())


def name_of(made_by: object) -> str:
    """Name a place by a hash of everything that decides its bytes.

    Examples
    --------
    >>> name_of({"codec": "gzip", "level": 1}) == name_of({"codec": "gzip", "level": 2})
    False
    """
    return hashlib.sha256(json.dumps(made_by).encode()).hexdigest()[:16]


def prepare[Place: (Path, Location)](
    place: Place,
    made_by: object,
    write: Callable[[Place], Mapping[str, Any]],
    *,
    name: str = "entry",
    under: Sequence[str] = (),
) -> Entry:
    """Make what is wanted at a place, unless it is there and whole.

    One process writes at a time; the others wait and find it made. A folder is
    written beside its place and renamed. Objects cannot be renamed, so they
    count as there only once the entry is.
    """
    kept: _Folder | _Prefix
    if isinstance(place, Path):
        kept = _Folder(place)
        lock = kept.lock()
    else:
        kept = _Prefix(place, f"{name}.json", tuple(under))
        lock = _lock(f"{place.endpoint_url} {place.url} {name}")
    known = json.loads(json.dumps(made_by))
    with lock:
        found = kept.read()
        if found and found.made_by == known and found.files == kept.list_files():
            return found
        with kept.draft() as target:
            facts = write(target)
            return kept.finish(Entry(known, kept.list_files(), dict(facts)))


def _lock(text: str, *, timeout_s: float = -1) -> FileLock:
    """Make the lock of a place, which ends with the process that holds it; below 0 one waits."""
    folder = cache_folder() / "locks"
    cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return FileLock(folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.lock", timeout_s)


def _parse(text: bytes) -> Entry | None:
    """Read an entry; one of another form is as good as none."""
    try:
        found = json.loads(text)
        return Entry(found["made_by"], found["files"], found["facts"])
    except (ValueError, KeyError, TypeError):
        return None


class _Folder:
    """A folder on local disk, which is renamed when it is whole."""

    def __init__(self, path: Path) -> None:
        self.path, self.aside = path, path.with_name(path.name + _DRAFT)
        self.current = path

    def lock(self, *, timeout_s: float = -1) -> FileLock:
        return _lock(str(self.path.absolute()), timeout_s=timeout_s)

    def read(self) -> Entry | None:
        entry = self.path / _ENTRY
        return _parse(entry.read_bytes()) if entry.is_file() else None

    def list_files(self) -> dict[str, list[Any]]:
        paths = sorted(path for path in self.current.rglob("*") if path.is_file())
        files = {path.relative_to(self.current).as_posix(): path for path in paths}
        return {
            name: [path.stat().st_size, _hash_file(path)]
            for name, path in files.items()
            if name != _ENTRY
        }

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Offer an empty folder beside the place, and remove it if writing fails.

        What writers that were killed have left goes too, but nothing that is being written.
        """
        shutil.rmtree(self.aside, ignore_errors=True)
        for left in self.path.parent.glob(f"*{_DRAFT}"):
            other = _Folder(left.with_name(left.name.removesuffix(_DRAFT)))
            with contextlib.suppress(Timeout), other.lock(timeout_s=0):
                shutil.rmtree(left, ignore_errors=True)
        self.aside.mkdir(parents=True)
        self.current = self.aside
        try:
            yield self.aside
        finally:
            shutil.rmtree(self.aside, ignore_errors=True)

    def finish(self, entry: Entry) -> Entry:
        """Write the entry, and put the whole in its place."""
        for path in (self.aside / name for name in entry.files):
            _sync(path)
        (self.aside / _ENTRY).write_text(json.dumps(asdict(entry)))
        _sync(self.aside / _ENTRY)
        if self.path.exists():  # what no longer holds
            shutil.rmtree(self.path)
        self.aside.rename(self.path)
        return entry


def _sync(path: Path) -> None:
    """Bring a file to the disk: a rename must not come before it, and clean pages alone can be dropped."""
    with path.open("rb") as written:
        os.fsync(written.fileno())


def _hash_file(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while part := file.read(_READ_NBYTES):
            digest.update(part)
    return digest.hexdigest()


class _Prefix:
    """Objects below a prefix, which count once their entry is there."""

    def __init__(self, location: Location, entry: str, under: tuple[str, ...]) -> None:
        self.location, self.entry, self.under = location, entry, under
        self.client = location.obstore()

    def read(self) -> Entry | None:
        try:
            return _parse(bytes(obstore.get(self.client, self.entry).bytes()))
        except FileNotFoundError:
            return None

    def list_files(self) -> dict[str, list[Any]]:
        items = [item for page in obstore.list(self.client) for item in page]
        return {
            item["path"]: [item["size"], item["e_tag"]]
            for item in sorted(items, key=lambda item: item["path"])
            if item["path"].startswith(self.under)
        }

    @contextmanager
    def draft(self) -> Iterator[Location]:
        """Offer the prefix without an entry and without what lay there."""
        if self.read() or self.list_files():
            obstore.delete(self.client, [self.entry])
            obstore.delete(self.client, [*self.list_files()])
        with self.location.writing():
            yield self.location

    def finish(self, entry: Entry) -> Entry:
        """Put the entry, which makes the objects count."""
        obstore.put(self.client, self.entry, json.dumps(asdict(entry)).encode())
        return entry
