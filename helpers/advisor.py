"""What a repair of an HDF5 file would gain, before anything is rewritten.

Only metadata are read. What the library asks for comes from the library: of
the present file as it opens and lists it, of a repaired one from a model that
has its layout without its values. Those reads pass through the simulated caches of the
client, and what is left of them over the network of a profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Literal

from helpers.errors import UserError
from helpers.models.caches import (
    BlockCache,
    Cache,
    NoCache,
    PageBuffer,
    Read,
    Reading,
    read_through,
)
from helpers.models.fluid import Network
from helpers.models.replay import Replay, Step, order_reads, replay
from helpers.storage.locations import Location
from helpers.storage.network import Profile
from helpers.storage.repairs import (
    FileReport,
    Recording,
    Repair,
    find_tool,
    inspect_file,
    list_repairs,
    list_tree,
    open_hdf5,
    open_source,
    record_reads,
    record_repaired,
)
from helpers.storage.repairs import sources as _sources
from helpers.study import network_of

MIB = 2**20

N_CONNECTIONS = 10
"""Chunks that readers of references keep in flight, as zarr does by default."""

REFERENCE_NBYTES = 80
"""Bytes of one reference in a JSON file: key, address, offset and length."""


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
class ClientCosts:
    """What the client and the server take beside the network.

    Parameters
    ----------
    request_s : float
        Seconds for a request.
    start_s : float
        Seconds for a new client, its connection and the library's own work.
    """

    request_s: float = 0.0
    start_s: float = 0.0


def fit_costs(measured: Sequence[tuple[int, float]]) -> ClientCosts:
    """Fit the client's costs to reads over a network that imposes nothing.

    Parameters
    ----------
    measured : sequence of (int, float)
        Requests and seconds of two or more reads, of few and of many requests.

    Returns
    -------
    ClientCosts
        The line through the reads of fewest and of most requests.

    Raises
    ------
    UserError
        If all have as many requests.

    Examples
    --------
    >>> fit_costs([(2, 0.25), (102, 0.75)])
    ClientCosts(request_s=0.005, start_s=0.24)
    """
    (few, few_s), (many, many_s) = min(measured), max(measured)
    if few == many:
        raise UserError(f"measured: {list(measured)}; allowed: reads of few and of many requests")
    request_s = max(0.0, (many_s - few_s) / (many - few))
    return ClientCosts(request_s, max(0.0, few_s - few * request_s))


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


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that can be done, and what it brings.

    Parameters
    ----------
    label : str
        What is done.
    forecast : Forecast
        What to expect then.
    gain : float
        Time of the file as it is and is read without settings, over the time then.
    cost : str
        What it costs.
    command : str
        How to do it.
    repair : Repair or None
        What `apply_repair` takes; None where nothing is rewritten.
    """

    label: str
    forecast: Forecast
    gain: float
    cost: str
    command: str
    repair: Repair | None = None


@dataclass(frozen=True, slots=True)
class Advised:
    """A report, and advice, best first.

    Parameters
    ----------
    report : FileReport
        How the file lies.
    variables : tuple of str
        What is read.
    profile : str
        Over which network.
    present : Forecast
        The file as it is, read without settings.
    advice : tuple of Advice
        Best first.
    """

    report: FileReport
    variables: tuple[str, ...]
    profile: str
    present: Forecast
    advice: tuple[Advice, ...]

    def best_repair(self) -> tuple[str, Repair]:
        """Return the best of what can be applied, and its label."""
        return next((one.label, one.repair) for one in self.advice if one.repair is not None)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


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
    return _replay_both(opening, reading, network, costs or ClientCosts())


def _replay_both(
    opened: Sequence[Step], read: Sequence[Step], network: Network, costs: ClientCosts
) -> Forecast:
    return Forecast(
        replay(opened, network, request_s=costs.request_s, rest_s=costs.start_s),
        replay(read, network, request_s=costs.request_s),
    )


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


def advise(
    source: str | Location,
    profile: Profile,
    *,
    variables: Sequence[str] = (),
    settings: Settings = TUNED,
    costs: ClientCosts | None = None,
) -> Advised:
    """Predict what settings and repairs gain for a file.

    Parameters
    ----------
    source : str or Location
        Path, address of an object, or its location.
    profile : Profile
        Network over which it is read.
    variables : sequence of str
        Datasets to read; all by default.
    settings : Settings
        How it is read then.
    costs : ClientCosts, optional
        What client and server take beside it; by default nothing.

    Returns
    -------
    Advised
        How the file lies, and what can be done, best first.

    Raises
    ------
    UserError
        If the file cannot be read, a variable is missing or cannot be
        decoded, or the page buffer is smaller than a page.
    """
    with open_source(source) as file:
        name = _sources.name(source)
        report = inspect_file(file, name)
        chosen = tuple(variables) or tuple(variable.name for variable in report.variables)
        recording = record_reads(file, name, chosen)
        for variable in chosen:
            report.variable(variable).check_filters()
        advisor = _Advisor(file, report, chosen, settings, network_of(profile), costs)
        present = forecast(recording, UNTUNED, advisor.network, costs=costs)
        found = [advisor.settings_alone(recording), advisor.references(recording)]
        found += [advisor.repaired(repair) for repair in list_repairs(report)]
    advice = [_weigh(one, present) for one in found]
    advice.sort(key=lambda one: one.forecast.seconds)
    return Advised(report, chosen, profile.name, present, tuple(advice))


def _weigh(advice: Advice, present: Forecast) -> Advice:
    gain = present.seconds / max(advice.forecast.seconds, 1e-9)
    return Advice(advice.label, advice.forecast, gain, advice.cost, advice.command, advice.repair)


@dataclass(frozen=True, slots=True)
class _Advisor:
    """Everything that one piece of advice needs."""

    file: BinaryIO
    report: FileReport
    variables: tuple[str, ...]
    settings: Settings
    network: Network
    costs: ClientCosts | None

    def settings_alone(self, recording: Recording) -> Advice:
        found = forecast(recording, self.settings, self.network, costs=self.costs)
        options = ", ".join(
            f"{key}={value!r}" for key, value in self.settings.file_options().items()
        )
        return Advice("settings alone", found, 0.0, "nothing is rewritten", f"open(…, {options})")

    def repaired(self, repair: Repair) -> Advice:
        recording = record_repaired(self.file, self.report.name, repair, self.variables)
        found = forecast(recording, self.settings, self.network, costs=self.costs)
        cost = f"rewrites {self.report.file_nbytes / 1e6:.3g} MB as {recording.file_nbytes / 1e6:.3g} MB"
        command = repair.command(self.report.name, "OUT")
        if find_tool(self.report) == "h5py":
            command = f"python -m helpers advise {self.report.name} --apply OUT"
        return Advice(repair.label, found, 0.0, cost, command, repair)

    def references(self, recording: Recording) -> Advice:
        """Predict a reader that has the places of all chunks in one small object."""
        chunks = [r for r in recording.reads if r.phase == "read" and not r.is_metadata]
        n_chunks = sum(variable.n_chunks for variable in self.report.variables)
        table = Read(0, REFERENCE_NBYTES * n_chunks + self.report.metadata_nbytes)
        reading = Reading(tuple(Read(r.offset, r.nbytes) for r in chunks))
        opened = order_reads(Reading((table,)))
        read = order_reads(reading, n_connections=N_CONNECTIONS)
        return Advice(
            "virtual references, or Zarr",
            _replay_both(opened, read, self.network, self.costs or ClientCosts()),
            0.0,
            "one object of references; readers must know them",
            "VirtualiZarr writes them; the file stays as it is",
        )
