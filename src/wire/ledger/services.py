"""Servers that the clients of the ledger read from: S3, and copies behind the interfaces of Google and Azure."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from wire.bed.emulators import open_azure, open_google
from wire.bed.networks import Profile
from wire.bed.testbed import Testbed
from wire.errors import UserError
from wire.ledger.layouts import Stored

_OPENERS: dict[str, Callable[..., AbstractContextManager[Testbed]]] = {
    "gcs": open_google,
    "azure": open_azure,
}


@contextmanager
def open_services(
    names: Collection[str], testbed: Testbed, stored: Stored, profile: Profile, *, seed: int
) -> Iterator[tuple[dict[str, Testbed], dict[str, str]]]:
    """Open the services that clients need; return where each is, and why others are absent."""
    services, absent = {"s3": testbed, "http": testbed}, dict[str, str]()
    near = testbed.near
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if others := _OPENERS.keys() & set(names):
            shutil.copytree(stored.folder, root / near.bucket / stored.prefix)
        for name in others:
            try:
                opened = stack.enter_context(_OPENERS[name](root, near.bucket, profile, seed=seed))
            except UserError as error:
                absent[name] = str(error)
            else:  # the place of an object is the same everywhere, but its address
                far = near.through(opened.far.endpoint_url)
                services[name] = replace(opened, near=near, far=far)
        yield services, absent
