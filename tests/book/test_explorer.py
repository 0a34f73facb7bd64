"""Tests of `book.explorer`: nothing is lost on the way from rows to medians and downloads."""

from __future__ import annotations

import base64
import gzip
import io
import json
import math
from pathlib import Path

import pandas as pd
import pytest

from book import explorer
from helpers.benchmark.record import list_records, read_records, runs_path
from helpers.benchmark.statistics import median_interval
from helpers.paths import ROOT

RECORDS = list_records(ROOT / "results" / "reference")
CASE = ROOT / "results" / "reference" / "cluster-scaling" / "in-region.csv"


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Every row of everything."""
    return explorer.tidy(ROOT / "results" / "reference")


def test_every_row_is_there(table: pd.DataFrame) -> None:
    """Each row of each record has its times."""
    rows = table.groupby("source")["row"].agg(lambda one: {*one})
    for path in RECORDS:
        n_rows = len(pd.read_csv(path, usecols=["study"]))
        assert rows[f"{path.parent.name}/{path.stem}"] == {*range(1, n_rows + 1)}, path
    assert [*table] == [*explorer.COLUMNS]
    assert table[["source", "quantity", "value"]].notna().all(axis=None)


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
    boxes = table.dropna(subset="conditions")
    boxes = boxes.assign(chunk=boxes["conditions"].str.extract(r"chunks=(64x\d+x\d+)")[0])
    boxes = boxes.dropna(subset="chunk")  # however many boxes a row reads
    assert len(boxes)
    for text, nbytes in zip(boxes["chunk"], boxes["chunk_nbytes"], strict=True):
        assert nbytes == 4 * math.prod(map(int, text.split("x")))


def test_the_page_draws_medians_of_the_rows(tmp_path: Path) -> None:
    """What the page loads is the summary of the measured rows, and the files hold all of them."""
    case = tmp_path / "study"
    case.mkdir()
    record = read_records([CASE])
    (case / "case.csv").write_bytes(CASE.read_bytes())
    runs_path(case / "case.csv").write_bytes(runs_path(CASE).read_bytes())
    files = dict(explorer.write_files(tmp_path))
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
