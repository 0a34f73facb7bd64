"""The testbed: a store, and the two ways to it, directly and over the emulated network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore

from helpers.errors import UserError
from helpers.netem.profiles import Profile, check_dilation
from helpers.netem.proxy import Proxy, open_proxy
from helpers.netem.trace import Request
from helpers.objectstore.locations import Location, parse_location
from helpers.objectstore.server import claim_folder, open_server
from helpers.paths import cache_folder

_BUCKET = "arrays"


@dataclass(frozen=True, slots=True)
class Testbed:
    """A store, and the emulated network before it."""

    near: Location  # the store without a network between: data are written here
    far: Location  # the same store over the emulated network: measured reads go here
    proxy: Proxy | None = None  # what emulates and traces; None where it cannot stand in between

    def emulate(self, profile: Profile) -> None:
        """Emulate another network from now on."""
        if self.proxy is not None:
            self.proxy.emulate(profile)
        else:
            check_profile("a store of your own", profile.name)

    def set_tag(self, tag: str) -> None:
        """Mark the requests that arrive from now on."""
        if self.proxy is not None:
            self.proxy.set_tag(tag)

    def probe_url(self, *, is_near: bool = False) -> str:
        """Return the signed address of an object of 32 MB, to measure the network with."""
        store, key = self.near.obstore(), "probe"
        try:
            obstore.head(store, key)
        except FileNotFoundError:
            obstore.put(store, key, bytes(32_000_000))
        location = self.near if is_near else self.far
        where = {"Bucket": location.bucket, "Key": f"{location.prefix}/{key}".strip("/")}
        return str(location.botocore().generate_presigned_url("get_object", Params=where))

    def take_trace(self) -> list[Request]:
        """Return the requests since the last call; none where nothing traces."""
        return [] if self.proxy is None else self.proxy.take_trace()


@contextmanager
def open_testbed(
    store: str,
    profile: Profile,
    *,
    seed: int = 0,
    needed_nbytes: int = 0,
    dilation: float = 1.0,
) -> Iterator[Testbed]:
    """Open the store that a case names, and the network before it.

    Parameters
    ----------
    store : str
        ``"embedded"`` for the embedded server, else the address of a bucket
        that is there, ``s3://BUCKET/PREFIX`` or ``gs://BUCKET/PREFIX``.
    profile : Profile
        Network to emulate; on a store of the user's own only ``loopback``.
    seed : int
        Seed of the network's delays.
    needed_nbytes : int
        Bytes that the embedded store must have room for.
    dilation : float
        Real seconds that a second of the emulated network takes, at least 1; on a store of the
        user's own only 1.

    Raises
    ------
    UserError
        If the store does not answer, refuses or is not there.
    """
    if store == "embedded":
        with _open_embedded(profile, seed, needed_nbytes, dilation) as testbed:
            yield testbed
        return
    location = parse_location(store)
    check_profile(store, profile.name, dilation)
    location.check()
    if (location.endpoint_url or "").startswith("http://"):
        with open_proxy(str(location.endpoint_url), profile=profile, seed=seed) as proxy:
            yield Testbed(location, location.through(proxy.endpoint_url), proxy)
    else:
        yield Testbed(location, location)


def check_profile(store: str, name: str, dilation: float = 1.0) -> None:
    """Refuse to emulate a network, or its time, on a store that has its own."""
    check_dilation(dilation)
    if store != "embedded" and name != "loopback":
        raise UserError(
            f"profile: {name!r}; allowed: loopback, because nothing is emulated on the network"
            " of a store of your own"
        )
    if store != "embedded" and dilation != 1:
        raise UserError(
            f"dilation: {dilation:g}; allowed: 1, because time is real on a store of your own"
        )


@contextmanager
def _open_embedded(
    profile: Profile, seed: int, needed_nbytes: int, dilation: float
) -> Iterator[Testbed]:
    folder = cache_folder() / "store"
    _make_room_unserved(folder, needed_nbytes)
    with (
        open_server(folder, needed_nbytes=needed_nbytes) as server,
        open_proxy(server.endpoint_url, profile=profile, seed=seed, dilation=dilation) as proxy,
    ):
        near = Location(
            "s3",
            _BUCKET,
            "",
            server.endpoint_url,
            server.access_key,
            server.secret_key,
            server.region,
        )
        _ensure_bucket(near)
        yield Testbed(near, near.through(proxy.endpoint_url), proxy)


def _ensure_bucket(location: Location) -> None:
    client = location.botocore()
    if location.bucket not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=location.bucket)


def _make_room_unserved(folder: Path, needed_nbytes: int) -> None:
    """Make room under the lock of the folder, which a server holds as long as it lives.

    So nothing is deleted that another run reads.
    """
    lock = claim_folder(folder.absolute())
    try:
        make_room(folder, needed_nbytes)
    finally:
        os.close(lock)


def make_room(folder: Path, needed_nbytes: int) -> None:
    """Delete the arrays made longest ago until the cache with `needed_nbytes` stays below its cap.

    The cap is ``ARRAYS_CACHE_GB``, 20 GB by default.
    """
    cap_nbytes = _read_cap()
    if needed_nbytes > cap_nbytes:
        raise UserError(
            f"ARRAYS_CACHE_GB: {cap_nbytes / 1e9:g};"
            f" allowed: at least {needed_nbytes / 1e9:.1f} for this array"
        )
    kept = (folder / "buckets" / _BUCKET).glob("*")
    arrays = sorted(filter(Path.is_dir, kept), key=lambda path: path.stat().st_mtime)
    nbytes = {path: _count_nbytes(path) for path in arrays}
    for path in arrays:
        if sum(nbytes.values()) + needed_nbytes <= cap_nbytes:
            return
        shutil.rmtree(path)
        nbytes.pop(path)


def _read_cap() -> float:
    text = os.environ.get("ARRAYS_CACHE_GB", "20")
    refusal = UserError(f"ARRAYS_CACHE_GB: {text!r}; allowed: a number of GB, at least 0")
    try:
        cap_nbytes = float(text) * 1e9
    except ValueError as error:
        raise refusal from error
    if not cap_nbytes >= 0:  # nan too
        raise refusal
    return cap_nbytes


def _count_nbytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
