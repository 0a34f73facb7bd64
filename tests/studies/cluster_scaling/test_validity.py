"""The comparison of dilations: what it reads, tells and refuses; how long it takes is its result."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.errors import UserError
from helpers.netem.profiles import FirstByte, Profile
from studies.cluster_scaling.validity import compare

FAST = Profile("fast", FirstByte(0.002, 0.002), stream_mb_per_s=50.0)


def test_dilations_are_compared_in_virtual_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request takes less than the network's virtual time; the first is its own reference."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path / "cache"))
    few = {"n_objects": 4, "object_nbytes": 50_000, "n_connections": 2, "n_rounds": 2}
    table = compare(FAST, (1, 5), **few)
    assert table.index.tolist() == [1, 5]
    assert table.loc[1, ["ratio", "least", "most"]].tolist() == [1, 1, 1]
    # 2 ms, and 1 for 50 kB
    assert (table["first_byte_s"] > 0.0019).all() and (table["body_s"] > 0.0009).all()
    assert (table["seconds"] > 0.0058).all()


@pytest.mark.parametrize(
    ("dilations", "n_rounds"), [((), 1), ((1,), 0), ((0.5,), 1), ((float("nan"),), 1)]
)
def test_no_comparison_without_dilations(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dilations: tuple[float, ...],
    n_rounds: int,
) -> None:
    """What cannot be compared is refused in one line."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="dilation.*allowed"):
        compare(FAST, dilations, n_rounds=n_rounds)
