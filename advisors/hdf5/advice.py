"""What settings, repacks and references would gain for an HDF5 file, before anything is rewritten.

Only metadata are read. What the library asks for comes from the library: of the present file as
it opens and lists it, of a repacked one from a model that has its layout without its values.
Everything is held against what people have who do nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from advisors.hdf5.files import Source, name_source, open_source
from advisors.hdf5.inspection import FileReport, inspect_file
from advisors.hdf5.prediction import (
    TODAY,
    TODAY_HTTPS,
    TUNED,
    Forecaster,
    ReadPrediction,
    Settings,
    record_repacked,
)
from advisors.hdf5.recording import Recording, record_reads
from advisors.hdf5.repack import Repack, list_repacks, write_command
from helpers.errors import UserError
from helpers.models.transfer import TYPICAL_COSTS, ClientCosts
from helpers.netem.profiles import Profile, network_of

MOST_GROWTH = 2.0
"""Times its present length that a repacked file may have."""
_REFERENCE_NBYTES = 80  # of one reference in a JSON file: key, address, offset and length


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that can be done, and what it brings."""

    label: str  # what is done
    prediction: ReadPrediction  # what to expect then
    gain: float  # time of doing nothing over the time then
    cost: str  # what it costs
    command: str  # how to do it
    repack: Repack | None = None  # what `apply_repack` takes; None where nothing is rewritten


@dataclass(frozen=True, slots=True)
class Advised:
    """A report, and advice: doing nothing, a download, then what is faster than doing nothing."""

    report: FileReport  # how the file lies
    variables: tuple[str, ...]  # what is read
    profile: str  # over which network, and what it is
    network: str
    advice: tuple[Advice, ...]
    costs: ClientCosts  # what client and server were taken to need next to the network
    repacks: tuple[Repack, ...]  # all that can be made, also those that are not advised

    def find_repack(self, label: str = "") -> Repack:
        """Return the repack of a label; the best that is advised where it is empty."""
        known = {one.label: one for one in self.repacks}
        best = next((one.repack for one in self.advice if one.repack is not None), None)
        found = known.get(label) if label else best
        if found is None:
            told = repr(label) if label else "none would be faster"
            raise UserError(f"repack: {told}; allowed: {'; '.join(known) or 'none for this file'}")
        return found

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def advise(
    source: Source,
    profile: Profile,
    *,
    variables: Sequence[str] = (),
    settings: Settings = TUNED,
    costs: ClientCosts = TYPICAL_COSTS,
) -> Advised:
    """Predict what can be gained for a file at a path or an address.

    Parameters
    ----------
    source : str or Location
        The file.
    profile : Profile
        Network that it is read over.
    variables : sequence of str
        Datasets that are read; all by default.
    settings : Settings
        Of the file object, where it is not that of doing nothing.
    costs : ClientCosts
        Of client and server for each request; typical ones, an assumption, where none are fitted.

    Raises
    ------
    UserError
        If the file cannot be read, a variable is missing or cannot be decoded, or the page buffer
        is smaller than a page.
    """
    with open_source(source) as file:
        name = name_source(source)
        report, recording = inspect_file(file, name)
        chosen = tuple(dict.fromkeys(variables)) or tuple(v.name for v in report.variables)
        # for some variables, as of xarray, their groups are opened; for all, the whole tree
        groups = {variable.strip("/").rpartition("/")[0] for variable in variables} or None
        if variables:
            recording = record_reads(file, name, chosen, groups=groups)
        for variable in chosen:
            report.variable(variable).check_filters()
        forecaster = Forecaster(report, chosen, network_of(profile), costs)
        buffer_nbytes = settings.page_buffer_nbytes or math.inf
        repacks = [one for one in list_repacks(report) if one.page_nbytes <= buffer_nbytes]
        rows = [*_do_nothing(forecaster, recording)]
        repacked = {one: record_repacked(file, name, one, chosen, groups=groups) for one in repacks}
        others = [*_change(forecaster, recording, settings, repacked)]
    today_s = rows[0].prediction.seconds
    rated = [
        replace(one, gain=today_s / max(one.prediction.seconds, 1e-9)) for one in (*rows, *others)
    ]
    better = sorted((one for one in rated[2:] if one.gain > 1), key=lambda one: -one.gain)
    advice, network = (*rated[:2], *better), describe_network(profile)
    return Advised(report, chosen, profile.name, network, advice, costs, tuple(repacks))


def _do_nothing(forecaster: Forecaster, recording: Recording) -> Iterator[Advice]:
    """Give what people have today, and what needs neither settings nor a repack."""
    is_web = forecaster.report.name.startswith(("http://", "https://"))
    today, how = (TODAY_HTTPS, "fsspec.open(url)") if is_web else (TODAY, "s3fs.open(path)")
    yield Advice(
        "today's default",
        forecaster.read(recording, today),
        1.0,
        "nothing",
        f'xarray.open_dataset({how}, engine="h5netcdf")',
    )
    megabytes = f"{forecaster.report.file_nbytes / 1e6:.3g} MB"
    command = "obstore.get_range(…) by ten threads, then xarray.open_dataset(io.BytesIO(…))"
    yield Advice(
        "download it whole", forecaster.download(recording), 1.0, f"{megabytes} in memory", command
    )


def _change(
    forecaster: Forecaster,
    recording: Recording,
    settings: Settings,
    repacks: Mapping[Repack, Recording],
) -> Iterator[Advice]:
    """Give other settings, references, repacks, and references to the repack that suits them best."""
    report, options = forecaster.report, settings.file_options()
    shown = ", ".join(f"{key}={value!r}" for key, value in options.items())
    found = forecaster.read(recording, settings)
    yield Advice("settings alone", found, 1.0, "nothing is rewritten", f"open(…, {shown})")
    n_chunks = sum(variable.n_chunks for variable in report.variables)
    nbytes = _REFERENCE_NBYTES * n_chunks + report.metadata_nbytes
    refer = "virtualizarr.open_virtual_dataset(…) writes them"
    found = forecaster.references(recording, nbytes)
    yield Advice("references", found, 1.0, "one object; readers must know it", refer)
    referred = []
    for repack, repacked in repacks.items():
        if repacked.file_nbytes > MOST_GROWTH * report.file_nbytes:
            continue
        cost = f"rewrites {report.file_nbytes / 1e6:.3g} MB as {repacked.file_nbytes / 1e6:.3g} MB"
        command = write_command(report.name, repack)
        found = forecaster.read(repacked, settings)
        yield Advice(repack.label, found, 1.0, cost, command, repack)
        found = forecaster.references(repacked, nbytes)
        referred.append(
            Advice(
                f"references to a repack: {repack.label}", found, 1.0, cost, f"{command}; {refer}"
            )
        )
    if referred:
        yield min(referred, key=lambda one: one.prediction.seconds)


def describe_network(profile: Profile) -> str:
    """Describe in one line which network a profile is.

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
