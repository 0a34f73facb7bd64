"""The tile service as a child process."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from helpers.storage.caches import Counts
from helpers.storage.maps import VARIABLE, Maps
from helpers.storage.processes import Child, start_child
from helpers.tiles.app import HOST, PORT_FILE, SETTINGS, Settings

_RESCALE = "-2,32"  # degrees Celsius over the colours of a tile
_TIMEOUT_S = 60.0

Tile = tuple[str, int, int, int]
"""Name of a map, zoom, column and row."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service answered.

    Parameters
    ----------
    status : int
        HTTP status.
    content : bytes
        Body.
    timing : str
        What it spent, as `Server-Timing` has it.
    """

    status: int
    content: bytes
    timing: str


@dataclass(frozen=True, slots=True)
class Service:
    """A tile service that runs.

    Attributes
    ----------
    cache : str
        Its contender.
    child : Child
        Its process.
    folder : Path
        Folder of its caches on disk.
    token : str
        What a request to empty its cache has to show.
    """

    cache: str
    child: Child
    folder: Path
    token: str = field(repr=False)

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

    Parameters
    ----------
    tile : tuple
        Map, zoom, column and row.

    Returns
    -------
    str
        Path and query.

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
    cache: str, maps: Maps, *, redis_url: str = "", is_awaited: bool = True
) -> Iterator[Service]:
    """Serve tiles of maps as long as the context lasts.

    Parameters
    ----------
    cache : str
        Contender, one of `helpers.storage.caches.CACHES`.
    maps : Maps
        What to serve; its location says over which network.
    redis_url : str
        Address of a Redis, where the contender needs one.
    is_awaited : bool
        Whether to wait until it answers; else `Service.wait` does.

    Yields
    ------
    Service
        The service; what it keeps is signed with a key of its own.

    Raises
    ------
    UserError
        If it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="tiles-") as folder:
        files = Path(folder) / "cache"
        key, token = secrets.token_bytes(32), secrets.token_hex(16)
        settings = Settings(cache, maps.location, maps.specs, files, key, token, redis_url)
        command = [sys.executable, "-m", "helpers.tiles.app"]
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
