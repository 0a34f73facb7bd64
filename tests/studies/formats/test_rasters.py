"""Rasters are laid out and compressed as asked."""

from __future__ import annotations

import numpy as np
import pytest

from studies.formats.rasters import encode_raster

rasterio_io = pytest.importorskip("rasterio.io")


@pytest.mark.parametrize(("is_compressed", "codec"), [(True, "ZSTD"), (False, None)])
def test_a_raster_is_compressed_as_asked(is_compressed: bool, codec: str | None) -> None:
    """Read back from the file: its tiles, its codec and its values."""
    values = np.linspace(0, 30, 3 * 50 * 70, dtype=np.float32).reshape(3, 50, 70)
    content = encode_raster(values, width=32, is_compressed=is_compressed)
    assert (len(content) < values.nbytes) == is_compressed
    with rasterio_io.MemoryFile(content) as file, file.open() as raster:
        assert raster.tags(ns="IMAGE_STRUCTURE").get("COMPRESSION") == codec
        assert raster.block_shapes == [(32, 32)] * 3
        np.testing.assert_array_equal(raster.read(), values)
