"""A table says in words and rounded numbers what a frame holds."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers.plotting.tables import count_rows, digits, show, spell


def test_tables_are_named_and_rounded_where_they_are_made() -> None:
    """Heads with units, contenders by their labels, three digits, a dash where nothing is."""
    frame = pd.DataFrame(
        {"read_s": [1.23456, float("nan")], "n_requests": [12345, 7], "is_cold": [True, False]},
        index=pd.Index(["zarr-s3fs", "raw"], name="reader"),
    )
    told = show(frame, kind="reader")
    assert [*told] == ["read (s)", "requests", "is cold"]
    assert [*told.index] == ["s3fs, default", "raw reads"]
    assert told.to_numpy().tolist() == [["1.23", "12,345", "yes"], ["\N{EN DASH}", "7", "no"]]
    assert "<b>" not in show(pd.DataFrame({"x": ["<b>"]})).to_html()


@pytest.mark.parametrize(
    ("value", "n", "text"),
    [(1234.5, 2, "1200"), (0.0456, 2, "0.046"), (1.272, 3, "1.27"), (float("inf"), 2, "not measured")],
)  # fmt: skip
def test_digits(value: float, n: int, text: str) -> None:
    """No exponent, no more digits than say something."""
    assert digits(value, n=n) == text


@pytest.mark.parametrize(
    ("name", "words"),
    [("stream_mb_per_s", "stream (MB/s)"), ("n_workers", "workers"), ("MB asked", "MB asked")],
)
def test_names_are_words(name: str, words: str) -> None:
    """The unit of a name stands behind it."""
    assert spell(name) == words


def test_rows_are_counted_by_phase() -> None:
    """What ended a measurement stands with its rows."""
    rows = pd.DataFrame({"phase": ["warm-up", "measured", "measured"], "block": [0, 0, 1]})
    told = count_rows(rows, stopped_by="its time budget").loc["measured"]
    assert [*told] == [2, 2, "its time budget"]
