"""What is wrong with an HDF5 file, and what each way to read it would take, before anything is rewritten.

Only metadata are read. Everything is predicted, and held against what people have who do nothing. What
is wrong is so by the checklist of the cloud-optimised guide.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from wire.bed.networks import Profile, of_one_process
from wire.errors import UserError, cut, format_size, show
from wire.hdf5.files import Deadline, Source, is_near, name_source, open_source
from wire.hdf5.inspection import (
    REFERENCE_NBYTES,
    FileLayout,
    Read,
    Variable,
    merge_spans,
    record_reads,
)
from wire.hdf5.prediction import BLOCKS, Predicted, ReadMethod, list_read_methods, predict_read
from wire.hdf5.repacked import Repack, lay_out, list_repacks
from wire.models.transfer import Network, network_of

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
class FileReport:
    """How an HDF5 file lies."""

    name: str  # path or address
    file_nbytes: int  # bytes of the file, and of the block before its beginning
    userblock_nbytes: int
    page_nbytes: int  # bytes of a page; 0 where file space is not paged
    # bytes that the library reads to list every object, attribute and chunk, each counted once;
    # and how many separate places they lie in
    metadata_nbytes: int
    n_metadata_spans: int
    n_listed: int  # objects and attributes
    variables: tuple[Variable, ...]  # every dataset
    n_left_out: int = 0  # objects and chunks that were not looked at, because time was over


@dataclass(frozen=True, slots=True)
class Advised:
    """A report, what is wrong, and advice: doing nothing, then all that needs no rewrite, then repacks."""

    report: FileReport  # how the file lies
    problems: tuple[dict[str, str], ...]  # items of the guide's checklist that fail: name and text
    variables: tuple[str, ...]  # what is read
    profile: str  # over which network
    advice: tuple[Advice, ...]
    repacks: tuple[Repack, ...]  # all that can be made, also those that are not advised
    not_predicted: tuple[str, ...] = ()  # what there was no time for

    def find_repack(self, label: str = "") -> Repack:
        """Return the repack of a label; the best that is advised where it is empty."""
        repacks = {repack.name: repack for repack in self.repacks}
        repack = repacks.get(label)
        if not label:
            advised = [advice for advice in self.advice if advice.repack is not None]
            repack = max(advised, key=lambda advice: advice.gain).repack if advised else None
        if repack is None:
            problem = show(label) if label else "none would be faster"
            raise UserError("repack", problem, "; ".join(repacks) or "none for this file")
        return repack


def advise(
    source: Source, profile: Profile, *, variables: Sequence[str] = (), seconds: float = SECONDS
) -> Advised:
    """Say what is wrong with a file, and predict each way to read some variables of it, or all.

    It takes so many seconds at most; `report.n_left_out` counts what was not looked at, and `not_predicted`
    names what there was no time for. What cannot be read or decoded is a UserError.
    """
    deadline, network = Deadline(seconds), network_of(of_one_process(profile))
    looking, listing = Deadline(_LOOKING * seconds), Deadline(_LISTING * seconds)
    with open_source(source, _PATIENCE * seconds) as file:
        name = name_source(source)
        whole = layout = record_reads(file, name, deadline=looking)
        if variables:
            chosen = [*dict.fromkeys(variable.strip("/") for variable in variables)]
            # as of xarray, their groups are opened; for all, the whole tree
            groups = {variable.rpartition("/")[0] for variable in chosen}
            layout = record_reads(file, name, chosen, groups=groups, deadline=listing)
    for variable in layout.variables:
        if variable.missing_filters:
            problem = f"{variable.name!r} needs the filter {', '.join(variable.missing_filters)}, which is not here"
            allowed = "one whose filters are (HDF5_PLUGIN_PATH says where plugins lie; an encrypted variable needs its owner's)"
            raise UserError("variable", problem, allowed)
    n_missing = sum(variable.n_chunks for variable in layout.variables) - sum(
        map(len, layout.chunks)
    )
    spans = whole.metadata
    report = FileReport(
        name,
        whole.file_nbytes,
        whole.userblock_nbytes,
        whole.page_nbytes,
        sum(stop - start for start, stop in spans),
        len(spans),
        whole.n_listed,
        whole.variables,
        looking.n_left_out + listing.n_left_out + max(0, n_missing),
    )
    n_chunks = sum(variable.n_chunks for variable in whole.variables)
    references_nbytes = REFERENCE_NBYTES * n_chunks + report.metadata_nbytes
    layout = replace(layout, references_nbytes=references_nbytes)
    repacks = list_repacks(whole, layout.variables)
    ways = list_read_methods(layout, is_web=name.startswith(("http://", "https://")))
    address = "address" if is_near(source) else repr(name)
    rated_advice, left_out = list[Advice](), list[str]()
    choices: list[ReadMethod | Repack] = [*ways, *repacks]
    for settings in choices:
        if rated_advice and deadline.is_over:
            left_out.append(settings.name)
        elif isinstance(settings, ReadMethod):
            cost, command = (
                text.format(address=address, mb=whole.file_nbytes / 1e6)
                for text in _HOW[settings.name]
            )
            rated_advice.append(
                Advice(settings.name, predict_read(settings, layout, network), cost, command)
            )
        elif (
            rewritten := lay_out(whole, layout, settings)
        ).file_nbytes <= MOST_GROWTH * whole.file_nbytes:
            cost = (
                f"rewrites {whole.file_nbytes / 1e6:.3g} MB as {rewritten.file_nbytes / 1e6:.3g} MB"
            )
            command = _write_command(name, settings)
            rated_advice.append(
                Advice(
                    settings.name, predict_read(BLOCKS, rewritten, network), cost, command, settings
                )
            )
    today_s = rated_advice[0].prediction.seconds
    rated = [
        replace(advice, gain=today_s / max(advice.prediction.seconds, 1e-9))
        for advice in rated_advice
    ]
    faster = [advice for advice in rated[1:] if advice.repack is None or advice.gain > 1]
    return Advised(
        report,
        tuple({"name": name, "text": text} for name, text in find_problems(whole, network).items()),
        tuple(variable.name for variable in layout.variables),
        profile.name,
        (rated[0], *sorted(faster, key=lambda advice: -advice.gain)),
        tuple(repacks),
        tuple(left_out),
    )


_REFER = "virtualizarr.open_virtual_dataset(…) writes them"
_KNOWN = "one object; readers must know it"

# What doing so costs and how it is done, by the name of a way
_HOW = {
    "s3fs.open": ("nothing", "h5py.File(s3fs.S3FileSystem().open({address}))"),
    "fsspec.open": ("nothing", "h5py.File(fsspec.open({address}).open())"),
    "xarray, address": ("nothing", 'xarray.open_dataset({address}, engine="h5netcdf")'),
    "earthaccess.open": ("nothing", "earthaccess.open(granules)"),
    "blocks of 8 MiB": (
        "nothing is rewritten",
        "s3fs.S3FileSystem().open({address}, cache_type='blockcache', block_size=8388608)",
    ),
    "whole": ("{mb:.3g} MB in memory", "obstore.get_range(…) by ten threads"),
    "references": (_KNOWN, _REFER),
    "references, 64 in flight": (
        _KNOWN,
        f'{_REFER}; zarr.config.set({{{{"async.concurrency": 64}}}})',
    ),
}


def _write_command(name: str, repack: Repack) -> str:
    """Write the line of a shell that makes a repack of a file, or of its copy on disk."""
    path = name.rpartition("/")[2] if "://" in name else name
    path = shlex.quote(f"./{path}" if path.startswith("-") else path)
    arguments = shlex.join(repack.list_arguments())
    return f"h5repack {arguments} {path} repacked.h5 && h5diff {path} repacked.h5"


GUIDE = "https://guide.cloudnativegeo.org/cloud-optimized-netcdf4-hdf5/"
"""The Cloud-Optimized HDF/NetCDF guide, whose checklist this is."""

CHUNK_NBYTES = 100_000, 16_000_000
"""Bytes of a chunk in memory, at least and at most, as the guide's checklist has them."""

