"""A simulated cluster: what limits it comes out as the arithmetic has it, and batches change little."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisors.scaling import cluster
from advisors.scaling.cluster import CAUSES, Cluster, Simulated, simulate_cluster
from advisors.scaling.latency import Tail, connect, fit_tail
from helpers.errors import UserError
from helpers.models import transfer
from helpers.models.transfer import Client
from helpers.netem.profiles import FirstByte, Profile, get_profile, network_of
from helpers.netem.profiles import Tail as ProfileTail

WARM = Profile("warm", FirstByte(0.03, 0.1), stream_mb_per_s=50, aggregate_mb_per_s=400)
READER = Client(2e6, connections_per_worker=2, cpu_s_per_chunk=0.01)


def simulate(
    profile: Profile = WARM,
    client: Client = READER,
    n_workers: int = 10,
    n_chunks: int = 2000,
    **more: float,
) -> Simulated:
    """Simulate a cluster whose connections are open."""
    n_waves = int(more.pop("n_waves", 50))
    given: dict[str, float] = {"rtt_s": 0.0, **more}
    return simulate_cluster(profile, client, Cluster(n_workers, **given), n_chunks, n_waves=n_waves)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("n_workers", "n_requests"), [*itertools.product([1, 3, 30], [1.0, 2.0, 1.5]), (200, 1.5)]
)
@pytest.mark.parametrize("is_overlapped", [False, True])
def test_it_agrees_with_the_transfer_model(
    n_workers: int, is_overlapped: bool, n_requests: float
) -> None:
    """Where workers have no link of their own, the model of single events says the same."""
    client = replace(READER, is_overlapped=is_overlapped, requests_per_chunk=n_requests)
    n_chunks = 40 * max(n_workers, 10)
    single_s = statistics.median(
        transfer.simulate(
            network_of(WARM), client, n_chunks, n_workers=n_workers, n_cores=1e6, seed=seed
        )
        for seed in range(3)
    )
    batched_s = statistics.median(
        simulate_cluster(
            WARM, client, Cluster(n_workers, math.inf, rtt_s=0), n_chunks, seed=seed
        ).seconds
        for seed in range(3)
    )
    assert batched_s == pytest.approx(single_s, rel=0.06)


def test_processors_that_all_share() -> None:
    """On a machine of two cores, decoding takes as long as two cores need for it."""
    client = replace(READER, cpu_s_per_chunk=0.1)
    found = simulate(client=client, n_workers=8, n_chunks=400, n_cores=2)
    assert found.seconds == pytest.approx(400 * 0.1 / 2, rel=0.05)
    assert found.limit == "decoding"


def test_cores_of_a_worker() -> None:
    """Four connections of a worker of one core decode one chunk at a time."""
    client = Client(1e3, connections_per_worker=4, cpu_s_per_chunk=0.1)
    found = simulate(Profile("none"), client, n_workers=2, n_chunks=200, cores_per_worker=1)
    assert found.seconds == pytest.approx(200 * 0.1 / 2, rel=0.02)


@pytest.mark.parametrize(
    ("rates", "mb_per_s", "limit"),
    [
        ({"stream_mb_per_s": 10}, 10 * 2 * 4, "stream"),
        ({"stream_mb_per_s": 90, "worker_mb_per_s": 100}, 100 * 4, "worker link"),
        (
            {"stream_mb_per_s": 90, "worker_mb_per_s": 100, "aggregate_mb_per_s": 150},
            150,
            "site link",
        ),
        ({"aggregate_mb_per_s": 60}, 60, "site link"),
    ],
)
def test_links(rates: dict[str, float], mb_per_s: float, limit: str) -> None:
    """The narrowest of stream, link of the worker and link of the site decides, and is named."""
    found = simulate(Profile("links", **rates), Client(5e6, connections_per_worker=2), 4, 400)  # type: ignore[arg-type]
    assert found.nbytes / found.seconds / 1e6 == pytest.approx(mb_per_s, rel=0.03)
    assert found.limit == limit


@given(
    n_jobs=st.lists(st.integers(0, 4), min_size=1, max_size=30).filter(any),
    worker=st.floats(1, 400),
    together=st.floats(1, 4000),
)
def test_shares_are_fair(n_jobs: list[int], worker: float, together: float) -> None:
    """No link carries more than it can, and whoever has less than the largest share is at a ceiling."""
    is_job = np.array([[row < n for n in n_jobs] for row in range(4)]).ravel()
    rates, held_by = cluster._Fluid(100.0, worker, together).rates(is_job, len(n_jobs))
    of_jobs = rates[is_job]
    assert of_jobs.sum() <= together * (1 + 1e-9)
    assert (rates.reshape(4, -1) * is_job.reshape(4, -1)).sum(axis=0).max() <= worker * (1 + 1e-9)
    ceilings = np.minimum(100.0, worker / np.maximum(1, np.tile(n_jobs, 4)))[is_job]
    held = of_jobs < ceilings * (1 - 1e-9)
    if held.any():
        assert np.allclose(of_jobs[held], of_jobs.max())
        assert of_jobs.sum() == pytest.approx(together)
    assert held_by.sum() == sum(n_jobs) and held_by[2] == held.sum()


@pytest.mark.parametrize("chunks_per_task", [1, 10])
def test_the_scheduler_gives_out_so_many_tasks_a_second(chunks_per_task: int) -> None:
    """With a millisecond a task, ten thousand tasks take ten seconds, however many workers wait."""
    client = Client(1e3, connections_per_worker=2, task_s=1e-3, chunks_per_task=chunks_per_task)
    found = simulate(Profile("none"), client, n_workers=100, n_chunks=10_000)
    assert found.seconds == pytest.approx(10 / chunks_per_task, rel=0.01)
    assert found.limit == "scheduler"


def test_an_idle_scheduler_costs_a_task_once() -> None:
    """Workers that are slower than the scheduler wait for it no longer than for their own task."""
    even = replace(WARM, first_byte_s=None, aggregate_mb_per_s=None)
    free, busy = (
        simulate(even, replace(READER, task_s=task_s), 4, 800).seconds for task_s in (0.0, 1e-3)
    )  # fmt: skip
    assert busy - free == pytest.approx(800 / 8 * 1e-3, rel=0.15)


def test_the_graph_comes_first() -> None:
    """Submission takes its time for each task before anything else."""
    without, found = (
        simulate(client=replace(READER, chunks_per_task=4), n_chunks=1001, graph_s=s)
        for s in (0.0, 0.1)
    )
    assert found.seconds - without.seconds == pytest.approx(251 * 0.1)
    assert found.shares["graph"] == pytest.approx(251 * 0.1 / found.seconds)
    assert found.limit == "graph"


def test_a_store_refuses_what_comes_too_fast() -> None:
    """Requests above the rate are refused, asked again after a while, and all come through."""
    profile = replace(WARM, requests_per_s=100, aggregate_mb_per_s=None)
    found = simulate(profile, n_workers=200, n_chunks=4000)
    assert 4000 / 100 * 0.98 < found.seconds < 4000 / 100 * 1.6
    assert found.n_refused > 1000 and found.limit == "refusals"
    assert found.n_requests == pytest.approx(4000)
    assert simulate(profile, n_workers=1).n_refused == 0


def test_two_requests_a_chunk_take_two_of_the_rate() -> None:
    """A client that asks twice gets half as many chunks."""
    profile = replace(WARM, requests_per_s=100, aggregate_mb_per_s=None)
    client = replace(READER, requests_per_chunk=2.0)
    once, twice = (
        simulate(profile, each, n_workers=100, n_chunks=2000).seconds for each in (READER, client)
    )
    assert twice == pytest.approx(2 * once, rel=0.2)


def test_connections_start_slowly_once() -> None:
    """A new connection costs its round trips with the first chunk, and nothing after it."""
    opening_s = connect(WARM, 0.1).new_connection_s(READER.chunk_nbytes)
    few, many = (
        [
            simulate(replace(WARM, first_byte_s=None), n_workers=1, n_chunks=n, rtt_s=rtt).seconds
            for rtt in (0.0, 0.1)
        ]
        for n in (20, 200)
    )
    assert few[1] - few[0] == pytest.approx(opening_s, rel=0.01)
    assert many[1] - many[0] == pytest.approx(opening_s, rel=0.01)
    # of small chunks only the two round trips, guessed where the profile does not tell them
    for name, rtt_s in (
        ("in-region", 1e-3),
        ("wide-area", 0.121),
        ("other-region", 0.06),
    ):
        assert connect(get_profile(name)).new_connection_s(1000) == pytest.approx(2 * rtt_s)


def test_a_tail_of_the_profile_is_met() -> None:
    """Of requests one after the other, half of which come a second later, half pay it."""
    late = replace(WARM, tail=ProfileTail(0.5, 1.0))
    seconds = [
        simulate(each, n_workers=1, n_chunks=400, rtt_s=0.0).seconds for each in (WARM, late)
    ]
    n_each = 400 / READER.connections_per_worker
    assert seconds[1] - seconds[0] == pytest.approx(0.5 * n_each, rel=0.2)


def test_hedging_cuts_the_tail_for_a_few_requests() -> None:
    """A second request after 100 ms costs a share of requests and takes off the 99th percentile."""
    reads = {"n_workers": 1000, "n_chunks": 20_000}
    plain = simulate_cluster(WARM, READER, Cluster(1000, rtt_s=0, tail=Tail(alpha=1.5)), 20_000)
    hedged = simulate_cluster(
        replace(WARM, aggregate_mb_per_s=None), READER,
        Cluster(1000, rtt_s=0, tail=Tail(alpha=1.5), hedge_after_s=0.1), reads["n_chunks"],
    )  # fmt: skip
    assert hedged.n_hedges / 20_000 == pytest.approx(0.05, rel=0.1)
    assert hedged.n_requests == pytest.approx(20_000 + hedged.n_hedges)
    assert hedged.chunk_s[2] < 0.6 * plain.chunk_s[2] and plain.n_hedges == 0


def test_stragglers_follow_the_power_law() -> None:
    """The share beyond the quantile stays, and its exponent is what was asked for."""
    read = cluster._Read(
        WARM, READER, Cluster(1, tail=Tail(0.05, 2.0)), 10, np.random.default_rng(0)
    )  # fmt: skip
    drawn = read.draw_first_bytes_s(200_000)
    assert np.quantile(drawn, (0.5, 0.95)) == pytest.approx([0.03, 0.1], rel=0.02)
    assert fit_tail(drawn, 0.04).alpha == pytest.approx(2.0, rel=0.05)


def test_batches_change_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times as many batches of a tenth of the events say the same."""
    profile = get_profile("in-region")
    client = Client(20e6, connections_per_worker=4, cpu_s_per_chunk=0.05, task_s=2e-4)
    found = [simulate_cluster(profile, client, Cluster(200), 10_000)]
    monkeypatch.setattr(cluster, "_BATCHES", 500)
    found.append(simulate_cluster(profile, client, Cluster(200), 10_000))
    assert found[0].seconds == pytest.approx(found[1].seconds, rel=0.04)
    assert found[0].chunk_s == pytest.approx(found[1].chunk_s, rel=0.05)
    for cause in CAUSES:
        assert found[0].shares[cause] == pytest.approx(found[1].shares[cause], abs=0.02)


