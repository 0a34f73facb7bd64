"""The checklist of the cloud-optimised HDF5 guide: each item passed, failed or not applicable, and why.

Only metadata are read. Places in the file that lie closer together than the bytes that a
network delivers while it waits for another first byte count as one: a reader gains nothing
by asking for them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Literal

import h5py

from advisors.hdf5.advice import describe_network
from advisors.hdf5.inspection import FileReport, Variable, inspect_file, merge_spans
from advisors.hdf5.prediction import TUNED
from advisors.hdf5.recording import (
    Recording,
    iterate_chunks,
    name_source,
    open_hdf5,
    open_source,
    record_reads,
)
from helpers.errors import cut
from helpers.netem.profiles import Profile, network_of
from helpers.objectstore.locations import Location

GUIDE = "https://guide.cloudnativegeo.org/cloud-optimized-netcdf4-hdf5/"
"""The Cloud-Optimized HDF/NetCDF guide, whose checklist this is."""

CHUNK_NBYTES = 100_000, 16_000_000
"""Bytes of a chunk in memory, at least and at most, as the guide's checklist has them."""

_SMALL_NBYTES = 65_536  # of a dataset up to which HDF5 can keep its values in its header
_PORTABLE = {1: "deflate", 2: "shuffle", 3: "fletcher32"}  # filters, as HDF5 registers them
_N_SHOWN = 3  # datasets that a reason names

Status = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True, slots=True)
class Item:
    """One item of the list."""

    name: str
    status: Status
    reason: str
    value: float | None  # what was found, and in which unit; None where there is nothing to measure
    unit: str
    bound: str  # what is asked of the value
    source: str  # where the bound is from


