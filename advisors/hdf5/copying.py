"""Copies of HDF5 files in another layout, made by the library: with values, or as models without.

A model has every object, attribute and chunk of the copy, each with as many
bytes as it will have, but zeros for data: it costs what the metadata cost, and
the library itself says where everything lies.
"""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from advisors.hdf5.inspection import is_variable_length, refuse_external
from advisors.hdf5.recording import iterate_chunks
from helpers.errors import UserError


def map_references(
    values: Any, dtype: np.dtype[Any], refer: Callable[[h5py.Reference], h5py.Reference]
) -> Any:
    """Turn the references in values into others."""
    kind = h5py.check_ref_dtype(dtype)
    if kind is h5py.RegionReference:
        raise UserError("file: has region references; allowed: others, unless h5repack is on PATH")
    base = h5py.check_vlen_dtype(dtype)
    if kind is h5py.Reference or (base is not None and h5py.check_ref_dtype(base) is not None):
        given, mapped = np.asarray(values, object), np.empty(np.shape(values), dtype)
        for index in np.ndindex(mapped.shape):
            one = given[index]
            mapped[index] = refer(one) if base is None else map_references(one, base, refer)
        return mapped
    if dtype.fields and dtype.hasobject:
        mapped = np.array(values, dtype)
        for name, field in dtype.fields.items():
            mapped[name] = map_references(mapped[name], field[0], refer)
        return mapped
    return values


Shape = tuple[int, ...]


def count_rechunked(source: h5py.Dataset, chunk_shape: Shape) -> Iterator[tuple[Shape, int]]:
    """Give the corner and the bytes of each chunk that a dataset will have.

    Compressed, as many bytes for an element as the dataset has now: what lies
    beyond an edge are fill values, which compress to nothing. Uncompressed,
    chunks at the edges are stored whole.
    """
    stored = [nbytes for *_, nbytes in iterate_chunks(source)]
    if not stored:
        return
    is_filtered = bool(source.id.get_create_plist().get_nfilters())
    ratio = sum(stored) / math.prod(source.shape) if is_filtered else source.dtype.itemsize
    starts = (range(0, n, c) for n, c in zip(source.shape, chunk_shape, strict=True))
    for corner in itertools.product(*starts):
        ends = zip(source.shape, chunk_shape, corner, strict=True)
        extents = [min(c, n - at) if is_filtered else c for n, c, at in ends]
        yield corner, max(1, round(ratio * math.prod(extents)))


def write_placeholders(source: h5py.Dataset, target: h5py.Dataset) -> None:
    """Give each chunk of a model its bytes, all of them zero."""
    if target.chunks is None:
        return
    if target.chunks == source.chunks:
        chunks = [(corner, nbytes) for corner, _, nbytes in iterate_chunks(source)]
    else:
        chunks = list(count_rechunked(source, target.chunks))
    zeros = bytes(max((nbytes for _, nbytes in chunks), default=0))
    for corner, nbytes in chunks:
        target.id.write_direct_chunk(corner, memoryview(zeros)[:nbytes])


def copy_file(
    source: h5py.File,
    target: Any,
    *,
    page_nbytes: int = 0,
    metadata_block_nbytes: int = 0,
    chunk_shapes: Mapping[str, Shape] | None = None,
    is_model: bool = False,
) -> None:
    """Copy a file in another layout, or make a model of the copy."""
    with _create(source, target, page_nbytes, metadata_block_nbytes) as made:
        copier = _Copier(source, made, dict(chunk_shapes or {}), is_model)
        copier.copy_group(source, made)
        copier.copy_attributes()


def _create(
    source: h5py.File, target: Any, page_nbytes: int, metadata_block_nbytes: int
) -> h5py.File:
    plist = source.id.get_create_plist()
    if page_nbytes:
        plist.set_file_space_strategy(h5py.h5f.FSPACE_STRATEGY_PAGE, False, 1)
        plist.set_file_space_page_size(page_nbytes)
    else:
        plist.set_file_space_strategy(h5py.h5f.FSPACE_STRATEGY_FSM_AGGR, False, 1)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    access.set_libver_bounds(h5py.h5f.LIBVER_EARLIEST, h5py.h5f.LIBVER_LATEST)
    if isinstance(target, Path):
        identity = str(target).encode()
    else:
        identity = repr(target).encode()
        access.set_fileobj_driver(h5py.h5fd.fileobj_driver, target)
    if metadata_block_nbytes:
        access.set_meta_block_size(metadata_block_nbytes)
    return h5py.File(h5py.h5f.create(identity, h5py.h5f.ACC_TRUNC, fcpl=plist, fapl=access))


