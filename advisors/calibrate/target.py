"""What a calibration reads: an object that is found, or written for it, and the client that reads it once."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import obstore
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError
from obstore.exceptions import BaseError
from obstore.store import GCSStore, HTTPStore, LocalStore, S3Store

from advisors.calibrate.plan import Spent
from helpers.errors import UserError, cut
from helpers.netem.profiles import get_profile
from helpers.objectstore.locations import Location, make_client_options, parse_location
from helpers.objectstore.testbed import open_testbed

if TYPE_CHECKING:
    from obstore.store import RetryConfig

# of obstore and botocore; a time-out is an OSError
FAILURES = (BaseError, BotoCoreError, ClientError, OSError, ValueError)
PATIENCE_S = 20.0  # for one request
LEAST_OBJECT_NBYTES = 1_000_000
_WRITTEN_NBYTES = 32_000_000
_N_LISTED = 100  # objects among which the largest is chosen: surely in the first page of a listing
_ONCE: RetryConfig = {"max_retries": 0}  # a hidden second try would break the caps

Spend = Callable[[Spent], None]
"""Counts what is about to be asked for, or refuses it."""


@dataclass(frozen=True, slots=True)
class Target:
    """The object that is read, and the client that reads it."""

    client: S3Store | GCSStore | HTTPStore | LocalStore
    key: str
    nbytes: int


@contextmanager
def open_target(address: str, spend: Spend, *, prefix: str, emulated: str) -> Iterator[Target]:
    """Reach a store: one of S3 or Google, an object behind HTTP, or the embedded one over a network."""
    scheme = urlsplit(address).scheme
    if emulated != "loopback" and address != "embedded":
        raise UserError(f"emulate: {emulated!r}; allowed: with embedded alone")
    if scheme == "file":
        raise UserError(f"store: {address!r}; allowed: a store that answers requests")
    if prefix and scheme != "s3":
        raise UserError(f"write: {prefix!r}; allowed: with s3://BUCKET/PREFIX alone")
    if address == "embedded":
        with open_testbed("embedded", get_profile(emulated)) as testbed:
            yield find_object(testbed.make_probe(), spend)
    elif prefix:
        with write_object(parse_location(address) / prefix.strip("/"), spend) as target:
            yield target
    elif scheme in ("http", "https"):
        yield find_page(address, spend)
    else:
        yield find_object(parse_location(address), spend)


def find_object(location: Location, spend: Spend) -> Target:
    """Choose the object at an address, or the largest of the first hundred below it."""
    client, best = replace(location, prefix="").obstore(_ONCE), 0
    with _telling(location.url):
        if location.prefix:
            spend(Spent(n_gets=1))
            with contextlib.suppress(FileNotFoundError):
                best = obstore.head(client, location.prefix)["size"]
        if best >= LEAST_OBJECT_NBYTES:
            return Target(client, location.prefix, best)
        spend(Spent(n_lists=1))
        sizes = _list_once(location)
    key = max(sizes, key=lambda path: sizes[path], default="")
    _refuse_small(location.url, max(best, sizes.get(key, 0)))
    return Target(client, key, sizes[key])


def _list_once(location: Location) -> dict[str, int]:
    """List the first objects below a place, in one request: of some listings nobody sees the end."""
    if location.scheme == "gs":
        client = replace(location, prefix="").obstore(_ONCE)
        pages = obstore.list(client, prefix=location.prefix or None, chunk_size=_N_LISTED)
        return {item["path"]: item["size"] for item in next(iter(pages), [])}
    patience = {"read_timeout": PATIENCE_S, "retries": {"total_max_attempts": 1}}
    prefix = f"{location.prefix}/" if location.prefix else ""
    page = location.botocore(**patience).list_objects_v2(
        Bucket=location.bucket, Prefix=prefix, MaxKeys=_N_LISTED
    )
    return {item["Key"]: item["Size"] for item in page.get("Contents", [])}


def _refuse_small(url: str, nbytes: int) -> None:
    if nbytes < LEAST_OBJECT_NBYTES:
        found = f"its largest object has {nbytes} bytes" if nbytes else "no object is there"
        raise UserError(
            f"store: {url}: {found}; allowed: an object of at least"
            f" {LEAST_OBJECT_NBYTES / 1e6:g} MB, or --write PREFIX"
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow no redirection: each would be a request more for each that is counted."""

    def redirect_request(self, *_given: Any) -> None:
        """Let the answer be the error that it is."""


def find_page(url: str, spend: Spend) -> Target:
    """Look at an object that plain HTTP serves."""
    parts = urlsplit(url)
    if parts.query or "@" in parts.netloc or not parts.path.strip("/"):
        raise UserError(f"store: {url}; allowed: an object's address, without user and query")
    spend(Spent(n_gets=1))
    opener = urllib.request.build_opener(_NoRedirect)
    head = urllib.request.Request(url, method="HEAD")  # noqa: S310  # open_target knows the scheme
    with _telling(url), opener.open(head, timeout=PATIENCE_S) as answer:
        nbytes = int(answer.headers.get("Content-Length") or 0)
    _refuse_small(url, nbytes)
    base = f"{parts.scheme}://{parts.netloc}"
    client = HTTPStore(base, client_options=make_client_options(base), retry_config=_ONCE)
    return Target(client, unquote(parts.path).lstrip("/"), nbytes)


@contextmanager
def write_object(folder: Location, spend: Spend) -> Iterator[Target]:
    """Write an object of 32 MB into a folder, and remove it in the end."""
    spend(Spent(n_lists=2))  # the removal too, which is a POST: no cap may prevent it
    place = folder / f"wire-calibrate-{secrets.token_hex(4)}"
    client = replace(folder, prefix="").obstore(_ONCE)
    with _telling(place.url):
        obstore.put(client, place.prefix, os.urandom(_WRITTEN_NBYTES), use_multipart=False)
    try:
        yield Target(client, place.prefix, _WRITTEN_NBYTES)
    finally:
        with _telling(place.url):
            obstore.delete(client, place.prefix)


@contextmanager
def _telling(url: str) -> Iterator[None]:
    """Say in one line what a store refuses."""
    try:
        yield
    except UserError:
        raise
    except FAILURES as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
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
    if status := re.search(r"(?:status code: |HTTP Error )(\d{3})[: ]*([\w ]*)", text):
        return f"it answers {status[1]} {status[2]}".rstrip()
    if re.search(
        r"error sending request|urlopen error|\(Connect\)|[Cc]ould not connect|[Cc]onnection was closed",
        text,
    ):
        return "it does not answer"
    return cut(text)
