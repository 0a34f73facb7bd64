"""The maps of the published study of tile caching, scaled."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import pandas as pd

from helpers.errors import UserError
from helpers.paths import ROOT
from helpers.storage.maps import MapSpec

_TABLE = ROOT / "results" / "published" / "tile_caching_dataset_specs.csv"
_OTHERS = ("consolidated", "unconsolidated", "chunked-coordinates", "netcdf", "references")
BROKEN = "broken"
"""Name of the map that must fail."""


def published_specs() -> dict[str, tuple[str, tuple[int, int], tuple[int, int]]]:
    """Read the geometry of the published made datasets.

    The corrected columns are used: those of the report take time for latitude.
    The smallest of its chunked stores, of 32 MiB, has a single chunk too.

    Returns
    -------
    dict
        From our name to the published name, the shape and the chunk shape
        (latitude, longitude). The number is the array's bytes in MiB.

    Examples
    --------
    >>> published_specs()["single-4mib"]
    ('single_chunk_store_lat512_lon1024.zarr', (512, 1024), (512, 1024))
    """
    table = pd.read_csv(_TABLE)
    made = table[table["dataset"].str.contains("_store_")]
    found = {}
    for line in made.itertuples():
        shape, chunks = (
            _extents(line.shape_from_tile_tests),
            _extents(line.chunks_from_tile_tests),
        )
        kind = "single" if str(line.dataset).startswith("single") else "chunked"
        nbytes = 8 * shape[0] * shape[1]
        found[f"{kind}-{round(nbytes / 2**20)}mib"] = (str(line.dataset), shape, chunks)
    order = sorted(found, key=lambda name: (name.startswith("chunked"), found[name][1]))
    return {name: found[name] for name in order}


def _extents(text: object) -> tuple[int, int]:
    extents = ast.literal_eval(str(text))
    return int(extents["lat"]), int(extents["lon"])


def map_names() -> tuple[str, ...]:
    """List all maps: the published made ones, those that stand for its real ones, the broken one.

    Returns
    -------
    tuple of str
        Names in order of size.
    """
    return (*published_specs(), *_OTHERS, BROKEN)


def make_specs(names: Sequence[str], *, scale: float) -> tuple[MapSpec, ...]:
    """Scale maps of the published study.

    Parameters
    ----------
    names : sequence of str
        Of `map_names`.
    scale : float
        Factor on each side of grid and chunks, above 0 and at most 1; bytes
        go with its square.

    Returns
    -------
    tuple of MapSpec
        In the order of `names`.

    Raises
    ------
    UserError
        If a name is unknown or the scale out of bounds.

    Examples
    --------
    >>> make_specs(["chunked-64mib"], scale=0.5)[0].chunk_shape
    (724, 1448)
    """
    if not 0 < scale <= 1:
        raise UserError(f"map_scale: {scale!r}; allowed: above 0 and at most 1")
    unknown = [name for name in names if name not in map_names()]
    if unknown or not names:
        raise UserError(f"maps: {', '.join(unknown) or 'none'}; allowed: {', '.join(map_names())}")
    return tuple(_make_spec(name, scale) for name in names)


def _make_spec(name: str, scale: float) -> MapSpec:
    def scaled(*extents: int) -> tuple[int, int]:
        return max(8, round(extents[0] * scale)), max(8, round(extents[1] * scale))

    made = published_specs()
    if name in made:
        _, shape, chunks = made[name]
        return MapSpec(name, "zarr", scaled(*shape), scaled(*chunks))
    if name in ("netcdf", BROKEN):  # the grid of the published precipitation file
        shape = scaled(600, 1440)
        return MapSpec(name, "netcdf" if name == "netcdf" else "broken", shape, shape)
    if name == "references":  # of the published reference to sea surface temperature
        return MapSpec(name, "references", scaled(720, 1440), scaled(720, 1440))
    shape = scaled(361, 576)  # of the published meteorology
    return MapSpec(
        name,
        "zarr",
        shape,
        scaled(181, 288),
        coordinate_chunk=-(-shape[1] // 12) if name == "chunked-coordinates" else 0,
        is_consolidated=name != "unconsolidated",
    )
