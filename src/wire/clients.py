"""Clients that read arrays, in facts: how each is called, and how many requests it makes at once.

Nothing is imported for them. Readers of the book and choices of ``wire decide`` build on the same
facts, each of which the request ledger counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """What a client does at its defaults, whoever uses it."""

    label: str  # on pages and in figures
    packages: tuple[str, ...]  # that it imports, whose versions decide what it does
    concurrency: int  # concurrent requests, at most
    requests_per_chunk: int = 1  # one after the other
    opening: tuple[int, int] = (0, 0)  # requests to open a dataset, and waits of them in a chain


_ZARR_CONCURRENCY = 10  # `async.concurrency` of zarr, and the connections of botocore

CLIENTS: Mapping[str, ClientFacts] = {
    # since 2026 s3fs asks for the length of each chunk first, and opening takes seven requests
    # twice, mostly in turn (ledger of requests: zarr 3.4, s3fs 2026.9)
    "zarr-s3fs": ClientFacts("s3fs, default", ("zarr", "s3fs"), _ZARR_CONCURRENCY, 2, (14, 8)),
    "zarr-s3fs-one-get": ClientFacts("s3fs, one request", ("zarr", "s3fs"), _ZARR_CONCURRENCY),
    "zarr-obstore": ClientFacts("obstore", ("zarr", "obstore"), _ZARR_CONCURRENCY),
    "zarr-zarrs": ClientFacts("zarrs pipeline", ("zarr", "obstore", "zarrs"), _ZARR_CONCURRENCY),
    "fsspec-readahead": ClientFacts("s3fs, default", ("h5py", "s3fs"), 1),
    "fsspec-https": ClientFacts("fsspec over HTTPS, default", ("h5py", "fsspec", "aiohttp"), 1),
    "fsspec-tuned": ClientFacts("s3fs, 8 MiB blocks", ("h5py", "s3fs"), 1),
    "obstore-whole": ClientFacts("downloaded whole", ("h5py", "obstore"), 10),
    "references": ClientFacts("references", ("virtualizarr", "obstore"), _ZARR_CONCURRENCY),
}
"""Clients by the names that records have for them."""
