"""Small arrays in the store of the tests, servers that are none, and what processes do."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil

from helpers.arrays.fields import SampleArray
from helpers.arrays.readers import LAYOUTS, Codec, Layout
from helpers.arrays.stores import StoredArray, prepare_array
from helpers.paths import ROOT
from wire.bed.locations import Location
from wire.bed.testbed import Server

SOURCE = ROOT / "data" / "ocean-temperature.nc"
SHAPE = (3, 6, 40, 80)
CHUNK_SHAPE = (1, 4, 40, 50)  # neither depth nor x is a multiple: clipped chunks on two sides


def make_location(server: Server, bucket: str) -> Location:
    """Locate a bucket in the server of the tests, made if absent."""
    location = server.locate(bucket)
    client = location.botocore()
    if bucket not in [each["Name"] for each in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=bucket)
    return location


def allow_everybody(location: Location) -> None:
    """Let everybody read the objects of a bucket, without a signature."""
    allowed = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": "s3:GetObject",
        "Resource": f"arn:aws:s3:::{location.bucket}/*",
    }
    policy = {"Version": "2012-10-17", "Statement": [allowed]}
    location.botocore().put_bucket_policy(Bucket=location.bucket, Policy=json.dumps(policy))


def make_sample(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> SampleArray:
    """Enlarge the field that the book enlarges."""
    return SampleArray(SOURCE, "temperature", shape, seed)


def make_stored(
    location: Location,
    *,
    codec: Codec = "blosc-zstd",
    layouts: Sequence[Layout] = LAYOUTS,
    seed: int = 0,
) -> StoredArray:
    """Store 230 kB in 12 chunks, unless they are there."""
    return prepare_array(
        make_sample(seed=seed), location, chunk_shape=CHUNK_SHAPE, codec=codec, layouts=layouts
    )


def client_environment(server: Server | Location) -> dict[str, str]:
    """Return the variables that lead S3 clients to a server."""
    return {
        "AWS_ENDPOINT_URL": server.endpoint_url,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_REGION": server.region,
        "AWS_DEFAULT_REGION": server.region,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class Handler(BaseHTTPRequestHandler):
    """A server of a test's own: quiet, with connections that stay."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a whole answer; under_scores in names of headers are hyphens."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Ranges(SimpleHTTPRequestHandler):
    """A web server of files that sends ranges, as those of data do; below /403/ and /503/ are errors."""

    def do_GET(self) -> None:
        """Send the bytes that are asked for, or of a HEAD what they are."""
        path, folder = Path(self.translate_path(self.path)), self.path.split("/")[1]
        if folder in ("403", "503") or not path.is_file():
            self.send_error(int(folder) if folder.isdecimal() else 404)
            return
        content, asked = path.read_bytes(), self.headers.get("Range", "")
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start = int(first or 0)
        part = content[start : int(last or len(content)) + 1]
        self.send_response(206 if asked else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else part)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serve(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve from a thread, and give the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def lives(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def listens(port: int) -> bool:
    """Tell whether a port on loopback takes connections."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def becomes(claim: Callable[[], bool], *, timeout_s: float = 60.0) -> bool:
    """Wait for a claim to come true, and tell whether it did."""
    deadline = time.monotonic() + timeout_s
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.02)
    return claim()
