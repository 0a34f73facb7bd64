"""``wire calibrate`` behind networks that it does not know, stores that fail, and caps that hold."""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import obstore
import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.stores import Handler, client_environment, make_location, serve
from wire.bed.networks import Faults, FirstByte, Profile, get_profile, make_profile
from wire.bed.proxy import Proxy, open_proxy
from wire.bed.requests import RequestRow
from wire.bed.testbed import Server
from wire.calibrate.cli import calibrate, find_provider
from wire.calibrate.figures import (
    N_FIND,
    N_PIECES,
    N_STREAMS,
    SMALL_NBYTES,
    Observations,
    accepted_per_s,
    lane_nbytes,
    list_more,
    make_figures,
    rate_together,
    share_caps,
)
from wire.errors import UserError


@given(st.integers(60, 10**5), st.integers(30_000_000, 10**12))
def test_the_plan_keeps_the_caps(n: int, nbytes: int) -> None:
    """Whatever the caps, all parts together are within them, or the caps are refused."""
    assume(nbytes >= 20_000_000 + 4096 * n)  # else they are refused
    plan = share_caps(n, nbytes)
    each, n_small = plan.together_nbytes, plan.n_delays + plan.n_rate
    assert N_FIND + n_small + N_STREAMS + N_PIECES * sum(each) == n
    of_bodies = N_STREAMS * plan.stream_nbytes + sum(size * part for size, part in each.items())
    assert 0.99 * nbytes < SMALL_NBYTES * n_small + of_bodies <= nbytes
    assert plan.n_delays > 20 and plan.n_rate > 0 and min(plan.together_nbytes.values()) > 0


@given(st.integers(1, 40), st.floats(1, 1000), st.floats(0, 0.1))
def test_connections_that_share_a_link(n: int, rate: float, spread_s: float) -> None:
    """Lanes at a steady rate give it back, however late each of them starts."""
    rng = random.Random(n)
    starts = [rng.uniform(0, spread_s) for _ in range(n)]
    lanes = [[(start + i / 10, round(1e6 * rate * i / 10)) for i in range(11)] for start in starts]
    assert rate_together(lanes) == pytest.approx(1e6 * n * rate, rel=1e-3)


@pytest.mark.parametrize(
    ("starts", "tenths", "rate"),
    [
        # they never all read at once: the busiest while counts, and no wait is taken for slowness
        ([0.0, 0.1, 0.2, 3.0], 21, 300),
        ([0.0, 5.0], 11, 100),
    ],
)
def test_connections_that_begin_far_apart(starts: list[float], tenths: int, rate: float) -> None:
    """Each brings 100 bytes a second once it has begun."""
    lanes = [[(start + i / 10, 10 * i) for i in range(tenths)] for start in starts]
    assert rate_together(lanes) == pytest.approx(rate, rel=0.2)


@pytest.mark.parametrize(("limit", "offered"), [(50.0, 1.3), (300.0, 2.0), (300.0, 5.0)])
def test_a_limit_is_found(limit: float, offered: float) -> None:
    """A bucket of tokens that lets a burst through does not hide its rate."""
    tokens, asked = 0.1 * limit, list[tuple[float, bool]]()
    for i in range(int(3 * limit)):
        tokens = min(0.1 * limit, tokens + 1 / offered)
        is_refused = tokens < 1
        tokens -= not is_refused
        asked.append((i / (offered * limit), is_refused))
    assert accepted_per_s(asked) == pytest.approx(limit, rel=0.05)


def make_seen() -> Observations:
    """Return what a store of 30 ms, 10 MB/s a stream and 30 MB/s in all shows."""
    return Observations(
        delays_s=[0.03] * 90 + [0.1] * 10,
        streams_mb_per_s=[9.9, 10.0, 10.1],
        together_mb_per_s={2: 20.0, 4: 30.0, 8: 30.2},
        answered_per_s=500.0,
        decode_mb_per_s=800.0,
    )


