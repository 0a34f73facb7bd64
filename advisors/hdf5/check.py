"""The checklist of the cloud-optimised HDF5 guide: each item passed, failed or not applicable, and why.

Only metadata are read. Places in the file that lie closer together than the bytes that a
network delivers while it waits for another first byte count as one: a reader gains nothing
by asking for them apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import h5py

from advisors.hdf5.files import Source, iterate_chunks, name_source, open_hdf5, open_source
from advisors.hdf5.inspection import (
    FileReport,
    Recording,
    Variable,
    inspect_file,
    merge_spans,
)
from advisors.hdf5.prediction import TUNED
from helpers.errors import cut
from helpers.netem.profiles import Profile, network_of

GUIDE = "https://guide.cloudnativegeo.org/cloud-optimized-netcdf4-hdf5/"
"""The Cloud-Optimized HDF/NetCDF guide, whose checklist this is."""

CHUNK_NBYTES = 100_000, 16_000_000
"""Bytes of a chunk in memory, at least and at most, as the guide's checklist has them."""

_SMALL_NBYTES = 65_536  # of a dataset up to which HDF5 can keep its values in its header
_PORTABLE = {1, 2, 3}  # deflate, shuffle, fletcher32: filters that every reader has
_N_SHOWN = 3  # datasets that an item names

Status = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True, slots=True)
class Item:
    """One item of the list."""

    name: str
    status: Status
    text: str  # what is so, and what to do about it
    value: float | None = None  # what was counted; None where there is nothing to count
    bound: str = ""  # what is asked of the value


@dataclass(frozen=True, slots=True)
class Checklist:
    """All items, of one file and for readers over one network."""

    file: str
    profile: str
    hdf5_version: str  # of the library that reads
    items: tuple[Item, ...]

    @property
    def is_passed(self) -> bool:
        """Whether no item failed."""
        return all(item.status != "failed" for item in self.items)


def check_file(source: Source, profile: Profile) -> Checklist:
    """Go through the checklist for a file at a path or an address, read over a network as it is.

    Raises
    ------
    UserError
        If the file cannot be read, or is none of HDF5.
    """
    name, network = name_source(source), network_of(profile)
    with open_source(source) as file:
        report, recording = inspect_file(file, name)
        with open_hdf5(file, name) as opened:
            cache_nbytes = int(opened.id.get_access_plist().get_cache()[2])
            plain = [opened[v.name] for v in report.variables if not v.chunk_shape]
            found = [(at, n) for dataset in plain for _, at, n in iterate_chunks(dataset)]
    small = [(at, at + nbytes) for at, nbytes in found if nbytes <= _SMALL_NBYTES]
    gap = network.first_byte_median_s * network.stream_nbytes_per_s
    gap_nbytes = round(gap) if 0 < gap < math.inf else 0
    layout = _check_layout(report, recording, small, gap_nbytes)
    items = (*layout, *_check_variables(report.variables, cache_nbytes))
    return Checklist(name, profile.name, h5py.version.hdf5_version, items)


def _count_places(spans: Sequence[tuple[int, int]], gap_nbytes: int) -> int:
    """Count the places of spans, of which those that are better read together are one."""
    return len(merge_spans((start, stop + gap_nbytes) for start, stop in spans))


def _judge(
    name: str, passed: bool | None, value: float, bound: str, good: str, bad: str = ""
) -> Item:
    """Make an item; of what is not applicable, `passed` is None and `good` says why."""
    if passed is None:
        return Item(name, "not applicable", good)
    return Item(name, "passed" if passed else "failed", good if passed else bad, value, bound)


