"""TileDB's schema holds the compression that was asked for, or the array is refused."""

from __future__ import annotations

import pytest

from helpers.errors import UserError
from studies.formats.tiles import check_filters

SHUFFLE = "ByteShuffleFilter()"


@pytest.mark.parametrize(
    ("cname", "found"),
    [
        ("zstd", [SHUFFLE, "ZstdFilter(level=5)"]),
        ("lz4", [SHUFFLE, "LZ4Filter(level=5)"]),
        ("", []),
    ],
)
def test_what_was_asked_for_is_taken(cname: str, found: list[str]) -> None:
    """Shuffled bytes and the codec at its level; or nothing at all."""
    check_filters(found, cname)


@pytest.mark.parametrize(
    ("cname", "found"),
    [
        ("zstd", []),  # as published benchmarks had it: asked for, and not set
        ("zstd", ["ZstdFilter(level=5)"]),
        ("zstd", [SHUFFLE, "ZstdFilter(level=-1)"]),
        ("", ["ZstdFilter(level=-1)"]),
    ],
)
def test_another_compression_is_refused(cname: str, found: list[str]) -> None:
    """One line says what is stored and what was asked for."""
    with pytest.raises(
        UserError, match="^format: tiledb is stored with .*; allowed: .*, as asked$"
    ):
        check_filters(found, cname)
