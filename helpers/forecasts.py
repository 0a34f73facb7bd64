"""What opening and reading an HDF5 file takes: recorded reads through simulated caches.

What the library asks for passes through the caches of a client, and what is left of it over
the network of a profile, with what client and server take beside the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from helpers.models.caches import (
    BlockCache,
    Cache,
    NoCache,
    PageBuffer,
    Read,
    Reading,
    read_through,
)
from helpers.models.client_costs import TYPICAL_COSTS, ClientCosts, fit_costs
from helpers.models.fluid import Network
from helpers.models.replay import Replay, Step, order_reads, replay
from helpers.storage.locations import Location
from helpers.storage.repairs import Recording, list_tree, open_hdf5

__all__ = [
    "MIB",
    "TUNED",
    "TYPICAL_COSTS",
    "UNTUNED",
    "ClientCosts",
    "Forecast",
    "Settings",
    "fit_costs",
    "forecast",
    "read_file",
    "replay_both",
]

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Settings:
    """How h5py reads through a file object of fsspec.

    Parameters
    ----------
    cache_type : {"none", "blockcache"}
        Cache of the file object.
    block_nbytes : int
        Bytes of its blocks.
    max_blocks : int
        Blocks that it keeps.
    page_buffer_nbytes : int
        HDF5's page buffer, where file space is paged; 0 for none.
    """

    cache_type: Literal["none", "blockcache"] = "blockcache"
    block_nbytes: int = 8 * MIB
    max_blocks: int = 32
    page_buffer_nbytes: int = 16 * MIB

    def file_options(self) -> dict[str, Any]:
        """Give the options with which fsspec opens the file so."""
        if self.cache_type == "none":
            return {"cache_type": "none"}
        return {
            "cache_type": "blockcache",
            "block_size": self.block_nbytes,
            "cache_options": {"maxblocks": self.max_blocks},
        }

    def caches(self, recording: Recording) -> list[Cache]:
        """Give the caches between the library and the wire, for a recorded file."""
        found: list[Cache] = []
        if recording.page_nbytes and self.page_buffer_nbytes:
            found.append(
                PageBuffer(
                    recording.page_nbytes,
                    self.page_buffer_nbytes,
                    n_first_past=recording.n_first_past,
                )
            )
        is_none = self.cache_type == "none"
        return [*found, NoCache() if is_none else BlockCache(self.block_nbytes, self.max_blocks)]


UNTUNED = Settings("none", page_buffer_nbytes=0)
"""No cache at all: published comparisons start from it."""

TUNED = Settings()
"""Blocks of 8 MiB and a page buffer of 16 MiB, as published advice has them."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What to expect of opening a file and reading variables.

    Parameters
    ----------
    open, read : Replay
        Opening with the listing of every object and attribute; reading.
    """

    open: Replay
    read: Replay

    @property
    def seconds(self) -> float:
        """Time of both."""
        return self.open.seconds + self.read.seconds

    @property
    def n_requests(self) -> int:
        """Requests of both."""
        return self.open.n_requests + self.read.n_requests

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.open.nbytes + self.read.nbytes


def forecast(
    recording: Recording, settings: Settings, network: Network, *, costs: ClientCosts | None = None
) -> Forecast:
    """Predict opening and reading from what the library asks for.

    Parameters
    ----------
    recording : Recording
        What it asks for.
    settings : Settings
        Caches between it and the wire.
    network : Network
        What is imposed.
    costs : ClientCosts, optional
        What client and server take beside it; by default nothing.

    Returns
    -------
    Forecast
        Time, requests and bytes; the first request asks for the length of the file.
    """
    reads = [Read(r.offset, r.nbytes, is_metadata=r.is_metadata) for r in recording.reads]
    n_open = sum(read.phase == "open" for read in recording.reads)
    opened, whole = (
        _pass(Reading(tuple(part)), settings, recording).reads for part in (reads[:n_open], reads)
    )
    parts = Reading((Read(0, 0), *opened)), Reading(whole[len(opened) :])
    opening, reading = (order_reads(part) for part in parts)
    return replay_both(opening, reading, network, costs or ClientCosts())


def replay_both(
    opened: Sequence[Step], read: Sequence[Step], network: Network, costs: ClientCosts
) -> Forecast:
    """Predict an opening and a read, of which both are sequences of requests.

    Parameters
    ----------
    opened, read : sequence of Step
        Requests of each.
    network : Network
        What is imposed.
    costs : ClientCosts
        What client and server take beside it; the start counts to the opening.

    Returns
    -------
    Forecast
        Time, requests and bytes.
    """
    request_s = costs.request_s
    return Forecast(
        replay(
            opened, network, request_s=request_s, rest_s=costs.start_s, n_draws=_count_draws(opened)
        ),
        replay(read, network, request_s=request_s, n_draws=_count_draws(read)),
    )


def _count_draws(steps: Sequence[Step]) -> int:
    """Choose more simulations where few requests leave the median to chance."""
    return max(9, min(201, 2_000 // max(1, len(steps))))


def _pass(reading: Reading, settings: Settings, recording: Recording) -> Reading:
    for cache in settings.caches(recording):
        reading = read_through(cache, reading, file_nbytes=recording.file_nbytes)
    return reading


def read_file(
    location: Location, settings: Settings, variables: Sequence[str], *, is_paged: bool
) -> None:
    """Open a file, list it and read variables whole, as a forecast has it.

    Parameters
    ----------
    location : Location
        Of the object.
    settings : Settings
        How it is read.
    variables : sequence of str
        Paths of datasets.
    is_paged : bool
        Whether file space is paged; HDF5 refuses a page buffer where it is not.
    """
    page_buffer_nbytes = settings.page_buffer_nbytes if is_paged else 0
    files = location.fsspec(skip_instance_cache=True)
    with (
        files.open(location.path, **settings.file_options()) as file,
        open_hdf5(file, location.url, page_buf_size=page_buffer_nbytes) as found,
    ):
        list_tree(found)
        for variable in variables:
            found[variable][...]
