"""A notebook as opened on a hub: a store of one's own behind TLS, which nothing traces, and a folder that is not the root."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import botocore.session
import nbformat
import psutil
import pytest
from botocore.config import Config
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from jupyter_client.manager import KernelManager

from helpers.benchmark.record import read_records
from helpers.paths import ROOT
from tests.stores import becomes
from wire.bed.certificates import Authority
from wire.bed.testbed import find_or_build_versitygw
from wire.children import start_child

KEYS = ("hub-user", "a-secret-that-shows-nowhere")
PROXY_SECRET = "another-that-shows-nowhere"


def make_certificates(folder: Path) -> tuple[Path, Path, Path]:
    """Write the certificate of an authority, one of this machine that it signs, and the key of that."""
    authority, key = Authority(), ec.generate_private_key(ec.SECP256R1())
    here = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = authority._sign(here, key.public_key(), "localhost")
    kind, no_lock = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths = folder / "authority.pem", folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(authority.pem)
    paths[1].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[2].write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, no_lock))
    return paths


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve a bucket over TLS, and set the environment as that of a hub's user."""
    authority, certificate, key = make_certificates(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    files = tmp_path / "files"
    files.mkdir()
    (tmp_path / "temporary").mkdir()
    argv = [find_or_build_versitygw(), "--quiet", "--cert", certificate, "--key", key]
    argv += ["--port", f"127.0.0.1:{port}", "posix", files]
    environment = dict(zip(("ROOT_ACCESS_KEY", "ROOT_SECRET_KEY"), KEYS, strict=True))
    for name, value in {
        "AWS_ENDPOINT_URL": f"https://localhost:{port}",
        "AWS_ACCESS_KEY_ID": KEYS[0],
        "AWS_SECRET_ACCESS_KEY": KEYS[1],
        "AWS_CA_BUNDLE": str(authority),
        "SSL_CERT_FILE": str(authority),
        "ARRAYS_CACHE": str(tmp_path / "cache"),
        "HTTPS_PROXY": f"http://user:{PROXY_SECRET}@127.0.0.1:9",  # which leads nowhere
        "TMPDIR": str(tmp_path / "temporary"),
    }.items():
        monkeypatch.setenv(name, value)
    with start_child(argv, env=environment, log=tmp_path / "log") as child:
        child.wait_until(lambda: _made_bucket(port), timeout_s=120)
        yield "s3://mine/arrays"


def _made_bucket(port: int) -> bool:
    config = Config(proxies={}, s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
    client = botocore.session.get_session().create_client(
        "s3", endpoint_url=f"https://localhost:{port}", region_name="us-east-1", config=config
    )
    with contextlib.suppress(botocore.exceptions.ConnectionError):
        client.create_bucket(Bucket="mine")
        return True
    return False


SETTINGS = """
store = "{store}"
profile = "loopback"
n_workers = [1]
n_blocks = 1
time_budget_s = 3600.0
contenders = ["zarr-obstore", "netcdf-fsspec"]
"""


class Opened:
    """The notebook of cluster scaling, opened in a kernel that has a folder of its own."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.said = folder, list[str]()
        notebook = nbformat.read(ROOT / "notebooks" / "cluster-scaling.ipynb", as_version=4)
        self.cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        self.cells[0] += SETTINGS.format(store=store)  # as a user changes them there
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder))
        self.client = self.manager.blocking_client()
        self.client.start_channels()

    def run(self, cells: Sequence[str]) -> None:
        """Run cells, each after the one before has been answered."""
        self.client.wait_for_ready(timeout=60)
        for source in cells:
            reply = self.client.execute_interactive(
                source, output_hook=lambda told: self.said.append(str(told["content"])), timeout=300
            )
            assert reply["content"]["status"] == "ok", reply["content"]

    def restart_in_mid_measurement(self) -> None:
        """Run up to the first cell that measures, and restart the kernel once there is a row."""
        at = next(i for i, source in enumerate(self.cells) if "measure_blocks" in source)
        self.run(self.cells[:at])
        self.client.execute(self.cells[at])
        record = self.folder / "cluster-scaling.csv"
        assert becomes(lambda: record.exists() and record.read_bytes().count(b"\n") > 1)
        started = psutil.Process(self.manager.provisioner.process.pid).children(recursive=True)
        assert started
        self.manager.restart_kernel()
        assert becomes(lambda: not any(process.is_running() for process in started))

    def close(self) -> None:
        """Shut the kernel down as a hub does."""
        self.client.stop_channels()
        self.manager.shutdown_kernel()


@pytest.mark.slow
def test_a_notebook_as_opened_on_a_hub(hub: str, tmp_path: Path) -> None:
    """Cell by cell, from a folder that is not the root, restarted in mid-measurement and run again.

    Nothing is emulated or traced, values are checked, nothing is left of what was interrupted,
    and no secret of the environment is in anything that was written or shown.
    """
    folder, temporary = tmp_path / "somewhere else", tmp_path / "temporary"
    folder.mkdir()
    opened = Opened(folder, hub)
    try:
        opened.restart_in_mid_measurement()
        left = [path.name for path in temporary.iterdir()]
        opened.run(opened.cells)
    finally:
        opened.close()
    assert {*left} <= {"dask-scratch-space"}  # which the next cluster clears
    rows = read_records([folder / "cluster-scaling.csv"])
    assert (
        rows["phase"].eq("calibration").any()
        and not rows[["phase", "block", "order"]].duplicated().any()
    )
    measured = rows[rows["phase"] == "measured"]
    assert measured["n_requests"].isna().all()
    assert measured["check"].str.contains("xxh3").all()
    assert {"zarr-obstore", "netcdf-fsspec", "raw"} <= set(measured["contender"])
    written = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"cluster-scaling.csv", "log"} <= set(written)
    for secret in (KEYS[1], PROXY_SECRET):
        assert secret not in "".join(opened.said)
        assert [name for name, data in written.items() if secret.encode() in data] == []
