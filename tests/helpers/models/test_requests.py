"""The request model agrees with arithmetic where arithmetic is enough."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from helpers.models.transfer import Client, Network, fit_client, predict, simulate

MB = 1e6
FREE = Network()


def seconds(
    network: Network, client: Client, n_chunks: int, n_workers: int = 1, n_cores: float = 4
) -> float:
    """Simulate one read."""
    return simulate(network, client, n_chunks, n_workers=n_workers, n_cores=n_cores, seed=0)


@pytest.mark.parametrize(
    ("network", "client", "n_chunks", "n_workers", "expected_s"),
    [
        # one connection: each chunk its latency and its bytes over the stream
        (Network(0.01, 0.01, 100 * MB), Client(MB), 10, 1, 10 * (0.01 + 0.01)),
        (Network(0.03, 0.03), Client(MB), 7, 1, 7 * 0.03),
        (Network(stream_nbytes_per_s=50 * MB), Client(5 * MB), 4, 1, 4 * 0.1),
        # two requests a chunk wait twice, half a request half as long
        (Network(0.01, 0.01), Client(MB, 2.0), 10, 1, 10 * 2 * 0.01),
        (Network(0.01, 0.01), Client(MB, 0.5), 10, 1, 10 * 0.5 * 0.01),
        # four connections share ten chunks: three rounds
        (Network(0.01, 0.01, 100 * MB), Client(MB), 10, 4, 3 * 0.02),
        (Network(0.01, 0.01, 100 * MB), Client(MB, connections_per_worker=4), 10, 1, 3 * 0.02),
        # as many connections as chunks: all at once, over the link
        (Network(aggregate_nbytes_per_s=100 * MB), Client(MB), 50, 50, 50 / 100),
        (Network(0.02, 0.02, 100 * MB, 100 * MB), Client(MB), 50, 50, 0.02 + 50 / 100),
        # the link is shared only as far as streams reach: 4 streams of 10 below 100
        (Network(0, 0, 10 * MB, 100 * MB), Client(MB), 8, 4, 2 * 0.1),
        # four processors, one chunk a connection: two rounds, or eight at half speed
        (FREE, Client(MB, cpu_s_per_chunk=0.1), 8, 4, 2 * 0.1),
        (FREE, Client(MB, cpu_s_per_chunk=0.1), 8, 8, 8 * 0.1 / 4),
        # waiting costs no processor
        (FREE, Client(MB, wait_s_per_chunk=0.1), 8, 8, 0.1),
        # requests leave at 100/s: the last of 50 half a second late, less one gap
        (Network(requests_per_s=100), Client(MB), 50, 50, 49 / 100),
        (Network(requests_per_s=100), Client(MB, 2.0), 50, 50, 98 / 100),
        # overlapped: the next chunk arrives while this one is decoded, only the last waits
        (Network(0.01, 0.01), Client(MB, cpu_s_per_chunk=0.01), 10, 1, 10 * 0.02),
        (
            Network(0.01, 0.01),
            Client(MB, cpu_s_per_chunk=0.01, is_overlapped=True),
            10,
            1,
            11 * 0.01,
        ),
    ],
)
def test_closed_forms(
    network: Network, client: Client, n_chunks: int, n_workers: int, expected_s: float
) -> None:
    """Reads that can be computed by hand take as long as by hand."""
    assert seconds(network, client, n_chunks, n_workers) == pytest.approx(expected_s, rel=1e-6)


networks = st.builds(
    lambda latency, spread, stream, link, rate: Network(
        latency, latency * spread, stream, link, rate
    ),
    st.floats(0, 0.2),
    st.floats(1, 4),
    st.floats(1e6, 1e9),
    st.floats(1e6, 1e9),
    st.floats(10, 1e4),
)
clients = st.builds(
    Client,
    chunk_nbytes=st.floats(1e4, 2e7),
    requests_per_chunk=st.floats(0.1, 3),
    connections_per_worker=st.integers(1, 4),
    cpu_s_per_chunk=st.floats(0, 0.1),
    wait_s_per_chunk=st.floats(0, 0.1),
    is_overlapped=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(networks, clients, st.integers(1, 60), st.integers(1, 8))
def test_no_read_beats_its_limits(
    network: Network, client: Client, n_chunks: int, n_workers: int
) -> None:
    """A read takes at least what each limit alone asks, and comes to an end."""
    found = seconds(network, client, n_chunks, n_workers, n_cores=2)
    n_connections = min(n_chunks, n_workers * client.connections_per_worker)
    nbytes = n_chunks * client.chunk_nbytes
    least = [
        nbytes / network.aggregate_nbytes_per_s,
        nbytes / network.stream_nbytes_per_s / n_connections if not client.is_overlapped else 0,
        n_chunks * client.cpu_s_per_chunk / 2,
        (n_chunks - 1) * client.requests_per_chunk / network.requests_per_s,
    ]
    assert max(least) <= found * (1 + 1e-6) < math.inf


@pytest.mark.parametrize(
    ("network", "client", "n_workers", "limit"),
    [
        (Network(0.1, 0.2, 100 * MB), Client(MB), 1, "latency"),
        (Network(0.001, 0.001, 10 * MB), Client(MB), 1, "stream"),
        (Network(0.001, 0.001, 100 * MB, 100 * MB), Client(MB), 40, "shared link"),
        (Network(0.001, 0.001, 100 * MB, requests_per_s=20), Client(MB), 40, "request rate"),
        (
            Network(0.001, 0.001, 100 * MB),
            Client(MB, cpu_s_per_chunk=0.1),
            40,
            "processors",
        ),
    ],
)
def test_names_what_binds(network: Network, client: Client, n_workers: int, limit: str) -> None:
    """Where one limit takes nearly all the time, it is the one named."""
    found = predict(network, client, n_chunks=40, n_workers=n_workers, n_cores=2)
    assert found.limit == limit
    assert found.seconds > 0


def test_prediction_is_repeatable_and_central() -> None:
    """The same question has the same answer: the median of its draws."""
    network, client = Network(0.03, 0.1), Client(MB)
    first, again = (predict(network, client, n_chunks=20, n_workers=2, n_cores=2) for _ in "ab")
    assert first == again
    draws = [simulate(network, client, 20, n_workers=2, n_cores=2, seed=seed) for seed in range(9)]
    assert first.seconds == statistics.median(draws)
    assert len(set(draws)) == 9


def test_first_bytes_are_distributed_as_said() -> None:
    """Half of the draws are below the median, and 95 of 100 below the 95th percentile."""
    network, rng = Network(0.03, 0.1), random.Random(0)
    draws = sorted(network.draw_first_byte_s(rng) for _ in range(20_000))
    assert draws[10_000] == pytest.approx(0.03, rel=0.05)
    assert draws[19_000] == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize(
    ("cpu_s", "wait_s", "is_overlapped"),
    [(0.05, 0.08, False), (0.02, 0.0, False), (0.05, 0.3, True), (0.01, 0.02, False)],
)
def test_fit_finds_a_known_client(cpu_s: float, wait_s: float, is_overlapped: bool) -> None:
    """From times at one worker and at many, processor and waiting time come back."""
    known = Client(
        MB,
        connections_per_worker=2,
        cpu_s_per_chunk=cpu_s,
        wait_s_per_chunk=wait_s,
        is_overlapped=is_overlapped,
    )
    measured = [(n, seconds(FREE, known, 400, n, n_cores=2)) for n in (1, 4, 40)]
    unknown = replace(known, cpu_s_per_chunk=9.0, wait_s_per_chunk=9.0)
    found = fit_client(unknown, measured, n_chunks=400, n_cores=2)
    assert found.cpu_s_per_chunk == pytest.approx(cpu_s, rel=0.05)
    for n, expected_s in measured:
        assert seconds(FREE, found, 400, n, n_cores=2) == pytest.approx(expected_s, rel=0.05)
