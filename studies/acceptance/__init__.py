"""What the project holds itself to: ratios measured in one run, and the thresholds of every study."""

import math

from helpers.book.studies import Study, Threshold


def _thresholds() -> str:
    from studies.acceptance.thresholds import render

    return render()


_SHARE = "stored bytes per second of zarr-obstore-in-place over those of raw reads of the same objects with as many connections"
_NETCDF = (
    "time over that of zarr-obstore-in-place; the page counts the requests and the bytes of both"
)
_SLOPE = (
    "slope of read time between the two largest numbers of chunks, same bytes, no network emulated"
)

STUDY = Study(
    name="acceptance",
    headline="thresholds-met",
    fragments={"thresholds.md": _thresholds},
    thresholds=(
        Threshold(
            key="proxy-throughput",
            name="proxy: throughput over direct, no network emulated",
            bound=0.6,
            is_least=True,
            how="8 requests in flight for an object of 32 MB, directly and through the proxy",
        ),
        Threshold(
            key="proxy-cpu",
            name="proxy: CPU-seconds for each GB",
            bound=0.6,
            is_least=False,
            how="processor time of the proxy over the bytes of the same reads",
        ),
        Threshold(
            key="share-of-ceiling",
            name="share of the ceiling, network emulated",
            bound=0.9,
            is_least=True,
            how=_SHARE,
        ),
        Threshold(
            key="free-share",
            name="share of the ceiling, no network emulated",
            bound=0.35,
            is_least=True,
            how=f"{_SHARE}: 4, and a task for each processor, in one process",
        ),
        Threshold(
            key="share-of-decoding",
            name="throughput over that of decoding alone, no network emulated",
            bound=0.85,
            is_least=True,
            how="the same tasks and threads, over the proxy against from memory, which has the processors for itself",
        ),
        Threshold(
            key="gain-in-place",
            name="decoding in place over decoding batches, no network emulated",
            bound=0,
            is_least=True,
            how="time of zarr-obstore-batched over that of zarr-obstore-in-place",
        ),
        Threshold(
            key="over-2020-small",
            name="best path over the 2020 configuration, chunks below 2 MB",
            bound=0,
            is_least=True,
            how="time of zarr-s3fs over that of zarr-obstore-in-place",
        ),
        Threshold(
            key="over-2020-medium",
            name="best path over the 2020 configuration, chunks of 2 to 8 MB",
            bound=1.7,
            is_least=True,
            how="time of zarr-s3fs over that of zarr-obstore-in-place",
        ),
        Threshold(
            key="over-2020-large",
            name="best path over the 2020 configuration, chunks of 8 MB and more",
            bound=0,
            is_least=True,
            how="time of zarr-s3fs over that of zarr-obstore-in-place",
        ),
        Threshold(
            key="over-netcdf",
            name="best Zarr path over netcdf-fsspec (claimed in 2020: 10)",
            bound=0,
            is_least=True,
            how=_NETCDF,
        ),
        Threshold(
            key="over-read-ahead",
            name="best Zarr path over netcdf-fsspec-5mib (claimed in 2020: 10)",
            bound=0,
            is_least=True,
            how=_NETCDF,
        ),
        Threshold(
            key="growth-time",
            name="time of four times the bytes",
            bound=4.4,
            is_least=False,
            how="zarr-obstore-in-place, network emulated, paired within blocks",
        ),
        Threshold(
            key="growth-memory",
            name="peak memory of four times the bytes",
            bound=1.1,
            is_least=False,
            how="sum of the peaks of all processes, the small read first; each shared page counts in each",
        ),
        Threshold(
            key="peak-memory",
            name="peak memory of all processes (GB)",
            bound=6,
            is_least=False,
            how="of the larger of these two reads",
        ),
        Threshold(
            key="ms-per-chunk",
            name="milliseconds for each more chunk, a task a chunk",
            bound=math.inf,
            is_least=False,
            how=_SLOPE,
        ),
        Threshold(
            key="ms-per-batched",
            name="milliseconds for each more chunk, batches",
            bound=math.inf,
            is_least=False,
            how=_SLOPE,
        ),
    ),
)
