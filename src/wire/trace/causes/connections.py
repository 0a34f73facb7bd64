"""Causes that lie in how a program reaches the store."""

from __future__ import annotations

from ipaddress import ip_address
from statistics import median
from typing import TYPE_CHECKING

from wire.trace import analysis
from wire.trace.causes.objects import drop
from wire.trace.causes.registry import (
    FEW,
    Cause,
    Evidence,
    Remedy,
    advise,
    run_in_shell,
    set_variable,
)
from wire.trace.rows import METADATA_SERVICES
from wire.trace.whatif import HANDSHAKE_ROUND_TRIPS, Edit

if TYPE_CHECKING:
    from wire.trace.whatif import Trace

_FAR_S = 0.02  # a round trip within a region takes a tenth of it
_REDIRECTS = (301, 302, 303, 307, 308)
_SET_UP_S = 0.02  # of a client that is made, at least
_READY_S = 0.005  # that a client which is there needs before a request
_MADE = (
    "client(",
    "Session(",
    "Client(",
    "FileSystem(",
    "Store(",
    "filesystem(",
    "connect(",
    "resource(",
)


def _find_credentials(trace: Trace) -> Evidence | None:
    """Find credentials sought from the metadata service of a machine."""
    services = [i for i, kind in enumerate(trace.kinds) if kind == "credentials"]
    seconds = sum(trace.rows[i].end_s - trace.rows[i].start_s for i in services)
    past = [bypass for bypass in trace.run.bypassed if bypass.address.startswith(METADATA_SERVICES)]
    if not services and not past:
        return None
    duration = f" in {seconds:.1f} s" if services else "; what they took counts as idle"
    text = f"{len(services) + len(past)} connections to a metadata service{duration}"
    return drop(trace, services, text) or Evidence((), text, saved_s=trace.time["idle"])


def _find_new(trace: Trace) -> list[int]:
    """Find requests on a connection of their own, where most are."""
    new = [i for i, row in enumerate(trace.rows) if row.is_first]
    if len(new) < max(FEW, 0.5 * len(trace.rows), 2 * analysis.most_in_flight(trace.rows)):
        return []
    return new


def _find_client(trace: Trace) -> Evidence | None:
    """Find a client that is made anew for each read, which takes the program longer than the store."""
    new = [i for i, row in enumerate(trace.rows) if row.is_first]
    if len(new) < max(FEW, 0.25 * len(trace.rows)) or trace.n_data_in_flight > 1:
        return None
    before_new, before_others = list[float](), list[float]()
    for i in range(1, len(trace.rows)):
        row, before = trace.rows[i], trace.rows[i - 1]
        think_s = trace.clock.read(row.start_s) - trace.clock.read(before.end_s) - row.handshake_s
        (before_new if row.is_first else before_others).append(max(0.0, think_s))
    if not before_new:
        return None
    each_s = median(before_new)
    if each_s < max(_SET_UP_S, 3 * median(before_others or [0.0])):
        return None
    line = trace.code_line
    is_known = line is not None and any(word in line.source for word in _MADE)
    text = (
        f"before {len(new)} of {len(trace.rows)} requests the program works {1000 * each_s:.0f} ms"
        " and then makes a connection anew, as one does that makes a client for each read"
    )
    edit = Edit(trace.keep(), is_connected=True, most_set_up_s=_READY_S)
    return Evidence(new, text, edit, is_bound=not is_known)


def _find_connections(trace: Trace) -> Evidence | None:
    """Find handshakes before every request or two."""
    new = _find_new(trace)
    if not new:
        return None
    each_s = median(trace.rows[i].handshake_s for i in new)
    text = f"{len(new)} connections for {len(trace.rows)} requests, each set up in {1000 * each_s:.0f} ms"
    return Evidence(new, text, Edit(trace.keep(), is_connected=True))


def is_loopback(host: str) -> bool:
    """Tell whether a host, with its port or without, is this machine.

    Examples
    --------
    >>> [is_loopback(host) for host in ("127.0.0.1:9000", "localhost", "[::1]:80", "s3.amazonaws.com")]
    [True, True, True, False]
    """
    name = host[1 : host.index("]")] if host.startswith("[") and "]" in host else host
    name = name if host.startswith("[") else name.partition(":")[0]
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def _find_far(trace: Trace) -> Evidence | None:
    """Find round trips that are most of the latency."""
    if all(is_loopback(host) for host in {row.host for row in trace.rows}):
        return None
    set_up_s = [row.handshake_s for row in trace.rows if row.is_first and row.handshake_s]
    round_trip_s = median(set_up_s) / HANDSHAKE_ROUND_TRIPS if set_up_s else 0.0
    latency_s = trace.observed.first_byte_median_s
    round_trip_s = min(round_trip_s, latency_s)
    if round_trip_s < max(_FAR_S, 0.4 * latency_s):
        return None
    text = (
        f"a round trip takes {1000 * round_trip_s:.0f} of the {1000 * latency_s:.0f} ms of latency:"
        " the store is far away"
    )
    edit = Edit(trace.keep(), less_s=round_trip_s, is_connected=True)
    return Evidence(range(len(trace.rows)), text, edit)


