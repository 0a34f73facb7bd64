"""Tests of the store that a script or a test opens in one line."""

from __future__ import annotations

import statistics

import fsspec
import pytest

import wire.bed
from tests.refusals import refused
from wire.bed.store import EmulatedStore


def test_a_script_sees_its_requests_and_their_delays() -> None:
    """A client works unchanged, each request is a row, and a first byte takes what the network says."""
    with wire.bed.open_store("other-region") as store:
        store.botocore(over_network=False).put_object(Bucket=store.bucket, Key="x", Body=b"hello")
        assert store.requests() == []
        client = store.botocore()
        bodies = [client.get_object(Bucket=store.bucket, Key="x")["Body"].read() for _ in range(5)]
        rows = store.requests()
        assert bodies == [b"hello"] * 5
        assert [(row.method, row.key, row.nbytes) for row in rows] == [("GET", "/arrays/x", 5)] * 5
        assert statistics.median(row.first_byte_s - row.start_s for row in rows) > 0.06
        assert store.requests() == []


@pytest.mark.parametrize("emulated_store", ["loopback"], indirect=True)
def test_a_fixture_opens_a_bucket(emulated_store: EmulatedStore) -> None:
    """Options of fsspec lead to the bucket, and the environment leads a client in another process there."""
    options = emulated_store.storage_options
    with fsspec.open(f"s3://{emulated_store.bucket}/a/b", "wb", **options) as file:
        file.write(b"12345")
    assert fsspec.open(f"s3://{emulated_store.bucket}/a/b", **options).open().read() == b"12345"
    assert {row.key for row in emulated_store.requests()} >= {"/arrays/a/b"}
    assert emulated_store.environment["AWS_ENDPOINT_URL"] == emulated_store.endpoint_url


def test_an_unknown_network_is_refused_before_anything_runs() -> None:
    """The refusal names what is allowed."""
    with refused("profile", "^'mars'$", "same-region"), wire.bed.open_store("mars"):
        pass