def _check_layout(
    report: FileReport, recording: Recording, small: Sequence[tuple[int, int]], gap_nbytes: int
) -> Iterator[Item]:
    """Check what a rewrite mends without touching any dataset.

    `small` are contiguous datasets of few bytes; `gap_nbytes` are better read than skipped.
    """
    page, metadata = report.page_nbytes, report.metadata_nbytes
    yield _judge(
        "paged-file-space", page > 0, page, "bytes of a page, above 0",
        f"the file has pages of {_size(page)}",
        "the file has no pages; `wire hdf5 advise --apply` makes them",
    )  # fmt: skip
    yield _judge(
        "page-size", page >= metadata if page else None, page, f"at least {metadata}",
        "all metadata fit in one page" if page else "the file has no pages",
        f"metadata take {_size(metadata)}, more than a page of {_size(page)}; make pages larger",
    )  # fmt: skip
    most = 1 + metadata // max(page, TUNED.block_nbytes)
    n_places = _count_places(recording.metadata, gap_nbytes)
    yield _judge(
        "consolidated-metadata", n_places <= most, n_places, f"at most {most}",
        "metadata lie together",
        f"metadata are scattered over {n_places} places; consolidate them",
    )  # fmt: skip
    heaps = [(at, at + nbytes) for at, nbytes in recording.heaps]
    n_away = _count_places((*recording.metadata, *heaps), gap_nbytes) - n_places
    yield _judge(
        "global-heaps", n_away <= 1 if heaps else None, n_away, "at most 1",
        "texts in attributes lie together" if heaps else "no attribute is of variable length",
        f"texts of variable length in attributes are scattered over {n_away} places;"
        " rewrite the file, or store them with a fixed length",
    )  # fmt: skip
    n_away = _count_places((*recording.metadata, *small), gap_nbytes) - n_places
    yield _judge(
        "small-datasets", n_away <= 1 if small else None, n_away, "at most 1",
        "small datasets lie together" if small else "no contiguous dataset is small",
        f"small datasets are scattered over {n_away} places, a request each; make them compact",
    )  # fmt: skip
    n_user = report.userblock_nbytes
    yield _judge(
        "user-block", not n_user, n_user, "at most 0", "there is no user block",
        f"a user block of {_size(n_user)} stands before the file, so that it cannot have pages",
    )  # fmt: skip


def _check_variables(variables: Sequence[Variable], kept: int) -> Iterator[Item]:
    """Check chunks, which HDF5 keeps up to so many bytes, types and filters of the datasets."""
    least, most = CHUNK_NBYTES
    chunked = [v for v in variables if v.chunk_shape and v.n_chunks]
    small = [v for v in chunked if v.n_chunks > 1 and v.chunk_nbytes < least]
    large = [v for v in chunked if v.chunk_nbytes > most]
    told = [f"{_count(small)} chunks below {_size(least)}: {_name(small)}"] * bool(small)
    told += [f"{_count(large)} chunks above {_size(most)}: {_name(large)}"] * bool(large)
    why_not = "no dataset is chunked"
    yield _judge(
        "chunk-bytes", not told if chunked else None, len(small) + len(large), "at most 0",
        f"chunks have {_size(least)} to {_size(most)}" if chunked else why_not, "; ".join(told),
    )  # fmt: skip
    largest = max(chunked, key=lambda v: v.chunk_nbytes, default=None)
    nbytes = largest.chunk_nbytes if largest else 0
    yield _judge(
        "chunk-cache", nbytes <= kept if largest else None, nbytes, f"at most {kept}",
        f"every chunk fits in the {_size(kept)} that HDF5 keeps" if largest else why_not,
        f"chunks of {cut(largest.name if largest else '')} have {_size(nbytes)}, more than the"
        f" {_size(kept)} that HDF5 keeps; set rdcc_nbytes or make them smaller",
    )  # fmt: skip
    loose = [v for v in variables if v.is_variable_length]
    yield _judge(
        "variable-length", not loose, len(loose), "at most 0", "all values have a fixed length",
        f"{_count(loose)} values of variable length, which lie apart: {_name(loose)}",
    )  # fmt: skip
    is_filtered = any(v.filters for v in variables)
    rare = [v for v in variables if not {*v.filter_numbers} <= _PORTABLE]
    names = cut(", ".join(sorted({name for v in rare for name in v.filters})))
    yield _judge(
        "filters", not rare if is_filtered else None, len(rare), "at most 0",
        "every reader has the filters" if is_filtered else "nothing is compressed",
        f"{_count(rare)} filters that need a plugin ({names}): {_name(rare)}",
    )  # fmt: skip


def _count(variables: Sequence[Variable]) -> str:
    return "1 dataset has" if len(variables) == 1 else f"{len(variables)} datasets have"


def _name(variables: Sequence[Variable]) -> str:
    shown = ", ".join(cut(variable.name) for variable in variables[:_N_SHOWN])
    more = len(variables) - _N_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _size(nbytes: float) -> str:
    """Write bytes as people say them.

    Examples
    --------
    >>> _size(512), _size(100_000), _size(16e6)
    ('512 bytes', '100 kB', '16 MB')
    """
    if nbytes < 1000:
        return f"{nbytes:.0f} bytes"
    return f"{nbytes / 1e3:.3g} kB" if nbytes < 1e6 else f"{nbytes / 1e6:.3g} MB"
