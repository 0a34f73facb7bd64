"""What edits of a trace take ends, whatever the times in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.models.transfer import Network
from wire.trace import analysis
from wire.trace.rows import Run, TracedRequest
from wire.trace.whatif import Edit, Trace, keep

MOMENTS_S = st.floats(0.0, 0.02)
SHORT_S = st.floats(0.0, 0.001)  # as of a fast server on the same machine
REQUESTS = st.builds(
    lambda start_s, wait_s, body_s, method, status, key: TracedRequest(
        1e9 + start_s, 1e9 + start_s + wait_s, 1e9 + start_s + wait_s + body_s,
        method=method, status=status, key=f"/b/{key}", nbytes=10, host="h",
    ),
    MOMENTS_S, SHORT_S, SHORT_S, st.sampled_from(["GET", "HEAD", "PUT"]),
    st.sampled_from([200, 206, 404, 503]), st.integers(0, 3),
)  # fmt: skip


@settings(max_examples=60, deadline=2000)
@given(rows=st.lists(REQUESTS, min_size=1, max_size=40), data=st.data())
def test_a_replay_ends_however_short_requests_are(
    rows: list[TracedRequest], data: st.DataObject
) -> None:
    """Whatever is dropped, what stays takes no longer than all, but for what was computed in between."""
    trace = Trace(Run(rows, 1.0, 1e9, 0))
    dropped = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    whole_s = trace.seconds(Edit(keep(trace.rows)), Network())
    assert 0.0 <= trace.seconds(Edit(keep(trace.rows, dropped)), Network()) <= whole_s + 0.03


def test_a_look_that_is_shorter_than_the_tolerance_is_not_its_own_predecessor() -> None:
    """HEAD and GET of 80 microseconds, of which the HEAD is dropped."""
    rows = [
        TracedRequest(80e-6 * i, 80e-6 * (i + 1), 80e-6 * (i + 1), method=method, status=200, key="/b/f", nbytes=10)
        for i, method in enumerate(["HEAD", "GET"] * 20)
    ]  # fmt: skip
    dropped = range(0, 40, 2)
    assert Trace(Run(rows, 1.0, 0.0, 0)).seconds(Edit(keep(rows, dropped)), Network()) < 0.01


SPANS = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(SPANS, max_size=20))
def test_fresh_bytes_are_those_of_a_count_byte_by_byte(spans: list[tuple[int, int]]) -> None:
    """Each byte counts for the first span that holds it."""
    seen, expected = set[int](), list[int]()
    for start, end in spans:
        expected.append(len({*range(start, end)} - seen))
        seen |= {*range(start, end)}
    assert analysis.fresh_nbytes(spans) == expected


@given(st.lists(st.floats(0.0, 0.1), min_size=4, max_size=20))
def test_busy_seconds_lie_in_gaps(pauses_s: list[float]) -> None:
    """One processor that is always busy is busy in all gaps, however many there are."""
    edges = [sum(pauses_s[:n]) for n in range(len(pauses_s))]
    gaps = [*zip(edges[::2], edges[1::2], strict=False)]
    samples = [(edges[-1] * n / 50, edges[-1] * n / 50) for n in range(51)]
    expected = sum(end - start for start, end in gaps)
    assert analysis._busy_s(samples, gaps) == pytest.approx(expected, abs=1e-9)


def test_some_requests_of_each_stretch_stand_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand requests in turn, of which every second is dropped, though a fifth is replayed."""
    monkeypatch.setattr("wire.trace.whatif.MAX_REPLAYED", 400)
    rows = [
        TracedRequest(
            0.1 * i, 0.1 * i + 0.08, 0.1 * i + 0.08, method="GET", status=200, key=f"/b/{i}"
        )
        for i in range(2000)
    ]
    trace = Trace(Run(rows, 200.0, 0.0, 0))
    assert trace.n_replayed == 400
    assert trace.base_seconds(Network()) == pytest.approx(200.0, rel=0.05)
    half = trace.seconds(Edit(trace.keep(range(1, 2000, 2))), Network())
    assert half / trace.base_seconds(Network()) == pytest.approx(0.6, rel=0.05)