CHUNK_CACHE_NBYTES = 8 * 2**20
"""Bytes that HDF5 2.0 keeps of the chunks of a dataset, where nothing is set; before it was 1 MiB."""

_TOGETHER_NBYTES = 8 * 2**20  # of metadata that one block of a block cache has
_SMALL_NBYTES = 65_536  # of a dataset up to which HDF5 can keep its values in its header
_PORTABLE = {1, 2, 3}  # deflate, shuffle, fletcher32: filters that every reader has
_N_SHOWN = 3  # datasets that a problem names


def find_problems(layout: FileLayout, network: Network) -> dict[str, str]:
    """Find what is wrong with a file, for readers over a network: items that fail, and what to do about each."""
    gap = network.first_byte_median_s * network.stream_nbytes_per_s
    gap_nbytes = round(gap) if 0 < gap < math.inf else 0
    page, metadata, user = layout.page_nbytes, layout.metadata, layout.userblock_nbytes
    nbytes = sum(stop - start for start, stop in metadata)

    def count(reads: Iterable[Read] = ()) -> int:
        """Count the places of metadata and more; those that are better read together are one."""
        spans = [*metadata, *((read.offset, read.stop) for read in reads)]
        return len(merge_spans((start, stop + gap_nbytes) for start, stop in spans))

    n_places = count()
    n_heaps = count(read for read in layout.opened if not read.is_metadata) - n_places
    small = [
        read
        for variable, reads in zip(layout.variables, layout.read, strict=True)
        for read in reads
        if not variable.chunk_shape and not read.is_metadata and read.nbytes <= _SMALL_NBYTES
    ]
    n_small = count(small) - n_places
    problems = {}
    if not page:
        problems["paged-file-space"] = "the file has no pages"
    elif page < nbytes:
        text = f"metadata take {format_size(nbytes)}, more than a page of {format_size(page)}"
        problems["page-size"] = f"{text}; make pages larger"
    if n_places > 1 + nbytes // max(page, _TOGETHER_NBYTES):
        text = f"metadata are scattered over {n_places} places; consolidate them"
        problems["consolidated-metadata"] = text
    if n_heaps > 1:
        text = f"texts of variable length in attributes are scattered over {n_heaps} places"
        problems["global-heaps"] = f"{text}; rewrite the file, or store them with a fixed length"
    if n_small > 1:
        text = f"small datasets are scattered over {n_small} places, a request each"
        problems["small-datasets"] = f"{text}; make them compact"
    if user:
        text = f"a user block of {format_size(user)} stands before the file"
        problems["user-block"] = f"{text}, so that it cannot have pages"
    return problems | _check_variables(layout.variables)


