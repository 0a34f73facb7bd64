"""Calibration: what is measured follows what is emulated, and its rows are a table."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from helpers.errors import UserError
from helpers.netem.calibration import calibrate, tabulate_calibration
from helpers.netem.profiles import FirstByte, Profile, get_profile
from helpers.netem.proxy import Proxy, open_proxy
from helpers.objectstore.testbed import Server
from tests.stores import make_location

pytestmark = pytest.mark.quiet

BUCKET = "of-test-calibration"
PROFILE = Profile(
    "p",
    FirstByte(0.03, 0.04),
    10.0,
    30.0,
    round_trip_s=0.02,
    setup_round_trips=2,
    initial_window_nbytes=14_600,
)


def presign(server: Server, endpoint_url: str, key: str) -> str:
    """Presign a GET."""
    client = make_location(server, BUCKET).through(endpoint_url).botocore()
    asked = {"Bucket": BUCKET, "Key": key}
    return str(client.generate_presigned_url("get_object", Params=asked))


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[Proxy]:
    """Stand before the real server, which holds an object of 16 MB."""
    client = make_location(server, BUCKET).botocore()
    client.put_object(Bucket=BUCKET, Key="object", Body=os.urandom(16_000_000))
    with open_proxy(server.endpoint_url, profile=PROFILE) as running:
        yield running


def test_calibrate(server: Server, proxy: Proxy) -> None:
    """Each figure is measured at each number of connections, new ones, and lies near its target."""
    url = presign(server, proxy.endpoint_url, "object")
    rows = calibrate(url, PROFILE, connections=(2, 16))
    assert [(row.quantity, row.n_connections, row.target) for row in rows] == [
        ("first_byte_s", 2, 0.03),
        ("first_byte_s", 16, 0.03),
        ("stream_mb_per_s", 2, 10.0),
        ("aggregate_mb_per_s", 2, 20.0),
        # the link of 30 MB/s is the bottleneck
        ("stream_mb_per_s", 16, 1.875),
        ("aggregate_mb_per_s", 16, 30.0),
    ]
    # loose, because test_proxy holds the tight bounds: here the arithmetic counts
    assert [row for row in rows if abs(row.error) > 0.15] == []


def test_calibrate_in_virtual_time(server: Server) -> None:
    """A network ten times slower is given in its own seconds, next to the same targets."""
    profile = Profile("p", FirstByte(0.003, 0.004), 100.0)
    with open_proxy(server.endpoint_url, profile=profile, dilation=10) as slow:
        url = presign(server, slow.endpoint_url, "object")
        rows = calibrate(url, profile, connections=(2,), dilation=10)
    assert [(row.quantity, round(row.target, 9)) for row in rows] == [
        ("first_byte_s", 0.003),
        ("stream_mb_per_s", 100.0),
        ("aggregate_mb_per_s", 200.0),
    ]
    # a factor of ten would be forgotten or applied twice: loose, because a busy machine is late
    assert [row for row in rows if abs(row.error) > 0.5] == []


def test_calibrate_sees_what_is_not_emulated(server: Server, proxy: Proxy) -> None:
    """A network that is off its target shows it."""
    proxy.emulate(Profile("other", FirstByte(0.06, 0.06), 5.0))
    url = presign(server, proxy.endpoint_url, "object")
    target = Profile("target", FirstByte(0.03, 0.03), 10.0)
    errors = {row.quantity: row.error for row in calibrate(url, target, connections=[1])}
    assert errors["first_byte_s"] == pytest.approx(1.0, abs=0.2)
    assert errors["stream_mb_per_s"] == pytest.approx(-0.5, abs=0.05)


def test_calibrate_refuses_url(server: Server, proxy: Proxy) -> None:
    """An object that cannot be read is refused, without its signature."""
    proxy.emulate(PROFILE)
    url = presign(server, proxy.endpoint_url, "missing")
    with pytest.raises(UserError, match="url is .*missing' and answers 404") as caught:
        calibrate(url, PROFILE, connections=[1])
    assert "Signature" not in str(caught.value)


def test_nothing_is_asked_where_nothing_is_emulated() -> None:
    """A store of one's own may be one that nobody may write to, so that no object is made."""

    def make_object() -> str:
        raise AssertionError("an object was made")

    assert tabulate_calibration(make_object, get_profile("loopback")).empty
