"""Causes of the run as a whole: a result that is wrong, and what no other way of reading mends."""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus
from statistics import median
from typing import TYPE_CHECKING

from wire.errors import format_size
from wire.trace import analysis
from wire.trace.causes.registry import FEW, Cause, Evidence, Remedy, advise, run_in_shell
from wire.trace.whatif import RETRIED

if TYPE_CHECKING:
    from wire.trace.whatif import Trace

_LEAST_BUSY_S = 0.5  # of CPUs, which any client needs for a while
_BUSY = 0.5  # share of the time from which on CPUs, or the link, are the cause
_LARGE_CHUNK_NBYTES = 16 * 10**6
_NO_REFUSALS = (304, 404, 412, 416)  # what a client asks to learn something


def describe_status(status: int) -> str:
    """Name a status as the standard does.

    Examples
    --------
    >>> describe_status(400), describe_status(0)
    ('400 Bad Request', 'no answer')
    """
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"status {status}" if status else "no answer"


def _find_failed(trace: Trace) -> Evidence | None:
    """Find chunks that were refused and never came, in a program that went on as if they were empty."""
    if trace.run.exit_code:
        return None
    arrived = {
        (row.host, row.key) for row in trace.rows if 200 <= row.status < 300 and row.method == "GET"
    }
    failed = trace.places(
        lambda row: (
            row.method == "GET"
            and ((row.status >= 400 and row.status != 404) or not row.status)
            and analysis.is_chunk(row)
            and (row.host, row.key) not in arrived
        )
    )
    if not failed:
        return None
    n_chunks = len({trace.rows[i].key for i in failed})
    status = describe_status(trace.rows[failed[0]].status)
    text = (
        f"{n_chunks} chunks never came (the first: {status}), and the program ended well:"
        " their values may be fill values"
    )
    return Evidence(failed, text)


def _find_refused(trace: Trace) -> Evidence | None:
    """Find answers that were none, of which nobody said anything."""
    refused = trace.places(
        lambda row: (
            (row.status >= 400 and row.status not in (*_NO_REFUSALS, *RETRIED)) or not row.status
        )
    )
    if len(refused) < max(2, min(FEW, 0.5 * len(trace.rows))):
        return None
    status, number = Counter(trace.rows[i].status for i in refused).most_common(1)[0]
    text = f"{number} of {len(trace.rows)} requests were answered {describe_status(status)}"
    return Evidence(refused, text)


def _find_processor(trace: Trace) -> Evidence | None:
    """Find CPUs that work while nobody waits for the network."""
    time = trace.time
    asking_s, pauses_s = trace.asking_s, trace.pauses_s
    busy_s = time["processor"] + time["client"]
    # idle seconds may be those in which others had the CPUs
    not_idle_s = asking_s - max(0.0, time["idle"] - pauses_s)
    if busy_s < max(_LEAST_BUSY_S, _BUSY * not_idle_s, _BUSY / 2 * asking_s):
        return None
    text = (
        f"{busy_s:.1f} of {asking_s:.1f} s from the first request on the program computes,"
        " and the network waits for it"
    )
    return Evidence((), text, saved_s=busy_s)


def _find_link(trace: Trace) -> Evidence | None:
    """Find bodies that flow all the time over a link that carries no more."""
    time = trace.time
    asking_s = trace.asking_s
    if time["bodies"] < _BUSY * asking_s or trace.n_data_in_flight < 2:
        return None
    rate = sum(row.nbytes for row in trace.rows) / time["bodies"] / 1e6
    chunks = [trace.rows[i].nbytes for i in trace.data if trace.kinds[i] == "chunk"]
    large = ""
    if chunks and median(chunks) >= _LARGE_CHUNK_NBYTES:
        large = f"; each chunk has {format_size(median(chunks))}, needed or not"
    text = (
        f"bytes arrive in {time['bodies']:.1f} of {asking_s:.1f} s, {rate:.0f} MB/s in all:"
        f" no request is in the way of another{large}"
    )
    return Evidence((), text, saved_s=time["bodies"])


CAUSES = [
    Cause(
        "failed",
        "failed requests that become fill values",
        "reading chunks of which some never came: values may be wrong",
        _find_failed,
        "symptoms-programs.html#the-values-are-wrong-and-nothing-complained",
        advise("check the status of each answer, and stop where a chunk fails"),
        {
            "zarr": Remedy(
                "group = zarr.open_group(url, mode='r', storage_options=storage_options)"
            ),
            "xarray": Remedy("ds = xr.open_zarr(url, storage_options=storage_options)"),
            "requests": Remedy("response = session.get(url)\nresponse.raise_for_status()"),
            "httpx": Remedy("response = client.get(url)\nresponse.raise_for_status()"),
            "curl": run_in_shell("curl --fail URL"),
        },
        scope="run",
        rank=0,
        least=1,
        absorbs=("refused",),
    ),
    Cause(
        "refused",
        "requests that the store refuses",
        "asking for what the store refuses",
        _find_refused,
        "symptoms-programs.html#the-values-are-wrong-and-nothing-complained",
        advise("check bucket, region and credentials, and stop at the first refusal"),
        {
            "requests": Remedy("response = session.get(url)\nresponse.raise_for_status()"),
            "httpx": Remedy("response = client.get(url)\nresponse.raise_for_status()"),
            "curl": run_in_shell("curl --fail URL"),
        },
        scope="run",
        rank=0,
        least=2,
    ),
    Cause(
        "processor",
        "the program computes while the network waits",
        "computing while the network waits",
        _find_processor,
        "what-transfers.html",
        advise("processes instead of threads, a faster codec, or reading while computing"),
        scope="run",
        least=0,
    ),
    Cause(
        "link",
        "the network bandwidth is used up",
        "receiving as many bytes as the network can carry",
        _find_link,
        "what-transfers.html",
        advise(
            "read less: a smaller selection, smaller chunks where you need points of large ones,"
            " stronger compression; or run on more machines, or nearer"
        ),
        scope="run",
        rank=2,
        least=0,
    ),
]
