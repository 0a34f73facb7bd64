"""The table of formats: medians of readers, the quickest first, a chip for each table."""

from __future__ import annotations

from pathlib import Path

from studies.formats import format_table
from tests.rows import make_row, write_record


def write_reads(folder: Path) -> None:
    """Write a record of two readers, a second copy and raw reads, of whole arrays and of time series."""
    rows = []
    for block in range(3):
        for name, seconds, of, is_ceiling in (
            ("zarr-s3fs", 3.0, "", False),
            ("zarr-obstore", 1.0 + block, "", False),
            ("control", 9.0, "zarr-obstore", False),
            ("raw", 0.1, "", True),
        ):
            for access in ("whole", "series"):
                point = {"access": access}
                cells = {"contender": name, "control_of": of, "is_ceiling": is_ceiling}
                rows.append(
                    make_row(**cells, point=point, block=block, read_s=seconds, wire_nbytes=2e6)
                )
    write_record(folder / "in-region.csv", rows)


def test_readers_are_in_the_order_of_their_medians(tmp_path: Path) -> None:
    """Neither the second copy nor raw reads are in it, and bytes are in MB."""
    write_reads(tmp_path)
    tables = format_table.tabulate_reads(tmp_path / "in-region.csv")
    assert list(tables) == ["whole", "series"]
    table = tables["whole"]
    assert list(table.index) == ["zarr-obstore", "zarr-s3fs"]
    assert table.loc["zarr-obstore", "read_s"] == 2.0
    assert table.loc["zarr-s3fs", "wire_nbytes"] == 2.0


def test_each_table_has_a_chip_and_the_first_is_chosen(tmp_path: Path) -> None:
    """Cases without a record have none; without any record the page says so."""
    assert "No record" in format_table.render_table(tmp_path)
    write_reads(tmp_path)
    text = format_table.render_table(tmp_path)
    assert text.count('type="radio"') == text.count("<table>") == 2
    assert text.count(" checked>") == 1 and "Zarr, obstore" in text
