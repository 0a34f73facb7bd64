"""``wire calibrate`` behind networks that it does not know, stores that fail, and caps that hold."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from advisors.calibrate import cli
from advisors.calibrate.cli import calibrate
from advisors.calibrate.plan import (
    Caps,
    Seen,
    Spent,
    Step,
    accepted_per_s,
    lane_nbytes,
    make_figures,
    plan_steps,
    quantile,
    rate_together,
    summarise,
)
from helpers.errors import UserError
from helpers.models.requests import Request
from helpers.netem.profiles import (
    Faults,
    FirstByte,
    Profile,
    get_measurement,
    get_profile,
    make_profile,
)
from helpers.netem.proxy import Proxy, open_proxy
from helpers.objectstore.testbed import Server
from tests.stores import Handler, client_environment, make_location, serve

FREE_OF_CHARGE = dict.fromkeys(("store_gets_1e3", "store_lists_1e3", "data_out_gb"), 0.0)
PAID = {"store_gets_1e3": 0.0004, "store_lists_1e3": 0.005, "data_out_gb": 0.09}


@given(st.integers(60, 10**6), st.floats(0, 100), st.integers(30_000_000, 10**12))
def test_the_plan_keeps_the_caps(n: int, usd: float, nbytes: int) -> None:
    """Whatever the caps, all steps together are within them, or the caps are refused."""
    try:
        caps = Caps(n, usd, nbytes, PAID)
    except UserError as error:
        if "allowed: at least" in str(error):
            return
        raise
    steps = plan_steps(caps)
    n_lists = 2 * sum(step.kind == "find" for step in steps)
    n_gets = sum(step.n_requests for step in steps) - n_lists
    assert caps.allow(Spent(n_gets, n_lists, sum(step.nbytes for step in steps)))
    assert all(step.n_requests > 0 and step.nbytes >= 0 for step in steps)
    assert {step.kind for step in steps} == {"find", "delays", "stream", "together", "requests"}


@pytest.mark.parametrize(
    ("n", "usd", "nbytes", "prices", "says"),
    [
        (0, 0.1, 10**9, FREE_OF_CHARGE, "max-requests: 0; allowed: at least 60"),
        (500, 0.0, 10**9, PAID, "max-usd: 0; allowed: at least 0.002"),
        (500, -1.0, 10**9, FREE_OF_CHARGE, "max-usd: -1; allowed: at least 0 "),
        (500, math.nan, 10**9, FREE_OF_CHARGE, "max-usd: nan; allowed"),
        (500, 0.1, 0, FREE_OF_CHARGE, "max-mb: 0; allowed: at least 22"),
        (
            500,
            0.1,
            10**9,
            {**FREE_OF_CHARGE, "data_out_gb": -1.0},
            "price data_out_gb: -1; allowed",
        ),
    ],
)
def test_caps_are_refused(
    n: int, usd: float, nbytes: int, prices: dict[str, float], says: str
) -> None:
    """A cap of zero, or one that measures nothing, is refused in a line with the least that is allowed."""
    with pytest.raises(UserError, match=says):
        Caps(n, usd, nbytes, prices)


def test_quantile_intervals_cover() -> None:
    """Of 200 log-normal delays the interval of the 95th percentile holds the true one in about 95 %."""
    rng = random.Random(1)
    true = math.exp(0.5 * 1.6448536)
    n_held = 0
    for _ in range(300):
        _, low, high = quantile([rng.lognormvariate(0, 0.5) for _ in range(200)], 0.95)
        n_held += low is not None and high is not None and low <= true <= high
    assert n_held / 300 > 0.9


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


@pytest.mark.parametrize("offered", [1.3, 2.0, 5.0])
@pytest.mark.parametrize("limit", [50.0, 300.0])
def test_a_limit_is_found(limit: float, offered: float) -> None:
    """A bucket of tokens that lets a burst through does not hide its rate."""
    tokens, asked = 0.1 * limit, list[tuple[float, bool]]()
    for i in range(int(3 * limit)):
        tokens = min(0.1 * limit, tokens + 1 / offered)
        is_refused = tokens < 1
        tokens -= not is_refused
        asked.append((i / (offered * limit), is_refused))
    assert accepted_per_s(asked) == pytest.approx(limit, rel=0.05)


def make_seen() -> Seen:
    """Return what a store of 30 ms, 10 MB/s a stream and 30 MB/s in all shows."""
    return Seen(
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
    """Growth that did not end, a tail that no value bounds, and a calibration that saw nothing."""
    seen = make_seen()
    told = summarise(seen)
    assert told["first_byte_p99_s"][0] == 0.1 and told["first_byte_p99_s"][2] is None
    assert told["mb_per_s_by_connections"] == {1: 10.0, 2: 20.0, 4: 30.0, 8: 30.2}
    del seen.together_mb_per_s[8]
    figures = make_figures(seen, "x")
    assert figures["aggregate_mb_per_s"] == 30.0 and not seen.has_growth_ended
    assert "where it still grew" in figures["sources"]["aggregate_mb_per_s"]
    assert make_figures(Seen(), "x") == {"sources": {}} and summarise(Seen()) == {}


def test_steps_that_lack_are_named() -> None:
    """What too many failures left out is told by name; levels after the end of growth are not missed."""
    steps = plan_steps(Caps(500, 0.0, 10**9, FREE_OF_CHARGE))
    assert make_seen().lacks(steps) == ["first byte of 4 KiB"]  # 100 of 200 delays
    seen = make_seen()
    seen.delays_s *= 2
    assert seen.lacks(steps) == []
    seen.streams_mb_per_s = []
    seen.answered_per_s = None
    assert {"one connection", "request rate"} <= {*seen.lacks(steps)}


def test_connections_read_no_more_than_they_can_need() -> None:
    """Each is given the bytes of its share: a stream alone, a part of the link when it is full."""
    seen = make_seen()
    del seen.together_mb_per_s[8]
    step = Step("together", 16, 10**9, 8)
    assert lane_nbytes(seen, step, window_s=1.0) == 7_500_000  # 60 MB/s at most, from 30 of 4
    assert lane_nbytes(seen, Step("together", 16, 8 * 1000, 8), window_s=1.0) == 1000


BUCKET = "of-test-calibrate"
URL = f"s3://{BUCKET}/folder"
FREE = Profile("free")
SMALL = ("--max-requests", "60", "--max-mb", "21")


@pytest.fixture(scope="module")
def running(server: Server) -> Iterator[Proxy]:
    """Stand before the real server, which holds an object of 16 MB and a small one."""
    store = make_location(server, BUCKET).obstore()
    obstore.put(store, "folder/a", bytes(100))
    obstore.put(store, "folder/b/large", bytes(16_000_000), use_multipart=False)
    with open_proxy(server.endpoint_url, profile=FREE) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def _idle_processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the processor, for a second, in the test of a whole calibration alone."""
    if "unknown_network" not in request.node.name:
        for name in ("measure_decoding", "measure_chunk_ms"):
            monkeypatch.setattr(f"advisors.calibrate.measure.{name}", lambda: 1.0)


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
    """Calibrate in vain, and return the one line that says why."""
    with pytest.raises(UserError) as caught:
        run(out, *options, url=url)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def count(trace: list[Request]) -> tuple[int, int]:
    """Count the requests of a trace, and the bytes of objects in it."""
    return len(trace), sum(row.nbytes for row in trace if row.status == 206)


