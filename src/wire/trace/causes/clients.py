"""Clients by what they call themselves, and which settings of `--try` act on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wire.trace import analysis
from wire.trace.analysis import array_of

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

LIBRARIES = ("xarray", "zarr", "fsspec")
"""Libraries that read with one of these clients, and have remedies in words of their own."""

_PACKAGES = {
    "xarray": "xarray", "zarr": "zarr", "fsspec": "fsspec", "s3fs": "fsspec", "gcsfs": "fsspec",
    "adlfs": "fsspec", "boto3": "boto3", "botocore": "boto3", "s3transfer": "boto3",
    "obstore": "obstore", "requests": "requests", "urllib3": "", "httpx": "httpx", "aiohttp": "aiohttp",
    "aiobotocore": "", "rasterio": "gdal", "osgeo": "gdal", "rioxarray": "gdal", "duckdb": "duckdb",
    "tensorstore": "tensorstore", "pyarrow": "arrow", "urllib": "", "http": "",
}  # fmt: skip
"""Packages of which a line calls a function, and in whose words it is told; none has remedies for ''."""

_ZARR_READS_WITH = ("s3fs", "obstore", "aiohttp", "")
_MOST_LOOKED_AT = 1000  # requests, evenly spread, that show which client is that of most
_NUMBERED = re.compile(r"/\d+$")  # a file of that name, or a chunk of one dimension
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
    if len(rows) > _MOST_LOOKED_AT:
        rows = rows[:: -(-len(rows) // _MOST_LOOKED_AT)]
    agents = Counter(row.user_agent for row in rows)
    counts = Counter[str]()
    for agent, number in agents.items():
        counts[client_of(agent)] += number
    client = counts.most_common(1)[0][0] if counts else ""
    if client not in _ZARR_READS_WITH:
        return [client]
    n_metadata = sum(map(analysis.is_metadata, rows))
    n_zarr = n_metadata + sum(
        analysis.is_chunk(row) and (n_metadata > 0 or not _is_numbered(row.key)) for row in rows
    )
    return [*(["zarr"] if n_zarr > len(rows) / 2 else []), client]


def _is_numbered(key: str) -> bool:
    """Find whether nothing but a number says that a path is one of a chunk."""
    return bool(_NUMBERED.search(key)) and array_of(key) == key[: key.rindex("/")]


def choose_languages(library_call: str, clients: Sequence[str]) -> list[str]:
    """Choose in whose words a line is told what to write: of its library first, then of its client.

    Requests of one client look alike, whichever library made them; where the line is known, so is
    the library.

    Examples
    --------
    >>> choose_languages("xarray.backends.zarr.open_zarr", ["zarr", "s3fs"])
    ['xarray', 's3fs', 'fsspec']
    >>> choose_languages("fsspec.asyn.sync_wrapper.<locals>.wrapper", ["zarr", "s3fs"])
    ['s3fs', 'fsspec']
    >>> choose_languages("", ["zarr", "s3fs"])
    ['zarr', 's3fs', 'fsspec']
    """
    language = _PACKAGES.get(library_call.partition(".")[0])
    own = [language] if language in LIBRARIES else []
    if language is None or own:
        # the library reads with a client, whose words are next
        client_names = [name for name in clients if name != "zarr" or language is None]
        if language == "fsspec":
            client_names = [name for name in client_names if name == "s3fs"]
        languages = [*(own if language != "fsspec" else []), *client_names]
    else:
        languages = [language]
    if "s3fs" in languages or language == "fsspec":
        languages.append("fsspec")
    return languages


def explain_no_effect(run: Run, setting: str) -> str:
    """Explain in a line why a setting of `--try` can change nothing; nothing where it may.

    A client that gives no name, or one that is not known, may be any.
    """
    acting = _ACTS_ON.get(setting.partition("=")[0], ())
    clients = {client_of(agent) for agent in {row.user_agent for row in run.rows}}
    if not acting or not clients or clients & {*acting, ""}:
        return ""
    return (
        f"--try {setting} is not measured: it acts on {' and '.join(acting)},"
        f" and the requests are of {', '.join(sorted(clients))}"
    )
