"""What is served of data that changed while they were kept: tiles of data that are no more."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import secrets
import signal
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from starlette.testclient import TestClient

from helpers.benchmark.contender import Contender, Steps
from studies.caching_costs.caches import (
    CACHES,
    SHIPPED_ENVIRONMENT,
    CacheSettings,
    import_open_zarr,
    open_cache,
    open_valkey,
)
from studies.caching_costs.datasets import (
    DatasetKind,
    DatasetSpec,
    make_dataset,
    write_icechunk,
    write_zarr,
)
from studies.caching_costs.load import tile_path
from studies.caching_costs.service import make_app
from wire.bed.locations import Location
from wire.errors import UserError

PHASE: Literal["trial"] = "trial"
N_TRIALS = 3
TTL_S = 5.0
"""Seconds that an entry lives here, longer than a change and the asking after it may take."""

Outcome = Literal["new", "error", "old picture", "wrong picture"]
OUTCOMES: tuple[Outcome, ...] = ("new", "error", "old picture", "wrong picture")
"""What a tile is after a change, the worst last: neither the old nor the new one, with status 200."""

_BEFORE = DatasetSpec("", "zarr", (90, 180), (45, 90))
_CHANGED: Mapping[str, DatasetSpec] = {
    "values": _BEFORE,
    "shape": replace(_BEFORE, shape=(120, 240)),
    "chunks": replace(_BEFORE, chunk_shape=(30, 60)),
    "append": _BEFORE,
}
"""Datasets as they are after a change; values change in each, and one grows by a day."""

_DAY, _NEXT_DAY = (np.datetime64(day, "ns") for day in ("2000-01-16", "2000-01-17"))
ASKED: Mapping[str, str] = {
    "values": tile_path(("values", 1, 1, 0)),
    "shape": tile_path(("shape", 1, 1, 0)),
    "chunk grid": tile_path(("chunks", 1, 1, 0)),
    "append day": tile_path(("append", 1, 1, 0), sel="time=2000-01-17"),
    "append newest": tile_path(("append", 1, 1, 0), sel="time=nearest::2100-01-01"),
}
"""What changed, and the tile that is requested then; of what grew, the new day and the newest day."""

NOT_WATCHED = ("diskcache", "filecache", "filecache-in-turn")
"""Caches of the repeated study alone: the first is as Redis, the others keep what they have seen."""

WATCHED: Mapping[str, tuple[str, DatasetKind]] = {
    **{name: (name, "zarr") for name in CACHES if name not in NOT_WATCHED},
    "lru-icechunk": ("lru", "icechunk"),  # a snapshot cannot mix with later data
}
"""Contenders: the cache of each, and the layout."""


@functools.cache
def start_apart() -> ProcessPoolExecutor:
    """Start the process apart from this one, once: it imports for seconds."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _set_environment)


def _set_environment() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a run that is interrupted ends it without a word
    os.environ.update(SHIPPED_ENVIRONMENT)
    warnings.simplefilter("ignore")  # of libraries, which would show on the page


@dataclass(slots=True)
class Trials:
    """Trials of all contenders side by side below `location`, one a block: they share one wait."""

    location: Location
    redis_url: str = ""
    ttl_s: float = TTL_S
    _outcomes: dict[int, dict[str, dict[str, Outcome]]] = field(default_factory=dict, init=False)

    def watch(self, block: int) -> dict[str, dict[str, Outcome]]:
        """Return by contender what each tile is right after its change, and ``later`` the worst of them."""
        if block not in self._outcomes:
            with ExitStack() as stack:
                url = self.redis_url or stack.enter_context(open_valkey())
                settings = CacheSettings(secrets.token_bytes(32), url, self.ttl_s)
                self._outcomes[block] = (
                    start_apart().submit(_watch, self.location, settings).result()
                )
        return self._outcomes[block]


@dataclass(slots=True)
class Change(Steps):
    """A contender that keeps datasets while they change: outcomes are counted, and nothing is timed."""

    name: str
    trials: Trials
    _block: int = 0

    def settings(self) -> dict[str, Any]:
        """Tell for how long entries live."""
        return {"cache_state": "every tile requested once before the change", "ttl_s": self.trials.ttl_s}  # fmt: skip

    def nbytes(self) -> tuple[int, int]:
        """Count the values of the datasets as they are kept."""
        n = len(_CHANGED) * _BEFORE.nbytes
        return n, n

    def enter_block(self, block: int) -> None:
        """Give each block a trial of its own."""
        self._block = block

    def prepare(self) -> None:
        """Try, before the clock."""
        self.trials.watch(self._block)

    def read(self, _opened: None) -> Mapping[str, Outcome]:
        """Look up what this contender showed."""
        return self.trials.watch(self._block)[self.name]

    def collect(self) -> dict[str, int]:
        """Count each outcome that there was."""
        return {f"{change}|{outcome}": 1 for change, outcome in self.read(None).items()}

    def check(self, shown: Mapping[str, Outcome], /) -> str:
        """Say what tiles were compared with."""
        return f"{len(shown) - 1} tiles compared with uncached ones"


