"""What is wrong with an HDF5 file, and what each way to read it would take, before anything is rewritten.

Only metadata are read. Everything is predicted, and held against what people have who do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from advisors.hdf5.check import Problem, list_problems
from advisors.hdf5.descriptions import REFERENCE_NBYTES
from advisors.hdf5.files import Deadline, Source, is_near, name_source, open_source
from advisors.hdf5.inspection import FileLayout, FileReport, inspect_file, record_reads
from advisors.hdf5.prediction import BLOCKS, Predicted, decode_s, predict, predict_ways
from advisors.hdf5.repacked import Repack, lay_out, list_repacks, quote
from helpers.errors import UserError, show
from helpers.models.transfer import Network
from helpers.netem.profiles import Profile, network_of, of_one_process

MOST_GROWTH = 2.0
"""Times its present length that a repacked file may have."""

SECONDS = 10.0
"""Time after which no more of a file is looked at."""

_LOOKING = 0.5  # share of it for looking; the rest is for predicting, and for closing what is open


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
        Time after which no more of the file is looked at; `report.n_left_out` counts what was not.

    Raises
    ------
    UserError
        If the file cannot be read, or a variable is missing or cannot be decoded.
    """
    network = network_of(of_one_process(profile))
    with open_source(source) as file:
        name = name_source(source)
        report, whole = inspect_file(file, name, Deadline(_LOOKING * seconds))
        layout, chosen = whole, tuple(one.name for one in report.variables)
        if variables:
            chosen = tuple(dict.fromkeys(one.strip("/") for one in variables))
            # as of xarray, their groups are opened; for all, the whole tree
            groups = {variable.rpartition("/")[0] for variable in chosen}
            layout = record_reads(file, name, chosen, groups=groups)
    asked = set(chosen)
    read = [one for one in report.variables if one.name in asked]
    for variable in read:
        variable.check_filters()
    n_chunks = sum(variable.n_chunks for variable in report.variables)
    n_missing = sum(variable.n_chunks for variable in read) - sum(map(len, layout.chunks))
    report = replace(report, n_left_out=report.n_left_out + max(0, n_missing))
    layout = replace(
        layout,
        decode_s=sum(map(decode_s, read)),
        references_nbytes=REFERENCE_NBYTES * n_chunks + report.metadata_nbytes,
    )
    repacks = list_repacks(report, read)
    found = [*_read_as_it_is(report, layout, network, is_far=not is_near(source))]
    found += _read_repacked(report, whole, layout, network, repacks)
    today_s = found[0].prediction.seconds
    rated = [replace(one, gain=today_s / max(one.prediction.seconds, 1e-9)) for one in found]
    kept = [one for one in rated[1:] if one.repack is None or one.gain > 1]
    advice = (rated[0], *sorted(kept, key=lambda one: -one.gain))
    problems = tuple(list_problems(report, whole, network))
    return Advised(report, problems, chosen, profile.name, advice, tuple(repacks))


def _read_as_it_is(
    report: FileReport, layout: FileLayout, network: Network, *, is_far: bool
) -> Iterator[Advice]:
    """Give the defaults of libraries, other settings, a download and references."""
    is_web = report.name.startswith(("http://", "https://"))
    address = repr(report.name) if is_far else "address"
    options = ", ".join(f"{key}={value!r}" for key, value in BLOCKS.file_options().items())
    refer = "virtualizarr.open_virtual_dataset(…) writes them"
    how = {
        "s3fs.open": ("nothing", f"h5py.File(s3fs.S3FileSystem().open({address}))"),
        "fsspec.open": ("nothing", f"h5py.File(fsspec.open({address}).open())"),
        "xarray, address": ("nothing", f'xarray.open_dataset({address}, engine="h5netcdf")'),
        "earthaccess.open": ("nothing", "earthaccess.open(granules)"),
        "blocks of 8 MiB": ("nothing is rewritten", f"s3fs.S3FileSystem().open({address}, {options})"),
        "whole": (f"{report.file_nbytes / 1e6:.3g} MB in memory", "obstore.get_range(…) by ten threads"),
        "references": ("one object; readers must know it", refer),
        "references, 64 in flight": (
            "one object; readers must know it",
            f'{refer}; zarr.config.set({{"async.concurrency": 64}})',
        ),
    }  # fmt: skip
    for found in predict_ways(layout, network, is_web=is_web):
        yield Advice(found.name, found, *how[found.name])


def _read_repacked(
    report: FileReport,
    whole: FileLayout,
    layout: FileLayout,
    network: Network,
    repacks: Sequence[Repack],
) -> Iterator[Advice]:
    """Give repacks, read by blocks and a page buffer, that do not make the file much longer."""
    name = report.name.rpartition("/")[2] if "://" in report.name else report.name
    for repack in repacks:
        repacked = lay_out(report, whole, layout, repack)
        if repacked.file_nbytes > MOST_GROWTH * report.file_nbytes:
            continue
        cost = f"rewrites {report.file_nbytes / 1e6:.3g} MB as {repacked.file_nbytes / 1e6:.3g} MB"
        arguments = " ".join(map(quote, repack.list_arguments()))
        path = quote(f"./{name}" if name.startswith("-") else name)
        command = f"h5repack {arguments} {path} repacked.h5 && h5diff {path} repacked.h5"
        found = predict(BLOCKS, repacked, network)
        yield Advice(repack.label, found, cost, command, repack)
