"""What a change was predicted to gain, against the same program with the change, over three networks."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable

import numpy as np
import pytest

from tests.wire.trace import planted
from tests.wire.trace.programs import HEADS
from tests.wire.trace.test_findings import near  # noqa: F401  # a fixture
from tests.wire.trace.watched import watch
from wire.bed.locations import Location
from wire.bed.networks import FirstByte, Profile, get_profile, of_one_process
from wire.trace import analysis, findings
from wire.trace.rows import Run

THREADS = "\nwith ThreadPoolExecutor({}) as pool: [*pool.map(session.get, [url + f'files/{{i}}' for i in range({})])]"
PARTS = """
async def parts(n):
    await asyncio.gather(*(obstore.get_range_async(store, 'large', start=n * i, length=min(n, 36_000_000 - n * i)) for i in range(-(-36_000_000 // n))))
asyncio.run(parts(2**23))
"""
CHANGES = [  # the cause, its client, the program, and the program with the change
    ("looks", "zarr-s3fs", "a = group('cube')['a']\nfor t in range(12): a[t]", "a = group('cube', max_concurrency=1)['a']\nfor t in range(12): a[t]"),
    ("repeats", "obstore", "for _ in range(12): asyncio.run(all_of([f'files/{i}' for i in range(6)]))", "asyncio.run(all_of([f'files/{i}' for i in range(6)]))"),
    ("overlaps", "s3fs", "f = fs.open(root + 'large')\nfor mb in (30, 24, 18, 12, 6, 0): f.seek(mb * 10**6); f.read(20_000)", "f = fs.open(root + 'large', cache_type='blockcache', block_size=6 * 10**6)\nfor mb in (30, 24, 18, 12, 6, 0): f.seek(mb * 10**6); f.read(20_000)"),
    ("neighbours", "obstore", "for i in range(40): obstore.get_range(store, 'large', start=60_000 * i, length=60_000)", "obstore.get_range(store, 'large', start=0, length=2_400_000)"),
    ("in-turn", "requests", "for i in range(20): session.get(url + f'files/{i}')", THREADS.format(10, 20)),
    ("metadata", "zarr-obstore", "more = {'use_consolidated': False}\ng = group('many')\nfor i in range(25): g[f'v{i}'].shape", "g = group('many')\nfor i in range(25): g[f'v{i}'].shape"),
    ("listings", "obstore", "for i in range(12):\n  obstore.list(store, 'files').collect()\n  obstore.get(store, f'files/{i}').bytes()", "obstore.list(store, 'files').collect()\nfor i in range(12): obstore.get(store, f'files/{i}').bytes()"),
    ("one-stream", "obstore", "obstore.get(store, 'large').bytes()", PARTS),
    ("connections", "requests", "for i in range(20): part(1_500_000 * (i * 7 % 20), get=requests.get)", "for i in range(20): part(1_500_000 * (i * 7 % 20))"),
    ("few", "requests", THREADS.format(4, 40), THREADS.format(40, 40)),
]  # fmt: skip


@pytest.mark.quiet
@pytest.mark.slow
def test_predicted_gains_are_measured(near: Location) -> None:  # noqa: F811
    """From the first request on, the gain is off by 15 % in the median and 35 % in nine of ten, at most."""
    lines, beyond, errors = list[str](), list[str](), list[float]()
    for network in map(get_profile, ("in-region", "other-region", "wide-area")):
        network = of_one_process(network)
        for cause, client, slow, fast in CHANGES:
            run = watch(HEADS[client] + slow, near, network)
            finding = next((item for item in findings.find(run) if item.name == cause), None)
            if finding is None:  # too little to gain there to be said
                lines.append(f"{network.name}, {cause}: not said")
                continue
            changed = watch(HEADS[client] + fast, near, network)
            start_s = analysis.find_time(run)["start"]
            before_s = run.wall_s - start_s
            predicted = before_s / (finding.seconds - start_s)
            measured = before_s / (changed.wall_s - analysis.find_time(changed)["start"])
            words = "at most" if finding.is_bound else "predicted"
            lines.append(
                f"{network.name}, {cause}: {words} {predicted:.2f}, measured {measured:.2f}"
            )
            if finding.is_bound:
                beyond += [lines[-1]] * (measured > 1.1 * predicted)
            else:
                errors.append(abs(predicted / measured - 1))
    told = "\n".join(lines)
    print(told, np.quantile(errors, [0.5, 0.9]))
    assert not beyond
    assert np.median(errors) <= 0.15, told
    assert np.quantile(errors, 0.9) <= 0.35, told


@pytest.mark.quiet
@pytest.mark.slow
def test_shares_of_time_are_those_planted(near: Location) -> None:  # noqa: F811
    """Sleep, spin, first bytes and a body of a second each are a quarter of the time, within 5 points."""
    body = """
import time
for _ in range(5): part(10 * _)
session.get(url + 'large')
time.sleep(1)
until = time.process_time() + 1
while time.process_time() < until: pass
part(5)
"""
    network = Profile("planted", FirstByte(1 / 7, 1 / 7), stream_mb_per_s=36)
    began_s = time.perf_counter()
    run = watch(HEADS["requests"] + body, near, network)
    found = analysis.find_time(run)
    asking_s = run.wall_s - found["start"]
    assert time.perf_counter() - began_s < 60
    for what in ("idle", "processor", "first bytes", "bodies"):
        assert found[what] / asking_s == pytest.approx(0.25, abs=0.05), found


def parts_at_once(program: planted.Program, n: int) -> None:
    """Read the parts of `planted.parts_in_turn`, so many at once and none before the others."""
    ends = list[float]()
    for i in range(30):
        if len(ends) >= n:
            program.now_s = max(program.now_s, heapq.heappop(ends))
        end_s = program.request("/b/parts.bin", 20_000, start=(i * 11 % 30) * 3_000_000)
        heapq.heappush(ends, end_s)
    program.now_s = max(ends)


def joined_chunks(program: planted.Program, n: int) -> None:
    """Read the chunks of `planted.small_chunks`, so many in one."""
    program.together([f"/b/small/c/{i}" for i in range(900 // n)], 3000 * n, n=40)


def no_tail(program: planted.Program, n: int) -> None:
    """Read the objects of `planted.slow_tail`, of which a late one is asked for again after `n` / 100 s."""
    for i in range(3):
        program.together([f"/b/tail/{i}/{j}.bin" for j in range(100)], n=100)
        program.wait(f"/b/tail/{i}/late.bin", latency_s=planted.LATENCY_S + n / 100)


def no_refusals(program: planted.Program, n: int) -> None:
    """Read the objects of `planted.throttled` that came, so many at once."""
    for i in range(10):
        program.together([f"/b/limit/{i}", *(f"/b/limit/{i}/{j}" for j in range(3))], n=n)


AT_MOST = [
    *(("parts-in-turn", planted.parts_in_turn, parts_at_once, n) for n in (2, 10, 64)),
    *(("small-chunks", planted.small_chunks, joined_chunks, n) for n in (4, 20, 60)),
    *(("slow-tail", planted.slow_tail, no_tail, n) for n in (0, 10, 50)),
    *(("throttled", planted.throttled, no_refusals, n) for n in (1, 4)),
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("cause", "plant", "change", "n"), AT_MOST)
def test_at_most_is_never_exceeded(
    cause: str,
    plant: planted.Plant,
    change: Callable[[planted.Program, int], None],
    n: int,
    seed: int,
) -> None:
    """The same requests made otherwise, each with a first byte drawn anew, gain no more, but for a tenth."""

    def run(plant: Callable[[planted.Program], None], seed: int) -> Run:
        program = planted.Program(rng=random.Random(seed))
        plant(program)
        return program.end(has_lines=False)

    before, after = run(plant, seed), run(lambda program: change(program, n), seed + 100)
    (finding,) = (item for item in findings.find(before) if item.name == cause)
    assert finding.is_bound and not finding.phase_least_gain
    spans_s = [
        max(row.end_s for row in trace.rows) - min(row.start_s for row in trace.rows)
        for trace in (before, after)
    ]
    measured = spans_s[0] / spans_s[1]
    assert finding.phase_seconds == pytest.approx(spans_s[0], rel=0.01)
    assert measured <= 1.1 * finding.phase_gain, (measured, finding.phase_gain)
