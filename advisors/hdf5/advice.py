"""What settings, repacks and references would gain for an HDF5 file, before anything is rewritten.

Only metadata are read. What the library asks for comes from the library: of the present file as
it opens and lists it, of a repacked one from a model that has its layout without its values.
Everything is held against what people have who do nothing.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from advisors.hdf5.copying import MIB, Repack, Shape
from advisors.hdf5.files import Source, name_source, open_source
from advisors.hdf5.inspection import FileReport, Recording, Variable, inspect_file, record_reads
from advisors.hdf5.prediction import (
    TODAY,
    TODAY_HTTPS,
    TUNED,
    Forecaster,
    ReadPrediction,
    record_repacked,
)
from helpers.errors import UserError
from helpers.models.transfer import TYPICAL_COSTS, ClientCosts
from helpers.netem.profiles import Profile, network_of

PAGES_NBYTES = (4 * MIB, 8 * MIB)
"""Page sizes that are considered, as published comparisons have them."""

CHUNK_TARGET_NBYTES = 4 * MIB
"""Bytes in memory that a new chunk comes near to; HDF5's chunk cache holds two."""

MOST_GROWTH = 2.0
"""Times its present length that a repacked file may have."""
_REFERENCE_NBYTES = 80  # of one reference in a JSON file: key, address, offset and length


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that can be done, and what it brings."""

    label: str  # what is done
    prediction: ReadPrediction  # what to expect then
    cost: str  # what it costs
    command: str  # how to do it
    repack: Repack | None = None  # what `apply_repack` takes; None where nothing is rewritten
    gain: float = 1.0  # time of doing nothing over the time then


@dataclass(frozen=True, slots=True)
class Advised:
    """A report, and advice: doing nothing, a download, then what is faster than doing nothing."""

    report: FileReport  # how the file lies
    variables: tuple[str, ...]  # what is read
    profile: str  # over which network
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


def advise(
    source: Source,
    profile: Profile,
    *,
    variables: Sequence[str] = (),
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
    costs : ClientCosts
        Of client and server for each request; typical ones, an assumption, where none are fitted.

    Raises
    ------
    UserError
        If the file cannot be read, or a variable is missing or cannot be decoded.
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
        repacks = list_repacks(report)
        repacked = {one: record_repacked(file, name, one, chosen, groups=groups) for one in repacks}
    found = [*_do_nothing(forecaster, recording), *_change(forecaster, recording, repacked)]
    today_s = found[0].prediction.seconds
    rated = [replace(one, gain=today_s / max(one.prediction.seconds, 1e-9)) for one in found]
    better = sorted((one for one in rated[2:] if one.gain > 1), key=lambda one: -one.gain)
    advice = (*rated[:2], *better)
    return Advised(report, chosen, profile.name, advice, costs, tuple(repacks))


def _do_nothing(forecaster: Forecaster, recording: Recording) -> Iterator[Advice]:
    """Give what people have today, and what needs neither settings nor a repack."""
    is_web = forecaster.report.name.startswith(("http://", "https://"))
    today, how = (TODAY_HTTPS, "fsspec.open(url)") if is_web else (TODAY, "s3fs.open(path)")
    command = f'xarray.open_dataset({how}, engine="h5netcdf")'
    yield Advice("today's default", forecaster.read(recording, today), "nothing", command)
    cost = f"{forecaster.report.file_nbytes / 1e6:.3g} MB in memory"
    command = "obstore.get_range(…) by ten threads, then xarray.open_dataset(io.BytesIO(…))"
    yield Advice("download it whole", forecaster.download(recording), cost, command)


def _change(
    forecaster: Forecaster, recording: Recording, repacks: Mapping[Repack, Recording]
) -> Iterator[Advice]:
    """Give other settings, references, repacks, and references to the repack that suits them best."""
    report = forecaster.report
    options = ", ".join(f"{key}={value!r}" for key, value in TUNED.file_options().items())
    found = forecaster.read(recording, TUNED)
    yield Advice("settings alone", found, "nothing is rewritten", f"open(…, {options})")
    n_chunks = sum(variable.n_chunks for variable in report.variables)
    nbytes = _REFERENCE_NBYTES * n_chunks + report.metadata_nbytes
    refer = "virtualizarr.open_virtual_dataset(…) writes them"
    found = forecaster.references(recording, nbytes)
    yield Advice("references", found, "one object; readers must know it", refer)
    referred = []
    for repack, repacked in repacks.items():
        if repacked.file_nbytes > MOST_GROWTH * report.file_nbytes:
            continue
        cost = f"rewrites {report.file_nbytes / 1e6:.3g} MB as {repacked.file_nbytes / 1e6:.3g} MB"
        apply = ["wire", "hdf5", "advise", report.name, "--apply", "OUT", "--repack", repack.label]
        command = shlex.join(apply)
        yield Advice(repack.label, forecaster.read(repacked, TUNED), cost, command, repack)
        label = f"references to a repack: {repack.label}"
        found = forecaster.references(repacked, nbytes)
        referred.append(Advice(label, found, cost, f"{command}; {refer}"))
    if referred:
        yield min(referred, key=lambda one: one.prediction.seconds)


def list_repacks(report: FileReport) -> list[Repack]:
    """List the repacks that could make a file faster to read.

    HDF5 refuses pages behind a user block.
    """
    pages = (0,) if report.userblock_nbytes else PAGES_NBYTES
    chunk_shapes = tuple(
        (variable.name, shape)
        for variable in report.variables
        if (shape := choose_chunk_shape(variable)) != variable.chunk_shape
    )
    plain = [Repack(page_nbytes) for page_nbytes in pages if page_nbytes]
    return plain + [Repack(page_nbytes, 0, chunk_shapes) for page_nbytes in pages if chunk_shapes]


def choose_chunk_shape(variable: Variable) -> Shape:
    """Choose larger chunks, where those of a variable are small and many.

    Extents are doubled, that of the dimension first in which a chunk covers the
    smallest share, so that chunks keep their form.
    """
    is_kept = variable.is_variable_length or not variable.is_lossless
    if variable.n_chunks < 2 or not variable.chunk_shape or is_kept:
        return variable.chunk_shape
    item_nbytes = variable.nbytes // max(1, math.prod(variable.shape))
    chunk_shape = [min(c, n) for c, n in zip(variable.chunk_shape, variable.shape, strict=True)]
    while 2 * math.prod(chunk_shape) * item_nbytes <= CHUNK_TARGET_NBYTES:
        shares = [c / n for c, n in zip(chunk_shape, variable.shape, strict=True)]
        dimension = min(range(len(shares)), key=shares.__getitem__)
        if shares[dimension] >= 1:
            break
        chunk_shape[dimension] = min(2 * chunk_shape[dimension], variable.shape[dimension])
    is_larger = math.prod(chunk_shape) > math.prod(variable.chunk_shape)
    return tuple(chunk_shape) if is_larger else variable.chunk_shape