def _check_variables(variables: Sequence[Variable]) -> dict[str, str]:
    """Check chunks, types and filters of the datasets."""
    least, most = CHUNK_NBYTES
    chunked = [v for v in variables if v.chunk_shape and v.n_chunks]
    small = [v for v in chunked if v.n_chunks > 1 and v.chunk_nbytes < least]
    large = [v for v in chunked if v.chunk_nbytes > most]
    loose = [v for v in variables if v.is_variable_length]
    rare = [v for v in variables if not {*v.filter_numbers} <= _PORTABLE]
    problems = {}
    texts = [f"{_count(small)} chunks below {format_size(least)}: {_name(small)}"] * bool(small)
    texts += [f"{_count(large)} chunks above {format_size(most)}: {_name(large)}"] * bool(large)
    if texts:
        problems["chunk-bytes"] = "; ".join(texts)
    largest = max(chunked, key=lambda v: v.chunk_nbytes, default=None)
    if largest is not None and largest.chunk_nbytes > CHUNK_CACHE_NBYTES:
        problems["chunk-cache"] = (
            f"chunks of {cut(largest.name)} have {format_size(largest.chunk_nbytes)}, more than the"
            f" {format_size(CHUNK_CACHE_NBYTES)} that HDF5 keeps; set rdcc_nbytes or make them smaller"
        )
    if loose:
        told_loose = f"{_count(loose)} values of variable length, which lie apart: {_name(loose)}"
        problems["variable-length"] = told_loose
    if rare:
        names = cut(", ".join(sorted({name for v in rare for name in v.filters})))
        problems["filters"] = f"{_count(rare)} filters that need a plugin ({names}): {_name(rare)}"
    return problems


def _count(variables: Sequence[Variable]) -> str:
    return "1 dataset has" if len(variables) == 1 else f"{len(variables)} datasets have"


def _name(variables: Sequence[Variable]) -> str:
    shown = ", ".join(cut(variable.name) for variable in variables[:_N_SHOWN])
    more = len(variables) - _N_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
