"""What stands for the chunks of a copy in a model of it: as many bytes, all of them zero."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import h5py

from helpers.storage.repairs.chunks import iterate_chunks

Shape = tuple[int, ...]


def count_rechunked(source: h5py.Dataset, chunk_shape: Shape) -> Iterator[tuple[Shape, int]]:
    """Give the corner and the bytes of each chunk that a dataset will have.

    Compressed, as many bytes for an element as the dataset has now: what lies
    beyond an edge are fill values, which compress to nothing. Uncompressed,
    chunks at the edges are stored whole.

    Parameters
    ----------
    source : h5py.Dataset
        Chunked.
    chunk_shape : tuple of int
        Elements for each dimension of a new chunk.

    Yields
    ------
    tuple
        Index of the first element, and stored bytes.
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
    """Give each chunk of a model its bytes, all of them zero.

    Parameters
    ----------
    source, target : h5py.Dataset
        What is modelled, and the model.
    """
    if target.chunks is None:
        return
    if target.chunks == source.chunks:
        chunks = [(corner, nbytes) for corner, _, nbytes in iterate_chunks(source)]
    else:
        chunks = list(count_rechunked(source, target.chunks))
    zeros = bytes(max((nbytes for _, nbytes in chunks), default=0))
    for corner, nbytes in chunks:
        target.id.write_direct_chunk(corner, memoryview(zeros)[:nbytes])