@pytest.mark.quiet
def test_an_unknown_network_is_recovered(proxy: Proxy, tmp_path: Path) -> None:
    """Latency, stream, link and request rate come back as they were emulated."""
    # slow, so that a busy machine is late by little of it; of eight connections at once one is
    # refused at first
    proxy.emulate(Profile("unknown", FirstByte(0.2, 0.5), 4.0, 14.0, 70.0))
    run(out := tmp_path / "mine.yml", "--max-mb", "400")
    found, told = get_profile(str(out)), get_measurement(str(out))
    assert told["state"] == "complete" and found.name == "mine.yml"
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
    """What the file says was spent is what the network saw, within the caps, and read only."""
    out = tmp_path / "mine.yml"
    text = run(out, *SMALL, "--price", "data_out_gb=0.09", "--max-usd", "0.01")
    trace, told = proxy.take_trace(), get_measurement(str(out))
    spent = told["spent"]
    assert (spent["n_gets"] + spent["n_lists"], spent["nbytes"]) == count(trace)
    assert {row.method for row in trace} == {"GET", "HEAD"}
    assert len(trace) <= 60 and spent["nbytes"] <= 21_000_000
    assert told["spent_usd"] == pytest.approx(0.09 * spent["nbytes"] / 1e9, rel=1e-3)
    assert told["object"] == "folder/b/large", "the largest of those that are there"
    assert told["location"] == URL and "is complete; try: wire decide --profile" in text
    written = out.read_text()
    assert not {server.access_key, server.secret_key} & {*re.split(r"\W+", text + written)}
    assert "\n  stream_mb_per_s: median of 3 bodies" in written, "a source a line"
    # a whole calibration, one of another place and a file of another kind are left as they are
    assert "is complete; allowed: another file, or --anew" in refuse(out, *SMALL)
    assert "of another origin" in refuse(out, *SMALL, url=f"s3://{BUCKET}/folder/b")
    assert out.read_text() == written
    other = tmp_path / "other.yml"
    other.write_text("stream_mb_per_s: 3\n")
    assert "holds no calibration" in refuse(other, *SMALL, "--anew")
    assert other.read_text() == "stream_mb_per_s: 3\n"
    found = CliRunner().invoke(calibrate, [URL, *SMALL, "--out", str(out), "--json", "--anew"])
    assert json.loads(found.stdout)["measurement"]["state"] == "complete"
    assert out.read_text() != written


