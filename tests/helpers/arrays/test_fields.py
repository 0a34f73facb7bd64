"""Sample arrays have the numbers of real fields, whichever block asks."""

from __future__ import annotations

import h5netcdf
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from numcodecs import Blosc

from helpers.arrays.fields import FILL
from tests.stores import SOURCE, make_sample

SHAPE = (2, 3, 33, 47)
WHOLE = make_sample(SHAPE).block((0, 0, 0, 0), SHAPE)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw half-open bounds inside `SHAPE`."""
    starts = tuple(draw(st.integers(0, n - 1)) for n in SHAPE)
    return starts, tuple(draw(st.integers(i + 1, n)) for i, n in zip(starts, SHAPE, strict=True))


@settings(deadline=None)
@given(blocks())
def test_block_has_the_numbers_of_the_whole(bounds: tuple[tuple[int, ...], ...]) -> None:
    """Any block is bit for bit the part of the whole array that it covers."""
    start, stop = bounds
    part = WHOLE[tuple(slice(i, j) for i, j in zip(start, stop, strict=True))]
    assert np.array_equal(make_sample(SHAPE).block(start, stop), part)


def test_large_planes_do_not_depend_on_the_block() -> None:
    """Rounding is the same in small and large blocks, however they are computed."""
    sample = make_sample((1, 1, 700, 900))
    whole = sample.block((0, 0, 0, 0), sample.shape)
    rows = range(0, 700, 97)
    columns = range(0, 900, 131)
    parts = [
        [sample.block((0, 0, i, j), (1, 1, min(i + 97, 700), min(j + 131, 900))) for j in columns]
        for i in rows
    ]
    assert np.array_equal(np.block(parts), whole)


def test_land_is_fill_and_ocean_is_water() -> None:
    """Land has the fill value of the source, ocean has temperatures, in the source's shares."""
    with h5netcdf.File(SOURCE) as file:
        source = file["temperature"][:]
    sample = make_sample((12, 19, 180, 360)).block((0, 0, 0, 0), (12, 1, 180, 360))
    ocean = sample[sample != FILL]
    assert np.mean(sample == FILL) == pytest.approx(np.mean(source[:, 0] == FILL), abs=0.03)
    assert -4 < ocean.min() < 0 < 28 < ocean.max() < 36
    assert sample.dtype == np.float32


@pytest.mark.parametrize("shape", [(12, 10, 90, 180), (2, 10, 270, 540), (1, 5, 1080, 1440)])
@pytest.mark.parametrize("cname", ["lz4", "zstd"])
def test_compresses_like_its_source(shape: tuple[int, ...], cname: str) -> None:
    """The ratio of compression is within a quarter of the source's own, with the same codec."""
    with h5netcdf.File(SOURCE) as file:
        source = file["temperature"][:]
    sample = make_sample(shape).block((0, 0, 0, 0), shape)
    assert ratio(sample, cname) == pytest.approx(ratio(source, cname), rel=0.25)


def ratio(values: np.ndarray, cname: str) -> float:
    """Compress in blocks of up to a month, as chunks are."""
    codec = Blosc(cname=cname, clevel=5, shuffle=Blosc.SHUFFLE)
    months = [np.ascontiguousarray(month[:5]) for month in values]
    return sum(m.nbytes for m in months) / sum(len(codec.encode(m)) for m in months)
