"""Synthetic fields: real ones, enlarged to the shape asked for.

A benchmark on invented numbers compresses like invented numbers. So a real
field is interpolated to any shape, small-scale variability with a realistic
spectrum is added from a seed, values are rounded to the decimals of the
source, and land stays fill: the ratio of compression is that of real data.
Every block is computed on its own, so an array of any size costs the memory
of one block.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from wire.errors import UserError

Float32 = NDArray[np.float32]

FILL = np.float32(1e20)
"""Value of land, as in the source files."""

_TILE = 512  # elements along each side of the periodic noise tile
_SLOPE = -1.25  # of the amplitude, in wavenumber; variance along a line falls as k^-1.5


@dataclass(frozen=True, slots=True)
class SampleArray:
    """A real field enlarged to `shape`, as a function from indices to values."""

    # a netCDF file with a variable (time, depth, y, x), or a map (y, x) that is the same at each
    # time and depth; missing values are `FILL`
    source: Path
    variable: str  # its name in `source`
    shape: tuple[int, ...]  # extents (time, depth, y, x) in elements, each at least 1
    seed: int = 0  # of the small-scale variability
    amplitude: float = 0.25  # of that, in the unit of the field
    decimals: int = 4  # to which the source is rounded

    def __post_init__(self) -> None:
        if len(self.shape) != 4 or min(self.shape) < 1:
            raise UserError(
                "array_shape", list(self.shape), "four extents of at least 1 (time, depth, y, x)"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory: four for each element."""
        return 4 * int(np.prod(self.shape, dtype=np.int64))

    def block(self, start: tuple[int, ...], stop: tuple[int, ...]) -> Float32:
        """Compute the elements from `start` to `stop`, the same numbers whichever block asks."""
        field = _read_source(self.source, self.variable)
        planes = [
            [self._plane(field, (t, z), start[2:], stop[2:]) for z in range(start[1], stop[1])]
            for t in range(start[0], stop[0])
        ]
        return np.array(planes, dtype=np.float32)

    def _plane(
        self, field: _Source, corner: tuple[int, int], start: tuple[int, ...], stop: tuple[int, ...]
    ) -> Float32:
        values, ocean = field.level(corner[0] * 12 / self.shape[0], corner[1] / self.shape[1])

        def enlarge(level: Float32) -> Float32:
            part = _stretch(level, self.shape[2], start[0], stop[0])
            return _stretch(part.T, self.shape[3], start[1], stop[1]).T

        smooth, wet = enlarge(values), enlarge(ocean) > 0.5
        shift = np.random.default_rng((self.seed, *corner)).integers(0, _TILE, size=2)
        rows = (np.arange(start[0], stop[0]) + shift[0]) % _TILE
        columns = (np.arange(start[1], stop[1]) + shift[1]) % _TILE
        noise = _noise_tile(self.seed, self.amplitude)[np.ix_(rows, columns)]
        return np.where(wet, np.round(smooth + noise, self.decimals), FILL)


@dataclass(frozen=True, slots=True)
class _Source:
    """A field with land filled from the nearest ocean, and where the ocean is."""

    values: Float32  # (time, depth, y, x)
    ocean: Float32  # the same shape, 1 for ocean and 0 for land

    def level(self, month: float, relative_depth: float) -> tuple[Float32, Float32]:
        """Interpolate one level in time (periodic) and depth."""
        n_times, n_levels = self.values.shape[:2]
        t, z = month * n_times / 12, relative_depth * (n_levels - 1)
        t0, z0 = int(t), int(z)
        corners = [
            ((t0 + later) % n_times, min(z0 + deeper, n_levels - 1), in_time * in_depth)
            for deeper, in_depth in ((0, 1 - z % 1), (1, z % 1))
            for later, in_time in ((0, 1 - t % 1), (1, t % 1))
        ]
        values = sum(np.float32(weight) * self.values[i, k] for i, k, weight in corners)
        return np.asarray(values, np.float32), self.ocean[t0 % n_times, z0]


@functools.lru_cache(maxsize=2)
def _read_source(path: Path, variable: str) -> _Source:
    from scipy import ndimage  # here and below: workers, who import this to read, make no field

    with xr.open_dataset(
        path, engine="h5netcdf", mask_and_scale=False, decode_times=False
    ) as dataset:
        raw = dataset[variable].to_numpy().astype(np.float32)
    raw = raw.reshape((1,) * (4 - raw.ndim) + raw.shape)
    land = raw == FILL
    filled = np.empty_like(raw)
    for level in range(raw.shape[1]):
        nearest = ndimage.distance_transform_edt(
            land[:, level].any(axis=0), return_distances=False, return_indices=True
        )
        filled[:, level] = raw[:, level, *nearest]
    return _Source(filled, (~land).astype(np.float32))


def _stretch(values: Float32, n_target: int, start: int, stop: int) -> Float32:
    """Interpolate linearly along the first of two dimensions, cell centres on cell centres.

    Computed are the elements from `start` to `stop` of `n_target`, the same to the last bit in any
    block. Element by element: a matrix product would round as its shape, and the processor's, decide.
    """
    n_source = len(values)
    position = np.clip((np.arange(start, stop) + 0.5) * n_source / n_target - 0.5, 0, n_source - 1)
    low = np.clip(position.astype(np.int64), 0, max(n_source - 2, 0))
    weight = (position - low).astype(np.float32)[:, None]
    high = np.minimum(low + 1, n_source - 1)
    return values[low] * (1 - weight) + values[high] * weight


@functools.lru_cache(maxsize=2)
def _noise_tile(seed: int, amplitude: float) -> Float32:
    """Draw a periodic field of variability with a red spectrum.

    The slope is between those published for sea-surface temperature;
    the amplitude stands for what a two-degree climatology has averaged away
    and keeps the compression ratio at the source's own.
    """
    from scipy import fft

    rng = np.random.default_rng(seed)
    k = np.hypot(*np.meshgrid(fft.fftfreq(_TILE), fft.rfftfreq(_TILE), indexing="ij"))
    k[0, 0] = np.inf
    white = fft.rfft2(rng.standard_normal((_TILE, _TILE)))
    tile = fft.irfft2(white * k**_SLOPE, s=(_TILE, _TILE))
    return np.asarray(amplitude * tile / tile.std(), np.float32)