def test_the_plan_asks_for_nothing(proxy: Proxy, tmp_path: Path) -> None:
    """What would be spent is shown, and nothing is asked for or written."""
    text = run(tmp_path / "mine.yml", "--plan")
    assert "in all" in text and "allowed" in text and "500" in text
    assert proxy.take_trace() == [] and not [*tmp_path.iterdir()]


def test_nothing_is_written_but_what_is_asked_for(
    proxy: Proxy, server: Server, tmp_path: Path
) -> None:
    """With a prefix an object is written, read, and gone afterwards; what it took is counted."""
    out = tmp_path / "mine.yml"
    run(out, "--write", "trial", *SMALL)
    trace, spent = proxy.take_trace(), get_measurement(str(out))["spent"]
    assert (spent["n_gets"] + spent["n_lists"], spent["nbytes"]) == count(trace)
    written = [row.key for row in trace if row.method == "PUT"]
    assert len(written) == 1 and written[0].startswith(f"/{BUCKET}/folder/trial/wire-calibrate-")
    assert [row.method for row in trace if row.method not in ("PUT", "GET")] == ["POST"]
    store = make_location(server, BUCKET).obstore()
    assert obstore.list(store, prefix="folder/trial").collect() == []


def break_after(
    monkeypatch: pytest.MonkeyPatch, proxy: Proxy, n: int, faults: Faults
) -> Callable[[], None]:
    """Let the network fail once so many delays have been measured; return what mends it."""
    save = cli.Draft.save

    def save_and_break(self: Any, *given: Any, **named: Any) -> None:
        save(self, *given, **named)
        if len(self.seen.delays_s) >= n:
            proxy.emulate(replace(FREE, faults=faults))

    monkeypatch.setattr(cli.Draft, "save", save_and_break)

    def mend() -> None:
        monkeypatch.setattr(cli.Draft, "save", save)
        proxy.emulate(FREE)

    return mend


def test_a_store_that_dies_is_continued(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured is kept and marked, no tool takes it, and the next run goes on within the caps."""
    out = tmp_path / "dies.yml"
    mend = break_after(monkeypatch, proxy, 20, Faults(truncate=1.0))
    caps = ("--max-requests", "200", "--max-mb", "30")
    assert "it fails too often" in refuse(out, *caps)
    told = get_measurement(str(out))
    assert told["state"] == "partial" and 20 <= len(told["seen"]["delays_s"]) < 80
    with pytest.raises(UserError, match="lacks stream_mb_per_s, aggregate_mb_per_s .it fails"):
        get_profile(str(out))
    first = told["seen"]["delays_s"][:20]
    mend()
    CliRunner().invoke(calibrate, [URL, "--out", str(out), *caps])
    told = get_measurement(str(out))
    n, nbytes = count(proxy.take_trace())
    assert told["seen"]["delays_s"][:20] == first
    assert told["spent"]["n_gets"] + told["spent"]["n_lists"] == n <= 200
    assert nbytes <= told["spent"]["nbytes"] <= 30_000_000
    assert get_profile(str(out)).aggregate_mb_per_s


def test_a_killed_run_has_spent_what_it_may_have(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends in the middle of a batch has its requests in the file before they are made."""

    def die(*_given: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "mine.yml"
    monkeypatch.setattr("fsspec.asyn.sync", die)
    assert CliRunner().invoke(calibrate, [URL, "--out", str(out), *SMALL]).exit_code == 1
    told = get_measurement(str(out))
    assert told["spent"] == {"n_gets": 5, "n_lists": 1, "nbytes": 4 * 4096}
    assert told["state"] == "partial"


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        (URL, ("--max-requests", "0"), "max-requests: 0; allowed: at least"),
        (URL, ("--max-mb", "nan"), "max-mb: nan; allowed"),
        (URL, ("--out", "x.txt"), "allowed: a name that ends in .yml"),
        (URL, ("--max-usd", "-1"), "max-usd: -1; allowed: at least 0"),
        (URL, ("--price", "data_out=1"), "price data_out: no such item"),
        (URL, ("--emulate", "in-region"), "emulate: 'in-region'; allowed: with embedded alone"),
        (f"s3://{BUCKET}/folder/a", (), "its largest object has 100 bytes"),
        (f"s3://{BUCKET}/nothing", (), "no object is there"),
        ("s3://no-such-bucket-here/x", (), "it has no such bucket or object"),
        ("ftp://host/x", (), "allowed: embedded, s3://BUCKET/PREFIX"),
        ("file:///tmp", (), "allowed: a store that answers requests"),
        ("http://127.0.0.1:1/x", (), "it does not answer"),
        ("http://user:hush@127.0.0.1:1/x", (), "without user and query"),
        ("http://127.0.0.1:1/x", ("--write", "y"), "allowed: with s3://BUCKET/PREFIX alone"),
    ],
)
def test_refuses(
    url: str, options: tuple[str, ...], says: str, proxy: Proxy, tmp_path: Path
) -> None:
    """Each is one line that names what is wrong and what is allowed; no file is begun."""
    told = refuse(tmp_path / "mine.yml", *options, url=url)
    assert says in told and "hush" not in told
    assert not [*tmp_path.iterdir()]


