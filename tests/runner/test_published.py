"""Published tables have units, ranges and sums; claims get verdicts; their page answers each; records of others are whole."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

from helpers import again
from helpers.benchmark.record import read_published
from helpers.findings import Finding, read_findings, write_findings
from helpers.paths import ROOT
from runner import cli, pages, published, submitted
from runner.cases import Case
from tests.refusals import refused
from tests.rows import make_row, write_record

TABLES: dict[str, dict[str, Any]] = yaml.safe_load((published.FOLDER / "tables.yaml").read_text())
CLAIMS = published.read_claims()


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_whole_and_has_its_source(name: str) -> None:
    """Rows are as many as stated, and each says whose it is and how it was read."""
    table, told = read_published(name), TABLES[name]
    assert len(table) == told["n_rows"]
    for column in ("source", "source_locator", "how"):
        assert table[column].notna().all(), column
    assert set(table["how"]) <= {"exact", "digitised", "approximate"}
    assert told["pages"] and set(told["pages"]) <= set(pages.toc_files())
    assert told["url"] == "" or told["url"].startswith("https://")
    assert f"@misc{{{told['source']}," in (ROOT / "pages" / "references.bib").read_text()


def test_every_table_is_listed_and_its_source_has_a_licence() -> None:
    """No table is left out, and the README links each address and names each licence."""
    there = {path.stem for path in published.FOLDER.glob("*.csv")}
    ours = {published.RATIOS.stem, published.VERDICTS.stem}
    assert there - ours == {*TABLES}
    text = (published.FOLDER / "README.md").read_text()
    assert {*re.findall(r"`([\w-]+)\.csv`", text)} == {*TABLES}
    for told in TABLES.values():
        assert told["url"].removeprefix("https://") in text
        for word in re.findall(
            r"MIT|Apache-2\.0|BSD-3-Clause|none found|not stated", told["licence"]
        ):
            assert word in text


# Claims.


def make_claim(**more: Any) -> published.PublishedClaim:
    """Make a claim of an invented source."""
    alike_in = dict.fromkeys(published.RESPECTS, "alike")
    return published.PublishedClaim(
        **{"study": "invented", "says": "it is so", "alike_in": alike_in, **more}
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["alike"] * 5, "same"),
        (["no matter"] * 5, "same"),
        (["unlike"] * 4 + ["alike"], "same"),
        (["unlike"] * 4 + ["no matter"], "not decided"),
        (["alike"] * 4, "not decided"),
        ([], "not decided"),
    ],
)
def test_nothing_is_decided_without_likeness(words: list[str], expected: str) -> None:
    """Whatever the rows say: a word for each respect, and of those that matter one that is alike."""
    alike_in = dict(zip(published.RESPECTS, words, strict=False))
    claim = make_claim(at_least=5, alike_in=alike_in, unlike="smaller")
    assert published.judge_case(claim, Finding(9, 7, 12)) == expected


def test_likeness_is_in_its_words() -> None:
    """Another respect or word is refused, and so is *unlike* without how."""
    with refused("it is so, alike_in", "weather", "of threads, bytes.*"):
        make_claim(alike_in={"weather": "alike"})
    with refused("it is so, unlike", "nothing", "how ours is not as theirs"):
        make_claim(alike_in={"bytes": "unlike"})


@pytest.mark.parametrize(
    "change",
    [
        {"at_least": 4},
        {"at_most": 9.0},
        {"is_comparable": False},
        {"reproductions": (published.Reproduction(case="study/case", key="b"),)},
    ],
)
def test_bounds_change_only_with_a_word(change: dict[str, Any]) -> None:
    """What decides a claim is frozen; a new claim is not refused, and words alone are free."""
    figures = (published.Reproduction(case="study/case", key="a"),)
    bare: dict[str, Any] = {"at_least": 5, "reproductions": figures}
    frozen = published.freeze_bounds({"a": make_claim(**bare)}, {})
    changed = {**bare, **change}
    with refused("claims.yaml, a", ".*bounds.json", ".*what was changed"):
        published.freeze_bounds({"a": make_claim(**changed)}, frozen)
    published.freeze_bounds({"a": make_claim(**bare, unit="MB")}, frozen)
    said = published.freeze_bounds({"a": make_claim(**changed, changed="the bound was 5")}, frozen)
    assert said["a"]["digest"] != frozen["a"]["digest"]


def test_a_claim_has_one_figure_of_each_case() -> None:
    """A second one would replace the first without a word."""
    figures = [published.Reproduction(case="study/case", key=key) for key in ("a", "b")]
    with refused("it is so", "study/case twice", "each case once"):
        make_claim(reproductions=tuple(figures))
    assert make_claim(reproductions=(figures[0],)).reproductions


@pytest.mark.parametrize(
    ("bounds", "found", "expected"),
    [
        ((5, 20), Finding(9, 7, 12), "same"),
        ((5, 20), Finding(1.5, 1.4, 1.6), "contradicted"),
        ((5, 20), Finding(30, 25, 40), "contradicted"),
        ((5, 20), Finding(6, 4, 9), "not decided"),  # the interval holds a bound
        ((5, 20), Finding(9, math.nan, math.nan), "not decided"),  # one block shows nothing
        ((75, 300), Finding(120, 80, math.inf), "not decided"),  # a knee that was not seen
        ((-math.inf, 1.1), Finding(1.0, 0.9, 1.05), "same"),  # one bound alone
        ((2, math.inf), published.exact(2), "same"),  # counted, at the bound itself
        ((2, math.inf), published.exact(1), "contradicted"),
        # Faster by its interval, but not by more than a thing differs from itself.
        ((1, math.inf), Finding(1.03, 1.01, 1.05, verdict="indistinguishable"), "not decided"),
        ((1, math.inf), Finding(1.3, 1.2, 1.4, verdict="slower"), "same"),
    ],
)
def test_a_claim_in_one_case(bounds: tuple[float, float], found: Finding, expected: str) -> None:
    """The whole interval lies between the bounds, or outside, or decides nothing."""
    claim = make_claim(at_least=bounds[0], at_most=bounds[1])
    assert published.judge_case(claim, found) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Finding(1.5, 1.4, 1.6), "weaker here"),
        (Finding(1.02, 1.01, 1.03, verdict="indistinguishable"), "contradicted"),  # no direction
        (Finding(1.2, 0.9, 1.6), "contradicted"),  # no direction either
        (Finding(0.5, 0.4, 0.6), "contradicted"),  # the other direction
        (Finding(6, 4, 9), "weaker here"),  # across a bound, and all of it below their ten
        (Finding(8, 4, 12), "not decided"),
        (Finding(9, 7, 12), "same"),
        (Finding(30, 25, 40), "contradicted"),  # stronger than they claim
    ],
)
def test_a_direction_without_its_size_is_weaker(found: Finding, expected: str) -> None:
    """Between no effect and the published size; without a figure of theirs the least bound is the size."""
    theirs = published.Figure(
        table="abernathey2020_narrative",
        over="quantity == 'zarr_to_netcdf_speed_ratio'",  # of ten
        column="value",
    )
    claim = make_claim(at_least=5, at_most=20, no_effect=1, published=theirs)
    assert published.judge_case(claim, found) == expected
    plain = make_claim(at_least=5, at_most=20, no_effect=1)
    assert published.judge_case(plain, Finding(6, 4, 9)) == "not decided"


def test_what_cannot_be_reached_is_never_contradicted() -> None:
    """Whatever our figure is, and without one."""
    claim = make_claim(at_least=7000, is_comparable=False, unlike="a hundredth of the bytes")
    for found in ({}, {"a": NO}, {"a": Finding(9000, 8000, 9999)}):
        assert published.judge(claim, found) == "not comparable"
    table = published.tabulate_claims({"a": claim}, {})
    assert [*table["unlike theirs"]] == ["a hundredth of the bytes"]


def test_each_case_is_unlike_in_its_own_way() -> None:
    """A line of a case names what it shares with the others and its own; the claim names all."""
    figures = (
        published.Reproduction(case="a/b", unlike="32 threads"),
        published.Reproduction(case="a/c"),
    )
    claim = make_claim(unlike="smaller chunks", reproductions=figures)
    assert claim.describe_unlike("a/b") == "smaller chunks; 32 threads"
    assert claim.describe_unlike("a/c") == "smaller chunks"
    assert claim.describe_unlike() == "smaller chunks; a/b: 32 threads"


YES, NO, OPEN = Finding(9, 7, 12), Finding(1.5, 1.4, 1.6), Finding(6, 4, 9)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, "not decided"),
        ({"a": OPEN}, "not decided"),
        ({"a": YES, "b": YES}, "same"),
        ({"a": YES, "b": NO}, "contradicted"),
        ({"a": YES, "b": OPEN}, "not decided"),  # not shown wherever it was asked
        ({"a": NO, "b": OPEN}, "contradicted"),
    ],
)
def test_a_claim_over_cases(found: dict[str, Finding], expected: str) -> None:
    """The least favourable word of its cases counts."""
    assert published.judge(make_claim(at_least=5, at_most=20), found) == expected


def test_a_claim_is_a_row_with_links_to_what_measured_it() -> None:
    """Arithmetic has no page to lead to, and what nobody measured no figure."""
    claims = {"a": make_claim(at_least=5, at_most=20, unit="times"), "b": make_claim()}
    both = {"formats/in-region": YES, "study/case": YES}  # of which the first has a page
    found = {"a": {**both, "arithmetic": published.exact(1)}}  # of which the last is out of bounds
    table = published.tabulate_claims(claims, found)
    assert [*table["claim"]] == ["it is so (times)", "it is so"]
    links = [f'<a href="{to}.html">9 (7 to 12)</a>' for to in ("notebooks/formats/in-region", "explorer")]  # fmt: skip
    words = zip([*links, "1"], ["same", "same", "contradicted"], strict=True)
    assert [*table["ours"]] == ["; ".join(map(", ".join, words)), ""]
    assert [*table["verdict"]] == ["contradicted", "not decided"]


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
                         "open_s": 0.0, "read_s": [4.0, 6.0, 2.0, 3.0], "array_nbytes": 1e6,
                         "trace": '{"n_requests": 1}'})  # fmt: skip
    monkeypatch.setattr(published, "read_records", lambda _paths: rows)

    def read(**more: Any) -> Any:
        return published.Reproduction(**{"case": "study/case", **more}).read()

    assert read(key="gain").high == 12
    assert read(key="mb", is_counted=True).low == 3
    assert read(over="contender == 'a'", divisor="contender == 'b'").value == pytest.approx(2)
    assert read(over="contender == 'a'").value == 5
    nothing = read(key="lost"), read(case="no/such", over="block == 0"), read(over="block > 1")
    assert nothing == (None, None, None)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_and_its_finding_are_of_one_quantity(name: str) -> None:
    """What over what, in which column: two numbers that look alike are not taken for each other."""
    for one in (one for one in CLAIMS[name].reproductions if one.key):
        found = read_findings(published.REFERENCE / f"{one.case}.csv").get(one.key)
        assert one.quantity and (found is None or found.quantity in ("", one.quantity))


def test_tables_are_in_step(tmp_path: Path) -> None:
    """Committed tables are what `wire derive` writes of the committed records, once."""
    tables = [published.VERDICTS, published.RATIOS, published.BOUNDS]
    assert published.write_tables(tmp_path) == [tmp_path / table.name for table in tables]
    assert not published.write_tables(tmp_path)
    for table in tables:
        assert (tmp_path / table.name).read_text() == table.read_text()


def test_every_ratio_says_why_the_two_are_not_alike() -> None:
    """Each published ratio next to ours has its reasons in its own line, and a series without is refused."""
    assert pd.read_csv(published.RATIOS)["why"].notna().all()
    with refused("ratios.yaml, t and cluster-scaling/x, why", allowed="in which respects"):
        published.Series(
            source="s",
            table="t",
            column="c",
            published_rows="",
            case="cluster-scaling/x",
            measured_rows="",
            base={"a": "a"},
            compared={"b": "b"},
            why=" ",
        )


def test_ratios_near_1_are_not_scored() -> None:
    """A hit where there is nothing to predict moves no score, and a source without others has none."""
    table = pd.DataFrame({"source": ["a", "a", "b"], "published": [4.0, 1.1, 1.2]})
    scores = published.tabulate_scores(table.assign(ours=[2.0, 1.1, 1.2]))
    assert scores.loc["all", ["n", "n_clear", "median_factor"]].tolist() == [3, 1, 2]
    assert scores.loc["all", "always_1_factor"] == pytest.approx(4)
    assert math.isnan(scores.loc["b", "near_percent"])


def test_every_claim_has_its_verdict() -> None:
    """Of each claim there is a line, and a number where it was decided."""
    table = pd.read_csv(published.VERDICTS)
    assert {*table["claim"]} == {*CLAIMS}
    assert {*table["verdict"]} <= {*published.VERDICT_WORDS}
    decided = table[table["verdict"].isin(["same", "weaker here", "contradicted"])]
    assert decided[["ours", "low", "high", "case", "verdict_of_case"]].notna().all(axis=None)
    assert table.loc[table["verdict"] == "not comparable", "unlike"].notna().all(), "and says why"


# What the table of the source itself contradicts, as its README says.
CONTRADICTED = {"parquet-near-csv"}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_has_its_figure_in_a_table(name: str) -> None:
    """Their figure is read from a published table and keeps its own claim; the source is cited."""
    claim = CLAIMS[name]
    assert f"@misc{{{claim.study}," in (ROOT / "pages" / "references.bib").read_text()
    assert claim.at_least <= claim.at_most
    if claim.published is not None:
        assert claim.published.table in TABLES
    if claim.published is not None and name not in CONTRADICTED:
        assert claim.at_least <= claim.published.read() * 1.0001
        assert claim.published.read() <= claim.at_most * 1.0001


def test_claims_are_those_of_every_source() -> None:
    """Each study that the book stands on has claims."""
    studies = {claim.study for claim in CLAIMS.values()}
    assert {"abernathey2020", "green2022", "rew2013", "nsidc2024", "developmentseed2023"} < studies


def test_a_figure_without_rows_is_refused() -> None:
    """A query that finds nothing is no figure."""
    absent = published.Figure(table="practitioners", over="quantity == 'no'", column="value")
    with refused("practitioners", "^no row where quantity == 'no'", "."):
        absent.read()


# A record of one's own next to the published one.

SECONDS = [1.0, 1.04, 0.97, 1.02, 0.99]


def write(path: Path, times: float = 1.0, **changed: Any) -> Path:
    """Write a record of a contender, its copy and another, which takes `times` as long."""
    copy = {"contender": "zarr-s3fs, again", "control_of": "zarr-s3fs"}
    rows = [make_row(phase="warm-up", read_s=1000.0, **changed)]
    for block, s in enumerate(SECONDS):
        for own, read_s in (({}, s), (copy, s * 1.01), ({"contender": "other"}, s * times)):
            rows.append(make_row(**({"block": block} | changed | own | {"read_s": read_s})))
    return write_record(path, rows)


def compare(*given: object) -> str:
    """Ask the command."""
    found = CliRunner().invoke(cli.compare, [*map(str, given)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_ratios_and_what_differs_in_origin_are_told(tmp_path: Path) -> None:
    """Equals are not told apart, twice as long is twice, beyond floats is no traceback; a copy is its original."""
    a, b = write(tmp_path / "a.csv"), write(tmp_path / "b.csv")
    text = compare(a, a)
    assert re.search(r"zarr-s3fs +n_workers 2 +1 .* 5, 5", text)
    assert "again" not in text and "nothing differs in origin" in text
    there = {"machine": {"cpu": "Two", "n_cores": 2}, "versions": {"zarr": "3.2.0", "dask": "2026.8"},
             "parameters": {"seed": 7}, "settings": {"codec": "none", "cache_state": "cold"}, "commit": "b" * 40}  # fmt: skip
    text = compare(write(a, times=2.0), write(b, **there))
    assert re.search(r"other +n_workers 2 +2 +1\.\d+ +2\.\d+", text)
    for line in ("machine: cpu: One; Two", "versions: zarr: 3.1.6; 3.2.0", "parameters: seed: 1; 7",
                 "settings of other: codec: zstd; none", f"commit: {'a' * 8}; {'b' * 8}"):  # fmt: skip
        assert line in text
    assert "dask" not in text, "what one side did not import"
    assert "without end" in compare(write(a, times=1e308), write(b, times=1e-308))


@pytest.mark.parametrize(
    ("b", "where", "value"),
    [
        (
            {"case": "wide-area"},
            r"a\.csv",
            r"of cluster-scaling/in-region, b\.csv of cluster-scaling/wide",
        ),
        ({"phase": "warm-up"}, r"b\.csv", "^no measured row"),
        ({"contender": "third"}, r"a\.csv and b\.csv", "no contender at a point in common"),
        (None, r"b\.csv", "^cannot be read as a record: nothing is there"),
        ("a,b\n1,2\n", r"b\.csv", "^not a record of this schema: differs in"),
    ],
)
def test_records_that_do_not_compare(b: Any, where: str, value: str, tmp_path: Path) -> None:
    """Each is one line that names the file."""
    a, path = write(tmp_path / "a.csv"), tmp_path / "b.csv"
    if isinstance(b, dict):
        write_record(path, [make_row(**b)])
    elif b is not None:
        path.write_text(b)
    with refused(where, value):
        compare(a, path)


def test_the_name_of_a_record_shows_no_password() -> None:
    """A path loses its scheme in its name, by which a password would be known."""
    with refused(r"\*\*\*@b", "^cannot be read as a record: nothing is there"):
        published.compare_records(*[Path("s3://u:hunter22pw@b")] * 2)


def test_a_case_is_its_record_and_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a case, a site's record is laid over the reference; one that was not measured is told."""
    case = Case("laptop", "cluster-scaling", "in-region", tmp_path)
    monkeypatch.setattr(published, "find_case", lambda title, site: case)
    with refused("CASE", "has no record at site laptop", "after wire run"):
        compare(case.title)
    write(case.result(".csv"), times=2.0)
    write(case.result(".csv", "reference"))
    assert "laptop/cluster-scaling/in-region.csv" in compare(case.title)
    with refused("compare", allowed=r"A\.csv B\.csv, or CASE"):
        compare("a.csv")


