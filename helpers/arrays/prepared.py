"""What is made once and kept: named by what makes it, checked whenever it is found.

A place is a folder on local disk or a prefix in an object store. Its entry is
written last and lists every object with its size and ETag. A place without
an entry, or with one that no longer holds, is made anew, so that neither a
kill, nor a full disk, nor another codec leaves bytes that would be measured.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import obstore
from filelock import FileLock

from helpers.objectstore.locations import Location
from helpers.paths import cache_folder, make_private


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
    under: Sequence[str] = ("",),
) -> Entry:
    """Make what is wanted at a place, unless it is there and whole.

    One process writes at a time; the others wait and find it made. What lies there `under` these
    prefixes counts only once the entry does, which is put when all is on the disk.
    """
    location = _locate(place)
    client, entry, known = location.obstore(), f"{name}.json", json.loads(json.dumps(made_by))
    cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    make_private(locks := cache_folder() / "locks")
    with FileLock(locks / f"{name_of([location.endpoint_url, location.url, name])}.lock"):
        found = _find_entry(client, entry)
        there: dict[str, list[Any]] = _list_files(client, tuple(under), but=entry)
        if found and found.made_by == known and found.files == there:
            return found
        if found or there:
            obstore.put(client, entry, b"")  # before what it lists goes
            obstore.delete(client, [*there])
        with location.writing():
            facts = write(place)
            if location.scheme == "file":
                os.sync()  # clean pages alone can be dropped
            made = Entry(known, _list_files(client, tuple(under), but=entry), dict(facts))
            obstore.put(client, entry, json.dumps(asdict(made)).encode())
        return made


def _locate(place: Path | Location) -> Location:
    if isinstance(place, Location):
        return place
    return Location("file", "", str(place.absolute()).strip("/"))


def _list_files(client: Any, under: tuple[str, ...], *, but: str) -> dict[str, list[Any]]:
    items = [item for page in obstore.list(client) for item in page]
    return {
        item["path"]: [item["size"], item["e_tag"]]
        for item in sorted(items, key=lambda item: item["path"])
        if item["path"].startswith(under) and item["path"] != but
    }


def _find_entry(client: Any, entry: str) -> Entry | None:
    """Look up an entry; one of another form is as good as none."""
    try:
        found = json.loads(bytes(obstore.get(client, entry).bytes()))
        return Entry(found["made_by"], found["files"], found["facts"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
