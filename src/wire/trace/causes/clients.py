"""Clients by what they call themselves, and which settings of `--try` act on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wire.trace import analysis

if TYPE_CHECKING:
    from wire.trace.rows import Run, TracedRequest

CLIENTS = {
    "s3fs": ("aiobotocore/",),
    "boto3": ("boto3/", "botocore/"),
    "obstore": ("object_store/", "obstore/"),
    "requests": ("python-requests/", "python-urllib3/"),
    "httpx": ("python-httpx/",),
    "aiohttp": ("aiohttp/",),
    "gdal": ("gdal/",),
    "duckdb": ("duckdb/",),
    "tensorstore": ("tensorstore/",),
    "arrow": ("aws-sdk-cpp/", "arrow/"),
    "hdf5": ("libhdf5/", "hdf5/"),
    "curl": ("curl/",),
    "go": ("go-http-client/", "aws-sdk-go", "minio", "rclone/"),
}
"""Clients by how their user agent begins, in small letters; Python's have `Python/3.12 aiohttp/3` too."""

_ZARR_READS_WITH = ("s3fs", "obstore", "aiohttp", "")
_ACTS_ON = {
    "max_concurrency": ("s3fs",),
    "cache": ("s3fs",),
    "block_size": ("s3fs",),
    "pool": ("s3fs",),
    "concurrency": ("s3fs", "obstore", "aiohttp"),
    "gap": ("s3fs", "obstore", "aiohttp"),
    "readdir": ("gdal",),
}
"""Clients that settings of `--try` act on; the others act on any."""


def client_of(user_agent: str) -> str:
    """Name a client by its user agent; nothing where it is not known.

    Examples
    --------
    >>> client_of("Boto3/1.43.117"), client_of("Python/3.12 aiohttp/3.13"), client_of("new/1")
    ('boto3', 'aiohttp', '')
    """
    small = user_agent.lower()
    if small.startswith("python/3"):
        small = small.partition(" ")[2]
    return next((name for name, begins in CLIENTS.items() if small.startswith(begins)), "")


def find_clients(rows: Sequence[TracedRequest]) -> list[str]:
    """Name the client of most requests, and before it Zarr where most are for its objects."""
    agents = Counter(row.user_agent for row in rows)
    counts = Counter[str]()
    for agent, number in agents.items():
        counts[client_of(agent)] += number
    client = counts.most_common(1)[0][0] if counts else ""
    n_zarr = sum(analysis.is_chunk(row) or analysis.is_metadata(row) for row in rows)
    is_zarr = client in _ZARR_READS_WITH and n_zarr > len(rows) / 2
    return [*(["zarr"] if is_zarr else []), client]


def explain_no_effect(run: Run, setting: str) -> str:
    """Explain in a line why a setting of `--try` can change nothing; nothing where it may.

    A client that gives no name, or one that is not known, may be any.
    """
    wanted = _ACTS_ON.get(setting.partition("=")[0], ())
    clients = {client_of(agent) for agent in {row.user_agent for row in run.rows}}
    if not wanted or not clients or clients & {*wanted, ""}:
        return ""
    return (
        f"--try {setting} is not measured: it acts on {' and '.join(wanted)},"
        f" and the requests are of {', '.join(sorted(clients))}"
    )
