"""What the committed records say: known regressions from one release alone, quiet releases, and their news."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from functools import cache
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from studies.request_jumps import findings, news
from studies.request_jumps.findings import list_accesses, list_dates, read_tables
from wire.ledger.jumps import LEAST, MeasuredAccess, compare_releases, find_jumps, read_explanations


@cache
def read_ledger() -> tuple[MeasuredAccess, ...]:
    """Read all accesses of the committed records, once."""
    return tuple(list_accesses(read_tables()))


def cut_off(accesses: Sequence[MeasuredAccess], day: date) -> list[MeasuredAccess]:
    """Keep what was released by a day."""
    dates = list_dates()
    return [entry for entry in accesses if dates[entry.package, entry.version] <= day]


KNOWN = [
    # package, version, client, access, count
    ("s3fs", "2026.3.0", "zarr-s3fs", "whole", "n_requests"),  # the size of each chunk first
    ("gcsfs", "2026.8.0", "zarr-gcsfs", "whole", "n_requests"),  # three requests for a chunk
    ("gcsfs", "2026.8.0", "gcsfs-file", "three variables", "n_requests"),  # no read-ahead
    ("xarray", "2026.4.0", "xarray-url", "three variables", "n_requests"),  # another cache
    ("year", "2022", "zarr-s3fs", "whole", "n_waits"),  # one chunk after the other
    # Not here: zarr 3.0.9 (zarr-python #3199, twice the GETs in tests of xarray), whose requests are
    # those of 3.0.8. Compared were 208 operations on a real S3 server, with xarray 2025.6.1 and again
    # with 2026.9.0: s3fs and obstore, formats 2 and 3, consolidated and not, NumPy and Dask; write,
    # overwrite, with and without empty chunks, delayed; append by each mode, with unsafe chunks; a
    # region by slices and "auto"; a variable again; open. The counts of that issue (8 get, 16 set,
    # 2 list_dir, 1 list_prefix) are what both releases make of its test's write in format 2, and the
    # 4 get that the test expected what both make of it in format 3.
]


@pytest.mark.parametrize(("package", "version", "client", "access", "count"), KNOWN)
def test_the_next_release_alone_names_a_known_regression(
    package: str, version: str, client: str, access: str, count: str
) -> None:
    """A ledger that ends the day before says nothing of it, and with the release it names the access."""
    day = list_dates()[package, version]
    before = cut_off(read_ledger(), day - timedelta(days=1))
    release = [
        entry for entry in read_ledger() if (entry.package, entry.version) == (package, version)
    ]
    assert release and not any(entry in before for entry in release)
    named = [
        jump
        for jump in find_jumps([*before, *release])
        if (jump.after.package, jump.after.version) == (package, version)
    ]
    assert any(
        (jump.after.client, jump.after.access) == (client, access) and count in jump.more
        for jump in named
    )


def is_equal(before: MeasuredAccess, after: MeasuredAccess) -> bool:
    """Return whether all blocks of two releases have equal requests, and bytes within a percent."""
    for count, tolerance in (("n_requests", 0.0), ("wire_nbytes", 0.01)):
        bounds = [*before.bounds(count), *after.bounds(count)]
        if max(bounds) - min(bounds) > tolerance * max(bounds):
            return False
    return True


def test_quiet_releases_raise_no_alarm() -> None:
    """Of releases with equal requests and bytes in all accesses and blocks, chains alone could raise one."""
    series: dict[tuple[str, ...], list[MeasuredAccess]] = {}
    for entry in sorted(read_ledger(), key=lambda entry: entry.place):
        series.setdefault(entry.key, []).append(entry)
    releases: dict[tuple[str, str], list[tuple[MeasuredAccess, MeasuredAccess]]] = {}
    for entries in series.values():
        for before, after in pairwise(entries):
            releases.setdefault((after.package, after.version), []).append((before, after))
    quiet = {
        release: pairs
        for release, pairs in releases.items()
        if all(is_equal(*pair) for pair in pairs)
    }
    assert len(quiet) >= 20
    alarms = [compare_releases(*pair) for pairs in quiet.values() for pair in pairs]
    assert [alarm for alarm in alarms if alarm] == []


def test_the_line_that_takes_a_jump_back_has_fewer_of_what_grew() -> None:
    """Wherever the records hold the same access with that line, or with the release to install instead."""
    explanations, n_compared = read_explanations(), 0
    for entry in news.list_news(read_ledger(), explanations):
        back = entry.taken_back
        if back is not None:
            n_compared += 1
            for count in set(entry.jump.more) & {"n_requests", "n_waits"}:
                assert back.bounds(count)[1] < entry.jump.after.bounds(count)[0], entry.title
    assert n_compared >= 2


def test_news_are_of_what_costs_more_and_newest_first() -> None:
    """Each is one line with its row's anchor, which the table has."""
    entries = news.list_news(read_ledger())
    days = [entry.released for entry in entries if entry.released]
    assert days == sorted(days, reverse=True) and len(days) >= 3
    assert all(entry.jump.is_worse for entry in entries)
    lines, table = news.write_news().splitlines(), news.write_table()
    assert len(lines) > 3 and {line.count(" | ") for line in lines} == {3}
    for line in lines[2:]:
        anchor = line.partition('href="#')[2].partition('"')[0]
        assert f'<tr id="{anchor}">' in table
    names = [jump.name for jump in find_jumps(read_ledger())]
    assert len({*names}) == len(names) == table.count("<tr id=")


def test_the_feed_is_atom_with_an_entry_for_each_dated_jump() -> None:
    """With ids that do not repeat, and a date of their own."""
    space = "{http://www.w3.org/2005/Atom}"
    root = ElementTree.fromstring(news.write_feed())  # our own
    entries = root.findall(f"{space}entry")
    ids = [entry.findtext(f"{space}id") for entry in entries]
    assert len({*ids}) == len(ids) >= 3 and root.findtext(f"{space}title")
    updated = [str(entry.findtext(f"{space}updated")) for entry in entries]
    assert updated == sorted(updated, reverse=True)
    assert root.findtext(f"{space}updated") == updated[0]


def test_each_environment_of_the_ledger_has_a_day() -> None:
    """Without one a jump of it would be no news."""
    days = list_dates()
    for _, environment in findings.list_environments().values():
        package = environment.package or findings.YEARS
        assert (package, environment.version or environment.name) in days


def test_a_record_keeps_the_counts_of_each_block() -> None:
    """Steps of a record of whole chunks have seconds of thinking between, which are left out."""
    entry = next(entry for entry in read_ledger() if entry.client == "zarr-s3fs")
    assert len(entry.blocks) == 2 and {*LEAST} <= {*entry.blocks[0]}
    assert len(entry.steps) == 2 * entry.bounds("n_requests")[0]
