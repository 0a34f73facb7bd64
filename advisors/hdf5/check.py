"""What is wrong with a file for readers in object storage, by the checklist of the cloud-optimised guide.

Only metadata are read. Places in the file that lie closer together than the bytes that a
network delivers while it waits for another first byte count as one: a reader gains nothing
by asking for them apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisors.hdf5.inspection import FileLayout, FileReport, Variable, merge_spans
from helpers.errors import cut, write_bytes
from helpers.models.transfer import Network

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


@dataclass(frozen=True, slots=True)
class Problem:
    """An item of the list that fails."""

    name: str
    text: str  # what is so, and what to do about it


def list_problems(report: FileReport, layout: FileLayout, network: Network) -> list[Problem]:
    """List what is wrong with a file whose metadata were read, for readers over a network."""
    gap = network.first_byte_median_s * network.stream_nbytes_per_s
    gap_nbytes = round(gap) if 0 < gap < math.inf else 0
    found = (*_check_layout(report, layout, gap_nbytes), *_check_variables(report.variables))
    return [one for one in found if one is not None]


def _count_places(spans: Sequence[tuple[int, int]], gap_nbytes: int) -> int:
    """Count the places of spans, of which those that are better read together are one."""
    return len(merge_spans((start, stop + gap_nbytes) for start, stop in spans))


def _bound(name: str, value: float, most: float, text: str) -> Problem | None:
    return Problem(name, text) if value > most else None


def _check_layout(
    report: FileReport, layout: FileLayout, gap_nbytes: int
) -> Iterator[Problem | None]:
    """Check what a rewrite mends without touching any dataset."""
    page, nbytes, metadata = report.page_nbytes, report.metadata_nbytes, layout.metadata
    if not page:
        text = "the file has no pages"
        yield Problem("paged-file-space", text)
    elif page < nbytes:
        text = f"metadata take {write_bytes(nbytes)}, more than a page of {write_bytes(page)}; make pages larger"
        yield Problem("page-size", text)
    n_places = _count_places(metadata, gap_nbytes)
    text = f"metadata are scattered over {n_places} places; consolidate them"
    most = 1 + nbytes // max(page, _TOGETHER_NBYTES)
    yield _bound("consolidated-metadata", n_places, most, text)
    heaps = [(one.offset, one.stop) for one in layout.opened if not one.is_metadata]
    n_away = _count_places((*metadata, *heaps), gap_nbytes) - n_places
    text = (
        f"texts of variable length in attributes are scattered over {n_away} places;"
        " rewrite the file, or store them with a fixed length"
    )
    yield _bound("global-heaps", n_away, 1, text)
    small = [
        (one.offset, one.stop)
        for variable, reads in zip(report.variables, layout.read, strict=False)
        if not variable.chunk_shape
        for one in reads
        if not one.is_metadata and one.nbytes <= _SMALL_NBYTES
    ]
    n_away = _count_places((*metadata, *small), gap_nbytes) - n_places
    text = f"small datasets are scattered over {n_away} places, a request each; make them compact"
    yield _bound("small-datasets", n_away, 1, text)
    n_user = report.userblock_nbytes
    text = f"a user block of {write_bytes(n_user)} stands before the file, so that it cannot have pages"
    yield _bound("user-block", n_user, 0, text)


def _check_variables(variables: Sequence[Variable]) -> Iterator[Problem | None]:
    """Check chunks, types and filters of the datasets."""
    least, most = CHUNK_NBYTES
    chunked = [v for v in variables if v.chunk_shape and v.n_chunks]
    small = [v for v in chunked if v.n_chunks > 1 and v.chunk_nbytes < least]
    large = [v for v in chunked if v.chunk_nbytes > most]
    told = [f"{_count(small)} chunks below {write_bytes(least)}: {_name(small)}"] * bool(small)
    told += [f"{_count(large)} chunks above {write_bytes(most)}: {_name(large)}"] * bool(large)
    yield _bound("chunk-bytes", len(small) + len(large), 0, "; ".join(told))
    largest = max(chunked, key=lambda v: v.chunk_nbytes, default=None)
    if largest is not None:
        text = (
            f"chunks of {cut(largest.name)} have {write_bytes(largest.chunk_nbytes)}, more than the"
            f" {write_bytes(CHUNK_CACHE_NBYTES)} that HDF5 keeps; set rdcc_nbytes or make them smaller"
        )
        yield _bound("chunk-cache", largest.chunk_nbytes, CHUNK_CACHE_NBYTES, text)
    loose = [v for v in variables if v.is_variable_length]
    text = f"{_count(loose)} values of variable length, which lie apart: {_name(loose)}"
    yield _bound("variable-length", len(loose), 0, text)
    rare = [v for v in variables if not {*v.filter_numbers} <= _PORTABLE]
    names = cut(", ".join(sorted({name for v in rare for name in v.filters})))
    text = f"{_count(rare)} filters that need a plugin ({names}): {_name(rare)}"
    yield _bound("filters", len(rare), 0, text)


def _count(variables: Sequence[Variable]) -> str:
    return "1 dataset has" if len(variables) == 1 else f"{len(variables)} datasets have"


def _name(variables: Sequence[Variable]) -> str:
    shown = ", ".join(cut(variable.name) for variable in variables[:_N_SHOWN])
    more = len(variables) - _N_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
