"""What pages quote: no ratio between clients whose time CPUs decide, where CPU time is not counted."""

from __future__ import annotations

import functools
import re

import pandas as pd
import pytest

from helpers.again import REFERENCE
from helpers.benchmark.record import read_records
from helpers.benchmark.statistics import counts_cpu, measured, thread_share
from helpers.findings import read_findings
from helpers.paths import ROOT

QUOTED = re.compile(r"\{num\}`([a-z0-9-]+/[a-z0-9-]+)::([^`|\\]+)")
RATIO = re.compile(r"(?P<over>.+?)(?: at \d+)? over (?P<under>.+?)(?: at \d+)?, ")
MOST = 0.5
"""Share of the network's time that the busiest thread of a client may compute for in a quoted ratio."""


def list_quoted_ratios() -> list[tuple[str, ...]]:
    """List each ratio of times that a page quotes: page, case, key and the two that are compared."""
    ratios = dict[tuple[str, str, str], tuple[str, ...]]()
    for page in sorted((ROOT / "pages").glob("*.md")):
        for case, key in QUOTED.findall(page.read_text(encoding="utf-8")):
            finding = read_findings(REFERENCE / f"{case}.csv").get(key)
            match = RATIO.match(finding.quantity) if finding else None
            if match:
                names = (match[side].partition(" on ")[0] for side in ("over", "under"))
                ratios[page.stem, case, key] = tuple(names)
    return [(*place, *pair) for place, pair in ratios.items()]


RATIOS = list_quoted_ratios()


@functools.cache
def read_case(case: str) -> pd.DataFrame:
    """Read the record of a case, of which pages quote many ratios, once."""
    return read_records([REFERENCE / f"{case}.csv"])


@pytest.mark.parametrize(("page", "case", "key", "over", "under"), RATIOS)
def test_no_page_quotes_a_ratio_between_clients_that_free_cpus_decide(
    page: str, case: str, key: str, over: str, under: str
) -> None:
    """In slow motion a thread may compute for longer than its read is reported to take."""
    rows = measured(read_case(case))
    rows = rows[rows["contender"].isin([over, under])]
    if {*rows["contender"]} != {over, under} or counts_cpu(rows):
        return  # a ratio of something else than two readers, or one in which CPU time counts
    shares = {name: thread_share(rows, name) for name in (over, under)}
    assert not max(shares.values()) > MOST, f"{page}: {case}::{key}, {shares}"


def test_the_rule_sees_readers() -> None:
    """Some of the quoted ratios are between two readers of one record, or nothing would be tested."""
    n_between = 0
    for _, case, _, over, under in RATIOS:
        names = {*read_case(case)["contender"]}
        n_between += {over, under} <= names and over != under
    assert n_between > 20
