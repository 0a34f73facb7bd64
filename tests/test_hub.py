"""A notebook as opened on a hub: a store of one's own behind TLS, which nothing traces, and a folder that is not the root."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import botocore.session
import nbformat
import papermill
import pytest
from botocore.config import Config
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from helpers.benchmark.record import read_records
from helpers.book import run
from helpers.objectstore.processes import start_child
from helpers.objectstore.versitygw import find_or_build_versitygw
from helpers.paths import ROOT

KEYS = ("hub-user", "a-secret-that-shows-nowhere")


def make_certificates(folder: Path) -> tuple[Path, Path, Path]:
    """Make an authority, a certificate of this machine that it signs, and the key of that."""
    now, keys = datetime.datetime.now(datetime.UTC), [_make_key(), _make_key()]
    names = [
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
        for text in ("an authority of the tests", "a store of the tests")
    ]
    here = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    paths = folder / "authority.pem", folder / "certificate.pem", folder / "key.pem"
    for i, extension in enumerate([x509.BasicConstraints(ca=True, path_length=0), here]):
        made = (
            x509.CertificateBuilder()
            .subject_name(names[i])
            .issuer_name(names[0])
            .public_key(keys[i].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=i == 0)
            .sign(keys[0], hashes.SHA256())
        )
        paths[i].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    kind, no_lock = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths[2].write_bytes(keys[1].private_bytes(serialization.Encoding.PEM, kind, no_lock))
    return paths


def _make_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve a bucket over TLS, and set the environment as that of a hub's user."""
    authority, certificate, key = make_certificates(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    files = tmp_path / "files"
    files.mkdir()
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
    }.items():
        monkeypatch.setenv(name, value)
    with start_child(argv, env=environment, log=tmp_path / "log") as child:
        child.wait_until(lambda: _made_bucket(port), timeout_s=30)
        yield "s3://mine/arrays"


def _made_bucket(port: int) -> bool:
    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
    client = botocore.session.get_session().create_client(
        "s3", endpoint_url=f"https://localhost:{port}", region_name="us-east-1", config=config
    )
    with contextlib.suppress(botocore.exceptions.ConnectionError):
        client.create_bucket(Bucket="mine")
        return True
    return False


def test_a_store_that_nothing_traces_is_measured(hub: str, tmp_path: Path) -> None:
    """Every cell runs: nothing is emulated, requests are not traced, and values are checked."""
    folder = tmp_path / "somewhere else"
    folder.mkdir()
    told = {"store": hub, "profile": "loopback", "n_workers": [1], "time_budget_s": 3600.0}
    told["contenders"] = ["zarr-obstore", "zarr-s3fs", "netcdf-fsspec"]
    with run.kernel_options() as options:
        papermill.execute_notebook(
            str(ROOT / "notebooks" / "cluster-scaling.ipynb"),
            str(folder / "out.ipynb"),
            told,
            cwd=str(folder),
            kernel_name="python3",
            progress_bar=False,
            **options,
        )
    rows = read_records([folder / "cluster-scaling.csv"])
    measured = rows[rows["phase"] == "measured"]
    assert measured["n_requests"].isna().all()
    assert measured["check"].str.contains("xxh3").all()
    assert {"zarr-s3fs", "zarr-obstore", "netcdf-fsspec", "raw"} <= set(measured["contender"])
    text = (folder / "out.ipynb").read_text() + (folder / "cluster-scaling.csv").read_text()
    assert KEYS[1] not in text
    executed = nbformat.read(folder / "out.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert "Requests were not traced" in json.dumps(executed)