def test_figures_are_a_profile() -> None:
    """What was seen is a profile as it is, with a source for each figure."""
    figures = make_figures(make_seen(), "s3://mine, 2026-01-01")
    profile = make_profile("mine", figures)
    assert profile.first_byte_s is not None and profile.first_byte_s.median_s == 0.03
    assert (profile.stream_mb_per_s, profile.aggregate_mb_per_s) == (10.0, 30.2)
    assert profile.requests_per_s is None, "no request was refused, so no limit is known"
    assert "none was refused at 500 a second" in profile.sources["requests_per_s"]
    assert all(text.endswith("; s3://mine, 2026-01-01") for text in profile.sources.values())
    assert "8 connections, where growth ended" in profile.sources["aggregate_mb_per_s"]


def test_what_is_not_known_is_not_told() -> None:
    """Growth that did not end, a tail that few delays do not bound, and a calibration that saw nothing."""
    seen = make_seen()
    assert "p99_s" not in make_figures(seen, "x")["first_byte_s"]
    assert list_more(seen)["mb_per_s_by_connections"] == {1: 10.0, 2: 20.0, 4: 30.0, 8: 30.2}
    del seen.together_mb_per_s[8]
    figures = make_figures(seen, "x")
    assert figures["aggregate_mb_per_s"] == 30.0 and not seen.has_growth_ended
    assert "where it still grew" in figures["sources"]["aggregate_mb_per_s"]
    assert make_figures(Observations(), "x") == {"sources": {}}


def test_connections_read_no_more_than_they_can_need() -> None:
    """Each is given the bytes of its share: a stream alone, a part of the link when it is full."""
    seen, plan = make_seen(), share_caps(500, 2 * 10**9)
    del seen.together_mb_per_s[8]
    # 60 MB/s at most, from 30 of 4
    assert lane_nbytes(seen, plan, 8, window_s=1.0) == 7_500_000
    assert lane_nbytes(seen, plan, 8, window_s=1e9) == plan.together_nbytes[8]


BUCKET = "of-test-calibrate"
URL = f"s3://{BUCKET}/folder/large"
FREE = Profile("free")
SMALL = ("--max-requests", "60", "--max-mb", "21")


@pytest.fixture(scope="module")
def running(server: Server) -> Iterator[Proxy]:
    """Stand before the real server, which holds an object of 16 MB and a small one."""
    store = make_location(server, BUCKET).obstore()
    obstore.put(store, "folder/a", bytes(100))
    obstore.put(store, "folder/large", bytes(16_000_000), use_multipart=False)
    with open_proxy(server.endpoint_url, profile=FREE) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: Proxy, server: Server, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """Begin without limits, faults and trace, as a store of one's own."""
    running.emulate(FREE)
    running.take_trace()
    for name, value in client_environment(server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint_url)
    return running