@pytest.mark.parametrize(
    ("dilation", "cpus", "is_charged"), [(8.0, 0, False), (8.0, 4, True), (1.0, 0, True)]
)
def test_a_ratio_is_of_times(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dilation: float,
    cpus: int,
    is_charged: bool,
) -> None:
    """Rates are turned round, rows of both are found by name and place, CPU time counts as they say."""
    monkeypatch.setattr(published, "REFERENCE", tmp_path)
    settings = {"dilation": dilation, "cpus": cpus}
    both = [make_row(contender=name, read_s=s, block=block, **settings) for name, s in (("a", 1.0), ("b", 3.0)) for block in range(3)]  # fmt: skip
    write_record(tmp_path / "cluster-scaling" / "x.csv", both)
    series = published.Series(
        source="green2022",
        table="green2022_figures_digitised",
        column="mean_throughput_mb_per_s",
        is_rate=True,
        published_rows="figure == 'speedTest3.png' and format == '{name}' and nworkers == {at}",
        case="cluster-scaling/x",
        measured_rows="contender == '{name}'",
        base={"Zarr Array": "a"},
        compared={"NetCDF": "b", "CSV": "c"},
        points={"1": ""},
        why="other machines",
    )
    (line,) = published.compare_ratios([series]).to_dict("records")
    assert line["published"] == pytest.approx(645 / 165, rel=0.01)
    assert (line["ours"], line["low"], line["is_charged"]) == (pytest.approx(3), pytest.approx(3), is_charged)  # fmt: skip