def make_contenders(trials: Trials) -> list[Contender]:
    """Make each cache a contender of the trials."""
    return [Contender(name, Change(name, trials)) for name in WATCHED]


def tabulate_outcomes(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate by contender what was shown after each change.

    Returns
    -------
    DataFrame
        An outcome for each of `ASKED`, with the number of trials where they differ, and from when
        on all tiles are new: ``at once``, after entries have ended, or ``after a restart``.
    """
    lines: dict[str, dict[str, str]] = {}
    for name, part in rows[rows["phase"] == PHASE].groupby("contender", sort=False):
        counts = pd.DataFrame([json.loads(trace) for trace in part["trace"]]).sum()
        shown = {change: _name_outcomes(counts, change) for change in (*ASKED, "later")}
        ended = f"after {part['ttl_s'].iloc[0]:g} s" if shown.pop("later") == "new" else "after a restart"  # fmt: skip
        all_new = "at once" if {*shown.values()} == {"new"} else ended
        lines[str(name)] = {**shown, "new data": all_new}
    order = [name for name in WATCHED if name in lines]
    return pd.DataFrame.from_dict(lines, orient="index").loc[order].rename_axis("contender")


def _name_outcomes(counts: pd.Series[float], change: str) -> str:
    trials = {
        outcome: int(counts[key])
        for outcome in OUTCOMES
        if (key := f"{change}|{outcome}") in counts
    }
    return ", ".join(
        outcome if len(trials) == 1 else f"{outcome} ({n})" for outcome, n in trials.items()
    )


def _watch(location: Location, settings: CacheSettings) -> dict[str, dict[str, Outcome]]:
    """Let each contender keep datasets, change them, and ask; then wait until entries have ended."""
    import_open_zarr().cache_clear()  # of trials before this one
    _write(location / "truth", "zarr", is_after=False)
    _write(location / "truth", "zarr", is_after=True)
    truth = _make_requests("none", location / "truth", "zarr", settings)()
    outcomes_by_name: dict[str, dict[str, Outcome]] = {}
    requests: dict[str, Callable[[], list[bytes]]] = {}
    before: dict[str, list[bytes]] = {}
    for name, (cache, kind) in WATCHED.items():
        place = location / name
        _write(place, kind, is_after=False)
        requests[name] = _make_requests(cache, place, kind, settings)
        start, before[name] = time.monotonic(), requests[name]()
        _write(place, kind, is_after=True)
        judged = map(_judge, requests[name](), before[name], truth)
        outcomes_by_name[name] = dict(zip(ASKED, judged, strict=True))
        if (took_s := time.monotonic() - start) > settings.ttl_s:
            raise UserError("staleness", f"{name} took {took_s:.1f} s, in which entries end", f"{settings.ttl_s:g} s")  # fmt: skip
    time.sleep(settings.ttl_s)
    for name, line in outcomes_by_name.items():
        outcomes = map(_judge, requests[name](), before[name], truth)
        line["later"] = max(outcomes, key=OUTCOMES.index)
    return outcomes_by_name


def _make_requests(cache: str, place: Location, kind: DatasetKind, settings: CacheSettings) -> Callable[[], list[bytes]]:  # fmt: skip
    """Start a service in this process; what returns asks it for all tiles, of which one that fails is empty."""
    specs = [replace(_BEFORE, name=name, kind=kind) for name in _CHANGED]
    opened = open_cache(cache, place, settings)
    client = TestClient(make_app(specs, opened), raise_server_exceptions=False)
    return lambda: [a.content * (a.status_code == 200) for a in map(client.get, ASKED.values())]


def _write(place: Location, kind: DatasetKind, *, is_after: bool) -> None:
    write = write_icechunk if kind == "icechunk" else write_zarr
    for name, after in _CHANGED.items():
        spec, is_more = after if is_after else _BEFORE, is_after and name == "append"
        dataset = make_dataset(spec, seed=1) + 5 * is_after
        dataset = dataset.assign_coords(time=[_NEXT_DAY if is_more else _DAY])
        write(place / name, dataset, spec, is_more=is_more)


def _judge(tile: bytes, before: bytes, truth: bytes) -> Outcome:
    if tile == truth:
        return "new"
    return "error" if not tile else "old picture" if tile == before else "wrong picture"
