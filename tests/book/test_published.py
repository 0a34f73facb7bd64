"""Published tables have units, ranges and sums; claims get verdicts; their page answers each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from book import pages, published
from helpers.benchmark.record import read_published
from helpers.benchmark.statistics import Comparison, Interval
from helpers.errors import UserError
from helpers.findings import write_findings
from helpers.paths import ROOT

TABLES: dict[str, dict[str, Any]] = yaml.safe_load((published.FOLDER / "tables.yaml").read_text())
CLAIMS = published.read_claims()

# Endings that tell a unit, and the least and most that a value in it may be.
UNITS = {
    "_mb_per_s": (0, 1e5),
    "_mb_per_s_exact": (0, 1e5),
    "_mb_per_s_published": (0, 1e5),
    "_gbit_per_s_published": (0, 1e3),
    "_per_s": (0, 1e4),
    "_usd": (0, 1),
    "_usd_per_month": (0, 10),
    "_ms": (0, 1e6),
    "_us": (0, 1e8),
    "_s": (0, 1e5),
    "_min": (0, 1e3),
    "_pct": (0, 100),
    "_bytes": (0, 1e12),
    "_requested": (0, 1e12),  # bytes_requested
    "_input": (0, 1e12),  # nbytes_input
    "_mib": (0, 1e5),
    "_mib_from_tile_tests": (0, 1e5),
    "_mb": (0, 1e5),
    "_kb_nominal": (0, 1e5),
    "_published": (0, 1e5),  # a ratio, as published
}
# Columns that are numbers without a unit of their own: counts, places and settings.
COUNTS = re.compile(
    r"n_.*|n[a-z]+|point|row|pixel_[xy]|trial|iteration|zoom|chunk_\d|deflate|shuffle|val_bytes|"
    r"async_concurrency|parquet_row_group_rows|request_count|failure_count|version|"
    r"value|recomputed|optimised_io|set_gdal_vars|region|array"
)


def unit_of(column: str) -> tuple[float, float] | None:
    """Find the bounds of a column by the longest ending that tells a unit."""
    ends = [end for end in UNITS if column.endswith(end)]
    return UNITS[max(ends, key=len)] if ends else None


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_whole_and_has_its_source(name: str) -> None:
    """Rows are as many as stated, each says whose it is and how it was read; the page is one of the book."""
    table, told = read_published(name), TABLES[name]
    assert len(table) == told["n_rows"]
    for column in ("source", "source_locator", "how"):
        assert table[column].notna().all(), column
    assert set(table["how"]) <= {"exact", "digitised", "approximate"}
    assert told["pages"] and set(told["pages"]) <= set(pages.toc_files())
    assert told["url"] == "" or told["url"].startswith("https://")
    assert f"@misc{{{told['source']}," in (ROOT / "references.bib").read_text()


def test_every_table_is_listed_and_its_source_has_a_licence() -> None:
    """No table is left out, and the README links each address and names each licence."""
    assert {path.stem for path in published.FOLDER.glob("*.csv")} == {*TABLES}
    text = (published.FOLDER / "README.md").read_text()
    assert {*re.findall(r"`([\w-]+)\.csv`", text)} == {*TABLES}
    for told in TABLES.values():
        assert told["url"].removeprefix("https://") in text
        for word in re.findall(
            r"MIT|Apache-2\.0|BSD-3-Clause|none found|not stated", told["licence"]
        ):
            assert word in text


@pytest.mark.parametrize("name", TABLES)
def test_columns_have_units_and_values_are_in_range(name: str) -> None:
    """A column of numbers tells its unit by its name, and holds nothing that this unit forbids."""
    table = read_published(name)
    for column in table.select_dtypes("number"):
        values, is_count = table[column].dropna(), bool(COUNTS.fullmatch(column))
        bounds = None if is_count else unit_of(column)
        assert is_count or bounds, column
        low, high = bounds or (-math.inf, math.inf)
        assert values.between(low, high).all(), (column, values.min(), values.max())
        assert np.isfinite(values).all(), column


def is_close(left: pd.Series[float], right: pd.Series[float], part: float = 1e-3) -> bool:
    """Compare two columns where both are stated."""
    both = left.notna() & right.notna()
    return bool(both.any() and np.allclose(left[both], right[both], rtol=part))


def rate(table: pd.DataFrame) -> pd.Series[float]:
    """Compute MB/s from bytes and seconds."""
    return table["nbytes"] / 1e6 / table["runtime_s"]


SUMS: Mapping[str, tuple[str, Callable[[pd.DataFrame], bool]]] = {
    "throughputs are bytes over seconds, 2020": (
        "abernathey2020_runs",
        lambda t: (
            is_close(t["throughput_mb_per_s"], rate(t))
            and is_close(t["throughput_mb_per_s"], t["throughput_mb_per_s_published"])
        ),
    ),
    "threads are two a worker, 2020": (
        "abernathey2020_figure_digitised",
        lambda t: bool((t["ncores"] == 2 * t["nworkers"]).all()),
    ),
    "exact points lie within the error of the figure": (
        "abernathey2020_figure_digitised",
        lambda t: (
            not (
                (t["throughput_mb_per_s"] - t["throughput_mb_per_s_exact"]).abs()
                > t["throughput_err_mb_per_s"]
            ).any()
        ),
    ),
    "throughputs are bytes over seconds, 2025": (
        "earthmover_tensor_storage_s3",
        lambda t: (
            is_close(t["throughput_mb_per_s"], rate(t))
            and is_close(t["throughput_mb_per_s"] * 8e-3, t["throughput_gbit_per_s_published"])
        ),
    ),
    "five trials of each client and size": (
        "earthmover_tensor_storage_s3",
        lambda t: (
            {
                *t.fillna({"chunk_bytes": 0, "parquet_row_group_rows": 0})
                .groupby(["method", "operation", "chunk_bytes", "parquet_row_group_rows"])
                .size()
            }
            == {5}
        ),
    ),
    "failures are counted over requests": (
        "tile_caching_locust",
        lambda t: is_close(t["failure_rate_pct"], 100 * t["failure_count"] / t["request_count"]),
    ),
    "percentiles ascend": (
        "tile_caching_locust",
        lambda t: bool(
            (t[["p50_ms", "p75_ms", "p90_ms", "p95_ms", "p99_ms", "p100_ms"]].diff(axis=1) >= 0)
            .iloc[:, 1:]
            .all(axis=None)
        ),
    ),
    "results of the cost table follow from its own rules": (
        "tile_caching_costs",
        lambda t: is_close(t["value"], t["recomputed"], 1e-2),
    ),
    # The source's own total is larger than the rows that it shows, by what the README says.
    "objects sum to what the README says": (
        "green2022_object_sizes_and_costs",
        lambda t: (
            round(t["size_bytes"].iloc[:-1].sum() / 1e9, 2) == 145.52
            and t["n_objects"].iloc[:-1].sum() == 2784
            and t["object_name"].iloc[-1] == "Totals"
        ),
    ),
    "chunks hold what their shape says": (
        "rew2013_access_times",
        lambda t: all(
            4 * math.prod(map(int, shape.split(" x "))) == nbytes
            for shape, nbytes in t[["chunk_shape", "chunk_bytes"]].dropna().to_numpy()
        ),
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_and_products_agree(name: str) -> None:
    """What a table states twice is the same twice."""
    table, check = SUMS[name]
    assert check(read_published(table)), name


def test_a_ratio_is_that_of_its_own_parts() -> None:
    """The narrative's petabyte, and the practitioners' share, follow from their neighbours."""
    told = read_published("practitioners").set_index("quantity")["value"]
    share = told["decoded_throughput"] / told["raw_throughput"]
    assert share == pytest.approx(told["decoded_over_raw"], abs=5e-3)
    prose = read_published("abernathey2020_narrative").set_index("quantity")["value"]
    hours = 1e9 / prose["gcs_zarr_max_throughput"] / 3600
    assert hours == pytest.approx(prose["time_for_one_petabyte_at_20_gb_per_s"], abs=0.5)
    assert prose["array_nbytes"] / prose["chunk_nbytes"] == prose["n_chunks_array"]


# Claims.


def make_claim(**more: Any) -> published.Claim:
    """Make a claim of an invented source."""
    return published.Claim(study="invented", says="it is so", **more)


@pytest.mark.parametrize(
    ("bounds", "found", "expected"),
    [
        ((5, 20), Interval(9, 7, 12, 5), "holds"),
        ((5, 20), Interval(1.5, 1.4, 1.6, 5), "does not hold"),
        ((5, 20), Interval(30, 25, 40, 5), "does not hold"),
        ((5, 20), Interval(6, 4, 9, 5), "undecided"),  # the interval holds a bound
        ((5, 20), Interval(9, math.nan, math.nan, 1), "undecided"),  # one block shows nothing
        ((75, 300), Interval(120, 80, math.inf, 5), "undecided"),  # a knee that was not seen
        ((-math.inf, 1.1), Interval(1.0, 0.9, 1.05, 5), "holds"),  # one bound alone
        ((2, math.inf), published.exact(2), "holds"),  # counted, at the bound itself
        ((2, math.inf), published.exact(1), "does not hold"),
        # Faster by its interval, but not by more than a thing differs from itself.
        (
            (1, math.inf),
            Comparison("indistinguishable", Interval(1.03, 1.01, 1.05, 5), 1.1, "noise"),
            "undecided",
        ),
        ((1, math.inf), Comparison("slower", Interval(1.3, 1.2, 1.4, 5), 1.1, ""), "holds"),
    ],
)
def test_a_claim_in_one_case(
    bounds: tuple[float, float], found: published.Answer, expected: str
) -> None:
    """The whole interval lies between the bounds, or outside, or decides nothing."""
    claim = make_claim(at_least=bounds[0], at_most=bounds[1])
    assert published.judge_case(claim, found) == expected


YES, NO, OPEN = Interval(9, 7, 12, 5), Interval(1.5, 1.4, 1.6, 5), Interval(6, 4, 9, 5)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, "cannot be decided here"),
        ({"a": OPEN}, "cannot be decided here"),
        ({"a": YES, "b": YES}, "holds"),
        ({"a": YES, "b": NO}, "holds under conditions"),
        ({"a": YES, "b": OPEN}, "holds under conditions"),  # not shown wherever it was asked
        ({"a": NO, "b": OPEN}, "does not hold"),
    ],
)
def test_a_claim_over_cases(found: dict[str, Interval], expected: str) -> None:
    """It holds where it does in each case, and under conditions where it does in some."""
    assert published.judge(make_claim(at_least=5, at_most=20), found) == expected


def test_a_claim_is_a_row_with_links_to_what_measured_it() -> None:
    """Arithmetic has no page to lead to, and what nobody measured no figure."""
    claims = {"a": make_claim(at_least=5, at_most=20, unit="times"), "b": make_claim()}
    both = {"formats/in-region": YES, "study/case": YES}  # of which the first has a page
    found = {"a": {**both, "arithmetic": published.exact(1)}}
    table = published.tabulate_claims(claims, found)
    assert [*table["claim"]] == ["it is so (times)", "it is so"]
    links = [f'<a href="{to}.html">9 (7 to 12)</a>' for to in ("notebooks/formats/in-region", "explorer")]  # fmt: skip
    assert [*table["ours"]] == [", ".join([*links, "1"]), ""]
    assert [*table["verdict"]] == ["holds under conditions", "cannot be decided here"]


def test_figures_of_ours_are_read_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finding by its key, and a ratio of rows within blocks; a case or key that is not there is none."""
    record = tmp_path / "study" / "case.csv"
    record.parent.mkdir()
    record.touch()
    write_findings(record, {"gain": YES, "mb": 3.0}, {}, noise=0.01, n_blocks=5)
    monkeypatch.setattr(published, "REFERENCE", tmp_path)
    rows = pd.DataFrame({"contender": [*"aabb"], "block": [0, 1] * 2, "phase": "measured",
                         "open_s": 0.0, "read_s": [4.0, 6.0, 2.0, 3.0], "array_nbytes": 1e6})  # fmt: skip
    monkeypatch.setattr(published, "read_records", lambda _paths: rows)

    def read(**more: Any) -> Any:
        return published.Ours(**{"case": "study/case", **more}).read()

    assert read(key="gain") == YES and read(key="mb", is_counted=True) == published.exact(3)
    assert read(over="contender == 'a'", under="contender == 'b'").centre == pytest.approx(2)
    assert read(over="contender == 'a'") == published.exact(5)
    nothing = read(key="lost"), read(case="no/such", over="block == 0"), read(over="block > 1")
    assert nothing == (None, None, None)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_and_its_finding_are_of_one_quantity(name: str) -> None:
    """What over what, in which column: two numbers that look alike are not taken for each other."""
    assert CLAIMS[name].find_mismatches() == []
    assert all(one.quantity for one in CLAIMS[name].ours if one.key)