# Records of others.

CASE = "cluster-scaling/in-region"


def test_records_are_sent_whole_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record goes with its digest; one that was changed, or came without, is refused in a line."""
    case = Case("laptop", *CASE.split("/"), tmp_path)
    monkeypatch.setattr(submitted, "find_case", lambda title, site: case)
    folder = tmp_path / "submitted"
    with refused("cluster-scaling/in-region", "no record", "after wire run"):
        submitted.submit("ada", [CASE], "laptop", folder=folder)
    write_record(case.result(".csv"), [make_row(), make_row(block=1)])
    into = submitted.submit("ada", [CASE], "laptop", folder=folder)
    (line,) = submitted.read_all(folder).lines
    assert line[:2] == ("ada", CASE) and line[3] == "embedded"
    (into / "more.csv").write_text("a\n")
    with refused("ada", "^more.csv is not as"):
        submitted.check(into)
    (into / "more.csv").unlink()
    record = into / f"{CASE}.csv"
    record.write_text(record.read_text() + "x")
    with refused("ada", "was changed"):
        submitted.check(into)
    (into / submitted.DIGESTS).write_text("5")
    with refused("ada", r"^sha256\.json names no files"):
        submitted.check(into)
    (into / submitted.DIGESTS).unlink()
    with refused("ada", r"^no sha256\.json"):
        submitted.check(into)
    with refused("SITE", allowed="a name"):
        submitted.submit("../ada", [CASE], "laptop")


def test_records_are_ours_by_who_measured_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their folder is called."""
    case = Case("laptop", *CASE.split("/"), tmp_path)
    monkeypatch.setattr(submitted, "find_case", lambda title, site: case)
    write_record(case.result(".csv"), [make_row()])
    folder = tmp_path / "submitted"
    for name, by in (("ada", ""), ("again", again.read_author())):
        submitted.submit(name, [CASE], "laptop", measurer=by, folder=folder)
    sent = submitted.read_all(folder)
    own, others = (submitted.render(sent, is_own=is_own) for is_own in (True, False))
    assert own.count(CASE) == others.count(CASE) == 1 and "| ada |" in others
    assert "Nobody has sent one yet." in submitted.render(submitted.read_all(tmp_path / "no"), is_own=False)  # fmt: skip


