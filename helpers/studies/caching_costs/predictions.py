"""What users will see, from requests that were alone, and how often a cache hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from helpers.models import hits
from helpers.models.queueing import Demand, simulate_users
from helpers.studies.caching_costs.tables import list_requests
from helpers.studies.caching_costs.workload import measure_hit_ratio
from helpers.tiles.service import Tile

KEEPS_CHUNKS = "filecache"
"""The contender that makes its tiles from chunks that it keeps."""

_N_DRAWS = 100

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Isolated:
    """What requests to one map cost while they were alone, with one cache.

    Parameters
    ----------
    open_s, make_s : ndarray of float
        Seconds that opening and the rest took, request by request.
    cpu_s : float
        Median of their processor seconds.
    """

    open_s: Floats
    make_s: Floats
    cpu_s: float

    def draw(self, rng: np.random.Generator) -> Demand:
        """Draw an opening and a making, each from what was measured."""
        seconds = float(rng.choice(self.open_s) + rng.choice(self.make_s))
        return Demand(self.cpu_s, max(0.0, seconds - self.cpu_s))


def isolate(rows: pd.DataFrame) -> dict[str, dict[str, Isolated]]:
    """Split requests that were alone into opening and making, by contender and map.

    Opening is each contender's own. Making is the same work for all but the
    one that keeps chunks, so theirs is put together: four times the sample.

    Returns
    -------
    dict of str to dict of str to Isolated
        By contender and map.
    """
    each = list_requests(rows, "calibration")
    made = each[each["contender"] != KEEPS_CHUNKS].groupby("map")["make_s"]
    shared = {str(name): part for name, part in made}
    found: dict[str, dict[str, Isolated]] = {}
    for (contender, name), part in each.groupby(["contender", "map"]):
        is_own = contender == KEEPS_CHUNKS
        found.setdefault(str(contender), {})[str(name)] = Isolated(
            part["open_s"].to_numpy(),
            (part["make_s"] if is_own else shared[str(name)]).to_numpy(),
            float(part["cpu_s"].median()),
        )
    return found


def draw_demands(
    isolated: Mapping[str, Isolated], plan: Sequence[Sequence[Tile]], rng: np.random.Generator
) -> list[list[Demand]]:
    """Draw what each request of a plan costs alone; those that must fail are left out."""
    return [[isolated[tile[0]].draw(rng) for tile in user if tile[0] in isolated] for user in plan]


def predict_latencies(
    rows: pd.DataFrame, plan: Sequence[Sequence[Tile]], *, think_s: float, seed: int
) -> pd.DataFrame:
    """Predict the median latency of each contender under load from requests that were alone.

    Users share the one processor that a Python process has. What each request
    costs is drawn anew for each of a hundred simulated loads: with one time
    for each map, simulated users would keep step and meet at the processor
    more often than real ones.

    Parameters
    ----------
    rows : DataFrame
        A record with a calibration.
    plan : sequence of sequence of tuple
        Tiles of each user.
    think_s : float
        Seconds between an answer and the next request.
    seed : int
        Of the draws.

    Returns
    -------
    DataFrame
        ``contender``, ``predicted_s``, and ``alone_s``, the median without company.
    """
    rng = np.random.default_rng(seed)
    lines = []
    for name, isolated in isolate(rows).items():
        drawn = [draw_demands(isolated, plan, rng) for _ in range(_N_DRAWS)]
        loaded = [s for demands in drawn for s in simulate_users(demands, think_s=think_s)]
        alone = [one.cpu_s + one.wait_s for demands in drawn for user in demands for one in user]
        lines.append((name, float(np.median(loaded)), float(np.median(alone))))
    return pd.DataFrame(lines, columns=["contender", "predicted_s", "alone_s"])


def compare_predictions(rows: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Put predicted beside measured medians; `relative_error` is predicted over measured, less 1."""
    measured = list_requests(rows, "measured").groupby("contender")["latency_s"].median()
    table = expected.merge(measured.rename("measured_s"), on="contender")
    return table.assign(relative_error=table["predicted_s"] / table["measured_s"] - 1)


def compare_hit_ratios(
    n_datasets: Sequence[int], *, exponent: float, n_lookups: int, seed: int
) -> pd.DataFrame:
    """Put the hit ratio of Che's approximation beside that of the real cache in the process.

    Returns
    -------
    DataFrame
        By datasets and entries that fit: ``predicted``, ``measured`` and ``error``, all as shares.
    """
    lines = []
    for n in n_datasets:
        for n_entries in sorted({max(1, n // part) for part in (8, 4, 2)}):
            kept = hits.Cache(capacity_nbytes=n_entries, item_nbytes=1)
            predicted = hits.hit_ratio(hits.zipf(n, exponent), 1.0, cache=kept)
            measured = measure_hit_ratio(
                n, n_entries, exponent=exponent, n_lookups=n_lookups, seed=seed
            )
            lines.append((n, n_entries, predicted, measured, predicted - measured))
    return pd.DataFrame(lines, columns=["datasets", "entries", "predicted", "measured", "error"])
