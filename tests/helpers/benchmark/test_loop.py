"""The timing loop: order from the seed, warm-ups apart, rules kept, failures told."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from helpers.benchmark import loop
from helpers.benchmark.contender import CheckError, Contender, Steps
from helpers.benchmark.loop import (
    Budget,
    MeasurementError,
    measure_blocks,
    plan_block,
)
from helpers.benchmark.provenance import Provenance
from helpers.benchmark.record import Record, read_records
from helpers.paths import ROOT
from tests.refusals import refused

ORIGIN = Provenance({"n_cores": 2}, {"zarr": "3.1.6"}, {"seed": 1})


@pytest.fixture(autouse=True)
def _young_garbage_only() -> Iterator[None]:
    """Let the loop collect the garbage of a test, not look through what hundreds of imports made."""
    gc.freeze()
    yield
    gc.unfreeze()


class Clock:
    """A clock that moves only when told, in place of the real one."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock of the loop."""
    clock = Clock()
    monkeypatch.setattr(loop.time, "perf_counter", clock.perf_counter)
    return clock


def make_record(folder: Path, **changed: Any) -> Record:
    """Open the record of a case."""
    return Record(folder / "case.csv", **{"study": "s", "provenance": ORIGIN, **changed})


def make_contender(name: str = "a", *, n_workers: int = 1, **changed: Any) -> Contender:
    """Return a contender that does nothing, quickly, but for the steps and facts that are given."""
    steps: dict[str, Any] = {
        "settings": lambda: {"cache_state": "cold", "codec": "zstd"},
        "nbytes": lambda: (200, 100),
        "open": lambda: "opened",
        "read": lambda opened: (opened, "read"),
        "check": lambda result: "crc32c of 3 chunks",
    }
    steps |= {step: changed.pop(step) for step in vars(Steps) if step in changed}
    made = type("Made", (Steps,), {step: staticmethod(do) for step, do in steps.items()})
    return Contender(name, made(), point={"n_workers": n_workers}, **changed)


def run(contenders: list[Contender], record: Record, **changed: Any) -> pd.DataFrame:
    """Measure two blocks after one warm-up, unless told otherwise."""
    rule: dict[str, Any] = {"seed": 1, "n_blocks": 2, "time_budget_s": 1e9, "dilation": 1}
    rule |= changed
    rule.setdefault("budget", Budget(rule.pop("time_budget_s")))
    return measure_blocks(contenders, record, **rule)


def test_every_contender_once_a_block(tmp_path: Path) -> None:
    """Three contenders, one warm-up and two blocks are nine rows, on disk too."""
    record = make_record(tmp_path)
    found = run([make_contender(name) for name in "abc"], record)
    assert Counter(zip(found["phase"], found["block"], strict=True)) == {
        ("warm-up", 0): 3,
        ("measured", 0): 3,
        ("measured", 1): 3,
    }
    assert found["phase"].tolist()[:3] == ["warm-up"] * 3
    assert found.groupby(["phase", "block"])["contender"].nunique().eq(3).all()
    assert found["order"].tolist() == [0, 1, 2] * 3
    pd.testing.assert_frame_equal(read_records([record.path]), found)


def test_each_group_has_the_clock_of_its_network(tmp_path: Path, clock: Clock) -> None:
    """Ten real seconds are one of a network that is ten times slower; a group without one is refused."""
    pair = [timed(clock, name, [10.0], group=name) for name in ("a", "b")]
    with refused("dilation", "^none of b", "one of each group"):
        run(pair, make_record(tmp_path), dilation={"a": 1})
    rule: dict[str, Any] = {"n_warm_ups": 0, "n_blocks": 1}
    found = run(pair, make_record(tmp_path), dilation={"a": 1, "b": 10}, **rule)
    found = found.set_index("contender").loc[["a", "b"]]
    assert found["read_s"].tolist() == [10, 1] and found["real_read_s"].tolist() == [10, 10]
    assert found["dilation"].tolist() == [1, 10] and {*found["read_deadline_s"]} == {1e9}