def _find_redirects(trace: Trace) -> Evidence | None:
    """Find answers that send the client elsewhere."""
    moved = trace.places(lambda row: row.status in _REDIRECTS)
    text = f"{len(moved)} of {len(trace.rows)} requests were sent on to another address"
    return drop(trace, moved, text)


_CLIENT_ONCE = {
    "requests": Remedy(
        "session = requests.Session()  # once, before the loop; then session.get(url)"
    ),
    "httpx": Remedy("client = httpx.Client()  # once, before the loop; then client.get(url)"),
    "aiohttp": Remedy("session = aiohttp.ClientSession()  # once; then session.get(url)"),
    "boto3": Remedy("client = boto3.client('s3')  # once, before the loop"),
    "s3fs": Remedy("fs = s3fs.S3FileSystem()  # once, before the loop"),
    "obstore": Remedy("store = obstore.store.from_url(folder_url)  # once, before the loop"),
    "curl": run_in_shell("curl --remote-name-all URL URL"),
    "go": advise("one http.Client, and read each body to its end before Close"),
    "duckdb": Remedy("connection = duckdb.connect()  # once, before the loop"),
    "arrow": Remedy("filesystem = pyarrow.fs.S3FileSystem()  # once, before the loop"),
}

CAUSES = [
    Cause(
        "credentials",
        "credentials sought from a metadata service",
        "looking for credentials that are not there",
        _find_credentials,
        "hub.html",
        advise("set credentials for the program, or ask without signing where the data are open"),
        {
            "zarr": Remedy(
                "group = zarr.open_group(url, mode='r', storage_options={'anon': True})  # open data"
            ),
            "xarray": Remedy("ds = xr.open_zarr(url, storage_options={'anon': True})  # open data"),
            "s3fs": Remedy(
                "fs = s3fs.S3FileSystem(anon=True)  # open data", setting="no_metadata_service=true"
            ),
            "boto3": Remedy(
                "from botocore import UNSIGNED\nfrom botocore.config import Config\n"
                "client = boto3.client('s3', config=Config(signature_version=UNSIGNED))  # open data",
                setting="no_metadata_service=true",
            ),
            "arrow": Remedy(
                "filesystem = pyarrow.fs.S3FileSystem(anonymous=True)  # open data",
                setting="no_metadata_service=true",
            ),
            "obstore": Remedy(
                "store = obstore.store.S3Store(bucket, skip_signature=True)  # open data"
            ),
            "gdal": set_variable("AWS_NO_SIGN_REQUEST=YES"),
        },
        scope="run",
        least=0,
    ),
    Cause(
        "client",
        "a client made anew for each read",
        "making a client anew for each read",
        _find_client,
        "symptoms.html",
        advise("make one client before the loop, and use it for all requests"),
        _CLIENT_ONCE,
        absorbs=("connections", "processor"),
    ),
    Cause(
        "connections",
        "connections made anew",
        "setting up a connection before each request",
        _find_connections,
        "replays-and-fakes.html#what-a-new-connection-adds",
        advise("make one client and use it for all requests"),
        _CLIENT_ONCE,
    ),
    Cause(
        "redirects",
        "redirects before each answer",
        "being sent on to another address before each answer",
        _find_redirects,
        "symptoms.html",
        advise(
            "use the address that the redirect leads to: the endpoint of the bucket's own region"
        ),
        {
            "boto3": Remedy(
                "client = boto3.client('s3', region_name=region)  # that of the bucket"
            ),
            "s3fs": Remedy(
                "fs = s3fs.S3FileSystem(client_kwargs={'region_name': region})  # that of the bucket"
            ),
            "obstore": Remedy(
                "store = obstore.store.S3Store(bucket, region=region)  # that of the bucket"
            ),
            "requests": Remedy(
                "final_url = session.head(url, allow_redirects=True).url  # once, then session.get(final_url)"
            ),
            "httpx": Remedy(
                "final_url = str(client.head(url, follow_redirects=True).url)  # once, then client.get(final_url)"
            ),
            "arrow": Remedy(
                "filesystem = pyarrow.fs.S3FileSystem(region=region)  # that of the bucket"
            ),
        },
    ),
    Cause(
        "far",
        "the store is far away",
        "waiting for a store that is far away",
        _find_far,
        "what-transfers.html",
        advise("run where the data are; the gain is that of the round trip alone"),
        scope="run",
        is_bound=True,
    ),
]
