"""``wire simulate``: time, price and limit for each cluster size, and one line for what cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from advisors.costs.prices import get_prices
from advisors.scaling.cli import simulate
from advisors.scaling.outlook import MEMORY_GB_PER_CORE, make_plan
from helpers.errors import UserError

FREE = ("--task-ms", "0", "--graph-ms", "0")
SMALL = (*FREE, "--chunks", "400", "--chunk-mb", "10")


def run(*options: str) -> str:
    """Simulate, and return what is printed."""
    found = CliRunner().invoke(simulate, options, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def run_json(*options: str) -> list[dict[str, Any]]:
    """Simulate, and return the rows; nothing in them is infinite."""
    found: dict[str, Any] = json.loads(run("--json", *options), parse_constant=pytest.fail)
    rows: list[dict[str, Any]] = found["sizes"]
    return rows


def test_a_row_for_each_size() -> None:
    """Each size has its time, its tail, its price and its limit."""
    out = run(*SMALL, "--workers", "1,4,16")
    lines = [line for line in out.splitlines() if line[:8].strip() in ("1", "4", "16")]
    assert len(lines) == 3 and "of slot time" in lines[0]
    rows = run_json(*SMALL, "--workers", "1,4,16")
    assert [row["n_workers"] for row in rows] == [1, 4, 16]
    assert rows[0]["seconds"] > 3 * rows[1]["seconds"] > 9 * rows[2]["seconds"] / 1.5
    assert {"p50", "p95", "p99"} == {*rows[0]["chunk_ms"]}


def test_the_price_is_workers_and_requests() -> None:
    """Cores and memory are paid while the read lasts, requests by their number, bytes if they leave."""
    prices = get_prices()
    (row,), (out,) = (
        run_json(*SMALL, "--workers", "4", *more) for more in ((), ("--leaves-region",))
    )
    core = prices["instance_vcpu_hour"] + MEMORY_GB_PER_CORE * prices["instance_gb_hour"]
    assert row["usd"]["workers"] == pytest.approx(4 * 2 * row["seconds"] / 3600 * core)
    assert row["usd"]["requests"] == pytest.approx(0.4 * prices["store_gets_1e3"])
    assert row["usd"]["data out"] == 0
    assert out["usd"]["data out"] == pytest.approx(4 * prices["data_out_gb"])


def test_figures_of_a_profile_can_be_others() -> None:
    """A rate of 0 limits nothing, and a first byte may be slower."""
    many = (*SMALL, "--chunks", "2000", "--workers", "300")
    (link,) = run_json(*many, "--set", "aggregate_mb_per_s=100")
    (free,) = run_json(*many, "--set", "aggregate_mb_per_s=0")
    assert link["limit"] == "site link" and free["seconds"] < link["seconds"] / 3
    (slow,) = run_json(*SMALL, "--workers", "4", "--set", "median_ms=900", "--set", "p95_ms=1000")
    assert slow["limit"] == "first byte" and slow["chunk_ms"]["p50"] > 900
    plan = make_plan("loopback", changes={"median_ms": 1, "p95_ms": 2}, task_ms=0, graph_ms=0)
    assert plan.profile.first_byte_s is not None and plan.profile.first_byte_s.p95_s == 0.002


def test_hedges_are_told() -> None:
    """Hedging says what it costs in requests."""
    assert "hedges: " in run(*SMALL, "--workers", "10", "--hedge-after", "60", "--tail", "2")
    assert "hedges: " not in run(*SMALL, "--workers", "10")


def test_a_client_that_would_give_up_is_told() -> None:
    """Where the store refuses a chunk too often, the simulation goes on but says so."""
    out = run(
        *FREE,
        "--chunks",
        "1000",
        "--chunk-mb",
        "1",
        "--workers",
        "500",
        "--set",
        "requests_per_s=5",
    )
    assert "a client ends the read then" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", ""), "--workers"),
        (("--workers", "0"), "--workers"),
        (("--workers", "1,ten"), "--workers"),
        (("--workers", "1000000"), "--workers"),
        (("--chunks", "0"), "--chunks"),
        (("--chunks-per-task", "0"), "--chunks-per-task"),
        (("--slots", "0"), "--slots"),
        (("--cores", "0"), "cores_per_worker"),
        (("--chunk-mb", "0"), "chunk_mb"),
        (("--decode-ms", "-1"), "decode_ms"),
        (("--task-ms", "nan"), "task_ms"),
        (("--hedge-after", "0"), "hedge_after_s"),
        (("--tail", "1"), "tail alpha"),
        (("--profile", "moon"), "profile: 'moon'"),
        (("--set", "latency=1"), "--set latency=1"),
        (("--set", "stream_mb_per_s"), "--set"),
        (("--set", "stream_mb_per_s=-1"), "stream_mb_per_s"),
        (("--profile", "loopback", "--set", "p95_ms=1"), "--set"),
    ],
)
def test_bad_options_are_one_line(options: tuple[str, ...], message: str) -> None:
    """What cannot be simulated is named with what is allowed."""
    with pytest.raises(UserError, match=f"^{message}.*allowed") as caught:
        run(*FREE, *options)
    assert "\n" not in str(caught.value)