def test_row_carries_what_was_declared_and_traced(tmp_path: Path) -> None:
    """Settings, bytes, requests, check, origin: all in the row."""
    numbers = {"n_requests": 7, "wire_nbytes": 120, "box_s": [0.25, 1]}
    one = make_contender(collect=lambda: numbers, is_ceiling=True)
    copy = make_contender("copy", control_of="a")
    found = run([one, copy], make_record(tmp_path), n_blocks=1).set_index("contender")
    assert found.loc["a", "n_requests"].tolist() == [7, 7]
    assert found.loc["a", "wire_nbytes"].tolist() == [120, 120]
    traces = [json.loads(text) for text in found.loc["a", "trace"]]
    assert [trace.pop("busy_s") >= 0 for trace in traces] == [True] * 2
    assert traces == [{"box_s": [0.25, 1]}] * 2
    assert found.loc["a", "check"].tolist() == ["crc32c of 3 chunks"] * 2
    assert found.loc["a", "is_ceiling"].all() and not found.loc["copy", "is_ceiling"].any()
    assert found.loc["copy", "control_of"].tolist() == ["a"] * 2
    assert found["codec"].eq("zstd").all() and found["cache_state"].eq("cold").all()
    assert found["n_workers"].eq(1).all() and found["seed"].eq(1).all()
    assert found["fingerprint"].eq(ORIGIN.fingerprint).all()
    assert found.loc["copy", "n_requests"].isna().all()
    assert numbers == {"n_requests": 7, "wire_nbytes": 120, "box_s": [0.25, 1]}


def test_row_has_waves_and_what_the_client_computed(tmp_path: Path) -> None:
    """Ten requests, four at once at most, are two waves and a half; who computes nothing has spent little."""
    counted = {"n_requests": 10, "max_in_flight": 4}
    spin = make_contender("spin", read=lambda _: sum(range(10**6)), collect=lambda: counted)
    found = run([make_contender("idle"), spin], make_record(tmp_path)).set_index("contender")
    assert {*found.loc["spin", "waves"]} == {2.5} and found.loc["idle", "waves"].isna().all()
    if sys.platform == "linux":
        assert (found["client_s"] >= 0.9 * found["thread_s"]).all()
        assert found.loc["spin", "thread_s"].min() > found.loc["idle", "thread_s"].max()


_CHARGED = """
import sys, time
from pathlib import Path
from helpers.benchmark.provenance import Provenance
from tests.helpers.benchmark.test_loop import make_contender, make_record, run, spin_for

readers = [
    make_contender("charged", read=spin_for(0.5)),
    make_contender("free", read=spin_for(0.5), cpus=0),
    make_contender("one", read=spin_for(0.5), cpus=1),
]
asked = Provenance({}, {}, {"processors": 7})  # what the case was asked for decides nothing
record = make_record(Path(sys.argv[1]), provenance=asked)
run(readers, record, dilation=5, n_blocks=1, n_warm_ups=0, cpus=2)
"""


def spin_for(seconds: float) -> Callable[[Any], int]:
    """Make a read that takes so much of a processor."""

    def read(_opened: Any) -> int:
        until_s, n = time.process_time() + seconds, 0
        while time.process_time() < until_s:
            n += 1
        return n

    return read


@pytest.mark.skipif(sys.platform != "linux", reason="what threads compute is in /proc")
def test_cpus_count_where_asked(tmp_path: Path) -> None:
    """A second of one thread takes a second of the network's time, as the case or the contender asks."""
    command = [sys.executable, "-c", _CHARGED, str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT)  # a process of its own, for it is stopped
    rows = read_records([tmp_path / "case.csv"]).set_index("contender")
    charged, free = rows.loc["charged"], rows.loc["free"]
    assert (charged["cpus"], free["cpus"], rows.loc["one", "cpus"]) == (2, 0, 1)
    assert charged["processors"] == 2 and json.loads(charged["trace"])["stopped_s"] > 0
    assert charged["read_s"] > 0.4 and charged["thread_s"] > 0.4
    assert math.isnan(free["processors"]) and "stopped_s" not in json.loads(free["trace"])


def test_more_processors_than_there_are_is_one_line(tmp_path: Path) -> None:
    """Nothing is measured, nor is anything written."""
    asked = make_contender(n_machines=4)
    with refused("processors", "^1000 in each of 4"):
        run([asked], make_record(tmp_path), cpus=1000)
    assert not [*tmp_path.iterdir()]