def test_a_long_read_goes_on_at_a_steady_rate() -> None:
    """A read of which a part is simulated takes as long as one that is simulated in full."""
    whole, part = (simulate(n_workers=20, n_chunks=10_000, n_waves=n) for n in (250, 25))
    assert (whole.n_simulated, part.n_simulated) == (10_000, 1000)
    assert part.seconds == pytest.approx(whole.seconds, rel=0.03)
    assert part.n_requests == pytest.approx(whole.n_requests)


def test_few_chunks_leave_workers_without() -> None:
    """With fewer chunks than slots, most of the slots have nothing to do."""
    found = simulate(n_workers=1000, n_chunks=100)
    assert found.limit == "no chunk left" and found.shares["no chunk left"] > 0.9
    assert found.seconds == pytest.approx(simulate(n_workers=50, n_chunks=100).seconds, rel=0.5)


@pytest.mark.parametrize("n_workers", [1, 7, 10_000])
def test_the_time_of_slots_is_accounted_for(n_workers: int) -> None:
    """Shares have a name each, none is negative, and together they are all of the time."""
    found = simulate_cluster(
        get_profile("in-region"),
        READER,
        Cluster(n_workers, graph_s=1e-4),
        40_000,
        n_waves=5,
    )
    assert [*found.shares] == [*CAUSES]
    assert min(found.shares.values()) >= 0 and math.fsum(found.shares.values()) == pytest.approx(1)
    p50, p95, p99 = found.chunk_s
    assert 0 < p50 <= p95 <= p99


