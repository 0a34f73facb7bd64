"""Tests of `helpers.book.explorer`: nothing is lost on the way from rows to medians and downloads."""

from __future__ import annotations

import base64
import gzip
import io
import json
from pathlib import Path

import pandas as pd
import pytest

from helpers.benchmark.record import list_records, read_records, runs_path
from helpers.benchmark.statistics import median_interval
from helpers.book import explorer
from helpers.errors import UserError
from helpers.paths import ROOT

RECORDS = list_records(ROOT / "results" / "reference")
PUBLISHED = sorted((ROOT / "results" / "published").glob("*.csv"))
CASE = ROOT / "results" / "reference" / "cluster-scaling" / "in-region.csv"


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Every row of everything."""
    return explorer.tidy(ROOT / "results" / "reference", ROOT / "results" / "published")


def test_every_row_is_there(table: pd.DataFrame) -> None:
    """Each row of each record has its times; each published row that holds a number is there."""
    rows = table.groupby("source")["row"].agg(lambda one: {*one})
    for path in RECORDS:
        n_rows = len(pd.read_csv(path, usecols=["study"]))
        assert rows[f"{path.parent.name}/{path.stem}"] == {*range(1, n_rows + 1)}, path
    for path in PUBLISHED:
        own = pd.read_csv(path)
        whole = {*(own.index + 1)}
        if "value" in own or path.stem == "rew2013_rechunking_minutes":
            whole = {*(own.index[own.get("value", own.get("time_min")).notna()] + 1)}
        assert rows[path.stem] == whole, path
    assert [*table] == [*explorer.COLUMNS]
    assert {*table["kind"]} == {"measured here", "published"}
    assert table[["source", "quantity", "value", "how"]].notna().all(axis=None)


def test_a_row_says_what_its_record_says(table: pd.DataFrame) -> None:
    """Numbers, network, workers and chunks of a row are those of its record."""
    row = read_records([CASE]).iloc[20]
    mine = table[(table["source"] == "cluster-scaling/in-region") & (table["row"] == 21)]
    numbers = mine.set_index("quantity")["value"]
    assert numbers["read_s"] == row["read_s"] and numbers["n_requests"] == row["n_requests"]
    whole_s = row["open_s"] + row["read_s"]  # a slow opener is slow
    assert numbers["throughput_mb_per_s"] == row["array_nbytes"] / whole_s / 1e6
    assert numbers["total_s"] == row["open_s"] + row["read_s"]
    facts = mine.iloc[0]
    asked = json.loads(row["parameters"])
    assert facts["network"] == asked["profile"] and facts["commit"] == row["commit"]
    assert facts["workers"] == json.loads(row["point"])["n_workers"]
    n_chunks = 1
    for extent, chunk in zip(asked["array_shape"], asked["chunk_shape"], strict=True):
        n_chunks *= extent / chunk
    assert facts["chunk_nbytes"] == row["array_nbytes"] / n_chunks
    boxes = table[table["conditions"].str.contains("chunks=64x23x29", na=False)]
    assert {*boxes["chunk_nbytes"]} == {4 * 64 * 23 * 29}  # however many boxes a row reads


@pytest.mark.parametrize(
    ("source", "column", "quantity", "factor"),
    [
        ("tile_generation_times", "time_ms", "time_s", 1e-3),
        ("rew2013_rechunking_minutes", "time_min", "time_s", 60),
        ("unidata_netcdf4_chunk_defaults", "first_read_us", "first_read_s", 1e-6),
        ("earthmover_tensor_storage_s3", "throughput_mb_per_s", "throughput_mb_per_s", 1),
    ],
)
def test_published_times_are_in_seconds(
    table: pd.DataFrame, source: str, column: str, quantity: str, factor: float
) -> None:
    """One unit for one thing, whatever the source wrote."""
    mine = table[(table["source"] == source) & (table["quantity"] == quantity)]
    theirs = factor * pd.read_csv(ROOT / "results" / "published" / f"{source}.csv")[column]
    assert mine["value"].tolist() == pytest.approx(theirs.dropna().tolist())
    assert {*mine["unit"]} == {"MB/s" if factor == 1 else "s"}


def test_the_page_draws_medians_of_the_rows(tmp_path: Path) -> None:
    """What the page loads is the summary of the measured rows, and the files hold all of them."""
    case, published = tmp_path / "study", tmp_path / "published"
    case.mkdir()
    published.mkdir()
    record = read_records([CASE])
    (case / "case.csv").write_bytes(CASE.read_bytes())
    runs_path(case / "case.csv").write_bytes(runs_path(CASE).read_bytes())
    files = dict(explorer.write_files(tmp_path, published))
    packed = files["data.js"].decode().partition('"')[2].rpartition('"')[0]
    data = json.loads(gzip.decompress(base64.b64decode(packed)))
    drawn = pd.DataFrame({name: data[name] for name in ("group", "quantity", "n", "median", "low", "high")})  # fmt: skip
    drawn = drawn[drawn["quantity"] == data["quantities"].index("read_s")]
    for name in ("contender", "workers", "phase"):
        drawn[name] = [data["words"][name][data["groups"][name][one]] for one in drawn["group"]]
    assert {*drawn["phase"]} == {"measured"}
    assert any(data["words"]["conditions"]) and not any(
        "=" in one for one in data["words"]["conditions"]
    )
    (shown,) = drawn[(drawn["contender"] == "zarr-s3fs") & (drawn["workers"] == "8")].to_dict("records")  # fmt: skip
    rows = record[(record["contender"] == "zarr-s3fs") & (record["phase"] == "measured")]
    rows = rows[[json.loads(one) == {"n_workers": 8} for one in rows["point"]]]
    found = median_interval(rows["read_s"])
    assert shown["n"] == found.n
    for name, value in (("median", found.centre), ("low", found.low), ("high", found.high)):
        assert shown[name] == pytest.approx(value, rel=1e-3)
    whole = pd.read_csv(io.BytesIO(gzip.decompress(files["all-rows.csv.gz"])))
    assert len(whole[whole["quantity"] == "read_s"]) == len(record)
    told = pd.read_csv(io.BytesIO(files["data-dictionary.csv"]))
    assert {*told["name"]} == {*explorer.COLUMNS, *whole["quantity"]}
    assert told["meaning"].notna().all()


def test_text_among_numbers_is_refused_in_a_line(tmp_path: Path) -> None:
    """A published table that somebody edited ends with file, column, value and row."""
    path = tmp_path / "mine.csv"
    path.write_text("source,read_s,driver\nMe 2020,1.5,a\nMe 2020,about 2,b\n")
    with pytest.raises(
        UserError, match=r"^mine\.csv: read_s: 'about 2' in row 2; allowed: a number"
    ):
        explorer.tidy_published(path)
