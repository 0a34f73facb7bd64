"""What the published study claims of caches, answered by the committed record and by the cost model."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from advisors.costs.assumptions import Assumptions, change
from advisors.costs.bill import price_option
from advisors.costs.calculator import compare_published
from advisors.costs.demand import count_redis_nodes
from advisors.costs.prices import get_prices
from helpers.benchmark import statistics
from helpers.book import published
from helpers.book.studies import write_table
from helpers.plotting import tables
from studies.caching_costs import read_measured
from studies.caching_costs.findings import measure_opening, select_loads

CASE = "caching-costs/in-region"
PUBLISHED_SIZE = "caching-costs/published-size"
_QUOTED = ("cache", "load", "prediction", "sweep", "staleness")  # of what that case found
SOURCE = "developmentseed2023"
Answers = dict[str, Mapping[str, published.Answer]]

_FILE_CACHES = {"told nothing": "filecache", "told the Zarr format": "filecache-v3"}


def answer_claims() -> Answers:
    """Answer each claim of the study that is decided here, with its interval.

    Latencies are medians of loads, paired within blocks.
    """
    rows = published.read_reference(CASE)
    loads = select_loads(rows)
    return {**_answer_bill(), **_answer_file_cache(loads), **_answer_caches(rows, loads)}


def _answer_bill() -> Answers:
    """Answer what the rules of the bill say."""
    prices = get_prices("published-2023")
    apart = [abs(one["published_usd"] - one["ours_usd"]) for one in compare_published(prices)]
    without = price_option(Assumptions(peak_ratio=1.0), prices, option="none")
    nodes = {
        "with entries of the published size": Assumptions(),
        "with those measured here": change(
            Assumptions(), {"metadata_nbytes": read_measured()["metadata_nbytes"]}
        ),
    }
    return {
        "cost-model": {"by its rules": published.exact(max(apart))},
        "computing-cost": {"by Little's law": published.exact(without.lines["computing"])},
        "redis-node": {
            said: published.exact(count_redis_nodes(one)) for said, one in nodes.items()
        },
    }


def _answer_file_cache(loads: pd.DataFrame) -> Answers:
    """Answer whether the file cache is the fastest, for which datasets it is none, and whether it fails."""
    numbers = tables.trace_of(loads)
    maps = ("netcdf", "unconsolidated")
    wide = loads.assign(**{one: numbers[f"{one}|latency_s"] for one in maps})
    of_files = numbers[loads["contender"].isin([*_FILE_CACHES.values()])]
    failed = of_files[["n_failures", "cold n_failures"]].to_numpy().sum()
    found: Answers = {
        f"filecache-{'on-netcdf' if one == 'netcdf' else one}": {
            told: statistics.paired_ratio(wide, "none", name, value=one)
            for told, name in _FILE_CACHES.items()
        }
        for one in maps
    }
    fastest = {
        told: statistics.compare(loads, "redis", name, control="control", value="p50_s")
        for told, name in _FILE_CACHES.items()
    }
    return {
        **found,
        "filecache-fastest": fastest,
        "filecache-fails": {"in-region, all blocks": published.exact(failed)},
    }


def _answer_caches(rows: pd.DataFrame, loads: pd.DataFrame) -> Answers:
    """Answer what is said of disks, of opening, of its bytes and of chunks."""
    alone = measure_opening(rows)
    share = alone["open_s"] / (alone["open_s"] + alone["make_s"])
    numbers = tables.trace_of(loads[loads["contender"] == "none"])
    chunks = numbers["single-256mib|latency_s"] / numbers["single-4mib|latency_s"]
    as_redis = statistics.paired_ratio(loads, "diskcache", "redis", value="p50_s")
    megabytes = read_measured()["metadata_nbytes"] / 1e6
    return {
        "diskcache-as-redis": {"in-region": as_redis},
        "opening-counts": {"in-region": statistics.median_interval(share)},
        "metadata-size": {"in-region, an entry": published.exact(megabytes)},
        "chunk-slows-tile": {"in-region": statistics.median_interval(chunks.dropna())},
    }


def render_published_size(case: str = PUBLISHED_SIZE) -> str:
    """Quote what the case of the published size found, or say that nobody has measured it."""
    if published.find_reference(case) is None:
        return f"Not measured yet; `wire run {case}` does it.\n"
    found = published.read_findings(case)
    return "".join(f"{found[f'verdict-{what}']}\n" for what in _QUOTED)


def render_claims() -> str:
    """Write the claims of the study with our figures and verdicts as a table of a page."""
    table = published.tabulate_claims(published.read_claims(), answer_claims(), SOURCE)
    return write_table([*table], table.itertuples(index=False))
