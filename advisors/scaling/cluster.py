"""A read by a cluster that nobody has yet: what limits it, how long it takes, and for how much."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from helpers.netem.profiles import Profile, network_of

FORMULA = "seconds = graph + n / min(slots / cycle, cores / decode, link / chunk, requests/s, chunks_per_task / task)"
DECODE_S_PER_MB = 0.004
"""Processor seconds to decode a megabyte as stored, where nothing else is said: an assumption."""
TASK_S, GRAPH_S = 0.165e-3, 0.0266e-3
"""Seconds of a Dask scheduler for a task, while it runs and before the first one does.

Fitted to processor time of graphs of 10^3 to 10^6 trivial tasks on a machine of two cores.
"""
MEMORY_GB_PER_CORE = 4.0
"""Memory that is paid for with each core, as of a general-purpose instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An array to read, the network and the store, and what a worker is."""

    profile: Profile
    n_chunks: int
    chunk_nbytes: float  # as stored
    chunks_per_task: int = 1
    slots: int = 2  # chunks that a worker has in the making at once
    cores: float = 2.0  # of a worker
    decode_s: float  # processor seconds of a chunk
    task_s: float = TASK_S  # of the scheduler, for a task
    graph_s: float = GRAPH_S  # before the first task runs, for each
    leaves_region: bool = False  # whether the bytes are paid for as data out

    @property
    def cycle_s(self) -> float:
        """Seconds that a slot takes for a chunk: first byte, its bytes on one connection, decoding."""
        network = network_of(self.profile, streams_per_worker=self.slots)
        return (
            network.first_byte_mean_s
            + self.chunk_nbytes / network.stream_nbytes_per_s
            + self.decode_s
        )

    def list_rates(self, n_workers: int) -> dict[str, float]:
        """List the chunks per second that each part allows; the smallest decides.

        Examples
        --------
        >>> plan = Plan(profile=Profile("example", stream_mb_per_s=50, aggregate_mb_per_s=400),
        ...             n_chunks=1000, chunk_nbytes=100e6, decode_s=0, task_s=0.01)
        >>> plan.list_rates(10)["slots"], plan.list_rates(10)["link"], plan.list_rates(10)["scheduler"]
        (10.0, 4.0, 100.0)
        """
        network = network_of(self.profile)

        def over(amount: float, each: float) -> float:
            return amount / each if each else math.inf

        return {
            "slots": over(min(n_workers * self.slots, self.n_chunks), self.cycle_s),
            "processors": over(n_workers * self.cores, self.decode_s),
            "link": network.aggregate_nbytes_per_s / self.chunk_nbytes,
            "requests": network.requests_per_s,
            "scheduler": over(self.chunks_per_task, self.task_s),
        }

    def find_limit(self, n_workers: int) -> str:
        """Name the part that decides."""
        rates = self.list_rates(n_workers)
        return min(rates, key=rates.__getitem__)

    def read_s(self, n_workers: int) -> float:
        """Compute the seconds of the whole read."""
        graph_s = self.graph_s * self.n_chunks / self.chunks_per_task
        return graph_s + self.n_chunks / min(self.list_rates(n_workers).values())

    def price(self, n_workers: int, prices: Mapping[str, float]) -> float:
        """Price the read in USD: instances while it lasts, requests, and data out if they leave."""
        core_hours = n_workers * self.cores * self.read_s(n_workers) / 3600
        of_core = prices["instance_vcpu_hour"] + MEMORY_GB_PER_CORE * prices["instance_gb_hour"]
        gb_out = self.leaves_region * self.n_chunks * self.chunk_nbytes / 1e9
        return (
            core_hours * of_core
            + self.n_chunks / 1e3 * prices["store_gets_1e3"]
            + gb_out * prices["data_out_gb"]
        )