class Pages(Handler):
    """Serves 2 MB at every address, truly or not."""

    n_listed = 0

    def do_HEAD(self) -> None:
        """Tell the size, or lead elsewhere."""
        status = 302 if self.path == "/moved" else 200
        self.answer(status, Content_Length="2000000", Location="/whole")

    def do_GET(self) -> None:
        """Send a range, or its first half as if that were all; or a listing without an end."""
        if "list-type" in self.path:
            Pages.n_listed += 1
            more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
            body = f"<ListBucketResult>{more}</ListBucketResult>".encode()
            return self.answer(200, body, Content_Length=str(len(body)))
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        n = (last + 1 - first) // (2 if self.path == "/liar" else 1)
        span = f"bytes {first}-{last}/2000000"
        return self.answer(206, bytes(n), Content_Range=span, Content_Length=str(n))


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    """Serve over plain HTTP."""
    with serve(Pages) as url:
        yield url


def test_objects_behind_http(pages: str, tmp_path: Path) -> None:
    """One is measured as a store is; half a body is no measurement, a redirection not followed."""
    out = tmp_path / "page.yml"
    assert "is complete" in run(out, *SMALL, url=f"{pages}/whole")
    assert get_profile(str(out)).stream_mb_per_s
    liar = tmp_path / "liar.yml"
    assert "it sent 2048 of 4096 bytes" in refuse(liar, *SMALL, url=f"{pages}/liar")
    with pytest.raises(UserError, match="lacks first_byte_s"):
        get_profile(str(liar))
    # it would be a request that nobody counts
    assert "it answers 302" in refuse(tmp_path / "moved.yml", *SMALL, url=f"{pages}/moved")


def test_a_store_that_stalls_now_and_then_is_given_up(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read in ten would take its whole patience, and all of them an hour."""
    monkeypatch.setattr("advisors.calibrate.measure.PATIENCE_S", 0.2)
    monkeypatch.setattr("advisors.calibrate.measure.MOST_WAITED_S", 0.5)
    break_after(monkeypatch, proxy, 0, Faults(stall=0.1, stall_s=60))  # not the listing
    assert "it fails too often (it does not answer within" in refuse(tmp_path / "mine.yml")
    assert get_measurement(str(tmp_path / "mine.yml"))["seen"]["n_failed"] < 10


def test_a_listing_without_an_end_is_one_request(
    pages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its pages says that there are more."""
    Pages.n_listed = 0
    for name, value in (
        ("ENDPOINT_URL", pages),
        ("ACCESS_KEY_ID", "k"),
        ("SECRET_ACCESS_KEY", "s"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    says = refuse(tmp_path / "endless.yml", *SMALL, url="s3://endless")
    assert "no object is there" in says and Pages.n_listed == 1


def test_the_embedded_store_over_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has no store can try it on the embedded one, which costs nothing."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "tried.yml"
    run(out, *SMALL, "--emulate", "express", "--max-usd", "0", url="embedded")
    told = get_measurement(str(out))
    assert (told["location"], told["spent_usd"]) == ("embedded over express", 0)
    assert told["object"] == "probe" and get_profile(str(out)).first_byte_s
