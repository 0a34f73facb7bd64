"""What a calibration reads: an object that is found, or written for it, and the client that reads it once."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import obstore
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError
from botocore.parsers import ResponseParserError
from obstore.exceptions import BaseError
from obstore.store import GCSStore, LocalStore, S3Store

from helpers.errors import UserError, cut
from helpers.netem.profiles import get_profile
from helpers.objectstore.locations import Location, parse_location
from helpers.objectstore.processes import deadline
from helpers.objectstore.testbed import open_testbed

if TYPE_CHECKING:
    from obstore.store import RetryConfig

# of obstore, botocore and the client of HTTP below it; a time-out is an OSError
FAILURES = (
    BaseError,
    BotoCoreError,
    ClientError,
    ResponseParserError,
    HTTPException,
    OSError,
    ValueError,
)
PATIENCE_S = 20.0  # for one request
LEAST_OBJECT_NBYTES = 1_000_000
_WRITING_S = 120.0
_WRITTEN_NBYTES = 32_000_000
_N_LISTED = 100  # objects among which the largest is chosen: surely in the first page of a listing
_ONCE: RetryConfig = {"max_retries": 0}  # a hidden second try would break the caps

Spend = Callable[[int], None]
"""Counts requests that are about to be made, or refuses them."""


@dataclass(frozen=True, slots=True)
class Target:
    """The object that is read, and the client that reads it."""

    client: S3Store | GCSStore | LocalStore
    key: str
    nbytes: int


def check_address(address: str, *, prefix: str, emulated: str) -> None:
    """Refuse an address that is none, before a line shows it: it may hold a password."""
    scheme = urlsplit(address).scheme
    if emulated != "loopback" and address != "embedded":
        raise UserError(f"emulate: {emulated!r}; allowed: with embedded alone")
    if scheme == "file":
        raise UserError(f"store: {address!r}; allowed: a store that answers requests")
    if prefix and scheme != "s3":
        raise UserError(f"write: {prefix!r}; allowed: with s3://BUCKET/PREFIX alone")
    if address != "embedded":
        parse_location(address)


@contextmanager
def open_target(address: str, spend: Spend, *, prefix: str, emulated: str) -> Iterator[Target]:
    """Reach a store: one of S3 or Google, or the embedded one over a network."""
    if address == "embedded":
        with open_testbed("embedded", get_profile(emulated)) as testbed:
            yield find_object(testbed.make_probe(), spend)
    elif prefix:
        with write_object(parse_location(address) / prefix.strip("/"), spend) as target:
            yield target
    else:
        yield find_object(parse_location(address), spend)


def find_object(location: Location, spend: Spend) -> Target:
    """Choose the object at an address, or the largest of the first hundred below it."""
    client, best = replace(location, prefix="").obstore(_ONCE), 0
    with _telling(location.url):
        if location.prefix:
            spend(1)
            with contextlib.suppress(FileNotFoundError):
                best = obstore.head(client, location.prefix)["size"]
        if best >= LEAST_OBJECT_NBYTES:
            return Target(client, location.prefix, best)
        spend(1)
        sizes = _list_once(location)
    key = max(sizes, key=lambda path: sizes[path], default="")
    if (nbytes := max(best, sizes.get(key, 0))) < LEAST_OBJECT_NBYTES:
        found = f"its largest object has {nbytes} bytes" if nbytes else "no object is there"
        raise UserError(
            f"store: {location.url}: {found}; allowed: an object of at least"
            f" {LEAST_OBJECT_NBYTES / 1e6:g} MB, or --write PREFIX"
        )
    return Target(client, key, sizes[key])


def _list_once(location: Location) -> dict[str, int]:
    """List the first objects below a place, in one request: of some listings nobody sees the end."""
    if location.scheme == "gs":
        client = replace(location, prefix="").obstore(_ONCE)
        pages = obstore.list(client, prefix=location.prefix or None, chunk_size=_N_LISTED)
        return {item["path"]: item["size"] for item in next(iter(pages), [])}
    client = location.botocore(read_timeout=PATIENCE_S, retries={"total_max_attempts": 1})
    client.meta.events.register("before-call.s3", _stay)
    prefix = f"{location.prefix}/" if location.prefix else ""
    page = client.list_objects_v2(Bucket=location.bucket, Prefix=prefix, MaxKeys=_N_LISTED)
    return {item["Key"]: item["Size"] for item in page.get("Contents", [])}


def _stay(params: dict[str, Any], **_: Any) -> None:
    """Let botocore take an answer that leads elsewhere for the error that it is here."""
    params["context"].setdefault("s3_redirect", {})["redirected"] = True


@contextmanager
def write_object(folder: Location, spend: Spend) -> Iterator[Target]:
    """Write an object of 32 MB into a folder, and remove it in the end."""
    spend(2)  # the removal too, which is a POST: no cap may prevent it
    place = folder / f"wire-calibrate-{secrets.token_hex(4)}"
    client = replace(folder, prefix="").obstore(_ONCE)
    with _telling(place.url, _WRITING_S):
        obstore.put(client, place.prefix, os.urandom(_WRITTEN_NBYTES), use_multipart=False)
    try:
        yield Target(client, place.prefix, _WRITTEN_NBYTES)
    finally:
        with _telling(place.url):
            obstore.delete(client, place.prefix)


@contextmanager
def _telling(url: str, patience_s: float = 0) -> Iterator[None]:
    """Say in one line what a store refuses, and wait for it no longer than this."""
    try:
        with deadline(patience_s or PATIENCE_S):
            yield
    except UserError:
        raise
    except FAILURES as error:
        raise UserError(
            f"store: {url}: {tell_failure(error)}; allowed: a store that answers,"
            " and credentials that it takes"
        ) from error


def tell_failure(error: Exception) -> str:
    """Say in a few words how a request failed.

    Examples
    --------
    >>> tell_failure(OSError("GET in 1 ms - Server returned non-2xx status code: 503 Slow Down: "))
    'it answers 503 Slow Down'
    """
    text = " ".join(str(error).split())
    if isinstance(error, FileNotFoundError) or "NoSuchBucket" in text:
        return "it has no such bucket or object"
    if isinstance(error, (TimeoutError, ReadTimeoutError)):
        return f"it does not answer within {PATIENCE_S:g} s"
    if isinstance(error, ClientError):
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        return f"it answers {status} {error.response['Error']['Code']}"
    if status := re.search(r"status code: (\d{3})[: ]*([\w ]*)", text):
        return f"it answers {status[1]} {status[2]}".rstrip()
    if re.search(
        r"error sending request|\(Connect\)|[Cc]ould not connect|[Cc]onnection was closed",
        text,
    ):
        return "it does not answer"
    return cut(text)
