"""What a repack of an HDF5 file would gain, before anything is rewritten.

Only metadata are read. What the library asks for comes from the library: of
the present file as it opens and lists it, of a repacked one from a model that
has its layout without its values. `advisors.hdf5.prediction` turns both into time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, BinaryIO

from advisors.hdf5.inspection import FileReport, inspect_file
from advisors.hdf5.prediction import (
    TUNED,
    TYPICAL_LIBRARY,
    UNTUNED,
    LibraryCosts,
    ReadPrediction,
    Settings,
    predict_read,
    record_repacked,
    replay_both,
)
from advisors.hdf5.recording import Recording, name_source, open_source, record_reads
from advisors.hdf5.repack import Repack, Tool, find_command_tool, list_repacks, write_command
from helpers.errors import UserError
from helpers.models.caches import Read, Reading
from helpers.models.replay import order_reads
from helpers.models.transfer import TYPICAL_COSTS, ClientCosts, Network
from helpers.netem.profiles import Profile, network_of
from helpers.objectstore.locations import Location

N_CONNECTIONS = 10
"""Chunks that readers of references keep in flight, as zarr does by default."""

REFERENCE_NBYTES = 80
"""Bytes of one reference in a JSON file: key, address, offset and length."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that can be done, and what it brings."""

    label: str  # what is done
    prediction: ReadPrediction  # what to expect then
    gain: float  # time of the file as it is and is read without settings, over the time then
    cost: str  # what it costs
    command: str  # how to do it
    repack: Repack | None = None  # what `apply_repack` takes; None where nothing is rewritten


@dataclass(frozen=True, slots=True)
class Advised:
    """A report, and advice, best first."""

    report: FileReport  # how the file lies
    variables: tuple[str, ...]  # what is read
    profile: str  # over which network, and what it is
    network: str
    present: ReadPrediction  # the file as it is, read without settings
    advice: tuple[Advice, ...]  # best first
    costs: ClientCosts  # what client and server were taken to need beside the network
    library_costs: LibraryCosts  # what the library was taken to need to list and to decode

    def best_repack(self) -> tuple[str, Repack]:
        """Return the best of what can be applied, and its label."""
        return next((one.label, one.repack) for one in self.advice if one.repack is not None)

    def find_repack(self, label: str) -> tuple[str, Repack]:
        """Return the repack of a label; the best of all where the label is empty."""
        if not label:
            return self.best_repack()
        found = {one.label: one.repack for one in self.advice if one.repack is not None}
        if label not in found:
            raise UserError(f"repack: {label!r}; allowed: {'; '.join(found)}")
        return label, found[label]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def advise(
    source: str | Location,
    profile: Profile,
    *,
    variables: Sequence[str] = (),
    settings: Settings = TUNED,
    costs: ClientCosts = TYPICAL_COSTS,
    library_costs: LibraryCosts = TYPICAL_LIBRARY,
) -> Advised:
    """Predict what settings and repacks gain for a file at a path or an address.

    All variables are read unless some are named. Where costs of the client, server and library were not fitted they are typical
    ones, which are an assumption.

    Raises
    ------
    UserError
        If the file cannot be read, a variable is missing or cannot be
        decoded, or the page buffer is smaller than a page.
    """
    with open_source(source) as file:
        name = name_source(source)
        report = inspect_file(file, name)
        chosen = tuple(variables) or tuple(variable.name for variable in report.variables)
        recording = record_reads(file, name, chosen)
        for variable in chosen:
            report.variable(variable).check_filters()
        tool, network = find_command_tool(report), network_of(profile)
        advisor = _Advisor(file, report, chosen, settings, network, costs, library_costs, tool)
        present = advisor.predict(recording, UNTUNED)
        found = [advisor.settings_alone(recording), advisor.references(recording)]
        buffer_nbytes = settings.page_buffer_nbytes or math.inf
        repacks = [one for one in list_repacks(report) if one.page_nbytes <= buffer_nbytes]
        found += [advisor.repacked(repack) for repack in repacks]
    found.sort(key=lambda one: one.prediction.seconds)
    advice = (
        replace(one, gain=present.seconds / max(one.prediction.seconds, 1e-9)) for one in found
    )
    described = describe_network(profile)
    return Advised(
        report, chosen, profile.name, described, present, tuple(advice), costs, library_costs
    )


def describe_network(profile: Profile) -> str:
    """Say which network a profile is.

    Examples
    --------
    >>> describe_network(Profile("near", stream_mb_per_s=90))
    'near: 90 MB/s a stream'
    """
    first, figures = profile.first_byte_s, []
    if first:
        figures.append(
            f"{1000 * first.median_s:g} ms to the first byte (95th percentile {1000 * first.p95_s:g} ms)"
        )
    rates = (profile.stream_mb_per_s, "a stream"), (profile.aggregate_mb_per_s, "together")
    figures += [f"{rate:g} MB/s {of_what}" for rate, of_what in rates if rate is not None]
    return f"{profile.name}: {', '.join(figures) or 'no limits'}"


@dataclass(frozen=True, slots=True)
class _Advisor:
    """Everything that one piece of advice needs."""

    file: BinaryIO
    report: FileReport
    variables: tuple[str, ...]
    settings: Settings
    network: Network
    costs: ClientCosts
    library_costs: LibraryCosts
    tool: Tool

    def predict(self, recording: Recording, settings: Settings) -> ReadPrediction:
        """Predict a read, with what the library itself takes."""
        found = predict_read(recording, settings, self.network, costs=self.costs)
        return replace(
            found,
            listing_s=self.library_costs.listing_s(self.report),
            decode_s=self.library_costs.decode_s(self.report, self.variables),
        )

    def settings_alone(self, recording: Recording) -> Advice:
        found = self.predict(recording, self.settings)
        options = ", ".join(
            f"{key}={value!r}" for key, value in self.settings.file_options().items()
        )
        return Advice("settings alone", found, 0.0, "nothing is rewritten", f"open(…, {options})")

    def repacked(self, repack: Repack) -> Advice:
        recording = record_repacked(self.file, self.report.name, repack, self.variables)
        found = self.predict(recording, self.settings)
        cost = f"rewrites {self.report.file_nbytes / 1e6:.3g} MB as {recording.file_nbytes / 1e6:.3g} MB"
        command = write_command(self.report.name, repack, self.tool)
        return Advice(repack.label, found, 0.0, cost, command, repack)

    def references(self, recording: Recording) -> Advice:
        """Predict a reader that has the places of all chunks in one small object."""
        chunks = [r for r in recording.reads if r.phase == "read" and not r.is_metadata]
        n_chunks = sum(variable.n_chunks for variable in self.report.variables)
        table = Read(0, REFERENCE_NBYTES * n_chunks + self.report.metadata_nbytes)
        reading = Reading(tuple(Read(r.offset, r.nbytes) for r in chunks))
        opened = order_reads(Reading((table,)))
        read = order_reads(reading, n_connections=N_CONNECTIONS)
        found = replay_both(opened, read, self.network, self.costs)
        return Advice(
            "virtual references, or Zarr",
            replace(found, decode_s=self.library_costs.decode_s(self.report, self.variables)),
            0.0,
            "one object of references; readers must know them",
            "VirtualiZarr writes them; the file stays as it is",
        )
