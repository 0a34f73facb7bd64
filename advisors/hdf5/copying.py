"""Copies of HDF5 files in another layout, made by the library: with values, or as models without.

A model has every object, attribute and chunk of the copy, each with as many
bytes as it will have, but zeros for data: it costs what the metadata cost, and
the library itself says where everything lies.
"""

from __future__ import annotations

import itertools
import math
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from advisors.hdf5.files import (
    get_filters,
    has_readable_heaps,
    is_variable_length,
    iterate_blocks,
    iterate_chunks,
)
from advisors.hdf5.inspection import is_lossless, list_external
from helpers.errors import UserError

Shape = tuple[int, ...]
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Repack:
    """Another layout for the same content."""

    page_nbytes: int = 0  # bytes of a page; 0 for file space that is not paged
    # bytes set aside for metadata at the front; 0 for the library's own choice
    metadata_block_nbytes: int = 0
    chunk_shapes: tuple[tuple[str, Shape], ...] = ()  # datasets that get other chunks, and which

    @property
    def label(self) -> str:
        """What it does, in a few words.

        Examples
        --------
        >>> Repack(8 * MIB).label, Repack(4 * MIB, 0, (("x", (9,)),)).label
        ('paged, 8 MiB pages', 'paged and rechunked, 4 MiB pages')
        """
        what = ["paged"] * (self.page_nbytes > 0) + ["rechunked"] * bool(self.chunk_shapes)
        pages = f", {self.page_nbytes / MIB:g} MiB pages" if self.page_nbytes else ""
        return (" and ".join(what) or "metadata at the front") + pages


def refuse_external(dataset: h5py.Dataset, name: str) -> None:
    """Refuse a dataset whose copy would name external files, for the library writes to those."""
    if external := list_external(dataset):
        raise UserError(
            f"file: {name}: {dataset.name!r} has its values in another file, {external[0]!r},"
            " which a copy would write to; allowed: a file that holds its values itself"
        )


def map_references(
    values: Any, dtype: np.dtype[Any], refer: Callable[[h5py.Reference], h5py.Reference]
) -> Any:
    """Turn the references in values into others."""
    kind = h5py.check_ref_dtype(dtype)
    if kind is h5py.RegionReference:
        raise TypeError("region references, which only h5repack copies")
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


def write_placeholders(source: h5py.Dataset, target: h5py.Dataset) -> None:
    """Give each chunk of a model its bytes, all of them zero."""
    if target.chunks is None:
        return
    if target.chunks == source.chunks:
        chunks = {corner: nbytes for corner, _, nbytes in iterate_chunks(source)}
    else:
        chunks = count_rechunked(source, target.chunks)
    zeros = bytes(max(chunks.values(), default=0))
    for corner, nbytes in sorted(chunks.items()):
        target.id.write_direct_chunk(corner, memoryview(zeros)[:nbytes])


def count_rechunked(source: h5py.Dataset, chunk_shape: Shape) -> dict[Shape, int]:
    """Count the bytes of each chunk that a dataset will have, by its corner.

    Compressed, as many bytes for an element as the dataset has now: what lies
    beyond an edge are fill values, which compress to nothing. Uncompressed,
    chunks at the edges are stored whole.
    """
    n_elements, n_stored = defaultdict[Shape, int](int), 0
    for corner, _, nbytes in iterate_chunks(source):
        n_stored += nbytes
        stops = map(min, map(sum, zip(corner, source.chunks, strict=True)), source.shape)
        for pieces in itertools.product(*map(_cut, corner, stops, chunk_shape)):
            n_elements[tuple(at for at, _ in pieces)] += math.prod(n for _, n in pieces)
    if not get_filters(source):
        return dict.fromkeys(n_elements, math.prod(chunk_shape) * source.dtype.itemsize)
    ratio = n_stored / max(1, sum(n_elements.values()))
    return {corner: max(1, round(ratio * count)) for corner, count in n_elements.items()}