def replace_with_header(into: Path) -> None:
    """Leave a record of one header line, with its digest."""
    record = into / f"{CASE}.csv"
    record.write_text(record.read_text().partition("\n")[0] + "\n")
    submitted.write_digests(into)


def replace_with_link(into: Path) -> None:
    """Make the record a link to a device that never ends."""
    record = into / f"{CASE}.csv"
    record.unlink()
    record.symlink_to("/dev/zero")


def nest(into: Path, name: str) -> None:
    """Write JSON that is nested deeper than Python goes, with its digest."""
    text = '{"a":' * 100_000 + "1" + "}" * 100_000
    (into / name).write_text(text)
    if name != submitted.DIGESTS:
        submitted.write_digests(into)


DAMAGES = {
    "nested": (lambda into: nest(into, submitted.DIGESTS), "sha256.json is nested"),
    "nested runs": (lambda into: nest(into, f"{CASE}.runs.json"), "in-region.runs.json is nested"),
    "no row": (replace_with_header, "in-region.csv holds no row"),
    "device": (replace_with_link, "is no regular file"),
    "pipe": (lambda into: os.mkfifo(into / "pipe"), "pipe is no regular file"),
    "list": (lambda into: (into / submitted.DIGESTS).write_text("[1]"), "names no files"),
    "markup": (lambda into: (into / "<b>.html").write_text("<b>"), "<b>.html is not as sha256"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_folder_that_cannot_be_read_is_left_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The others are shown, and a line of plain text says which is not, and why."""
    case = Case("laptop", *CASE.split("/"), tmp_path)
    monkeypatch.setattr(submitted, "find_case", lambda title, site: case)
    write_record(case.result(".csv"), [make_row()])
    folder = tmp_path / "submitted"
    for sender in ("ada", "eve"):
        submitted.submit(sender, [CASE], "laptop", folder=folder)
    damage, reason = DAMAGES[name]
    damage(folder / "eve")
    sent = submitted.read_all(folder)
    assert [line[0] for line in sent.lines] == ["ada"]
    (line,) = sent.left_out
    assert line.startswith("eve: ") and reason in line and line.isprintable()
    text = submitted.render(sent, is_own=False)
    assert "Left out: eve" in text and "<b>" not in text


def test_what_is_here_was_sent_whole() -> None:
    """Each folder in the repository is as its command made it."""
    assert submitted.read_all().left_out == []


def test_unpaired_ratio_is_that_of_medians() -> None:
    """Sides of different length have a ratio; its interval holds it, and one value has none."""
    found = published.unpaired_ratio([2.0, 2.1, 1.9, 2.0], [1.0, 1.1, 0.9])
    assert found.centre == pytest.approx(2.0) and found.low < 2.0 < found.high and found.n == 3
    assert math.isnan(published.unpaired_ratio([2.0, 2.1], [1.0]).low)