def run(out: Path, *options: str, url: str = URL) -> str:
    """Calibrate, and return what is printed."""
    given = [url, "--out", str(out), *options]
    found = CliRunner().invoke(calibrate, given, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def refuse(out: Path, *options: str, url: str = URL) -> str:
    """Calibrate in vain, and return the one line that says why, after what was printed."""
    found = CliRunner().invoke(calibrate, [url, "--out", str(out), *options])
    assert isinstance(found.exception, UserError) and "\n" not in str(found.exception)
    return f"{found.output}{found.exception}"


def count(trace: list[RequestRow]) -> tuple[int, int]:
    """Count the requests of a trace, and the bytes of objects in it."""
    return len(trace), sum(row.nbytes for row in trace if row.status == 206)


@pytest.mark.quiet
def test_an_unknown_network_is_recovered(proxy: Proxy, tmp_path: Path) -> None:
    """Latency, stream, link and request rate come back as they were emulated."""
    # slow, so that a busy machine is late by little of it; of eight connections at once one is
    # refused at first
    proxy.emulate(Profile("unknown", FirstByte(0.2, 0.5), 4.0, 14.0, 70.0))
    run(out := tmp_path / "mine.yml", "--max-mb", "400")
    found, told = get_profile(str(out)), get_profile(str(out)).measurement
    assert found.name == "mine.yml"
    assert found.first_byte_s is not None
    assert found.first_byte_s.median_s == pytest.approx(0.2, rel=0.1)
    assert found.first_byte_s.p95_s == pytest.approx(0.5, rel=0.15)
    assert found.stream_mb_per_s == pytest.approx(4.0, rel=0.1)
    assert found.aggregate_mb_per_s == pytest.approx(14.0, rel=0.1)
    assert found.requests_per_s == pytest.approx(70.0, rel=0.15)
    assert told["decode_mb_per_s"] > 0
    assert 0.01 < told["chunk_ms"] < 100
    assert [*told["mb_per_s_by_connections"]] == [1, 2, 4, 8]


def test_every_request_is_counted(proxy: Proxy, server: Server, tmp_path: Path) -> None:
    """What the file says was asked for is what the network saw, within the caps, and read only."""
    out = tmp_path / "mine.yml"
    text = run(out, *SMALL)
    trace, told = proxy.take_trace(), get_profile(str(out)).measurement
    assert (told["n_requests"], told["nbytes"]) == count(trace)
    assert {row.method for row in trace} == {"GET", "HEAD"}
    assert len(trace) <= 60 and told["nbytes"] <= 21_000_000
    assert told["location"] == URL and told["object"] == "folder/large"
    assert "at most 60 requests and 21 MB" in text
    written = out.read_text()
    assert not {server.access_key, server.secret_key} & {*re.split(r"\W+", text + written)}
    assert "\n  stream_mb_per_s: median of 3 bodies" in written, "a source a line"


def test_what_a_bill_depends_on_is_written_or_said_to_be_unknown(
    proxy: Proxy, tmp_path: Path
) -> None:
    """Of a server of one's own nobody knows who bills it; what the user says is taken."""
    text = run(tmp_path / "a.yml", *SMALL)
    found = get_profile(str(tmp_path / "a.yml"))
    assert (found.provider, found.region) == ("unknown", "unknown")
    assert "--provider" in text and "--region" in text
    text = run(tmp_path / "b.yml", *SMALL, "--provider", "other", "--region", "same")
    found = get_profile(str(tmp_path / "b.yml"))
    assert (found.provider, found.region) == ("other", "same") and "--region" not in text


@pytest.mark.parametrize(
    ("url", "endpoint", "provider"),
    [
        ("s3://bucket/key", "", "aws"),
        ("s3://bucket/key", "https://s3.amazonaws.com.example.org", "unknown"),
        ("gs://bucket/key", "https://example.org", "google"),
    ],
)
def test_who_bills_is_known_of_a_provider_itself(
    url: str, endpoint: str, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By how the store is reached, not by what its server is called."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint) if endpoint else monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)  # fmt: skip
    assert find_provider(url) == provider


def test_the_plan_asks_for_nothing(proxy: Proxy, tmp_path: Path) -> None:
    """What would be asked for at most is a line; nothing is asked for or written, nor where a file is."""
    assert run(tmp_path / "mine.yml", "--plan") == f"at most 500 requests and 2000 MB of {URL}\n"
    (tmp_path / "there.yml").touch()
    assert "is there; allowed: a file that is not" in refuse(tmp_path / "there.yml", *SMALL)
    assert proxy.take_trace() == [] and len([*tmp_path.iterdir()]) == 1


def test_nothing_is_written_but_what_is_asked_for(
    proxy: Proxy, server: Server, tmp_path: Path
) -> None:
    """With a prefix an object is written, read, and gone afterwards; what it took is counted."""
    out = tmp_path / "mine.yml"
    run(out, "--write", "trial", *SMALL, url=f"s3://{BUCKET}/folder")
    trace, told = proxy.take_trace(), get_profile(str(out)).measurement
    assert (told["n_requests"], told["nbytes"]) == count(trace)
    written = [row.key for row in trace if row.method == "PUT"]
    assert len(written) == 1 and written[0].startswith(f"/{BUCKET}/folder/trial/wire-calibrate-")
    assert [row.method for row in trace if row.method not in ("PUT", "GET", "HEAD")] == ["POST"]
    store = make_location(server, BUCKET).obstore()
    assert obstore.list(store, prefix="folder/trial").collect() == []


def test_a_store_that_fails_leaves_no_profile(proxy: Proxy, tmp_path: Path) -> None:
    """Half a body is no measurement, and ten failures in a row end the asking."""
    proxy.emulate(replace(FREE, faults=Faults(truncate=1.0)))
    assert "it fails too often" in refuse(tmp_path / "mine.yml")
    assert len(proxy.take_trace()) < 30 and not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        (URL, ("--max-requests", "0"), "max-requests: 0; allowed: 60 to"),
        (URL, ("--max-requests", str(10**12)), "allowed: 60 to"),
        (URL, ("--max-mb", "nan"), "max-mb: nan; allowed"),
        (URL, ("--max-mb", "1e300"), "max-mb: 1e+300; allowed"),
        (URL, ("--max-mb", "1e-320"), "allowed: at least 22"),
        (URL, ("--out", "x.txt"), "allowed: a name that ends in .yml"),
        ("embedded", (), "allowed: a store that answers requests"),
        (f"s3://{BUCKET}/folder/a", (), "it has 100 bytes; allowed: an object of at least 1 MB"),
        (f"s3://{BUCKET}/folder", (), "no object is there"),
        (f"s3://{BUCKET}", (), "no object is there"),
        ("s3://no-such-bucket-here/x", (), "no object is there"),
        ("ftp://host/x", (), "allowed: embedded, s3://BUCKET/PREFIX"),
        ("file:///tmp", (), "allowed: a store that answers requests"),
        ("s3://user:hush@bucket/x", (), "with credentials in the environment"),
        ("gs://bucket/x", ("--write", "y"), "allowed: with s3://BUCKET/PREFIX alone"),
        *((url, (), "; allowed: an address such as s3://") for url in ("s3://[/k", "http://[::1")),
        *(
            (URL, ("--write", text), "; allowed: a path in the bucket")
            for text in ("../..", "\x1b[31m", "s3://other/x", "a//b", "a" * 5000)
        ),
        (URL, ("--out", "/proc/x.yml"), "out: '/proc/x.yml'; allowed: a file in a folder"),
    ],
)
def test_refuses(
    url: str, options: tuple[str, ...], says: str, proxy: Proxy, tmp_path: Path
) -> None:
    """Each is one line that names what is wrong and what is allowed; no file is begun."""
    told = refuse(tmp_path / "mine.yml", *options, url=url)
    assert says in told and "hush" not in told and len(told) < 500
    assert "at most 500 requests" not in told or "object" in says  # else it is known at the door
    assert not [*tmp_path.iterdir()]


