"""The owner's side of the proxy: starts its process, tells it what to emulate, takes its trace."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from wire.bed.networks import Profile, check_dilation
from wire.bed.requests import RequestRow
from wire.children import GRACE_S, environment, open_python
from wire.errors import UserError, redact


class Proxy:
    """Stand between clients and an object store: emulate a network, write a trace.

    Made by `open_proxy`. Its methods may be called from any thread.
    """

    def __init__(self, process: subprocess.Popen[bytes], pipe: Connection, port: int) -> None:
        self._process, self._pipe, self.pid = process, pipe, process.pid
        self._lock = threading.Lock()
        self.endpoint_url = f"http://127.0.0.1:{port}"
        """Where clients find the store through the proxy."""

    def find_dead_process(self) -> str:
        """Describe in a line that the proxy has ended; empty while it runs."""
        code = self._process.poll()
        return (
            "" if code is None else f"the proxy at {self.endpoint_url} has ended (exit code {code})"
        )

    def _command(self, *words: object) -> Any:
        """Send a command and return its answer, which comes when it has been obeyed."""
        with self._lock:
            try:
                self._pipe.send(words)
                return self._pipe.recv()
            except (EOFError, OSError):
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(GRACE_S)
                raise UserError("proxy", self.find_dead_process() or "it does not answer") from None

    def emulate(self, profile: Profile, *, dilation: float | None = None) -> None:
        """Emulate a network on the requests that arrive from now on, maybe at another dilation."""
        if dilation is not None:
            check_dilation(dilation)
        if profile.worker_mb_per_s is not None and not hasattr(socket, "AF_NETLINK"):
            raise UserError(
                "worker_mb_per_s",
                f"{profile.worker_mb_per_s:g}",
                f"None on {sys.platform}, where the process behind a connection cannot be seen",
            )
        self._command("emulate", profile, dilation)

    def set_tag(self, tag: str) -> None:
        """Mark the rows of requests that arrive from now on."""
        self._command("tag", tag)

    @contextmanager
    def encrypted(self) -> Iterator[str]:
        """Return where clients find the store by TLS; they and what they start trust it meanwhile."""
        from wire.bed.certificates import BUNDLE_VARIABLES

        with TemporaryDirectory(prefix="arrays-tls-") as folder:
            bundle = Path(folder) / "trusted.pem"
            self._command("encrypt", bundle)
            with environment(dict.fromkeys(BUNDLE_VARIABLES, str(bundle))):
                yield self.endpoint_url.replace("http:", "https:")

    def take_trace(self) -> list[RequestRow]:
        """Return the rows of the requests that ended since the last call, in that order, and forget them."""
        rows: list[RequestRow] = self._command("take")
        return rows


def _address(upstream_url: str) -> tuple[str, int]:
    """Split the address of a server into host and port; refuse what the proxy cannot stand before."""
    shown, allowed = repr(redact(upstream_url)), "http://HOST[:PORT]"
    parts = urlsplit(upstream_url)
    if parts.scheme == "https":
        raise UserError(
            "upstream_url",
            f"{shown}, where a client signs the host name it connects to, so what is signed for "
            "the proxy would be refused",
            f"{allowed}; use this location without it",
        )
    is_bare = not (parts.path.strip("/") or parts.query or "@" in parts.netloc)
    if parts.scheme != "http" or not parts.hostname or not is_bare:
        raise UserError("upstream_url", shown, allowed)
    try:
        return parts.hostname, parts.port or 80
    except ValueError as error:
        raise UserError("upstream_url", shown, f"{allowed} with a port to 65535") from error


@contextmanager
def open_proxy(
    upstream_url: str, *, profile: Profile, seed: int = 0, dilation: float = 1.0
) -> Iterator[Proxy]:
    """Start a proxy before an object store; it ends with the context, or with its owner.

    It passes requests on untouched, so that any client works through it, with its own credentials:
    to the store by plain HTTP, from clients by TLS too while that is asked for. Round trips of
    setting up a connection are waited for where the profile has some. With a `dilation` all that it emulates is
    as many times slower, and its trace is in virtual seconds.
    """
    check_dilation(dilation)
    arguments = (*_address(upstream_url), seed, dilation, os.getpid())
    with open_python("wire.bed.process", *arguments) as (process, pipe):
        try:
            port = int(pipe.recv())
        except EOFError as error:
            raise RuntimeError(
                f"the proxy did not start (exit code {process.wait()}); its error is above"
            ) from error
        proxy = Proxy(process, pipe, port)
        proxy.emulate(profile)
        yield proxy
