"""What is served of data that were rewritten while they were kept: the tiles of data that are no more."""

from __future__ import annotations

import functools
import multiprocessing
import os
import secrets
import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pandas as pd
from starlette.testclient import TestClient

from helpers.objectstore.locations import Location
from studies.caching_costs.caches import CACHES, SHIPPED_ENVIRONMENT, open_cache
from studies.caching_costs.datasets import (
    DatasetKind,
    DatasetSpec,
    Origin,
    make_dataset,
    version_keys,
    write_icechunk,
    write_zarr,
)
from studies.caching_costs.service import Library, make_app, tile_path
from studies.caching_costs.valkey import open_valkey


@functools.cache
def _start_apart() -> ProcessPoolExecutor:
    """Start the process apart from this one, once: it imports for seconds."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _set_environment)


def _set_environment() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a run that is interrupted ends it without a word
    os.environ.update(SHIPPED_ENVIRONMENT)
    warnings.simplefilter("ignore")  # of libraries, which would show on the page


_BEFORE = DatasetSpec("values", "zarr", (90, 180), (45, 90))
_REWRITTEN: Mapping[str, tuple[DatasetSpec, DatasetSpec]] = {
    "values": (_BEFORE, _BEFORE),
    "shape": (replace(_BEFORE, name="shape"), replace(_BEFORE, name="shape", shape=(120, 240))),
    "chunk grid": (
        replace(_BEFORE, name="chunks"),
        replace(_BEFORE, name="chunks", chunk_shape=(30, 60)),
    ),
}
"""What is rewritten: a dataset as it is kept, and as it is then; values change in each."""


def measure_staleness(
    location: Location, *, caches: Sequence[str] = CACHES, ttl_s: float = 5.0, redis_url: str = ""
) -> pd.DataFrame:
    """Measure what each contender serves of small datasets that are rewritten while it keeps them.

    They are written below `location`; entries live for `ttl_s`, longer than writing and asking take.

    Returns
    -------
    DataFrame
        By contender what a tile was right after the rewriting, a column each for other values,
        another shape and another chunk grid: ``new``, ``error``, ``old picture`` or, the worst,
        ``wrong picture``, which is neither the old nor the new one, with status 200. The column
        ``new data`` says from when on all are new.
    """
    with ExitStack() as stack:
        url = redis_url or stack.enter_context(open_valkey()).url
        watch = _start_apart().submit(_watch_all, location, [*caches], ttl_s, url)
        lines = watch.result()
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("contender")


def _watch_all(
    location: Location, caches: Sequence[str], ttl_s: float, redis_url: str
) -> dict[str, dict[str, str]]:
    def ask_by(cache: str, place: Location, kind: DatasetKind) -> Callable[[], list[bytes]]:
        specs = tuple(replace(before, kind=kind) for before, _ in _REWRITTEN.values())
        origin = Origin(place, version_keys=version_keys(specs))
        key = secrets.token_bytes(32)
        kept = open_cache(cache, origin, key=key, redis_url=redis_url, ttl_s=ttl_s)
        client = TestClient(make_app(Library(specs, kept)), raise_server_exceptions=False)
        paths = [tile_path((spec.name, 1, 1, 0)) for spec in specs]
        # a tile that fails is none
        return lambda: [a.content * (a.status_code == 200) for a in map(client.get, paths)]

    _write(location / "rewritten", "zarr", is_after=True)
    truth = ask_by("none", location / "rewritten", "zarr")()
    found: dict[str, dict[str, str]] = {}
    again: dict[str, Callable[[], list[bytes]]] = {}
    watched: list[tuple[str, str, DatasetKind]] = [(name, name, "zarr") for name in caches]
    watched.append(("lru on Icechunk", "lru", "icechunk"))  # a snapshot cannot mix with later data
    for name, cache, kind in watched:
        place = location / f"rewritten-{name.replace(' ', '-').lower()}"
        _write(place, kind, is_after=False)
        again[name] = ask_by(cache, place, kind)
        before = again[name]()
        _write(place, kind, is_after=True)
        judged = map(_judge, again[name](), before, truth)
        found[name] = dict(zip(_REWRITTEN, judged, strict=True))
    time.sleep(ttl_s)
    for name, line in found.items():
        later = f"after {ttl_s:g} s" if again[name]() == truth else "after a restart"
        line["new data"] = "at once" if {*line.values()} == {"new"} else later
    return found


def _write(place: Location, kind: DatasetKind, *, is_after: bool) -> None:
    write = write_icechunk if kind == "icechunk" else write_zarr
    for specs in _REWRITTEN.values():
        spec = specs[is_after]
        write(place / spec.name, make_dataset(spec, seed=1) + 5 * is_after, spec)


def _judge(tile: bytes, before: bytes, truth: bytes) -> str:
    if tile == truth:
        return "new"
    return "error" if not tile else "old picture" if tile == before else "wrong picture"
