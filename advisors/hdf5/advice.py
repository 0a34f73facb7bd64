"""What is wrong with an HDF5 file, and what each way to read it would take, before anything is rewritten.

Only metadata are read. Everything is predicted, and held against what people have who do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from advisors.hdf5.check import Problem, list_problems
from advisors.hdf5.descriptions import REFERENCE_NBYTES
from advisors.hdf5.files import Deadline, Source, is_near, name_source, open_source
from advisors.hdf5.inspection import FileLayout, FileReport, inspect_file, record_reads
from advisors.hdf5.prediction import BLOCKS, Predicted, Way, list_ways, predict
from advisors.hdf5.repacked import Repack, lay_out, list_repacks, quote
from helpers.errors import UserError, show
from helpers.models.transfer import Network
from helpers.netem.profiles import Profile, network_of, of_one_process

MOST_GROWTH = 2.0
"""Times its present length that a repacked file may have."""

SECONDS = 10.0
"""Time after which nothing more of a file is looked at, or predicted."""

_PATIENCE = 3.0  # times as long a store is waited for
_LOOKING, _LISTING = 0.35, 0.15  # shares of it: of the whole file, then of what is read of it


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that can be done, and what it brings."""

    label: str  # what is done
    prediction: Predicted  # what to expect then
    cost: str  # what it costs
    command: str  # how to do it
    repack: Repack | None = None  # what `apply_repack` takes; None where nothing is rewritten
    gain: float = 1.0  # time of doing nothing over the time then


@dataclass(frozen=True, slots=True)
class Advised:
    """A report, what is wrong, and advice: doing nothing, then all that needs no rewrite, then repacks."""

    report: FileReport  # how the file lies
    problems: tuple[Problem, ...]  # items of the guide's checklist that fail
    variables: tuple[str, ...]  # what is read
    profile: str  # over which network
    advice: tuple[Advice, ...]
    repacks: tuple[Repack, ...]  # all that can be made, also those that are not advised
    not_predicted: tuple[str, ...] = ()  # what there was no time for

    def find_repack(self, label: str = "") -> Repack:
        """Return the repack of a label; the best that is advised where it is empty."""
        known = {one.label: one for one in self.repacks}
        found = known.get(label)
        if not label:
            advised = [one for one in self.advice if one.repack is not None]
            found = max(advised, key=lambda one: one.gain).repack if advised else None
        if found is None:
            told = show(label) if label else "none would be faster"
            raise UserError(f"repack: {told}; allowed: {'; '.join(known) or 'none for this file'}")
        return found


