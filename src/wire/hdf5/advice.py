"""What is wrong with an HDF5 file, and what each way to read it would take, before anything is rewritten.

Only metadata are read. Everything is predicted, and held against what people have who do nothing. What
is wrong is so by the checklist of the cloud-optimised guide.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from wire.bed.networks import Profile, of_one_process
from wire.errors import UserError, cut, format_size, show
from wire.hdf5.files import (
    Deadline,
    Source,
    is_near,
    name_source,
    open_source,
    shorten_error,
)
from wire.hdf5.inspection import (
    REFERENCE_NBYTES,
    FileLayout,
    Read,
    Variable,
    merge_spans,
    record_reads,
    record_xarray,
)
from wire.hdf5.prediction import (
    BLOCKS,
    ZARR_CONCURRENCY,
    PredictedRead,
    ReadMethod,
    list_read_methods,
    predict_read,
    predict_sessions,
)
from wire.hdf5.repacked import Repack, lay_out, list_repacks
from wire.models import WORTH
from wire.models.transfer import Network, network_with_tail

MOST_GROWTH = 2.0
"""Times its present length that a repacked file may have."""

SECONDS = 10.0
"""Time after which nothing more of a file is looked at, or predicted."""

_PATIENCE = 3.0  # times as long a store is waited for
_LOOKING, _LISTING = 0.35, 0.25  # shares of it: of the whole file, then of what xarray reads of it


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that can be done, and what it brings."""

    label: str  # what is done
    prediction: PredictedRead  # what to expect then
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

    answer: str  # what to do, in a sentence or two
    best: str  # label of the advice that it names
    report: FileReport  # how the file lies
    problems: tuple[dict[str, str], ...]  # items of the guide's checklist that fail: name and text
    variables: tuple[str, ...]  # what is read
    profile: str  # over which network
    advice: tuple[Advice, ...]
    repacks: tuple[Repack, ...]  # all that can be made, also those that are not advised
    not_predicted: tuple[str, ...] = ()  # ways that were not predicted, each with the reason

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
    deadline, network = Deadline(seconds), network_with_tail(of_one_process(profile))
    looking = Deadline(_LOOKING * seconds)
    with open_source(source, _PATIENCE * seconds) as file:
        name = name_source(source)
        whole = layout = record_reads(file, name, deadline=looking)
        if variables:  # a program opens them by their names, and lists nothing
            chosen = [*dict.fromkeys(variable.strip("/") for variable in variables)]
            layout = record_reads(file, name, chosen, groups=())
        refuse_missing_filters(layout.variables)
        by_xarray, problem = _record_xarray(file, layout, _LISTING * seconds)
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
        looking.n_left_out + max(0, n_missing),
    )
    n_chunks = sum(variable.n_chunks for variable in whole.variables)
    references_nbytes = REFERENCE_NBYTES * n_chunks + report.metadata_nbytes
    layout = replace(layout, references_nbytes=references_nbytes)
    repacks = list_repacks(whole, layout.variables)
    is_web = name.startswith(("http://", "https://"))
    url = "url" if is_near(source) else repr(name)
    rated_advice, left_out = list[Advice](), list[str]()
    choices: list[ReadMethod | Repack] = [*list_read_methods(layout, is_web=is_web), *repacks]
    for choice in choices:
        if rated_advice and deadline.is_over:
            left_out.append(f"{label_choice(choice)} (it would take long)")
        elif isinstance(choice, ReadMethod):
            layouts = by_xarray if choice.program == "xarray" else (layout,)
            if not layouts:
                left_out.append(f"{label_choice(choice)} ({problem})")
                continue
            prediction = predict_sessions(choice, layouts, network)
            cost, command = describe_method(choice, layout, url)
            rated_advice.append(Advice(label_choice(choice), prediction, cost, command))
        else:
            rewritten = lay_out(whole, layout, choice)
            if rewritten.file_nbytes > MOST_GROWTH * whole.file_nbytes:
                continue
            sizes = [
                f"{nbytes / 1e6:.3g} MB" for nbytes in (whole.file_nbytes, rewritten.file_nbytes)
            ]
            rated_advice.append(
                Advice(
                    label_choice(choice),
                    predict_read(BLOCKS, rewritten, network),
                    f"rewrites {sizes[0]} as {sizes[1]}",
                    _write_command(name, choice),
                    choice,
                )
            )
    today_s = rated_advice[0].prediction.seconds
    rated = [
        replace(advice, gain=today_s / max(advice.prediction.seconds, 1e-9))
        for advice in rated_advice
    ]
    faster = [advice for advice in rated[1:] if advice.repack is None or advice.gain > 1]
    advice = (rated[0], *sorted(faster, key=lambda advice: -advice.gain))
    best = choose_best(advice)
    return Advised(
        write_answer(advice, best, is_complete=not left_out),
        best.label,
        report,
        tuple({"name": name, "text": text} for name, text in find_problems(whole, network).items()),
        tuple(variable.name for variable in layout.variables),
        profile.name,
        advice,
        tuple(repacks),
        tuple(left_out),
    )


def refuse_missing_filters(variables: Sequence[Variable]) -> None:
    """Refuse variables that this machine cannot decode."""
    for variable in variables:
        if variable.missing_filters:
            problem = f"{variable.name!r} needs the filter {', '.join(variable.missing_filters)}, which is not here"
            allowed = "one whose filters are (HDF5_PLUGIN_PATH says where plugins lie; an encrypted variable needs its owner's)"
            raise UserError("variable", problem, allowed)


