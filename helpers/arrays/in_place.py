"""A codec pipeline for zarr that decodes a chunk where it belongs, without a second copy.

zarr decodes a chunk into memory of its own and then copies it into the array
that was asked for. Where the chunk is wanted whole and its place in that array
is contiguous, Blosc can decode into that place. Other chunks go zarr's way.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from numcodecs import Blosc
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, BytesCodec
from zarr.core.buffer import NDBuffer
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.registry import register_pipeline

Entry = tuple[Any, Any, Any, Any, bool]
"""What zarr says of a chunk: how to get it, its shape and type, the part of it, its place."""


class InPlacePipeline(BatchedCodecPipeline):
    """Decode whole Blosc chunks into their place in the array that is read."""

    async def read_batch(
        self, batch_info: Iterable[Entry], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> Any:
        """Read chunks into `out`, in place where that can be."""
        batch = list(batch_info)
        places = [self._find_place(entry, out) for entry in batch]
        found = [(entry, at) for entry, at in zip(batch, places, strict=True) if at is not None]
        if len(found) < len(batch):
            return await super().read_batch(batch, out, drop_axes)
        return tuple(
            await asyncio.gather(*(_read_one(entry, out, place) for entry, place in found))
        )

    def _find_place(self, entry: Entry, out: NDBuffer) -> NDArray[Any] | None:
        """Find the contiguous memory that a chunk fills, if it is wanted whole."""
        _, spec, selection, out_selection, _ = entry
        if not self._is_plain_blosc(spec) or not _is_whole(selection, spec.shape):
            return None
        place = out.as_numpy_array()[out_selection]
        is_fit = place.flags.c_contiguous and place.size == math.prod(spec.shape)
        return place if is_fit else None

    def _is_plain_blosc(self, spec: Any) -> bool:
        """Tell whether a chunk is its values in this machine's byte order, then Blosc."""
        if len(self.bytes_bytes_codecs) != 1 or self.array_array_codecs or spec.order != "C":
            return False
        to_bytes, compressor = self.array_bytes_codec, self.bytes_bytes_codecs[0]
        if not isinstance(to_bytes, BytesCodec) or not isinstance(compressor, BloscCodec):
            return False
        # An enumeration in some versions of zarr, a text in others.
        return getattr(to_bytes.endian, "value", to_bytes.endian) in (None, sys.byteorder)


def _is_whole(selection: Any, chunk_shape: tuple[int, ...]) -> bool:
    parts = selection if isinstance(selection, tuple) else (selection,)
    return len(parts) == len(chunk_shape) and all(
        isinstance(part, slice) and part.indices(n) == (0, n, 1)
        for part, n in zip(parts, chunk_shape, strict=True)
    )


async def _read_one(entry: Entry, out: NDBuffer, place: NDArray[Any]) -> dict[str, str]:
    getter, spec, _, out_selection, _ = entry
    found = await getter.get(spec.prototype)
    if found is None:
        out[out_selection] = spec.fill_value
        return {"status": "missing"}
    await asyncio.to_thread(_decode_into, place, found.as_numpy_array())
    return {"status": "present"}


def _decode_into(place: NDArray[Any], encoded: NDArray[np.uint8]) -> None:
    """Decode, and refuse a chunk that would fill less than its place.

    The length is in bytes 4 to 7 of the header of every Blosc chunk.
    """
    nbytes = int.from_bytes(encoded[4:8].tobytes(), "little")
    if nbytes != place.nbytes:
        raise ValueError(f"a chunk of {nbytes} bytes where {place.nbytes} belong")
    Blosc().decode(encoded, out=place)


NAME = f"{__name__}.InPlacePipeline"
"""What `codec_pipeline.path` of zarr's settings must be."""

register_pipeline(InPlacePipeline)
