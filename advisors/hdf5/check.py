"""What is wrong with a file for readers in object storage, by the checklist of the cloud-optimised guide.

Only metadata are read. Places in the file that lie closer together than the bytes that a
network delivers while it waits for another first byte count as one: a reader gains nothing
by asking for them apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from advisors.hdf5.inspection import FileLayout, Read, Variable, merge_spans
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


def find_problems(layout: FileLayout, network: Network) -> dict[str, str]:
    """Find what is wrong with a file, for readers over a network: items that fail, and what to do about each."""
    gap = network.first_byte_median_s * network.stream_nbytes_per_s
    gap_nbytes = round(gap) if 0 < gap < math.inf else 0
    return _check_file(layout, gap_nbytes) | _check_variables(layout.variables)


def _check_file(layout: FileLayout, gap_nbytes: int) -> dict[str, str]:
    """Check what a rewrite mends without touching any dataset."""
    page, metadata, user = layout.page_nbytes, layout.metadata, layout.userblock_nbytes
    nbytes = sum(stop - start for start, stop in metadata)

    def count(reads: Iterable[Read] = ()) -> int:
        """Count the places of metadata and more; those that are better read together are one."""
        spans = [*metadata, *((one.offset, one.stop) for one in reads)]
        return len(merge_spans((start, stop + gap_nbytes) for start, stop in spans))

    n_places = count()
    n_heaps = count(one for one in layout.opened if not one.is_metadata) - n_places
    small = [
        one
        for variable, reads in zip(layout.variables, layout.read, strict=True)
        for one in reads
        if not variable.chunk_shape and not one.is_metadata and one.nbytes <= _SMALL_NBYTES
    ]
    n_small = count(small) - n_places
    found = {}
    if not page:
        found["paged-file-space"] = "the file has no pages"
    elif page < nbytes:
        told = f"metadata take {write_bytes(nbytes)}, more than a page of {write_bytes(page)}"
        found["page-size"] = f"{told}; make pages larger"
    if n_places > 1 + nbytes // max(page, _TOGETHER_NBYTES):
        told = f"metadata are scattered over {n_places} places; consolidate them"
        found["consolidated-metadata"] = told
    if n_heaps > 1:
        told = f"texts of variable length in attributes are scattered over {n_heaps} places"
        found["global-heaps"] = f"{told}; rewrite the file, or store them with a fixed length"
    if n_small > 1:
        told = f"small datasets are scattered over {n_small} places, a request each"
        found["small-datasets"] = f"{told}; make them compact"
    if user:
        told = f"a user block of {write_bytes(user)} stands before the file"
        found["user-block"] = f"{told}, so that it cannot have pages"
    return found


def _check_variables(variables: Sequence[Variable]) -> dict[str, str]:
    """Check chunks, types and filters of the datasets."""
    least, most = CHUNK_NBYTES
    chunked = [v for v in variables if v.chunk_shape and v.n_chunks]
    small = [v for v in chunked if v.n_chunks > 1 and v.chunk_nbytes < least]
    large = [v for v in chunked if v.chunk_nbytes > most]
    loose = [v for v in variables if v.is_variable_length]
    rare = [v for v in variables if not {*v.filter_numbers} <= _PORTABLE]
    found = {}
    told = [f"{_count(small)} chunks below {write_bytes(least)}: {_name(small)}"] * bool(small)
    told += [f"{_count(large)} chunks above {write_bytes(most)}: {_name(large)}"] * bool(large)
    if told:
        found["chunk-bytes"] = "; ".join(told)
    largest = max(chunked, key=lambda v: v.chunk_nbytes, default=None)
    if largest is not None and largest.chunk_nbytes > CHUNK_CACHE_NBYTES:
        found["chunk-cache"] = (
            f"chunks of {cut(largest.name)} have {write_bytes(largest.chunk_nbytes)}, more than the"
            f" {write_bytes(CHUNK_CACHE_NBYTES)} that HDF5 keeps; set rdcc_nbytes or make them smaller"
        )
    if loose:
        told_loose = f"{_count(loose)} values of variable length, which lie apart: {_name(loose)}"
        found["variable-length"] = told_loose
    if rare:
        names = cut(", ".join(sorted({name for v in rare for name in v.filters})))
        found["filters"] = f"{_count(rare)} filters that need a plugin ({names}): {_name(rare)}"
    return found


def _count(variables: Sequence[Variable]) -> str:
    return "1 dataset has" if len(variables) == 1 else f"{len(variables)} datasets have"


def _name(variables: Sequence[Variable]) -> str:
    shown = ", ".join(cut(variable.name) for variable in variables[:_N_SHOWN])
    more = len(variables) - _N_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
