"""The rule that finds jumps, and what is written down of them."""

from __future__ import annotations

import pytest

from wire.ledger.clients import CLIENTS
from wire.ledger.jumps import (
    MeasuredAccess,
    compare_releases,
    explain_jump,
    find_jumps,
    read_dates,
    read_explanations,
)

OLD = {"n_requests": 32.0, "n_waits": 8.0, "wire_nbytes": 10e6}


def access(version: str, place: int, *blocks: dict[str, float]) -> MeasuredAccess:
    """Make an access with a release, each block with what differs from the old counts."""
    counts = tuple(OLD | block for block in blocks or ({}, {}))
    return MeasuredAccess("client", "layout", "read", "package", version, place, counts)


@pytest.mark.parametrize(
    ("blocks", "more", "less"),
    [
        ([{"n_requests": 64}, {"n_requests": 64}], ("n_requests",), ()),  # two for each chunk
        ([{"n_waits": 32}, {"n_waits": 32}], ("n_waits",), ()),  # one after the other
        ([{"wire_nbytes": 30e6}, {"wire_nbytes": 30e6}], ("wire_nbytes",), ()),
        # another cache: many small requests in place of few large ones
        ([{"n_requests": 300, "wire_nbytes": 2e6}] * 2, ("n_requests",), ("wire_nbytes",)),
        ([{"n_requests": 16}, {"n_requests": 16}], (), ("n_requests",)),
        ([{"n_requests": 38}, {"n_requests": 38}], (), ()),  # 1.19 times as many
        ([{"n_requests": 64}, {}], (), ()),  # the blocks do not agree
        (
            [{"n_requests": 90}, {"n_requests": 40}],
            (),
            (),
        ),  # nor here by as much as releases differ
        ([{"n_waits": 11}, {"n_waits": 11}], (), ()),  # a chain varies by a few
        ([{"wire_nbytes": 10.05e6}] * 2, (), ()),  # metadata of some bytes more
    ],
)
def test_a_jump_needs_a_ratio_and_both_blocks(
    blocks: list[dict[str, float]], more: tuple[str, ...], less: tuple[str, ...]
) -> None:
    """More than 1.2 times, by more than blocks differ among themselves."""
    jump = compare_releases(access("1", 0), access("2", 1, *blocks))
    assert (jump.more, jump.less) == (more, less) if jump else not (more or less)


def test_releases_are_compared_with_the_one_before_in_their_order() -> None:
    """A release that lasts is one jump, and the way back another."""
    twice = {"n_requests": 64.0}
    measured = [
        access("3", 3),
        access("1", 0),
        access("2", 1, twice, twice),
        access("2.1", 2, twice, twice),
    ]
    jumps = find_jumps(measured)
    assert [(jump.after.version, jump.is_worse) for jump in jumps] == [("2", True), ("3", False)]


def test_requests_are_replayed_over_networks() -> None:
    """Thirty one after the other take longer far away, and ten times as long as three."""
    steps = tuple(value for n in range(30) for value in (-1 - n, 1000))
    chain = MeasuredAccess("c", "l", "a", "p", "1", 0, (OLD,), steps)
    short = MeasuredAccess("c", "l", "a", "p", "1", 0, (OLD,), steps[:6])
    assert chain.seconds("other-region") > 2 * chain.seconds("in-region") > 0
    assert 6 < chain.seconds("in-region") / short.seconds("in-region") < 16


def test_each_explanation_is_of_a_release_with_a_day_and_of_clients_that_exist() -> None:
    """It explains a jump of that release alone."""
    dates, explanations = read_dates(), read_explanations()
    for explanation in explanations:
        release = explanation.package, explanation.version
        assert release in dates or explanation.package == "year"
        assert explanation.clients and explanation.because.endswith(".")
        assert explanation.measured_as in {"", *CLIENTS}
    counts = (OLD | {"n_requests": 64},) * 2
    before = MeasuredAccess("gcsfs-file", "l", "a", "gcsfs", "2026.7.0", 0, (OLD, OLD))
    for version, is_explained in (("2026.8.0", True), ("2026.8.1", False)):
        after = MeasuredAccess("gcsfs-file", "l", "a", "gcsfs", version, 1, counts)
        jump = compare_releases(before, after)
        assert jump and (explain_jump(jump, explanations) is not None) == is_explained
    for count, is_explained in (("n_waits", True), ("n_requests", False)):  # it read one by one
        grown = (OLD | {count: 4 * OLD[count]},) * 2
        before = MeasuredAccess("zarr-s3fs", "l", "a", "year", "2021", 0, (OLD, OLD))
        jump = compare_releases(
            before, MeasuredAccess("zarr-s3fs", "l", "a", "year", "2022", 1, grown)
        )
        assert jump and (explain_jump(jump, explanations) is not None) == is_explained
