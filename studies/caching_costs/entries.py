"""Opened datasets as authenticated bytes: a pickle runs code, so only what this run signed is read."""

from __future__ import annotations

import hashlib
import io
import pickle
from typing import Any

import itsdangerous
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from zarr.storage import ObjectStore

from studies.caching_costs.datasets import ObjectFile, Origin


def seal(name: str, key: bytes, dataset: xr.Dataset) -> bytes:
    """Write an opened dataset, metadata and coordinates without values and clients, and sign it."""
    return _signer(name, key).sign(dump(dataset))


def unseal(name: str, key: bytes, sealed: bytes, origin: Origin) -> xr.Dataset:
    """Read what `seal` wrote under that name, with the clients of this process.

    Raises
    ------
    itsdangerous.BadSignature
        If it is not what this run wrote there.
    """
    return load(_signer(name, key).unsign(sealed), origin)


def _signer(name: str, key: bytes) -> itsdangerous.Signer:
    """Make what signs bytes under their name with the key of the run."""
    # SHA-384 fills its characters: with one to spare, two texts would be the same MAC
    salt = name.encode("utf-8", "surrogatepass")
    return itsdangerous.Signer(key, salt, key_derivation="hmac", digest_method=hashlib.sha384)


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
    """Write an opened dataset as bytes."""
    file = io.BytesIO()
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(dataset)
    return file.getvalue()


def load(payload: bytes, origin: Origin) -> xr.Dataset:
    """Read what `dump` wrote; only of bytes whose MAC was checked."""
    dataset: xr.Dataset = _Unpickler(io.BytesIO(payload), origin).load()
    return dataset
