"""Recovered networks: what is drawn, how the record is judged, and one that goes all the way."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from advisors.calibrate import recovery
from helpers.errors import UserError


def make_rows(error: float = 0.0) -> list[dict[str, Any]]:
    """Make the record of two networks, whose figures are all off by as much."""
    rng, rows = random.Random(1), []
    for number in range(2):
        for name, value in recovery.draw(rng).items():
            rows.append({"network": number, "figure": name, "drawn": value, "found": value * (1 + error)})  # fmt: skip
    return rows


@pytest.mark.parametrize(
    ("error", "told"), [(0.04, "kept by each"), (-0.06, "not kept for: first")]
)
def test_figures_are_held_to_the_target(error: float, told: str) -> None:
    """Each figure has its line, and what is further off than the target is named."""
    text = recovery._tell(make_rows(error))
    assert told in text and text.count(f"| {100 * abs(error):.1f} | {100 * abs(error):.1f} |") == 5
    lost = [row | {"found": None if row["figure"] == "requests_per_s" else row["found"]} for row in make_rows()]  # fmt: skip
    assert "requests a second | not found" in (text := recovery._tell(lost)) and "not kept" in text
    half = [row | {"found": row["found"] if row["network"] else ""} for row in [*make_rows(), *make_rows()][5:]]  # fmt: skip
    assert "| not found |" in recovery._tell(half)


def test_a_store_that_refuses_is_not_recovered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is told, and the network stays in the record."""

    def refuse(options: list[str], *, standalone_mode: bool) -> None:
        raise UserError("store: embedded: too few answers")

    monkeypatch.setattr("advisors.calibrate.cli.calibrate.main", refuse)
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path))
    rows = [*recovery.measure(1, seed=3)]
    assert len(rows) == 5 and all(row["found"] is None for row in rows)
    assert "too few answers" in capsys.readouterr().out


def test_networks_are_drawn_apart(tmp_path: Path) -> None:
    """A seed gives the same networks again; a link carries more than a stream; none is no record."""
    first, second = (recovery.draw(rng) for rng in [random.Random(1)] * 2)
    assert first == recovery.draw(random.Random(1)) != second
    assert first["median_s"] < first["p95_s"]
    assert first["stream_mb_per_s"] < first["aggregate_mb_per_s"]
    with pytest.raises(UserError, match="networks: 0; allowed"):
        next(recovery.measure(0, 1))
    assert "Not measured yet" in recovery.render_recovery(tmp_path / "none.csv")


def test_a_network_is_recovered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was drawn goes through the file of a profile, and what the calibration wrote comes back."""
    given: list[str] = []

    def write(options: list[str], *, standalone_mode: bool) -> None:
        given.extend(options)
        drawn, out = (Path(options[options.index(name) + 1]) for name in ("--emulate", "--out"))
        text = drawn.read_text(encoding="utf-8")
        out.write_text(f"{text}measurement: {{state: complete}}\n", encoding="utf-8")

    monkeypatch.setattr("advisors.calibrate.cli.calibrate.main", write)
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path))
    rows = [*recovery.measure(1, seed=3)]
    assert given[0] == "embedded" and {row["figure"] for row in rows} == {*recovery.FIGURES}
    assert all(row["found"] == row["drawn"] for row in rows)