@dataclass(frozen=True, slots=True)
class Checklist:
    """All items, of one file and for readers over one network."""

    file: str
    profile: str
    network: str
    hdf5_version: str  # of the library that reads
    items: tuple[Item, ...]

    @property
    def is_passed(self) -> bool:
        """Whether no item failed."""
        return all(item.status != "failed" for item in self.items)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"is_passed": self.is_passed, **asdict(self)}


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the items are decided by."""

    report: FileReport
    recording: Recording
    small: tuple[tuple[int, int], ...]  # spans of contiguous datasets of few bytes
    cache_nbytes: int  # chunk cache of the library that reads
    gap_nbytes: int  # bytes that are better read than skipped

    def count_places(self, *kinds: Sequence[tuple[int, int]]) -> int:
        """Count the places of spans, of which near ones are one."""
        spans = [span for kind in kinds for span in kind]
        return len(merge_spans((start, stop + self.gap_nbytes) for start, stop in spans))

    @property
    def metadata(self) -> list[tuple[int, int]]:
        """Spans of metadata."""
        reads = self.recording.reads
        return merge_spans((r.offset, r.offset + r.nbytes) for r in reads if r.is_metadata)

    @property
    def heaps(self) -> list[tuple[int, int]]:
        """Spans of heaps that are read with the tree."""
        found = (r for r in self.recording.reads if r.is_heap and r.phase == "open")
        return merge_spans((r.offset, r.offset + r.nbytes) for r in found)

    @property
    def chunked(self) -> list[Variable]:
        """Variables that have chunks in the file."""
        return [v for v in self.report.variables if v.chunk_shape and v.n_chunks]


def check_file(source: str | Location, profile: Profile) -> Checklist:
    """Go through the checklist for a file at a path or an address, read over a network as it is.

    Raises
    ------
    UserError
        If the file cannot be read, or is none of HDF5.
    """
    name = name_source(source)
    with open_source(source) as file:
        facts = _gather(file, name, profile)
    items = tuple(judge(facts) for judge in _ITEMS)
    network, version = describe_network(profile), h5py.version.hdf5_version
    return Checklist(name, profile.name, network, version, items)


def _gather(file: BinaryIO, name: str, profile: Profile) -> _Facts:
    report = inspect_file(file, name)
    recording = record_reads(file, name, [variable.name for variable in report.variables])
    with open_hdf5(file, name) as opened:
        cache_nbytes = int(opened.id.get_access_plist().get_cache()[2])
        contiguous = [opened[v.name] for v in report.variables if not v.chunk_shape]
        found = [span for dataset in contiguous for span in iterate_chunks(dataset)]
    small = tuple((at, at + nbytes) for _, at, nbytes in found if nbytes <= _SMALL_NBYTES)
    network = network_of(profile)
    gap = network.first_byte_median_s * network.stream_nbytes_per_s
    return _Facts(report, recording, small, cache_nbytes, round(gap) if 0 < gap < math.inf else 0)


def _judge(
    name: str, is_passed: bool | None, reason: str, value: float | None, *bound: str
) -> Item:
    """Make an item; of what is not applicable, `is_passed` is None."""
    status: Status = "passed" if is_passed else "failed"
    unit, asked, source = bound
    return Item(name, "not applicable" if is_passed is None else status, reason, value, unit, asked, source)  # fmt: skip


def _judge_away(
    name: str, facts: _Facts, spans: Sequence[tuple[int, int]], reason: str, what: Sequence[str]
) -> Item:
    """Judge in how many places beside those of the metadata spans lie: at most in one."""
    n_more = facts.count_places(facts.metadata, spans) - facts.count_places(facts.metadata)
    return _judge(name, n_more <= 1, reason, float(max(0, n_more)), *what)


def _name_some(variables: Sequence[Variable]) -> str:
    shown = ", ".join(cut(variable.name) for variable in variables[:_N_SHOWN])
    more = len(variables) - _N_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _check_space(facts: _Facts) -> Item:
    report = facts.report
    how = "" if report.page_nbytes else "; h5repack -S PAGE, or wire hdf5 advise, makes pages"
    return _judge("paged-file-space", report.page_nbytes > 0, f"file space: {report.strategy}{how}",
                  float(report.page_nbytes), "bytes of a page", "above 0", GUIDE)  # fmt: skip


def _check_page(facts: _Facts) -> Item:
    report = facts.report
    bound = f"at least the metadata, {report.metadata_nbytes} bytes"
    what = ("bytes of a page", bound, GUIDE)
    if not report.page_nbytes:
        return _judge("page-size", None, "file space is not paged", None, *what)
    is_passed = report.page_nbytes >= report.metadata_nbytes
    reason = "all metadata fit in a page" if is_passed else "metadata take more than a page"
    return _judge("page-size", is_passed, reason, float(report.page_nbytes), *what)


def _check_metadata(facts: _Facts) -> Item:
    report = facts.report
    n_places = facts.count_places(facts.metadata)
    most = 1 + report.metadata_nbytes // max(report.page_nbytes, TUNED.block_nbytes)
    reason = (
        f"{report.metadata_nbytes} bytes of metadata, the last of them end at {report.metadata_end}"
    )
    return _judge("consolidated-metadata", n_places <= most, reason, float(n_places),
                  f"places further apart than {facts.gap_nbytes} bytes", f"at most {most}", GUIDE)  # fmt: skip


def _check_heaps(facts: _Facts) -> Item:
    source = "HDF5 keeps heaps as raw data, apart from the metadata: one request more"
    what = ("places of heaps away from the metadata", "at most 1", source)
    if not facts.heaps:
        return _judge("global-heaps", None, "no attribute is of variable length", None, *what)
    reason = f"{facts.report.heap_nbytes} bytes of heaps, for attributes of variable length"
    return _judge_away("global-heaps", facts, facts.heaps, reason, what)


def _check_chunks(facts: _Facts) -> Item:
    least, most = CHUNK_NBYTES
    what = (
        "datasets",
        f"0 with chunks under {least} bytes and more than one, or above {most}",
        GUIDE,
    )
    if not facts.chunked:
        return _judge("chunk-bytes", None, "nothing is chunked", None, *what)
    small = [v for v in facts.chunked if v.n_chunks > 1 and v.chunk_nbytes < least]
    found = small + [v for v in facts.chunked if v.chunk_nbytes > most]
    sizes = [v.chunk_nbytes for v in facts.chunked]
    reason = f"chunks of {min(sizes)} to {max(sizes)} bytes in memory"
    reason += f"; not so: {_name_some(found)}" if found else ""
    return _judge("chunk-bytes", not found, reason, float(len(found)), *what)


def _check_variable_length(facts: _Facts) -> Item:
    found = [v for v in facts.report.variables if v.is_variable_length]
    reason = f"values in heaps: {_name_some(found)}" if found else "all values are of fixed size"
    source = "Jelenak, Cloud-Optimized HDF5 Files (ESIP 2023): minimal use of variable length"
    return _judge("variable-length", not found, reason, float(len(found)), "datasets", "at most 0", source)  # fmt: skip


def _check_user_block(facts: _Facts) -> Item:
    nbytes = facts.report.userblock_nbytes
    reason = "HDF5 makes no pages behind a user block" if nbytes else "no user block"
    source = "HDF5: page aggregation starts at the beginning of a file"
    return _judge("user-block", not nbytes, reason, float(nbytes), "bytes", "at most 0", source)


def _check_filters(facts: _Facts) -> Item:
    what = ("datasets", f"0 with filters beside {', '.join(_PORTABLE.values())}",
            "filters of readers without plugins: h5coro, pyfive, HDF5 as it is built")  # fmt: skip
    if not any(v.filters for v in facts.report.variables):
        return _judge("filters", None, "nothing is compressed", None, *what)
    found = [v for v in facts.report.variables if not {*v.filter_numbers} <= {*_PORTABLE}]
    names = sorted({name for v in facts.report.variables for name in v.filters})
    reason = f"filters: {cut(', '.join(names))}" + (f"; in {_name_some(found)}" if found else "")
    return _judge("filters", not found, reason, float(len(found)), *what)


def _check_cache(facts: _Facts) -> Item:
    source = (
        f"chunk cache of HDF5 {h5py.version.hdf5_version}, as it opened the file; 1 MiB before 2.0"
    )
    what = ("bytes of the largest chunk", f"at most {facts.cache_nbytes}", source)
    if not facts.chunked:
        return _judge("chunk-cache", None, "nothing is chunked", None, *what)
    largest = max(facts.chunked, key=lambda v: v.chunk_nbytes)
    is_passed = largest.chunk_nbytes <= facts.cache_nbytes
    reason = "a chunk stays while parts of it are read"
    if not is_passed:
        reason = f"a chunk of {cut(largest.name)} is read anew for each part, unless readers set rdcc_nbytes"
    return _judge("chunk-cache", is_passed, reason, float(largest.chunk_nbytes), *what)


def _check_small(facts: _Facts) -> Item:
    what = ("places away from the metadata", "at most 1", "a request each, in any reader")
    if not facts.small:
        return _judge("small-datasets", None, "no contiguous dataset is small", None, *what)
    reason = f"{len(facts.small)} contiguous datasets of at most {_SMALL_NBYTES} bytes"
    return _judge_away("small-datasets", facts, facts.small, reason, what)


_ITEMS: tuple[Callable[[_Facts], Item], ...] = (
    _check_space,
    _check_page,
    _check_metadata,
    _check_heaps,
    _check_chunks,
    _check_variable_length,
    _check_user_block,
    _check_filters,
    _check_cache,
    _check_small,
)
