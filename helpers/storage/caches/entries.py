"""Entries: opened datasets as bytes that only this run can have written.

Unpickling runs code. Whoever may write to a cache could therefore run code in
the service, so each entry carries a code of authentication (HMAC-SHA256) under
a key that lives as long as the run, and nothing is unpickled before that code
is checked. Clients of the store, and with them its credentials, are left out
of entries and put in again on the way back.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import pickle
from typing import Any

import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from zarr.storage import ObjectStore

from helpers.storage.caches.origins import ObjectFile, Origin

_MAC_NBYTES = hashlib.sha256().digest_size


class TamperedError(Exception):
    """Bytes are not those that this run wrote under that name."""


def seal(payload: bytes, *, name: str, key: bytes) -> bytes:
    """Put a code of authentication before a payload.

    Parameters
    ----------
    payload : bytes
        What to protect.
    name : str
        Name of the entry, so that entries cannot be exchanged.
    key : bytes
        Key of the run.

    Returns
    -------
    bytes
        32 bytes of HMAC-SHA256, then the payload.

    Examples
    --------
    >>> len(seal(b"abc", name="a", key=b"k"))
    35
    """
    return _sign(payload, name, key) + payload


def unseal(sealed: bytes, *, name: str, key: bytes) -> bytes:
    """Check the code of authentication and return the payload.

    Parameters
    ----------
    sealed : bytes
        What `seal` returned.
    name : str
        Name under which it was sealed.
    key : bytes
        Key under which it was sealed.

    Returns
    -------
    bytes
        The payload.

    Raises
    ------
    TamperedError
        If a bit, the name or the key differs.

    Examples
    --------
    >>> unseal(seal(b"abc", name="a", key=b"k"), name="a", key=b"k")
    b'abc'
    """
    mac, payload = sealed[:_MAC_NBYTES], sealed[_MAC_NBYTES:]
    if not hmac.compare_digest(mac, _sign(payload, name, key)):
        raise TamperedError(f"{name}: not written by this run")
    return payload


def _sign(payload: bytes, name: str, key: bytes) -> bytes:
    code = hmac.new(key, f"{len(name)}:{name}".encode(), hashlib.sha256)
    code.update(payload)
    return code.digest()


class _Pickler(pickle.Pickler):
    """Names clients of the store instead of writing them, for they hold credentials."""

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        if isinstance(obj, ObjectFile):
            return "file", obj.key
        if isinstance(obj, ObjectStoreRegistry):
            return "registry", ""
        if isinstance(obj, ObjectStore):
            return "zarr", str(obj.store.prefix or "")
        return None


class _Unpickler(pickle.Unpickler):
    """Puts this process's own clients in the place of names."""

    def __init__(self, file: io.BytesIO, origin: Origin) -> None:
        super().__init__(file)
        self._origin = origin

    def persistent_load(self, pid: tuple[str, str]) -> Any:
        kind, key = pid
        if kind == "file":
            return self._origin.open_file(key)
        if kind == "registry":
            return self._origin.registry()
        return self._origin.zarr_store(self._origin.name_of(key))


def dump(dataset: xr.Dataset) -> bytes:
    """Write an opened dataset: metadata and coordinates, no values and no client.

    Parameters
    ----------
    dataset : Dataset
        Opened from an `Origin`.

    Returns
    -------
    bytes
        A pickle that holds no credential.
    """
    file = io.BytesIO()
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(dataset)
    return file.getvalue()


def load(payload: bytes, origin: Origin) -> xr.Dataset:
    """Read what `dump` wrote; only after `unseal`.

    Parameters
    ----------
    payload : bytes
        An authenticated pickle.
    origin : Origin
        Whose clients the dataset reads with.

    Returns
    -------
    Dataset
        As it was opened.
    """
    dataset: xr.Dataset = _Unpickler(io.BytesIO(payload), origin).load()
    return dataset
