"""The file of a store behind the interfaces of other providers, each over an emulated network of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import obstore

from studies.hdf5_drivers.drivers import DRIVERS
from studies.hdf5_drivers.files import StoredFile
from wire.bed.emulators import open_azure, open_google
from wire.bed.networks import Profile
from wire.bed.testbed import Testbed

SERVICES: Mapping[str, Callable[..., AbstractContextManager[Testbed]]] = {
    "google": open_google,
    "azure": open_azure,
}
"""Emulators by the name that drivers give their service."""


@contextmanager
def open_services(
    reads: Collection[str], stored: StoredFile, profile: Profile, *, seed: int, dilation: float
) -> Iterator[dict[str, Testbed]]:
    """Open the services of each "driver on layout" beside S3, with a copy of those layouts; they end with the context."""
    pairs = [(DRIVERS[driver].service, layout) for driver, _, layout in map(_split, reads)]
    needed = {service for service, _ in pairs if service != "s3"}
    bucket, services = stored.location.bucket, dict[str, Testbed]()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hdf5-drivers-")))
        for layout in {layout for service, layout in pairs if service in needed}:
            _download(stored, layout, root / bucket / stored.location.prefix)
        for name in sorted(needed):
            opened = SERVICES[name](root, bucket, profile, seed=seed, dilation=dilation)
            services[name] = stack.enter_context(opened)
        yield services


def _split(read: str) -> tuple[str, str, str]:
    return read.partition(" on ")


def _download(stored: StoredFile, layout: str, folder: Path) -> None:
    """Write the file of a layout into a folder, part by part."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{layout}.h5").open("wb") as file:
        for part in obstore.get(stored.location.obstore(), f"{layout}.h5").stream():
            file.write(part)
