"""What the project holds itself to: ratios measured in one run, and the thresholds of every study."""

from collections.abc import Mapping
from math import inf, prod
from typing import Any

from helpers.book.studies import Expected, Study, Threshold, later

_PROXY = "8 requests in flight for an object of 32 MB, directly and through the proxy"
_CPU = "processor time of the proxy over the bytes of the same reads"
_SHARE = "stored bytes per second of zarr-obstore-in-place over those of raw reads of the same objects with as many connections"
_FREE = f"{_SHARE}: 4, and a task for each processor, in one process"
_ALONE = "the same tasks and threads, over the proxy against from memory, which has the processors for itself"
_BATCHED = "time of zarr-obstore-batched over that of zarr-obstore-in-place"
_DIRECT = "time of zarr-obstore-in-place over that of zarr-direct, 4 requests in flight, into memory that is kept; both leave the same checksums"
_LEAST = "processor time of receiving alone and of decoding into place alone, over all processors, by the time of zarr-direct"
_2020 = "time of zarr-s3fs-one-get over that of zarr-obstore-in-place"
_TODAY = "time of zarr-s3fs at its defaults of today over that of zarr-obstore-in-place"
_NETCDF = (
    "time over that of zarr-obstore-in-place; the page counts the requests and the bytes of both"
)
_GROWTH = "zarr-obstore-in-place, network emulated, paired within blocks"
_MEMORY = "sum of the peaks of all processes, the small read first; each shared page counts in each"
_PEAK = "of the larger of these two reads"
_SLOPE = (
    "slope of read time between the two largest numbers of chunks, same bytes, no network emulated"
)

_AT_LEAST = (
    ("proxy-throughput", 0.6, "proxy: throughput over direct, no network emulated", _PROXY),
    ("share-of-ceiling", 0.9, "share of the ceiling, network emulated", _SHARE),
    ("free-share", 0.35, "share of the ceiling, no network emulated", _FREE),
    ("share-of-decoding", 0.85, "throughput over that of decoding alone, no network", _ALONE),
    ("gain-in-place", 0, "batches decoded in place over other batches, no network", _BATCHED),
    (
        "gain-direct",
        1.5,
        "threads that fetch and decode apart over the best path, no network",
        _DIRECT,
    ),
    ("share-of-processors", 0.75, "the same: share of what the processors carry", _LEAST),
    ("over-2020-small", 0, "best path over the 2020 configuration, below 2 MB a chunk", _2020),
    ("over-2020-medium", 1.7, "best path over the 2020 configuration, 2 to 8 MB a chunk", _2020),
    ("over-2020-large", 0, "best path over the 2020 configuration, from 8 MB a chunk", _2020),
    ("over-today-small", 0, "best path over s3fs of today, below 2 MB a chunk", _TODAY),
    ("over-today-medium", 0, "best path over s3fs of today, 2 to 8 MB a chunk", _TODAY),
    ("over-today-large", 0, "best path over s3fs of today, from 8 MB a chunk", _TODAY),
    ("over-netcdf", 0, "best Zarr path over netcdf-fsspec (claimed in 2020: 10)", _NETCDF),
    ("over-read-ahead", 0, "best Zarr path over netcdf-fsspec-5mib (claimed: 10)", _NETCDF),
    ("over-default-read-ahead", 0, "best Zarr path over netcdf-fsspec-50mib", _NETCDF),
)
_AT_MOST = (
    ("proxy-cpu", 0.6, "proxy: CPU-seconds for each GB", _CPU),
    ("growth-time", 4.4, "time of four times the bytes", _GROWTH),
    ("growth-memory", 1.1, "peak memory of four times the bytes", _MEMORY),
    ("peak-memory", 6, "peak memory of all processes (GB)", _PEAK),
    (
        "ms-per-chunk",
        inf,
        "milliseconds for each more chunk, a task a chunk",
        f"zarr-obstore: {_SLOPE}",
    ),
    (
        "ms-per-batched",
        inf,
        "milliseconds for each more chunk, batches decoded in place",
        f"zarr-obstore-in-place: {_SLOPE}",
    ),
)

# The published cases, each with its checks.
_CASES: Mapping[str, set[str]] = {
    "array-paths": {"proxy", "ceiling", "decoding"},
    "read-path": {"read-path"},
    "configuration-2020": {"configuration-2020"},
    "netcdf-and-growth": {"netcdf", "growth"},
    "overhead-per-chunk": {"overhead-per-chunk"},
}


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count chunks and elements of all arrays: requests grow with the first, bytes with the second.

    Examples
    --------
    >>> count_work({"array_shape": [4, 10], "chunk_shapes": [[2, 5], [1, 5]], "n_blocks": 5})
    (60.0, 400)
    """
    n_elements = values["n_blocks"] * prod(values["array_shape"])
    shapes = values["chunk_shapes"]
    return sum(n_elements / prod(shape) for shape in shapes), n_elements * len(shapes)


def expect(values: Mapping[str, Any]) -> Expected:
    """Add up what the published cases asked for that have some of these checks, each scaled."""
    scale = later("advisors.costs.page_tables", "expect_like")
    titles = [
        f"acceptance/{name}" for name, checks in _CASES.items() if checks & {*values["checks"]}
    ]
    found: list[Expected] = [scale(title, count_work, values) for title in titles]
    return Expected(
        sum(each.n_requests for each in found),
        sum(each.gb for each in found),
        sum(each.usd_in_region for each in found),
        sum(each.usd_outside for each in found),
        found[0].prices,
    )


STUDY = Study(
    name="acceptance",
    expect=expect,
    headline="thresholds-met",
    fragments={
        "thresholds.md": later("studies.acceptance.findings", "render"),
        "run-minutes.md": later("helpers.book.expected", "render_minutes"),
    },
    thresholds=tuple(
        Threshold(key=key, name=name, bound=bound, is_least=is_least, how=how)
        for is_least, held in ((True, _AT_LEAST), (False, _AT_MOST))
        for key, bound, name, how in held
    ),
)
