"""Objects of a store behind the interfaces of other providers, each over an emulated network of its own."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import obstore

from wire.bed.emulators import open_azure, open_google
from wire.bed.locations import Location
from wire.bed.networks import Profile
from wire.bed.testbed import Testbed

SERVICES: Mapping[str, Callable[..., AbstractContextManager[Testbed]]] = {
    "google": open_google,
    "azure": open_azure,
}
"""Emulators by the name that readers give their service."""


@contextmanager
def open_services(
    names: Collection[str],
    place: Location,
    keys: Iterable[str],
    profile: Profile,
    *,
    seed: int = 0,
    dilation: float = 1.0,
) -> Iterator[dict[str, Testbed]]:
    """Open services, each with a copy of objects of a bucket under the same keys; they end with the context.

    Parameters
    ----------
    names : collection of str
        Names of services, of `SERVICES`; none are opened, and nothing is copied, where it is empty.
    place : Location
        Any place in the bucket, reached without a network between.
    keys : iterable of str
        Keys of the objects, from the bucket's root.
    profile : Profile
        Network to emulate before each.
    seed : int
        Seed of the networks' delays.
    dilation : float
        Factor by which the networks and their time are slowed down, at least 1.

    Yields
    ------
    dict of str to Testbed
        The bucket behind each interface.
    """
    with ExitStack() as stack:
        if names:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="arrays-services-")))
            _download(place, keys, root / place.bucket)
        yield {
            name: stack.enter_context(
                SERVICES[name](root, place.bucket, profile, seed=seed, dilation=dilation)
            )
            for name in sorted({*names})
        }


def list_keys(place: Location) -> list[str]:
    """List the keys of all objects below a place, from the bucket's root."""
    return [f"{place.prefix}/{entry['path']}" for entry in obstore.list(place.obstore()).collect()]


def _download(place: Location, keys: Iterable[str], folder: Path) -> None:
    """Write objects into a folder, part by part."""
    bucket = dataclasses.replace(place, prefix="").obstore()
    for key in keys:
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for part in obstore.get(bucket, key).stream():
                file.write(part)
