"""The tile service, titiler.xarray with a cache of opened datasets behind its reader, in a process of its own.

titiler's own opener keeps every Zarr store in an unbounded cache of functions. That is one
contender; for the others the opener is ours, and the cache the contender's.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import hdf5plugin  # noqa: F401  # teaches h5py to read Blosc
import psutil
import urllib3
import uvicorn
import xarray as xr
from fastapi import FastAPI, HTTPException, Query
from pydantic import TypeAdapter
from titiler.core.errors import DEFAULT_STATUS_CODES, add_exception_handlers
from titiler.xarray.factory import TilerFactory
from titiler.xarray.io import Reader

from helpers.benchmark.provenance import imported
from studies.caching_costs.caches import (
    SHIPPED_ENVIRONMENT,
    CacheSettings,
    DatasetCache,
    open_cache,
)
from studies.caching_costs.datasets import HOST, Datasets, DatasetSpec
from wire.bed.locations import Location
from wire.children import Child, peak_nbytes, start_child

SETTINGS = "ARRAYS_TILES"
"""Variable of the environment that holds the settings, secrets included."""


_opening_s: ContextVar[list[float]] = ContextVar("opening_s")

Message = MutableMapping[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a service is told when it starts."""

    cache: str  # contender
    location: Location  # folder of the datasets, over the emulated network
    specs: tuple[DatasetSpec, ...]  # what lies there
    cache_settings: CacheSettings

    __pydantic_config__: ClassVar = {"hide_input_in_errors": True}  # for secrets are in it


_AS_JSON = TypeAdapter(Settings)


class Timed:
    """Tell in `Server-Timing` what a request spent on opening and on processors.

    Processor time is that of the whole process: it is the request's own as long as there is one at
    a time.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """Serve one request."""
        opening = list[float]()
        _opening_s.set(opening)  # threads of the request see the same list
        cpu = time.process_time()

        async def send_timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                spent = {"open": sum(opening), "cpu": time.process_time() - cpu}
                value = ", ".join(f"{name};dur={1000 * s:.3f}" for name, s in spent.items())
                message["headers"] = [*message["headers"], (b"server-timing", value.encode())]
            await send(message)

        await self.app(scope, receive, send_timed)


def make_app(specs: Sequence[DatasetSpec], cache: DatasetCache) -> FastAPI:
    """Make the application: titiler's tiles of datasets, opened through a cache, and what is imported."""
    specs_by_name = {spec.name: spec for spec in specs}

    def open_timed(name: str, **_: Any) -> xr.Dataset:
        """Open a dataset, and add the time to the request's own."""
        start = time.perf_counter()
        try:
            return cache.get(specs_by_name[name])
        finally:
            _opening_s.get([]).append(time.perf_counter() - start)

    class DatasetReader(Reader):
        def __attrs_post_init__(self) -> None:
            self.opener = open_timed
            super().__attrs_post_init__()  # type: ignore[no-untyped-call]

        def close(self) -> None:
            if not cache.is_shared:
                super().close()  # type: ignore[no-untyped-call]

    class TilesOnly(TilerFactory):
        def register_routes(self) -> None:
            self.tile()  # type: ignore[no-untyped-call]

    def find_name(url: Annotated[str, Query(description="name of a dataset")]) -> str:
        if url not in specs_by_name:
            raise HTTPException(404, f"url: {url!r}; allowed: {', '.join(specs_by_name)}")
        return url

    app = FastAPI(openapi_url=None)
    app.include_router(TilesOnly(reader=DatasetReader, path_dependency=find_name).router)
    add_exception_handlers(app, DEFAULT_STATUS_CODES)
    app.add_middleware(Timed)
    app.get("/versions")(imported)
    return app


def listen() -> socket.socket:
    """Listen on a free port of loopback.

    asyncio sends small packets at once only on a socket that says it is TCP, which that of
    `socket.create_server` does not: head and body of an answer would be 40 ms apart.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind((HOST, 0))
    listening.listen()
    return listening


def main() -> None:
    """Serve on a port that the system chooses, and remove folders of caches at the end."""
    # uvicorn raises a signal again once it has closed, which would end the process before `atexit`
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    settings = _AS_JSON.validate_json(os.environ.pop(SETTINGS))
    if folder := settings.cache_settings.files_folder:  # which a killed owner would leave
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    cache = open_cache(settings.cache, settings.location, settings.cache_settings)
    app = make_app(settings.specs, cache)
    with listen() as listening:  # last, for whoever waits for it to listen
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Service:
    """A tile service that runs, or starts: one process, or several with the same datasets."""

    children: Sequence[Child]  # its processes
    is_warm: bool = False  # whether each tile was requested once of each process

    @property
    def addresses(self) -> list[str]:
        """Hosts and ports at which its processes listen, so that no other is measured instead."""
        return [_find_address(child) for child in self.children]

    @property
    def peak_nbytes(self) -> int:
        """Return the most memory that one of its processes has held."""
        return max(peak_nbytes(child.pid) for child in self.children)

    def ask(self, path: str) -> urllib3.BaseHTTPResponse:
        """Send one request to its first process, over a connection of its own."""
        url = f"http://{self.addresses[0]}{path}"
        with urllib3.PoolManager(retries=False, timeout=_TIMEOUT_S) as pool:
            return pool.request("GET", url)

    def versions(self) -> dict[str, str]:
        """Ask what it has imported."""
        return dict(self.ask("/versions").json())


def _find_address(child: Child) -> str:
    """Find the host and port at which a process listens, and wait until it does."""
    ports = list[int]()

    def listens() -> bool:
        with contextlib.suppress(psutil.Error):
            sockets = psutil.Process(child.pid).net_connections()
            ports.extend(
                socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN
            )
        return bool(ports)

    child.wait_until(listens, timeout_s=_TIMEOUT_S)
    return f"{HOST}:{ports[0]}"


@contextlib.contextmanager
def open_service(
    cache: str,
    datasets: Datasets,
    *,
    redis_url: str = "",
    ttl_s: float = 86400,
    n_processes: int = 1,
) -> Iterator[Service]:
    """Serve tiles of datasets as long as the context lasts; the first request waits for the start.

    Processes share what lies outside of them, the files of `filecache` and Redis, and what was
    signed there. What a process keeps, in memory or in its own diskcache, is its own.
    """
    command = [sys.executable, "-m", "studies.caching_costs.service"]
    environment = {
        **os.environ,
        **SHIPPED_ENVIRONMENT,
        "NO_PROXY": f"{os.environ.get('NO_PROXY', '')},{HOST}",
        "AWS_EC2_METADATA_DISABLED": "true",  # there is no cloud to ask for other settings
        "PYTHONWARNINGS": "ignore",  # of libraries, to a log that nobody reads
    }
    key = secrets.token_hex(32).encode()
    with contextlib.ExitStack() as stack:
        folder = ""
        if n_processes > 1:
            shared = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            folder = stack.enter_context(shared)
        cache_settings = CacheSettings(key, redis_url, ttl_s, folder)
        settings = Settings(cache, datasets.location, datasets.specs, cache_settings)
        environment[SETTINGS] = _AS_JSON.dump_json(settings).decode()
        started = (start_child(command, env=environment) for _ in range(n_processes))
        yield Service([stack.enter_context(child) for child in started])


if __name__ == "__main__":
    main()