def test_only_open_and_read_are_timed(tmp_path: Path, clock: Clock) -> None:
    """Opening takes 1 s, reading 10 s; all the rest is outside the clock."""
    steps: list[str] = []

    def takes(name: str, seconds: float, result: Any) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            steps.append(name)
            clock.now += seconds
            return (*arguments, result) if arguments else result

        return step

    contender = make_contender(
        prepare=takes("prepare", 100, None),
        open=takes("open", 1, "opened"),
        read=takes("read", 10, "read"),
        collect=takes("collect", 1000, {"n_requests": 1}),
        check=lambda result: takes("check", 1000, None)() or str(result),
        group="four workers",
    )
    enter = takes("enter", 1e4, None)
    found = run([contender], make_record(tmp_path), n_warm_ups=0, n_blocks=1, enter_group=enter)
    assert found["open_s"].tolist() == [1] and found["read_s"].tolist() == [10]
    assert found["check"].tolist() == ["('opened', 'read')"]
    # The trace is taken before the check can add requests of its own.
    assert steps == ["enter", "prepare", "open", "read", "collect", "check"]


def test_order_comes_from_the_seed_alone() -> None:
    """The same seed gives the same order; seeds, blocks and phases give others."""
    contenders = [make_contender(name) for name in "abcdefgh"]

    def order(**changed: Any) -> str:
        where: dict[str, Any] = {"seed": 1, "phase": "measured", "block": 0} | changed
        return "".join(one.name for one in plan_block(contenders, **where))

    assert order() == order()
    assert sorted(order()) == list("abcdefgh")
    assert len({order(), order(seed=2), order(block=1), order(phase="warm-up")}) == 4


def test_groups_stay_together_in_random_order() -> None:
    """Contenders of a group are neighbours; groups and members change places."""
    contenders = [
        make_contender(name, n_workers=n, group=f"{n} workers") for n in (1, 2, 4) for name in "ab"
    ]
    plans = [plan_block(contenders, seed=0, phase="measured", block=b) for b in range(40)]
    for plan in plans:
        groups = [one.group for one in plan]
        assert groups[0::2] == groups[1::2] and len(set(groups)) == 3
    assert len({tuple(one.group for one in plan) for plan in plans}) == 6
    assert {plan[0].name for plan in plans} == {"a", "b"}


