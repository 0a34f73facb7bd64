"""Counts of the requests of an access: kinds of three interfaces, bytes moved and unique."""

from __future__ import annotations

import pytest

from wire.bed.messages import parse_request, range_of
from wire.bed.requests import RequestRow
from wire.ledger.counting import count_requests, name_kind


@pytest.mark.parametrize(
    ("method", "key", "kind"),
    [
        ("GET", "/bucket/folder/object", "GET"),
        ("GET", "/bucket", "LIST"),  # a GET of a bucket lists
        ("HEAD", "/bucket/object", "HEAD"),
        ("GET", "/storage/v1/b/bucket/o/folder/object", "HEAD"),  # Google describes an object
        ("GET", "/download/storage/v1/b/bucket/o/object", "GET"),
        ("GET", "/storage/v1/b/bucket/o", "LIST"),
        ("POST", "/upload/storage/v1/b/bucket/o", "PUT"),
        ("GET", "/devstoreaccount1/container/object", "GET"),
        ("GET", "/devstoreaccount1/container", "LIST"),  # the account comes first
        ("DELETE", "/bucket/object", "DELETE"),
    ],
)
def test_a_request_has_one_kind_whatever_its_interface(method: str, key: str, kind: str) -> None:
    """A look-up is a HEAD in all but name, and a GET of a container is a listing."""
    assert name_kind(RequestRow(0, method=method, key=key)) == kind


def test_bytes_are_moved_and_unique() -> None:
    """Two ranges that overlap by half, one range again, and an answer that failed."""
    ranges = {"method": "GET", "key": "/b/o", "range_nbytes": 100, "status": 206}
    rows = [
        RequestRow(0, 0, 1, range_start=0, nbytes=100, **ranges),
        RequestRow(1, 1, 2, range_start=50, nbytes=100, **ranges),
        RequestRow(2, 2, 3, range_start=0, nbytes=100, **ranges),
        RequestRow(3, 3, 4, method="GET", key="/b/p", nbytes=30, status=404),
        RequestRow(3, 3, 4, method="HEAD", key="/b/o", status=200),
    ]
    counts = count_requests(rows)
    assert (counts["wire_nbytes"], counts["unique_nbytes"]) == (330, 150)
    assert (counts["n_get"], counts["n_head"], counts["n_failed"]) == (4, 1, 1)
    assert counts["n_waits"] == 4 and counts["n_in_flight"] == 2


def test_azure_names_its_range_in_a_header_of_its_own() -> None:
    """Without that its bytes would all begin at the first one."""
    head = parse_request(b"GET /a/c/o HTTP/1.1\r\nx-ms-range: bytes=100-199\r\n\r\n")
    assert range_of(head, None) == (100, 100)
