"""Objects of a store received into memory that is used again.

Clients of object stores return each object in new memory. The first touch of such memory costs the
system about as much as the bytes themselves, and an array of many chunks pays it for every chunk.
Here an object goes from its connection into a buffer that the caller keeps. Signing is left to
obstore, HTTP and TLS to Python's own client, and whatever is not answered as it should be to
obstore again, which knows when to wait and how to tell what is wrong.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

import obstore
from obstore.store import AzureStore, GCSStore, S3Store

_SIGNED_FOR = timedelta(minutes=15)
_SILENCE_S = 30.0  # without a byte, after which obstore asks again


class Receiver:
    """What receives the objects of one store, from any number of threads.

    Parameters
    ----------
    store : obstore store
        Client for the folder that holds the objects. What it is not told to sign requests for,
        what lies on this machine, and what a proxy leads to, is received through it alone.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        self._idle: list[HTTPConnection] = []  # connections that are open, and wait
        self._is_plain = _is_signed(store)

    def __reduce__(self) -> tuple[Any, ...]:
        return Receiver, (self.store,)

    def close(self) -> None:
        """Close the connections that wait; more may be opened after it."""
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        self.close()

    def receive(self, key: str, buffer: bytearray) -> memoryview | None:
        """Receive an object, into the buffer unless it comes from obstore.

        Parameters
        ----------
        key : str
            Of the object in the folder.
        buffer : bytearray
            Where to put it; it grows to the length of the object.

        Returns
        -------
        memoryview or None
            The bytes of the object, or None where there is none.
        """
        found = self._receive_plainly(key, buffer) if self._is_plain else None
        if found is not None:
            return found
        try:
            return memoryview(obstore.get(self.store, key).bytes())
        except FileNotFoundError:
            return None

    def _receive_plainly(self, key: str, buffer: bytearray) -> memoryview | None:
        """Receive an object over a connection of our own; None for whatever is not just that."""
        url = urlsplit(obstore.sign(self.store, "GET", key, _SIGNED_FOR))
        if _has_proxy(url):
            self._is_plain = False
            return None
        connection = self._take(url)
        with contextlib.suppress(OSError, HTTPException):
            connection.request("GET", f"{url.path}?{url.query}")
            answer = connection.getresponse()
            if answer.status == 200 and answer.length is not None:
                n = answer.length
                if len(buffer) < n:
                    buffer.extend(bytes(n - len(buffer)))
                found = memoryview(buffer)[:n]
                if _fill(found, answer) == n:
                    self._idle.append(connection)
                    return found
        connection.close()
        return None

    def _take(self, url: SplitResult) -> HTTPConnection:
        """Take a connection that waits, or make one."""
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
        return kind(url.hostname or "", url.port, timeout=_SILENCE_S)


def _fill(view: memoryview, answer: Any) -> int:
    """Receive until a view is full or nothing comes; return the bytes that came."""
    n = 0
    while n < len(view) and (got := answer.readinto(view[n:])):
        n += got
    return n


def _is_signed(store: Any) -> bool:
    """Tell whether a store signs requests that another client may then send."""
    if not isinstance(store, S3Store | GCSStore | AzureStore):
        return False
    skips: Any = dict(store.config).get("skip_signature", False)
    return str(skips).lower() not in ("true", "1")


def _has_proxy(url: SplitResult) -> bool:
    """Tell whether the environment sends requests for an address through a proxy."""
    return url.scheme in getproxies() and not proxy_bypass(url.hostname or "")
