"""Questions that cannot be asked, and inputs that are meant to harm: one line each, and soon."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from advisors.decide.cli import decide
from helpers.cli import main
from helpers.errors import UserError

BAD = [
    ((), "shape: none"),
    (("--shape", "0,10"), r"shape: \[0, 10\]"),
    (("--shape", "ten"), "shape: 'ten'"),
    (("--shape", ",".join("2" * 9)), "at most 8 dimensions"),
    (("--shape", "10,10", "--type", "float33"), "type: 'float33'"),
    (("--shape", "10,10", "--type", "object"), "type: 'object'"),
    (("--shape", "10,10", "--variable", "x"), "variable: 'x'"),
    (("--shape", "10,10", "--access", "zigzag:1"), "access: 'zigzag'"),
    (("--shape", "10,10", "--access", "20x1:1"), r"access: \[20, 1\]"),  # more than there is
    (("--shape", "10,10", "--access", "2x2@odd:1"), "access: '2x2@odd:1'"),
    (("--shape", "10,10", "--access", "series:often"), "access: 'series:often'"),
    (("--shape", "10,10", "--access", "series:0,map:0"), "access: 'series:0,map:0'"),
    (("--shape", "10,10", "--access", "series:nan"), "access: 'series:nan'"),
    (("--shape", "10,10", "--access", "series:1,series:1"), "access: 'series' is there twice"),
    (("--shape", "10,10", "--profile", "moon"), "'moon'"),
    (("--shape", "10,10", "--compression", "0"), "compression: 0"),
    (("--shape", "10,10", "--memory", "0"), "memory: 0"),
    (("--shape", "10,10", "--memory", "1e-9"), "memory: 1e-09"),
    (("--shape", "10,10", "--cores", "0"), "cores: 0"),
    (("--shape", "10,10", "--in-flight", "0"), "in-flight: 0"),
    (("--shape", "10,10", "--arrays", "0"), "arrays: 0"),
    (("--shape", "10,10", "--max-objects", "0"), "max-objects: 0"),
    (("--shape", "1000000,100,100", "--max-objects", "1", "--memory", "1"), "max-objects: 1"),
    (("--shape", "10,10", "--append", "depth"), "append: 'depth'"),
    (("--shape", "10,10", "--append", "time:0"), "append: 'time:0'"),
    (("nowhere.zarr",), "nothing is there"),
    (("nowhere.zarr", "--shape", "10,10"), "shape: '10,10'"),
    (("--shape", "10,10", "--budget-usd-month", "0"), "budget-usd-month: 0"),
    (("--shape", "10,10", "--wait-usd-hour", "-5"), "wait-usd-hour: -5"),
    (("--shape", "10,10", "--per-second", "0"), "per-second: 0"),
    (("--shape", "10,10", "--reads-per-month", "-1"), "reads-per-month: -1"),
    (("--shape", "10,10", "--reads-per-month", "1", "--per-second", "1"), "reads-per-month: 1"),
    (("--shape", "10,10", "--chunks", "20,20"), r"chunks: \[20, 20\]"),
    (("--shape", "10,10", "--format", "hdf5"), "chunks: none"),
    (("--shape", "10,10", "--chunks", "4,4", "--shards", "6,6"), r"shards: \[6, 6\]"),
    (("--shape", "10,10", "--workers", "2"), "workers: 2"),
    (("--shape", "10,10", "--batch", "0"), "batch: 0"),
    (("--shape", "10,10", "--keep", "bytes"), "keep: bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_questions_are_one_line(options: tuple[str, ...], message: str) -> None:
    """What cannot be asked says what it is, and what is allowed."""
    with pytest.raises(UserError, match=message) as caught:
        CliRunner().invoke(decide, list(options), catch_exceptions=False)
    assert "\n" not in str(caught.value) and "allowed" in str(caught.value)


def test_a_command_that_has_moved_names_the_other() -> None:
    """In one line."""
    with pytest.raises(UserError, match="wire decide --keep one-copy"):
        CliRunner().invoke(main, ["chunks", "--shape", "10,10"], catch_exceptions=False)
