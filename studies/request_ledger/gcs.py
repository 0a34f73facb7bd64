"""What lies in a store, served by the API of Google Cloud Storage: its emulator fake-gcs-server."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import obstore

from wire.bed.locations import Location
from wire.bed.networks import Profile
from wire.bed.testbed import Testbed
from wire.errors import UserError
from wire.ledger.layouts import Stored
from wire.ledger.services import open_services

CLIENT = "zarr-gcsfs"
"""Who asks by this API."""


@contextmanager
def open_service(
    clients: Collection[str], near: Location, prefix: str, profile: Profile, *, seed: int
) -> Iterator[dict[str, Testbed]]:
    """Serve a copy of the objects below a prefix over an emulated network, where a client asks for it.

    Maps that client to where it reads, while the context lasts.
    """
    if CLIENT not in clients:
        yield {}
        return
    store = near.obstore()
    with tempfile.TemporaryDirectory() as folder:
        for entry in obstore.list(store, prefix=prefix).collect():
            path = Path(folder, entry["path"]).relative_to(Path(folder, prefix))
            target = Path(folder, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(obstore.get(store, entry["path"]).bytes())
        stored = Stored(prefix, Path(folder), {})
        testbed = Testbed(near, near)
        with open_services({"gcs"}, testbed, stored, profile, seed=seed) as (services, absent):
            if absent:
                raise UserError(CLIENT, absent["gcs"])
            yield {CLIENT: services["gcs"]}