def test_the_same_seed_gives_the_same_read() -> None:
    """A simulation is repeatable, and another seed is another read."""
    found = simulate(n_chunks=300)
    assert found == simulate(n_chunks=300)
    other = simulate_cluster(WARM, READER, Cluster(10, rtt_s=0), 300, seed=1)
    assert other.seconds != found.seconds


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Cluster(0), "n_workers"),
        (lambda: Cluster(1.5), "n_workers"),  # type: ignore[arg-type]
        (lambda: Cluster(1, 0), "cores_per_worker"),
        (lambda: Cluster(1, hedge_after_s=0), "hedge_after_s"),
        (lambda: Cluster(1, graph_s=-1), "graph_s"),
        (lambda: Cluster(1, rtt_s=math.nan), "rtt_s"),
        (lambda: Tail(0.6), "tail share"),
        (lambda: Tail(alpha=1.0), "tail alpha"),
        (lambda: Tail(alpha=math.nan), "tail alpha"),
        (lambda: simulate(n_chunks=0), "n_chunks"),
        (lambda: simulate(n_waves=0), "n_waves"),
        (lambda: simulate(client=Client(0.0)), "chunk_nbytes"),
        (lambda: fit_tail([1.0, 2.0]), "ratios"),
        (lambda: fit_tail([0.0] * 100), "ratios"),
    ],
)
def test_bad_clusters_are_one_line(make: object, name: str) -> None:
    """What cannot be is named with what is allowed."""
    with pytest.raises(UserError, match=f"^{name}.*allowed") as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)