def test_claims_that_share_a_finding_are_of_its_unit() -> None:
    """A lead that falls is no size to choose, though both are above one."""
    units: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for claim in CLAIMS.values():
        for one in claim.ours:
            if one.key:
                units.setdefault((one.case, one.key), set()).add((claim.unit, one.quantity))
    assert [key for key, both in units.items() if len(both) > 1] == []


def test_a_finding_of_another_quantity_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of the falling lead was, where byte ranges were judged."""
    (tmp_path / "study").mkdir()
    told = Interval(5, 3, 6, 5, quantity="lead over lead, read_s")
    write_findings(tmp_path / "study" / "c.csv", {"x": told}, {}, noise=0, n_blocks=5)
    monkeypatch.setattr(published, "REFERENCE", tmp_path)
    one = {"case": "study/c", "key": "x", "quantity": "12 MB over 3 MB, s_per_mb"}
    assert len(make_claim(ours=[one]).find_mismatches()) == 1
    right = one | {"quantity": told.quantity}
    assert make_claim(ours=[right]).find_mismatches() == []


# What the table of the source itself contradicts, as its README says.
CONTRADICTED = {"parquet-near-csv"}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_has_its_figure_in_a_table(name: str) -> None:
    """Their figure is read from a published table and keeps its own claim; the source is cited."""
    claim = CLAIMS[name]
    assert f"@misc{{{claim.study}," in (ROOT / "references.bib").read_text()
    assert claim.at_least <= claim.at_most
    if claim.theirs is not None:
        assert claim.theirs.table in TABLES
    if claim.theirs is not None and name not in CONTRADICTED:
        assert claim.at_least <= claim.theirs.read() * 1.0001
        assert claim.theirs.read() <= claim.at_most * 1.0001


def test_claims_are_those_of_every_source() -> None:
    """Each study that the book stands on has claims, and what only a hub decides names an entry."""
    studies = {claim.study for claim in CLAIMS.values()}
    assert {"abernathey2020", "green2022", "rew2013", "nsidc2024", "developmentseed2023"} < studies
    catalog = yaml.safe_load((ROOT / "catalog.yml").read_text())["entries"]
    cases = {"/".join(path.parts[-2:]).removesuffix(".yaml") for path in ROOT.glob("parameters/*/*/*.yaml")}  # fmt: skip
    for claim in CLAIMS.values():
        for named in re.findall(r"`([^`]+)`", claim.decided_by):
            assert named in cases or named in catalog, named


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {study: b}", "claims.yaml: a: says: Field required"),
        ("a: {study: b, says: c, more: 1}", "claims.yaml: a: more: Extra inputs"),
        (
            "a: {study: b, says: c, at_least: many}",
            "claims.yaml: a: at_least: 'many'; allowed: Input should be",
        ),
    ],
)
def test_a_claim_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """One line names the file and the field."""
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        published.read_claims(path)


def test_a_figure_without_rows_is_refused() -> None:
    """A query that finds nothing is no figure."""
    absent = published.Figure(table="practitioners", over="quantity == 'no'", column="value")
    with pytest.raises(UserError, match="^practitioners: no row where quantity == 'no'; allowed"):
        absent.read()
