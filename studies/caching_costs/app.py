"""The application of titiler.xarray, with a cache of opened maps behind its reader.

Run in a process of its own: see `helpers.tiles.service`. titiler's
own opener keeps every dataset in an unbounded cache of functions, so that it
knows no case without one; here the opener is ours, and the cache the contender's.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import hdf5plugin  # noqa: F401  # teaches h5py to read Blosc
import uvicorn
import xarray as xr
from fastapi import Depends, FastAPI, Header, HTTPException, Query
from titiler.core.errors import DEFAULT_STATUS_CODES, add_exception_handlers
from titiler.xarray.factory import TilerFactory
from titiler.xarray.io import Reader

from helpers.benchmark.provenance import imported
from helpers.objectstore.locations import Location
from studies.caching_costs.caches import Cache, open_cache
from studies.caching_costs.datasets import DatasetSpec, open_map_dataset
from studies.caching_costs.origins import Origin

SETTINGS = "ARRAYS_TILES"
"""Variable of the environment that holds the settings, secrets included."""

HOST = "127.0.0.1"
PORT_FILE = "port"
_LARGEST_TILE = 1024  # pixels of a side: 8 MB for each band, four times what viewers ask for

_opening_s: ContextVar[list[float]] = ContextVar("opening_s")

Message = MutableMapping[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a service is told when it starts."""

    cache: str  # contender
    location: Location  # folder of the maps, over the emulated network
    specs: tuple[DatasetSpec, ...]  # the maps
    folder: Path  # for caches on disk
    key: bytes  # key of the run
    token: str  # what a request to empty the cache has to show
    redis_url: str = ""  # address of a Redis; empty if the contender needs none
    n_entries: int = 128  # most datasets that the cache in the process keeps

    def to_json(self) -> str:
        """Write the settings as text, for the environment of the service alone."""
        return json.dumps(asdict(self), default=_as_text)

    @staticmethod
    def from_json(text: str) -> Settings:
        """Read what `to_json` wrote."""
        given = json.loads(text)
        specs = tuple(_read_spec(spec) for spec in given.pop("specs"))
        given |= {"key": bytes.fromhex(given["key"]), "folder": Path(given["folder"])}
        return Settings(location=Location(**given.pop("location")), specs=specs, **given)


def _as_text(value: bytes | Path) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _read_spec(given: dict[str, Any]) -> DatasetSpec:
    shapes: dict[str, Any] = {name: tuple(given[name]) for name in ("shape", "chunk_shape")}
    return DatasetSpec(**given | shapes)


class Library:
    """Maps by name, opened through a cache, with the time that each request spends on it.

    Parameters
    ----------
    specs : tuple of DatasetSpec
        The maps.
    cache : Cache
        The contender.
    """

    def __init__(self, specs: tuple[DatasetSpec, ...], cache: Cache) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.cache = cache

    def open(self, name: str, **_: Any) -> xr.Dataset:
        """Open a map, and add the time to the request's own."""
        start = time.perf_counter()
        try:
            return self.cache.get(name, lambda origin: open_map_dataset(self.specs[name], origin))
        finally:
            _opening_s.get([]).append(time.perf_counter() - start)


class Timed:
    """Tell in `Server-Timing` what a request spent on opening, on processors and in all.

    Processor time is that of the whole process: it is the request's own as
    long as there is one at a time.

    Parameters
    ----------
    app : callable
        The ASGI application within.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """Serve one request."""
        opening: list[float] = []
        _opening_s.set(opening)  # threads of the request see the same list
        start, cpu = time.perf_counter(), time.process_time()

        async def send_timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                spent = (sum(opening), time.process_time() - cpu, time.perf_counter() - start)
                text = "open;dur={:.3f}, cpu;dur={:.3f}, total;dur={:.3f}"
                value = text.format(*(1000 * seconds for seconds in spent))
                message["headers"] = [*message["headers"], (b"server-timing", value.encode())]
            await send(message)

        await self.app(scope, receive, send_timed)


def make_app(library: Library, token: str) -> FastAPI:
    """Make the application: titiler's tiles, and the counts of the cache."""

    class DatasetReader(Reader):
        def __attrs_post_init__(self) -> None:
            self.opener = library.open
            super().__attrs_post_init__()  # type: ignore[no-untyped-call]

        def close(self) -> None:
            if not library.cache.is_shared:
                super().close()  # type: ignore[no-untyped-call]

    app = FastAPI(openapi_url=None)
    tiler = TilerFactory(reader=DatasetReader, path_dependency=_name_checker(library))
    tiles = "/tiles/{tileMatrixSetId}/{z}/{x}/{y}"
    tiler.router.routes = [one for one in tiler.router.routes if one.path.startswith(tiles)]  # type: ignore[attr-defined]
    app.include_router(tiler.router, dependencies=[Depends(_refuse_large)])
    add_exception_handlers(app, DEFAULT_STATUS_CODES)
    app.add_middleware(Timed)
    _add_cache_routes(app, library.cache, token)
    app.get("/versions")(imported)
    return app


def _refuse_large(
    tilesize: Annotated[int | None, Query(gt=0, le=_LARGEST_TILE)] = None,
) -> None:
    """Bound what one request can take of the memory; titiler itself does not."""


def _name_checker(library: Library) -> Callable[[str], str]:
    def find_name(url: Annotated[str, Query(description="name of a map")]) -> str:
        if url not in library.specs:
            raise HTTPException(404, f"url: {url!r}; allowed: {', '.join(library.specs)}")
        return url

    return find_name


def _add_cache_routes(app: FastAPI, cache: Cache, token: str) -> None:
    @app.get("/cache")
    def read_counts() -> dict[str, int]:
        return asdict(cache.counts())

    @app.delete("/cache")
    def empty_cache(authorization: Annotated[str, Header()] = "") -> None:
        if not hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
            raise HTTPException(403, "only who started the service empties its cache")
        cache.clear()


def _create(settings: Settings) -> FastAPI:
    cache = open_cache(
        settings.cache,
        Origin(settings.location),
        key=settings.key,
        folder=settings.folder,
        redis_url=settings.redis_url,
        n_entries=settings.n_entries,
    )
    return make_app(Library(settings.specs, cache), settings.token)


def main() -> None:
    """Serve on a port that the system chooses, and tell the owner which, in a folder of its own."""
    settings = Settings.from_json(os.environ.pop(SETTINGS))
    with socket.create_server((HOST, 0)) as listening:
        draft = settings.folder.with_name(f".{PORT_FILE}")
        draft.write_text(str(listening.getsockname()[1]))
        draft.rename(settings.folder.with_name(PORT_FILE))
        config = uvicorn.Config(_create(settings), log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
