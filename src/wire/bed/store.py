"""A store for a script or a test: a server of its own, an emulated network before it, and its requests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wire.bed.locations import Location
from wire.bed.networks import Profile, get_profile, of_one_process
from wire.bed.proxy import Proxy, open_proxy
from wire.bed.requests import RequestRow
from wire.bed.testbed import open_server


@dataclass(frozen=True, slots=True)
class EmulatedStore:
    """A bucket of a real S3 server, reached over an emulated network that traces each request."""

    location: Location  # over the emulated network: what is timed reads here
    direct: Location  # the same bucket without a network between: data are written here
    _proxy: Proxy

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self.location.bucket

    @property
    def endpoint_url(self) -> str:
        """URL of the store over the emulated network."""
        return str(self.location.endpoint_url)

    @property
    def storage_options(self) -> dict[str, Any]:
        """Options of fsspec and s3fs that lead to the store over the emulated network."""
        return {
            "key": self.location.access_key,
            "secret": self.location.secret_key,
            "client_kwargs": {
                "endpoint_url": self.endpoint_url,
                "region_name": self.location.region,
            },
        }

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the environment that lead clients in another process to the store."""
        return {
            "AWS_ACCESS_KEY_ID": str(self.location.access_key),
            "AWS_SECRET_ACCESS_KEY": str(self.location.secret_key),
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_REGION": str(self.location.region),
            "AWS_ALLOW_HTTP": "true",  # obstore and its kin refuse plain HTTP otherwise
        }

    def botocore(self, *, over_network: bool = True) -> Any:
        """Make a client of botocore; without the emulated network between, if so asked."""
        return (self.location if over_network else self.direct).botocore()

    def emulate(self, network: str | Profile) -> None:
        """Emulate another network from now on."""
        self._proxy.emulate(_find_network(network))

    def requests(self) -> list[RequestRow]:
        """Return the requests that ended since the last call, a row each, in the order of their ends.

        ``pandas.DataFrame(store.requests())`` is a table of them; seconds are since 1970.
        """
        return self._proxy.take_trace()


def _find_network(network: str | Profile) -> Profile:
    """Find a profile by name or file; links of workers become one where processes cannot be told apart."""
    profile = get_profile(network) if isinstance(network, str) else network
    return profile if hasattr(socket, "AF_NETLINK") else of_one_process(profile)


@contextmanager
def open_store(
    network: str | Profile = "same-region",
    *,
    bucket: str = "arrays",
    folder: Path | None = None,
    seed: int = 0,
    dilation: float = 1.0,
) -> Iterator[EmulatedStore]:
    """Open an empty bucket of a real S3 server behind an emulated network.

    The server is built once, in some minutes, and kept in the user's cache. It ends with the
    context, however that ends, and so do its objects, unless they lie in a folder of the user's.

    Parameters
    ----------
    network : str or Profile
        Name of a network that ships, such as ``same-region``, ``other-region``, ``wide-area`` or
        ``loopback``, the path of a YAML file with one, or a profile.
    bucket : str
        Name of the bucket that is made.
    folder : Path, optional
        Where the server keeps its objects; a temporary folder by default.
    seed : int
        Seed of the network's delays.
    dilation : float
        Factor by which the network and its time are slowed down, at least 1. Two cores carry
        some 500 MB/s; a faster network needs a larger factor, and the times of rows are those
        of the network.

    Yields
    ------
    EmulatedStore
        The bucket, the ways to it, and the requests that reached it.

    Raises
    ------
    UserError
        If there is no such network, or the folder cannot be used.
    """
    profile = _find_network(network)
    with ExitStack() as stack:
        root = folder or Path(stack.enter_context(TemporaryDirectory(prefix="wire-bed-")))
        server = stack.enter_context(open_server(root))
        proxy = stack.enter_context(
            open_proxy(server.endpoint_url, profile=profile, seed=seed, dilation=dilation)
        )
        direct = server.locate(bucket)
        client = direct.botocore()
        if bucket not in [entry["Name"] for entry in client.list_buckets()["Buckets"]]:
            client.create_bucket(Bucket=bucket)
        yield EmulatedStore(direct.through(proxy.endpoint_url), direct, proxy)