def _record_xarray(
    file: BinaryIO, layout: FileLayout, seconds: float
) -> tuple[tuple[FileLayout, ...], str]:
    """Log what xarray reads of the variables, a layout for each group; none, with the reason, if it cannot."""
    import h5netcdf  # noqa: F401  # with what xarray imports of its engines seconds, not the file's
    import xarray

    if layout.userblock_nbytes:
        return (), "xarray opens no file behind a user block"
    xarray.backends.list_engines()
    deadline = Deadline(seconds)
    try:
        return record_xarray(file, [variable.name for variable in layout.variables], deadline), ""
    except UserError:
        raise
    except (
        Exception
    ) as error:  # xarray and h5netcdf raise what they like of files that are not netCDF
        if deadline.is_over:
            return (), "it would take long"
        return (), f"xarray does not open it: {shorten_error(error)}"


def choose_best(advice: Sequence[Advice]) -> Advice:
    """Choose the fastest way that rewrites nothing; of those about as fast, what changes least.

    A rewrite is chosen where no such way is clearly faster than doing nothing, and the rewrite is.
    """
    as_it_is = [candidate for candidate in advice if candidate.repack is None]
    fastest = max(candidate.gain for candidate in as_it_is)
    near = [candidate for candidate in as_it_is if WORTH * candidate.gain >= fastest]
    best = min(
        near, key=lambda candidate: (_CHANGES[candidate.prediction.method.kind], -candidate.gain)
    )
    if advice[0] in near:
        best = advice[0]
    rewritten = max(advice, key=lambda candidate: candidate.gain)
    return rewritten if best.gain < WORTH <= rewritten.gain else best


_CHANGES = {"file object": 0, "whole": 1, "references": 2}  # what a program must change, in order


def write_answer(advice: Sequence[Advice], best: Advice, *, is_complete: bool = True) -> str:
    """Write what to do in a sentence, and what a rewrite would bring beyond it in another.

    Where some ways were not predicted, the answer is one of those that were.
    """
    today = advice[0].label
    fastest = max(advice, key=lambda candidate: candidate.gain)
    if best.repack is not None:
        return f"Rewrite it ({best.label}): {best.gain:.1f}x faster than {today}, predicted."
    beyond = fastest.gain / best.gain
    rewrite = "Nothing needs rewriting."
    if fastest.repack is not None and beyond >= WORTH:
        rewrite = f"A rewritten copy ({fastest.label}) would be {beyond:.1f}x faster again."
    among = "" if is_complete else " of those that were predicted"
    if best.label == today:
        return f"Read it as it is, by {today}: no other way{among} is clearly faster, predicted. {rewrite}"
    action = _ACTIONS.get(best.prediction.method.kind, "").format(label=best.label)
    return f"{action}: {best.gain:.1f}x faster than {today}, predicted. {rewrite}"


_ACTIONS = {
    "file object": "Open it by {label}",
    "whole": "Download it whole",
    "references": "Read its chunks as {label}",
}


def label_choice(choice: ReadMethod | Repack) -> str:
    """Return how an answer calls a way to read a file, or a rewritten copy."""
    if isinstance(choice, ReadMethod) and choice.kind == "references":
        return f"virtual Zarr, {choice.in_flight} concurrent requests"
    if isinstance(choice, ReadMethod) and choice.kind == "whole":
        return "whole file downloaded"
    return choice.name


def describe_method(method: ReadMethod, layout: FileLayout, url: str) -> tuple[str, str]:
    """Describe what a way costs besides time, and the code that reads so."""
    if method.kind == "whole":
        return f"{layout.file_nbytes / 1e6:.3g} MB in memory", "obstore.get_range(…) by ten threads"
    if method.kind == "references":
        settings = ""
        if method.in_flight != ZARR_CONCURRENCY:
            settings = f'; zarr.config.set({{"async.concurrency": {method.in_flight}}})'
        return _VIRTUAL_COST, f"virtualizarr.open_virtual_dataset(…) writes them{settings}"
    cost, command = _CODE[method.name]
    pages = f", page_buf_size={method.page_buffer_nbytes}" if layout.page_nbytes else ""
    return cost, command.format(url=url, pages=pages, block_nbytes=method.block_nbytes)


_VIRTUAL_COST = "a file of references to the chunks, written once; readers must know of it"
_S3FS_OPEN = "s3fs.S3FileSystem().open({url}"

# What opening a file object costs, and the code, by the name of the way
_CODE = {
    "s3fs.open": ("nothing", f"h5py.File({_S3FS_OPEN}))"),
    "fsspec.open": ("nothing", "h5py.File(fsspec.open({url}).open())"),
    "xarray over s3fs.open": (
        "nothing",
        f'xarray.open_dataset({_S3FS_OPEN}), engine="h5netcdf")',
    ),
    "xarray by URL": ("nothing", 'xarray.open_dataset({url}, engine="h5netcdf")'),
    "earthaccess.open": (
        "nothing",
        "h5py.File(earthaccess.open(granules)[0]); for files that are not of NASA, "
        f'h5py.File({_S3FS_OPEN}, cache_type="background", block_size={{block_nbytes}}))',
    ),
    "blocks of 8 MiB": (
        "nothing is rewritten",
        f'h5py.File({_S3FS_OPEN}, cache_type="blockcache", block_size=8388608){{pages}})',
    ),
    "ROS3": (
        "an h5py with ROS3, as conda-forge has it",
        'h5py.File({url}, driver="ros3")',
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
        text = f"{_count(loose)} values of variable length, which lie apart: {_name(loose)}"
        problems["variable-length"] = text
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