def _cut(start: int, stop: int, step: int) -> list[tuple[int, int]]:
    """Cut a range at multiples of a step: the multiple below each piece, and the piece's length."""
    places = range(start // step * step, stop, step)
    return [(at, min(at + step, stop) - max(at, start)) for at in places]


def copy_file(source: h5py.File, target: Any, repack: Repack, *, is_model: bool = False) -> None:
    """Copy a file in another layout, or make a model of the copy.

    Room is made for the block before its beginning, of the user's own; its bytes are not copied.
    """
    with _create(source, target, repack) as made:
        _Copier(source, made, dict(repack.chunk_shapes), is_model).copy_all()


def _create(source: h5py.File, target: Any, repack: Repack) -> h5py.File:
    plist, root = source.id.get_create_plist(), source["/"].id.get_create_plist()
    _keep_order(root, plist)  # which readers of netCDF need: types before variables of them
    if repack.page_nbytes:
        plist.set_file_space_strategy(h5py.h5f.FSPACE_STRATEGY_PAGE, False, 1)
        plist.set_file_space_page_size(repack.page_nbytes)
    else:
        plist.set_file_space_strategy(h5py.h5f.FSPACE_STRATEGY_FSM_AGGR, False, 1)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    lowest = h5py.h5f.LIBVER_V18 if _has_large_attribute(source) else h5py.h5f.LIBVER_EARLIEST
    access.set_libver_bounds(lowest, h5py.h5f.LIBVER_LATEST)
    if isinstance(target, Path):
        identity = str(target).encode()
    else:
        identity = repr(target).encode()
        access.set_fileobj_driver(h5py.h5fd.fileobj_driver, target)
    if repack.metadata_block_nbytes:
        access.set_meta_block_size(repack.metadata_block_nbytes)
    return h5py.File(h5py.h5f.create(identity, h5py.h5f.ACC_TRUNC, fcpl=plist, fapl=access))


_MOST_IN_HEADER_NBYTES = 60_000  # of an attribute; HDF5 1.8 and later put larger ones elsewhere


def _has_large_attribute(file: h5py.File) -> bool:
    """Tell whether an attribute is too large for the header of an object of the oldest format."""

    def find(_: str, found: Any) -> bool | None:  # True ends the visit
        ids = (found.attrs.get_id(key) for key in found.attrs)
        sizes = (
            one.get_type().get_size() * one.get_space().get_simple_extent_npoints() for one in ids
        )
        return True if any(nbytes > _MOST_IN_HEADER_NBYTES for nbytes in sizes) else None

    return bool(find("/", file) or file.visititems(find))


def _keep_order(old: Any, new: Any) -> None:
    """Let a group give its links and attributes in the order of another.

    HDF5 refuses the properties of a large group as those of a new one, for they name its heap.
    """
    new.set_link_creation_order(old.get_link_creation_order())
    new.set_attr_creation_order(old.get_attr_creation_order())


_MOST_TRIES = 4  # to find room for a header


class _Copier:
    """Copies objects depth first; what attributes say last, because they may refer to any object.

    Attributes themselves are created so that they lie in their order: those of a dataset before
    anything follows its header, which could not grow then, and would move some of them to go on
    elsewhere; those of a group after all that is in it, where producers have theirs as well.
    """

    def __init__(
        self, source: h5py.File, target: h5py.File, chunk_shapes: dict[str, Shape], is_model: bool
    ) -> None:
        self.source, self.target = source, target
        self.chunk_shapes, self.is_model = chunk_shapes, is_model
        self.names: dict[int, str] = {}
        self.types: dict[int, Any] = {}
        self.referring: list[tuple[h5py.Dataset, h5py.Dataset]] = []

    def copy_all(self) -> None:
        """Copy every object, then what may refer to any of them."""
        self.copy_group(self.source, self.target)
        for source, target in self.referring:
            self.copy_values(source, target)
        for name in self.names.values():
            source, target = self.source[name], self.target[name]
            for key in list_attributes(source):
                self.write_attribute(source.attrs.get_id(key), target.attrs.get_id(key))

    def copy_group(self, source: h5py.Group, target: h5py.Group) -> None:
        self.names[get_token(source.id)] = source.name
        for key in source:
            link = source.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                target[key] = link
                continue
            found = source[key]
            if (known := self.names.get(get_token(found.id))) is not None:
                target[key] = self.target[known]
                continue
            self.names[get_token(found.id)] = found.name
            self.copy_object(found, target, key)
        self.create_attributes(source, target)

    def copy_object(self, found: Any, target: h5py.Group, key: str) -> None:
        encoded = key.encode(errors="surrogateescape")
        if isinstance(found, h5py.Group):
            plist = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
            _keep_order(found.id.get_create_plist(), plist)
            made = h5py.h5g.create(target.id, encoded, gcpl=plist)
            self.copy_group(found, h5py.Group(made))
        elif isinstance(found, h5py.Datatype):
            h5py.h5o.link(self.open_type(found.id), target.id, encoded)
            self.create_attributes(found, target[key])
        else:
            self.copy_dataset(found, target, encoded)

    def open_type(self, found: Any) -> Any:
        """Return a type for the copy: one with a name is made once, before anything is of it."""
        if not found.committed():
            return found
        token = get_token(found)
        if token not in self.types:
            made, name = found.copy(), uuid.uuid4().hex.encode()
            made.commit(self.target.id, name)
            self.target.id.unlink(name)  # it stays as long as it is open, and gets its links
            self.types[token] = made
        return self.types[token]

    def copy_dataset(self, found: h5py.Dataset, target: h5py.Group, key: bytes) -> None:
        plist = self.choose_properties(found)
        chunk_shape = self.chunk_shapes.get(found.name.strip("/"), found.chunks)
        if chunk_shape is not None:
            plist.set_chunk(chunk_shape)
        elif (
            self.is_model
            and plist.get_layout() == h5py.h5d.CONTIGUOUS
            and found.id.get_storage_size()
            and not has_readable_heaps(found)
        ):
            plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            if not is_variable_length(found.dtype):  # HDF5 wants those filled
                plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        file_type, space = self.open_type(found.id.get_type()), found.id.get_space()
        if chunk_shape == found.chunks and not is_lossless(found):
            if not self.is_model:
                _copy_as_it_is(found, target, key)
                self.create_attributes(found, h5py.Dataset(h5py.h5d.open(target.id, key)))
                return
            plist.remove_filter(h5py.h5z.FILTER_ALL)
            plist.set_deflate(1)  # in their place: such filters refuse what they stored themselves
        made = self.create_dataset(found, file_type, space, plist)
        h5py.h5o.link(made.id, target.id, key)
        is_written = not self.is_model or has_readable_heaps(found)
        if _has_references(found.dtype) and is_written:
            self.referring.append((found, made))
        else:
            self.copy_values(found, made)

    def create_dataset(self, found: h5py.Dataset, *how: Any) -> h5py.Dataset:
        """Create a dataset that has no link yet, in a place where its header can grow."""
        tried: list[h5py.Dataset] = []  # which keep their places until they are forgotten
        while len(tried) < _MOST_TRIES:
            tried.append(h5py.Dataset(h5py.h5d.create(self.target.id, None, *how)))
            self.create_attributes(found, tried[-1])
            if h5py.h5o.get_info(tried[-1].id).hdr.nchunks == 1:
                break
        return tried[-1]

    def choose_properties(self, found: h5py.Dataset) -> Any:
        """Give what a dataset is created with; a model leaves out files that are not its own."""
        if self.is_model and found.external:
            return h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        refuse_external(found, self.source.filename)
        return found.id.get_create_plist()

    def copy_values(self, source: h5py.Dataset, target: h5py.Dataset) -> None:
        is_same = source.chunks == target.chunks
        if self.is_model and not has_readable_heaps(source):  # whose values say where heaps lie
            write_placeholders(source, target)
        elif source.is_virtual or source.shape is None:
            return
        elif source.chunks and is_same and not source.dtype.hasobject:
            for corner, *_ in iterate_chunks(source):
                mask, data = source.id.read_direct_chunk(corner)
                target.id.write_direct_chunk(corner, data, mask)
        else:
            for region in iterate_blocks(target, source):
                values = read_stored(source, region)
                if source.dtype.hasobject:
                    target[region] = self.translate(values, source.dtype)
                else:
                    memory, space, _ = _select(target, region)
                    target.id.write(memory, space, values, mtype=target.id.get_type())

    def create_attributes(self, source: Any, target: Any) -> None:
        for key in list_attributes(source):
            given, encoded = source.attrs.get_id(key), key.encode(errors="surrogateescape")
            file_type = self.open_type(given.get_type())
            h5py.h5a.create(target.id, encoded, file_type, given.get_space())

    def write_attribute(self, source: Any, made: Any) -> None:
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
        return self.target[self.names[get_token(self.source[reference].id)]].ref


def read_stored(dataset: h5py.Dataset, region: tuple[slice, ...]) -> Any:
    """Read part of a dataset, as it is stored where nothing lies in heaps.

    A conversion would end a text that fills its field one byte early.
    """
    if dataset.dtype.hasobject:
        return dataset[region]
    memory, space, shape = _select(dataset, region)
    values = np.empty(shape, dataset.dtype)
    dataset.id.read(memory, space, values, mtype=dataset.id.get_type())
    return values


def _select(dataset: h5py.Dataset, region: tuple[slice, ...]) -> tuple[Any, Any, Shape]:
    """Give the spaces in memory and in the file of part of a dataset, and its shape."""
    if not region:
        return h5py.h5s.ALL, h5py.h5s.ALL, ()
    space, shape = dataset.id.get_space(), tuple(part.stop - part.start for part in region)
    space.select_hyperslab(tuple(part.start for part in region), shape)
    return h5py.h5s.create_simple(shape), space, shape


def list_attributes(found: Any) -> list[str]:
    """Name the attributes of an object in their order, or as they lie where they have none.

    netCDF's tools show them so; h5py sorts them by name where no order is tracked.
    """
    if isinstance(found, h5py.Datatype) or found.id.get_create_plist().get_attr_creation_order():
        return list(found.attrs)
    names: list[bytes] = []
    h5py.h5a.iterate(found.id, names.append, order=h5py.h5.ITER_NATIVE)
    return [name.decode(errors="surrogateescape") for name in names]


def get_token(found: Any) -> int:
    """Return what an object is known by in its file, whatever the path to it."""
    return int(h5py.h5o.get_info(found).addr)


def _has_references(dtype: Any) -> bool:
    parts = [field[0] for field in (dtype.fields or {}).values()]
    parts += dtype.subdtype[:1] if dtype.subdtype else ()
    if (base := h5py.check_vlen_dtype(dtype)) is not None:
        parts.append(np.dtype(base))
    return h5py.check_ref_dtype(dtype) is not None or any(map(_has_references, parts))


def _copy_as_it_is(found: h5py.Dataset, target: h5py.Group, key: bytes) -> None:
    """Let the library copy a dataset with its chunks; its attributes come later."""
    plist = h5py.h5p.create(h5py.h5p.OBJECT_COPY)
    plist.set_copy_object(h5py.h5o.COPY_WITHOUT_ATTR_FLAG)
    h5py.h5o.copy(found.id, b".", target.id, key, plist)