class Hostile(Handler):
    """Answers as no store does, by the first folder of the address."""

    seen: ClassVar[list[tuple[str, str]]] = []  # host and token of each request

    def do_HEAD(self) -> None:
        """Lead to another host, or send heads without an end."""
        how, host = self.path.split("/")[1], str(self.headers["Host"])
        Hostile.seen.append((host, self.headers.get("x-amz-security-token") or ""))
        if how == "elsewhere":
            there = "http://localhost:" + host.partition(":")[2] + "/elsewhere/large"
            self.answer(302, Location=there, Content_Length="0")
        elif how == "heads":
            self.answer(200, **{f"x-{i}": "y" for i in range(200)})
        else:
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"H")
                    time.sleep(0.05)


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reach a hostile store with keys and a token that expires."""
    Hostile.seen.clear()
    with serve(Hostile) as url:
        named = {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s"}
        for name, value in (named | {"SESSION_TOKEN": "of-mine"}).items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("how", ["elsewhere", "heads", "slow"])
def test_a_store_that_answers_as_none_does(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that leads elsewhere gets no token there; too many headers, and a head that never ends, are one line."""
    monkeypatch.setattr("wire.calibrate.measure.PATIENCE_S", 1.0)
    monkeypatch.setattr("wire.bed.locations.REQUEST_S", 3)  # longer, as it is outside of tests
    said = refuse(tmp_path / "mine.yml", *SMALL, url=f"s3://{how}/large")
    allowed = "the store's own address" if how == "elsewhere" else "a store that answers"
    assert f"allowed: {allowed}" in said
    assert {(host[:9], token) for host, token in Hostile.seen} == {("127.0.0.1", "of-mine")}
    assert len(Hostile.seen) < 5


def test_a_store_that_stalls_now_and_then_is_given_up(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read in ten would take its whole patience, and all of them an hour."""
    monkeypatch.setattr("wire.calibrate.measure.PATIENCE_S", 0.2)
    monkeypatch.setattr("wire.calibrate.measure.MOST_WAITED_S", 0.5)
    proxy.emulate(replace(FREE, faults=Faults(stall=0.1, stall_s=60)))
    told = refuse(tmp_path / "mine.yml")
    assert "it fails too often (it does not answer within" in told
