"""Run accesses of one client in any interpreter; it imports nothing of `wire`.

It reads jobs as lines of JSON and does each in a child of its own that has imported the libraries
and nothing else: no connection, loop or cache of an earlier job is left. The answer is a line of JSON.
"""

# ruff: noqa: UP031
# It runs on Python 3.8 as well.

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any


def run_job(client: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Run one access of a client and return what it read.

    An access that is counted in two parts calls `place.pause()` between them.
    """
    place = SimpleNamespace(pause=pause, **job["place"])
    os.environ.update(AWS_ACCESS_KEY_ID=place.key, AWS_SECRET_ACCESS_KEY=place.secret)
    return {"value": client.accesses[job["layout"], job["access"]](place)}


def answer_job(client: Any, line: str) -> None:
    """Run a job, write its answer, and end this process."""
    try:
        write_line(run_job(client, json.loads(line)))
    except BaseException as error:
        write_line({"failed": describe_error(error)})
    os._exit(0)


def write_line(message: dict[str, Any]) -> None:
    """Write a line of JSON for the owner of this process."""
    os.write(ANSWERS, (json.dumps(message) + "\n").encode())


def read_line() -> str:
    """Read a line byte by byte, so that nothing is buffered that a child should read."""
    line = b""
    while True:
        byte = os.read(0, 1)
        if byte in (b"\n", b""):
            return line.decode()
        line += byte


def pause() -> str:
    """Say that what was to be opened is open, and wait for a word of the owner of this process."""
    write_line({"opened": True})
    return read_line()


def describe_error(error: BaseException) -> str:
    """Describe in one line why an access failed."""
    return "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:200])


def load_clients(path: str) -> Any:
    """Load the module that lists the clients, by its path: `wire` need not be installed here."""
    sys.path.insert(0, os.path.dirname(path))
    try:
        return importlib.import_module(os.path.basename(path)[: -len(".py")]).CLIENTS
    finally:
        sys.path.pop(0)


def import_modules(client: Any) -> dict[str, str]:
    """Import what a client needs; return the versions of these packages."""
    versions = {}
    for name in client.modules.split():
        importlib.import_module(name)
        package = name.partition(".")[0]
        with contextlib.suppress(Exception):
            versions[package] = version(package)
    return versions


def main(path: str, name: str) -> None:
    """Import what a client needs, then run its jobs, each in a child."""
    client = load_clients(path)[name]
    os.environ.update(client.environment)
    try:
        versions = import_modules(client)
    except Exception as error:
        write_line({"failed": "cannot be imported: %s" % describe_error(error)})
        return
    write_line({"ready": True, "versions": versions})
    while True:
        line = read_line()
        if not line:
            return
        child = os.fork()
        if not child:
            if client.forks:
                answer_job(client, line)
            os.dup2(ANSWERS, 1)
            os.execv(sys.executable, [sys.executable, *sys.argv, line])  # noqa: S606
        _, status = os.waitpid(child, 0)
        if status:
            write_line({"failed": "ended by signal or exit status %d" % status})


if __name__ == "__main__":
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        sys.path.pop(0)  # no module of ours hides one of a library
    ANSWERS = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    if len(sys.argv) > 3:
        listed = load_clients(sys.argv[1])[sys.argv[2]]
        os.environ.update(listed.environment)
        answer_job(listed, sys.argv[3])
    main(sys.argv[1], sys.argv[2])