class _Copier:
    """Copies objects depth first; attributes last, because they may refer to any object."""

    def __init__(
        self, source: h5py.File, target: h5py.File, chunk_shapes: dict[str, Shape], is_model: bool
    ) -> None:
        self.source, self.target = source, target
        self.chunk_shapes = {name.strip("/"): shape for name, shape in chunk_shapes.items()}
        self.is_model = is_model
        self.names: dict[Any, str] = {}
        self.later: list[tuple[h5py.Dataset, h5py.Dataset]] = []

    def copy_group(self, source: h5py.Group, target: h5py.Group) -> None:
        self.names[_token(source)] = source.name
        for key in source:
            link = source.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                target[key] = link
                continue
            found = source[key]
            if (known := self.names.get(_token(found))) is not None:
                target[key] = self.target[known]
                continue
            self.names[_token(found)] = found.name
            self.copy_object(found, target, key)

    def copy_object(self, found: Any, target: h5py.Group, key: str) -> None:
        encoded = key.encode()
        if isinstance(found, h5py.Group):
            plist = found.id.get_create_plist()
            made = h5py.h5g.create(target.id, encoded, gcpl=plist)
            self.copy_group(found, h5py.Group(made))
        elif isinstance(found, h5py.Datatype):
            found.id.copy().commit(target.id, encoded)
        else:
            self.copy_dataset(found, target, encoded)

    def copy_dataset(self, found: h5py.Dataset, target: h5py.Group, key: bytes) -> None:
        plist = self.choose_properties(found)
        chunk_shape = self.chunk_shapes.get(found.name.strip("/"), found.chunks)
        if chunk_shape is not None:
            plist.set_chunk(chunk_shape)
        elif self.is_model and not found.external and plist.get_layout() == h5py.h5d.CONTIGUOUS:
            plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            if not is_variable_length(found.dtype):  # HDF5 wants those filled
                plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        file_type = found.id.get_type()
        if file_type.committed():
            file_type = file_type.copy()
        made = h5py.h5d.create(target.id, key, file_type, found.id.get_space(), dcpl=plist)
        self.copy_values(found, h5py.Dataset(made))

    def choose_properties(self, found: h5py.Dataset) -> Any:
        """Give what a dataset is created with; a model leaves out files that are not its own."""
        if self.is_model and found.external:
            return h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        refuse_external(found, self.source.filename)
        return found.id.get_create_plist()

    def copy_values(self, source: h5py.Dataset, target: h5py.Dataset) -> None:
        is_same = source.chunks == target.chunks
        if self.is_model:
            write_placeholders(source, target)
        elif source.is_virtual or (not source.shape and source.shape != ()):
            return
        elif source.chunks and is_same and not source.dtype.hasobject:
            for corner, *_ in iterate_chunks(source):
                mask, data = source.id.read_direct_chunk(corner)
                target.id.write_direct_chunk(corner, data, mask)
        else:
            for region in _iterate_regions(target):
                if source.dtype.hasobject:
                    target[region] = self.translate(source[region], source.dtype)
                else:
                    _copy_stored(source, target, region)

    def copy_attributes(self) -> None:
        for name in self.names.values():
            source, target = self.source[name], self.target[name]
            for key in source.attrs:
                attribute = source.attrs.get_id(key)
                self.copy_attribute(attribute, target, key)

    def copy_attribute(self, source: Any, target: Any, key: str) -> None:
        made = h5py.h5a.create(target.id, key.encode(), source.get_type(), source.get_space())
        if source.get_space().get_simple_extent_type() == h5py.h5s.NULL:
            return
        values = np.empty(source.shape, source.dtype)
        if values.dtype.hasobject:
            source.read(values)
            made.write(np.asarray(self.translate(values, source.dtype), source.dtype))
        else:  # as stored: a conversion would end a string that fills its field one byte early
            source.read(values, mtype=source.get_type())
            made.write(values, mtype=source.get_type())

    def translate(self, values: Any, dtype: np.dtype[Any]) -> Any:
        """Turn references to objects of the source into references to those of the copy."""
        return map_references(values, dtype, self.refer)

    def refer(self, reference: h5py.Reference) -> h5py.Reference:
        if not reference:
            return reference
        return self.target[self.names[_token(self.source[reference])]].ref


def _copy_stored(source: h5py.Dataset, target: h5py.Dataset, region: Any) -> None:
    """Copy part of a dataset without converting its values."""
    space = source.id.get_space()
    shape = source.shape
    if region:
        shape = tuple(part.stop - part.start for part in region)
        space.select_hyperslab(tuple(part.start for part in region), shape)
    values = np.empty(shape, source.dtype)
    memory = h5py.h5s.create_simple(shape) if region else h5py.h5s.ALL
    stored_type = source.id.get_type()
    source.id.read(memory, space if region else h5py.h5s.ALL, values, mtype=stored_type)
    target.id.write(memory, space if region else h5py.h5s.ALL, values, mtype=stored_type)


def _token(found: Any) -> int:
    return int(h5py.h5o.get_info(found.id).addr)


def _iterate_regions(target: h5py.Dataset) -> Iterator[Any]:
    if target.chunks is None:
        yield ()
    else:
        yield from target.iter_chunks()


_HOLE_NBYTES = 4096


class SparseFile(io.FileIO):
    """A new file that leaves holes where zeros are written at its end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self._nbytes = 0

    def write(self, data: Any) -> int:
        """Write bytes, or a hole."""
        values, at = np.frombuffer(data, np.uint8), self.tell()
        if values.size < _HOLE_NBYTES or at < self._nbytes or values.any():
            super().write(data)
        else:
            super().truncate(at + values.size)
            self.seek(at + values.size)
        self._nbytes = max(self._nbytes, at + values.size)
        return int(values.size)

    def truncate(self, nbytes: int | None = None) -> int:
        """Cut or lengthen the file."""
        self._nbytes = super().truncate(nbytes)
        return self._nbytes