def advise(
    source: Source, profile: Profile, *, variables: Sequence[str] = (), seconds: float = SECONDS
) -> Advised:
    """Say what is wrong with a file at a path or an address, and predict each way to read it.

    Parameters
    ----------
    source : str or Location
        The file.
    profile : Profile
        Network that it is read over.
    variables : sequence of str
        Datasets that are read; all by default.
    seconds : float
        Time for all of it; `report.n_left_out` counts what was not looked at, and
        `not_predicted` names what there was no time for.

    Raises
    ------
    UserError
        If the file cannot be read, or a variable is missing or cannot be decoded.
    """
    deadline, network = Deadline(seconds), network_of(of_one_process(profile))
    with open_source(source, _PATIENCE * seconds) as file:
        name, looking = name_source(source), Deadline(_LOOKING * seconds)
        report, whole = inspect_file(file, name, looking)
        layout = whole
        if variables:
            listing = Deadline(_LISTING * seconds)
            chosen = [*dict.fromkeys(one.strip("/") for one in variables)]
            # as of xarray, their groups are opened; for all, the whole tree
            groups = {variable.rpartition("/")[0] for variable in chosen}
            layout = record_reads(file, name, chosen, groups=groups, deadline=listing)
            report = replace(report, n_left_out=report.n_left_out + listing.n_left_out)
    for variable in layout.variables:
        variable.check_filters()
    n_chunks = sum(variable.n_chunks for variable in report.variables)
    n_missing = sum(one.n_chunks for one in layout.variables) - sum(map(len, layout.chunks))
    report = replace(report, n_left_out=report.n_left_out + max(0, n_missing))
    references_nbytes = REFERENCE_NBYTES * n_chunks + report.metadata_nbytes
    layout = replace(layout, references_nbytes=references_nbytes)
    repacks = list_repacks(report, layout.variables)
    is_web = report.name.startswith(("http://", "https://"))
    address = "address" if is_near(source) else repr(report.name)
    candidates: dict[str, Callable[[], Advice | None]] = {
        way.name: partial(_read_as_it_is, report, layout, network, way, address)
        for way in list_ways(layout, is_web=is_web)
    }
    candidates |= {
        repack.label: partial(_read_repacked, report, whole, layout, network, repack)
        for repack in repacks
    }
    found, left_out = list[Advice](), list[str]()
    for label, advise_on in candidates.items():
        if found and deadline.is_over:
            left_out.append(label)
        elif (one := advise_on()) is not None:
            found.append(one)
    today_s = found[0].prediction.seconds
    rated = [replace(one, gain=today_s / max(one.prediction.seconds, 1e-9)) for one in found]
    kept = [one for one in rated[1:] if one.repack is None or one.gain > 1]
    advice = (rated[0], *sorted(kept, key=lambda one: -one.gain))
    problems = tuple(list_problems(report, whole, network))
    names = tuple(one.name for one in layout.variables)
    return Advised(report, problems, names, profile.name, advice, tuple(repacks), tuple(left_out))


_REFER = "virtualizarr.open_virtual_dataset(…) writes them"

# What doing so costs and how it is done, by the name of a way
_HOW = {
    "s3fs.open": ("nothing", "h5py.File(s3fs.S3FileSystem().open({address}))"),
    "fsspec.open": ("nothing", "h5py.File(fsspec.open({address}).open())"),
    "xarray, address": ("nothing", 'xarray.open_dataset({address}, engine="h5netcdf")'),
    "earthaccess.open": ("nothing", "earthaccess.open(granules)"),
    "blocks of 8 MiB": ("nothing is rewritten", "s3fs.S3FileSystem().open({address}, {options})"),
    "whole": ("{mb:.3g} MB in memory", "obstore.get_range(…) by ten threads"),
    "references": ("one object; readers must know it", _REFER),
    "references, 64 in flight": (
        "one object; readers must know it",
        f'{_REFER}; zarr.config.set({{{{"async.concurrency": 64}}}})',
    ),
}


def _read_as_it_is(
    report: FileReport, layout: FileLayout, network: Network, way: Way, address: str
) -> Advice:
    """Predict a default of a library, another setting, a download or references."""
    options = ", ".join(f"{key}={value!r}" for key, value in way.file_options().items())
    cost, command = _HOW[way.name]
    given = {"address": address, "options": options, "mb": report.file_nbytes / 1e6}
    found = predict(way, layout, network)
    return Advice(way.name, found, cost.format(**given), command.format(**given))


def _read_repacked(
    report: FileReport, whole: FileLayout, layout: FileLayout, network: Network, repack: Repack
) -> Advice | None:
    """Predict a repack, read by blocks and a page buffer; none if it makes the file much longer."""
    repacked = lay_out(report, whole, layout, repack)
    if repacked.file_nbytes > MOST_GROWTH * report.file_nbytes:
        return None
    name = report.name.rpartition("/")[2] if "://" in report.name else report.name
    cost = f"rewrites {report.file_nbytes / 1e6:.3g} MB as {repacked.file_nbytes / 1e6:.3g} MB"
    arguments = " ".join(map(quote, repack.list_arguments()))
    path = quote(f"./{name}" if name.startswith("-") else name)
    command = f"h5repack {arguments} {path} repacked.h5 && h5diff {path} repacked.h5"
    return Advice(repack.label, predict(BLOCKS, repacked, network), cost, command, repack)