def test_short_reads_are_said_before_they_are_measured(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a read that is long, or makes many requests, or is a ceiling, nothing is said."""
    for name, seconds, n_requests, is_ceiling in (
        ("a", 0.5, 3, False), ("b", 0.5, 20, False), ("c", 1.0, 3, False), ("d", 0.5, 3, True)
    ):  # fmt: skip
        one = timed(clock, name, [seconds], n_requests=n_requests, is_ceiling=is_ceiling)
        run([one], make_record(tmp_path))
        told = capsys.readouterr().out
        assert told.startswith("1 of 1 warm-up reads took less than 1 s") == (name == "a"), told


def raise_error(*_: Any) -> Any:
    """Fail as a library does: over several lines."""
    raise OSError("connection\n  reset by hunter2")


def check_wrong(_: Any) -> str:
    """Find what was read to be wrong."""
    raise CheckError("chunk 0.3: crc32c 1 read, 2 written")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"open": raise_error}, "open failed: OSError: connection reset by"),
        ({"read": raise_error}, "read failed: OSError: connection reset by"),
        ({"collect": raise_error}, "collect failed: OSError: connection reset by"),
        ({"check": check_wrong}, "check failed: CheckError: chunk 0.3: crc32c 1 read, 2 written"),
        ({"check": lambda _: ""}, "check failed: CheckError: it does not say"),
        ({"enter_block": raise_error}, "prepare failed: OSError: connection reset by"),
    ],
)
def test_a_failure_leaves_no_row_and_loses_none(
    tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    """One line names contender, block, step and cause; rows before it are on disk."""
    n_calls = Counter[str]()
    (step, broken), *_ = changed.items()
    sound = getattr(make_contender().steps, step)

    def fails_in_the_second_block(*arguments: Any) -> Any:
        n_calls[step] += 1
        return (broken if n_calls[step] == 2 else sound)(*arguments)

    bad = make_contender("bad", n_workers=4, **{step: fails_in_the_second_block})
    contenders = [make_contender("good 1"), bad, make_contender("good 2")]
    record = make_record(tmp_path, secrets=["hunter2"])
    where = r'bad \{"n_workers": 4\}, measured block 0'
    with refused(where, f"^{told}", kind=MeasurementError) as caught:
        run(contenders, record)
    assert "hunter2" not in str(caught.value)
    assert isinstance(caught.value.__cause__, Exception)
    plan = [one.name for one in plan_block(contenders, seed=1, phase="measured", block=0)]
    rows = read_records([record.path])
    before = plan[: plan.index("bad")]
    assert rows.loc[rows["phase"] == "measured", "contender"].tolist() == before
    # What failed once can be continued: only what is missing is measured.
    found = run(contenders, make_record(tmp_path, secrets=["hunter2"]))
    assert (found["phase"] == "measured").sum() == 6
    assert not found.duplicated(["phase", "block", "contender"]).any()


def hang(*_: object) -> None:
    """Wait for ever, as a library that tries again whatever happens."""
    while True:
        with contextlib.suppress(Exception):
            time.sleep(60)


@pytest.mark.parametrize(
    ("broken", "lost", "told"),
    [
        ({"open": hang}, "", "open failed: TimeoutError: not done in 0.2"),
        ({"read": hang}, "", "read failed: TimeoutError: not done in 0.2"),
        # long before the deadline, whether it hangs or fails of its own
        ({"read": hang}, "the proxy has ended", "ConnectionError: the proxy has ended$"),
        ({"read": raise_error}, "the proxy has ended", "ConnectionError: the proxy has ended$"),
    ],
)
def test_what_hangs_ends_by_the_deadline_or_with_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: dict[str, Any], lost: str, told: str
) -> None:
    """Opening and reading that never end are a failure in one line, whatever catches errors there."""
    monkeypatch.setattr(loop, "LEAST_DEADLINE_S", 60.0 if lost else 0.2)
    monkeypatch.setattr("wire.deadline.WATCH_S", 0.05)
    waiting = make_contender(**broken)
    monkeypatch.setattr(type(waiting.steps), "find_dead_process", lambda _self: lost)
    with refused(r".*, \S+ block 0", told, kind=MeasurementError):
        run([waiting], make_record(tmp_path), time_budget_s=0.1)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def phases(found: pd.DataFrame) -> list[tuple[str, int]]:
    """List phases and blocks in the order in which they were measured."""
    return [*dict.fromkeys(zip(found["phase"], found["block"], strict=True))]


@pytest.mark.parametrize("n_warm_ups", [0, 1, 2])
def test_a_continued_record_is_warmed_up_again(tmp_path: Path, n_warm_ups: int) -> None:
    """A later process is as cold as the first was, so its first block is a warm-up of its own."""
    first = run([make_contender()], make_record(tmp_path), n_warm_ups=n_warm_ups)
    warm = [("warm-up", block) for block in range(n_warm_ups)]
    assert phases(first) == [*warm, ("measured", 0), ("measured", 1)]
    again = run([make_contender()], make_record(tmp_path), n_warm_ups=n_warm_ups, n_blocks=3)
    n_more = max(1, n_warm_ups)
    more = [("warm-up", n_warm_ups + i) for i in range(n_more)]
    assert phases(again)[len(phases(first)) :] == [*more, ("measured", 2)]
    # Nothing is warmed up where nothing is to be measured.
    whole = run([make_contender()], make_record(tmp_path), n_warm_ups=n_warm_ups, n_blocks=3)
    assert phases(whole) == phases(again)


def test_a_continued_record_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """Interrupted after each number of rows, the end is the same, and no block runs twice."""
    for folder in ("whole", "parts"):
        (tmp_path / folder).mkdir()

    def fragile(name: str, left: list[int]) -> Contender:
        def read(_: Any) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1

        return make_contender(name, read=read)

    whole = run([make_contender(name) for name in "abc"], make_record(tmp_path / "whole"))
    for n_rows in (1, 2, 2, 4, 4):  # the last two begin with three rows of warming up again
        left = [n_rows]
        with pytest.raises(KeyboardInterrupt):
            run([fragile(name, left) for name in "abc"], make_record(tmp_path / "parts"))
    parts = run([fragile(name, [99]) for name in "abc"], make_record(tmp_path / "parts"))
    columns = ["phase", "block", "order", "contender"]
    assert (parts["phase"] == "warm-up").sum() > (whole["phase"] == "warm-up").sum()
    for found in (whole, parts):
        found.drop(found[(found["phase"] == "warm-up") & (found["block"] > 0)].index, inplace=True)
    assert parts[columns].to_numpy().tolist() == whole[columns].to_numpy().tolist()


def timed(
    clock: Clock, name: str, seconds: list[float], n_requests: int = 99, **changed: Any
) -> Contender:
    """Return a contender whose reads take the times given, the last one for ever."""
    left = [*seconds]

    def read(_: Any) -> None:
        clock.now += left.pop(0) if len(left) > 1 else left[0]

    collect = {"collect": lambda: {"n_requests": n_requests}}
    return make_contender(name, read=read, **collect, **changed)


@pytest.mark.parametrize(
    ("before_s", "read_s", "rule", "n_blocks"),
    [
        ((0, 0), 1.0, {"n_blocks": 3}, 3),
        # of 10 s, two blocks of 4 s leave no room for a third
        ((0, 0), 4.0, {}, 2),
        ((0, 0), 2.0, {}, 5),
        # real seconds, also where the network is slower
        ((0, 0), 2.0, {"dilation": 10}, 5),
        # what opens and calibrates takes from the time that is left for measuring
        ((3, 0), 2.0, {}, 3),
        ((3, 4), 2.0, {}, 1),
        # one block is always measured
        ((30, 40), 2.0, {}, 1),
    ],
)
def test_one_budget_bounds_a_whole_case(
    tmp_path: Path,
    clock: Clock,
    before_s: tuple[float, float],
    read_s: float,
    rule: dict[str, Any],
    n_blocks: int,
) -> None:
    """The loop stops where the rule says, and says why."""
    record, budget = make_record(tmp_path), Budget(10.0)
    opening_s, calibration_s = before_s
    clock.now += opening_s
    rule = {"n_warm_ups": 0, "n_blocks": 20, "budget": budget} | rule
    calibrating = timed(clock, "a", [float(calibration_s)])
    run([calibrating], record, **(rule | {"phase": "calibration", "n_blocks": 1}))
    found = run([timed(clock, "a", [read_s])], record, **rule)
    assert (found["phase"] == "measured").sum() == n_blocks
    stopped_by = "n_blocks" if rule["n_blocks"] == n_blocks else "time_budget"
    assert record.stopped_by == found.attrs["stopped_by"] == stopped_by
    assert budget.spent_s == opening_s + calibration_s + read_s * n_blocks


def test_a_continued_run_measures_at_least_a_block(tmp_path: Path, clock: Clock) -> None:
    """Whoever asks for more gets a block, though opening and warming up took all the time."""
    rule: dict[str, Any] = {"n_warm_ups": 0, "n_blocks": 9}
    run([timed(clock, "a", [4.0])], make_record(tmp_path), time_budget_s=10.0, **rule)
    late = Budget(10.0)
    clock.now += 20.0
    found = run([timed(clock, "a", [4.0])], make_record(tmp_path), budget=late, **rule)
    assert (found["phase"] == "measured").sum() == 3
    assert found.attrs["stopped_by"] == "time_budget"


def test_contenders_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    """No cache state, one twice, or a copy of nothing: nothing is measured."""
    with refused("settings", "^a states no cache_state"):
        make_contender(settings=lambda: {"codec": "zstd"})
    with refused("control_of", "^'b' of a", "a"):
        run([make_contender(control_of="b")], make_record(tmp_path))
    with refused("contenders", "^a .* given twice"):
        run([make_contender(), make_contender()], make_record(tmp_path))
    assert not [*tmp_path.iterdir()]
