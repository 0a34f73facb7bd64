"""What is asked for in a study of caching, and what has to come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
import xxhash

from helpers.storage.caches import Origin
from helpers.storage.caches.contenders import LruCache
from helpers.storage.caches.counts import difference
from helpers.storage.locations import Location
from helpers.storage.maps import Maps
from helpers.tiles.plans import cold_plan, warm_plan, zipf_weights
from helpers.tiles.service import Tile, open_service, tile_path

_N_PLACES = 3  # of each map that one user asks for alone


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked for, and what has to come back.

    Parameters
    ----------
    maps : Maps
        Maps, seen over the imposed network.
    cold, warm, alone : list of list of tuple
        Tiles of each user: one of each map, all at once; by popularity; and a
        few of each map for one user.
    checksums : mapping of str to str
        XXH3 of each tile made without a cache, by its path.
    spawn_rate, think_s : float
        Users that begin in a second; seconds between the requests of a user.
    """

    maps: Maps
    cold: list[list[Tile]]
    warm: list[list[Tile]]
    alone: list[list[Tile]]
    checksums: Mapping[str, str]
    spawn_rate: float
    think_s: float

    @property
    def must_fail(self) -> list[str]:
        """Maps that cannot be read."""
        return [spec.name for spec in self.maps.specs if not spec.is_whole]


def plan_workload(
    maps: Maps,
    *,
    n_requests: int,
    n_users: int,
    zipf_exponent: float,
    seed: int,
    spawn_rate: float,
    think_s: float,
) -> Workload:
    """Plan all requests, and make each tile once without a cache and without the network.

    Parameters
    ----------
    maps : Maps
        Maps, seen without the network.
    n_requests, n_users : int
        Of the warm phase.
    zipf_exponent : float
        Of popularity.
    seed : int
        Of all that is drawn.
    spawn_rate, think_s : float
        See `Workload`.

    Returns
    -------
    Workload
        With the checksums that every cache has to give.
    """
    names = [spec.name for spec in maps.specs]
    whole = [spec.name for spec in maps.specs if spec.is_whole]
    warm = warm_plan(
        names, n_requests=n_requests, n_users=n_users, exponent=zipf_exponent, seed=seed
    )
    popular = [tile for part in warm for tile in part]
    places = list(dict.fromkeys((z, x, y) for _, z, x, y in popular))[:_N_PLACES]
    alone: list[list[Tile]] = [[(name, *place) for place in places for name in whole]]
    cold = cold_plan(names, n_users=len(names))
    tiles = {tile for plan in (cold, warm, alone) for part in plan for tile in part}
    return Workload(maps, cold, warm, alone, _make_tiles(maps, sorted(tiles)), spawn_rate, think_s)


def _make_tiles(maps: Maps, tiles: Sequence[Tile]) -> dict[str, str]:
    with open_service("none", maps) as service:
        answers = {tile_path(tile): service.ask(tile_path(tile)) for tile in tiles}
    return {path: xxhash.xxh3_64_hexdigest(a.content) for path, a in answers.items()}


def measure_hit_ratio(
    n_datasets: int, n_entries: int, *, exponent: float, n_lookups: int, seed: int
) -> float:
    """Ask the real cache in the process for datasets by popularity, and count.

    No tile is made and nothing is read: the datasets are empty, so that enough
    look-ups are affordable to tell a percentage point.

    Parameters
    ----------
    n_datasets, n_entries : int
        Datasets that are asked for, and those that the cache keeps.
    exponent : float
        Of Zipf's law.
    n_lookups : int
        Look-ups after a tenth as many that fill the cache.
    seed : int
        Of the choice.

    Returns
    -------
    float
        Share of look-ups that found their dataset.
    """
    cache = LruCache(Origin(Location("s3", "nothing-is-read")), n_entries)
    weights = zipf_weights(n_datasets, exponent=exponent)
    names = np.random.default_rng(seed).choice(n_datasets, n_lookups + n_lookups // 10, p=weights)
    for name in names[: n_lookups // 10]:
        cache.get(str(name), lambda _: xr.Dataset())
    before = cache.counts()
    for name in names[n_lookups // 10 :]:
        cache.get(str(name), lambda _: xr.Dataset())
    return difference(cache.counts(), before).hit_ratio
