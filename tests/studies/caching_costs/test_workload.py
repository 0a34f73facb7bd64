"""Plans of requests, datasets of the published matrix, and latency from requests that were alone."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import nbformat
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisors.costs.assumptions import Assumptions, change
from advisors.costs.prices import get_prices
from helpers.benchmark import ranking as rankings
from helpers.benchmark import statistics
from helpers.benchmark.record import read_records
from helpers.book.cases import list_glued
from helpers.errors import UserError
from helpers.netem.profiles import get_profile
from helpers.objectstore.locations import Location
from helpers.paths import ROOT
from studies.caching_costs.datasets import Datasets, dataset_names, make_specs, published_specs
from studies.caching_costs.findings import (
    find_all,
    find_costs,
    find_staleness,
    select_loads,
    tabulate_costs,
    tell_errors,
    tell_generator,
)
from studies.caching_costs.prediction import (
    Demand,
    compare_hit_ratios,
    count_processors,
    isolate,
    learn_assumptions,
    predict_latencies,
    simulate_users,
)
from studies.caching_costs.workload import Workload, warm_plan, zipf_weights


def test_matrix_has_the_corrected_geometry() -> None:
    """The published single chunks are single, and their bytes are those of their names."""
    made = published_specs()
    assert len(made) == 12
    for name, (published, shape, chunks) in made.items():
        kind, size = name.split("-")
        assert 8 * shape[0] * shape[1] / 2**20 == pytest.approx(float(size[:-3]), rel=0.02)
        assert f"lat{shape[0]}_lon{shape[1]}" in published
        assert (shape == chunks) == (kind == "single" or name == "chunked-32mib")


@pytest.mark.parametrize("scale", [1.0, 0.25, 1 / 16])
def test_scale_goes_on_sides(scale: float) -> None:
    """Every dataset keeps its number of chunks, to a chunk, and its bytes go with the square."""
    for spec, whole in zip(
        make_specs(dataset_names(), scale=scale),
        make_specs(dataset_names(), scale=1.0),
        strict=True,
    ):
        assert spec.nbytes == pytest.approx(whole.nbytes * scale**2, rel=0.05)
        assert spec.kind == whole.kind
        chunks = [n / c for n, c in zip(spec.shape, spec.chunk_shape, strict=True)]
        assert chunks == pytest.approx(
            [n / c for n, c in zip(whole.shape, whole.chunk_shape, strict=True)], rel=0.05
        )


@pytest.mark.parametrize(
    ("names", "scale", "named"),
    [
        (["unheard-of"], 1.0, "maps: unheard-of"),
        ([], 1.0, "maps: none"),
        (["netcdf"], 0.0, "map_scale: 0.0"),
        (["netcdf"], 1.5, "map_scale: 1.5"),
    ],
)
def test_unknown_datasets_and_scales_are_refused(
    names: list[str], scale: float, named: str
) -> None:
    """One line names the parameter."""
    with pytest.raises(UserError, match=named):
        make_specs(names, scale=scale)


@given(n_requests=st.integers(1, 200), n_users=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_plans_hold_every_request_once(n_requests: int, n_users: int, seed: int) -> None:
    """Requests are dealt evenly, are tiles that exist, and depend on the seed alone."""
    arguments = {"n_requests": n_requests, "n_users": n_users, "exponent": 1.0, "seed": seed}
    plan = warm_plan(["a", "b", "c"], **arguments)  # type: ignore[arg-type]
    assert sum(map(len, plan)) == n_requests
    assert max(map(len, plan)) - min(map(len, plan)) <= 1
    assert all(0 <= x < 2**z and 0 <= y < 2**z for part in plan for _, z, x, y in part)
    assert plan == warm_plan(["a", "b", "c"], **arguments)  # type: ignore[arg-type]


def test_popularity_follows_zipf() -> None:
    """In many requests the shares of datasets are those of the law, by rank."""
    names = [f"m{i}" for i in range(6)]
    plan = warm_plan(names, n_requests=60_000, n_users=1, exponent=1.0, seed=3)
    counts = Counter(tile[0] for tile in plan[0])
    shares = np.array(sorted(counts.values(), reverse=True)) / 60_000
    np.testing.assert_allclose(shares, zipf_weights(6, exponent=1.0), atol=0.01)


@pytest.mark.parametrize(
    ("plans", "think_s", "expected"),
    [
        ([[(1, 0)]], 0, [1]),  # alone
        ([[(1, 0)], [(1, 0)]], 0, [2, 2]),  # both share the processor
        ([[(0, 1)], [(0, 1)]], 0, [1, 1]),  # waiting is not shared
        ([[(1, 0)], [(1, 2)]], 0, [1, 3]),  # one computes while the other waits
        ([[(1, 0), (1, 0)]], 5, [1, 1]),  # thinking is not latency
        ([[(1, 0)], [(3, 0)]], 0, [2, 4]),  # equal shares until the shorter is done
    ],
)
def test_users_share_a_processor(
    plans: list[list[tuple[float, float]]], think_s: float, expected: list[float]
) -> None:
    """Latencies of small cases that one can do by hand."""
    demands = [[Demand(*pair) for pair in user] for user in plans]
    assert simulate_users(demands, think_s=think_s) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("demands", "n_services", "n_processors", "expected"),
    [
        ([(2, 2, 1), (2, 0, 1)], 1, 1, [2, 4]),  # who waits first finds the processor free
        ([(2, 2, 2), (2, 0, 1)], 1, 1, [3, 5]),  # who waits in two parts computes between them
        ([(1, 0, 1)] * 3, 2, 2, [1, 2, 2]),  # two users at one service, one at the other
        ([(1, 0, 1)] * 3, 2, 1, [2, 3, 3]),  # two services have half of a processor each
        ([(1, 0, 1)] * 2, 1, 2, [2, 2]),  # a service has no use for a second one
        ([(1, 0, 1, 1)] * 2, 1, 2, [3, 3]),  # but what runs outside its interpreter has
        ([(1, 0, 1, 1)] * 2, 1, 1, [4, 4]),
        ([(1, 0, 1, 2), (3, 0, 1)], 1, 2, [4, 4]),  # the other has the interpreter for itself then
    ],
)
def test_services_share_processors(
    demands: list[tuple[float, float, int] | tuple[float, float, int, float]],
    n_services: int,
    n_processors: int,
    expected: list[float],
) -> None:
    """Latencies of one request of each user, who are dealt among the services."""
    plans = [[Demand(*one)] for one in demands]
    given: dict[str, int] = {"n_services": n_services, "n_processors": n_processors}
    assert simulate_users(plans, think_s=0.0, **given) == pytest.approx(expected)


@given(
    plans=st.lists(
        st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_no_request_is_faster_than_alone(plans: list[list[tuple[float, float]]]) -> None:
    """With others, a request takes its own time or longer, and at most that of all together."""
    demands = [[Demand(*pair) for pair in user] for user in plans]
    latencies = sorted(simulate_users(demands, think_s=0.0))
    alone = sorted(d.cpu_s + d.wait_s for user in demands for d in user)
    assert len(latencies) == len(alone)
    assert all(a >= b - 1e-9 for a, b in zip(latencies, alone, strict=True))
    total = sum(d.cpu_s for user in demands for d in user)
    assert max(latencies) <= total + max(d.wait_s for user in demands for d in user) + 1e-9


def test_real_cache_hits_as_often_as_predicted() -> None:
    """Che's approximation is within three percentage points of the cache of the service."""
    found = compare_hit_ratios([100], exponent=1.0, n_lookups=20_000, seed=1)
    assert len(found) == 3
    assert found["measured"].is_monotonic_increasing
    assert (found["error"].abs() < 0.03).all()


def make_rows(phase: str, loads: dict[str, dict[str, float]]) -> pd.DataFrame:
    """Make rows of a record with the numbers that each contender traced."""
    return pd.DataFrame(
        {
            "phase": phase,
            "contender": list(loads),
            "point": "{}",
            "block": 0,
            "n_requests": [12] * len(loads),
            "wire_nbytes": [6e6] * len(loads),
            "trace": [json.dumps({"n_tiles": 6, **numbers}) for numbers in loads.values()],
        }
    )


def alone(open_s: float, make_s: float, cpu_s: float) -> dict[str, float]:
    """Give the numbers of two requests to one dataset that were alone."""
    return {
        f"a|{column}|{number}": value
        for number in range(2)
        for column, value in (("latency_s", open_s + make_s), ("open_s", open_s), ("cpu_s", cpu_s))
    }


def test_prediction_adds_opening_and_making() -> None:
    """Alone on the processor, a request takes its own opening and the making that all share."""
    rows = make_rows("calibration", {"none": alone(0.3, 0.1, 0.1), "redis": alone(0.01, 0.1, 0.1)})
    expected = predict_latencies(rows, [[("a", 0, 0, 0)] * 3], think_s=0.0, seed=1)
    found = expected.set_index("contender")["predicted_s"]
    assert found.to_dict() == pytest.approx({"none": 0.4, "redis": 0.11})


def test_prediction_counts_company() -> None:
    """Two users who only compute take twice as long together as alone."""
    rows = make_rows("calibration", {"none": alone(0.0, 0.2, 0.2)})
    expected = predict_latencies(rows, [[("a", 0, 0, 0)]] * 2, think_s=0.0, seed=1)
    assert expected.loc[0, ["predicted_s", "alone_s"]].tolist() == pytest.approx([0.4, 0.2])


def test_making_is_the_same_work_for_all_that_open_nothing() -> None:
    """Processor time of lru and redis is put together, reprojection holds no interpreter, and none has its own."""
    loads = {"none": alone(0.3, 0.1, 0.3), "lru": alone(0, 0.1, 0.1), "redis": alone(0, 0.1, 0.2)}
    warped = {"a|warp_s|0": 0.02, "a|warp_s|1": 0.04}
    rows = make_rows("calibration", {name: one | warped for name, one in loads.items()})
    found = {name: one["a"] for name, one in isolate(rows).items()}
    assert {name: one.cpu_s for name, one in found.items()} == pytest.approx(
        {"none": 0.3, "lru": 0.15, "redis": 0.15}
    )
    drawn = found["lru"].draw(np.random.default_rng(1))
    assert (drawn.cpu_s, drawn.beside_s) == pytest.approx((0.12, 0.03))
    assert count_processors(rows) == 1
    assert count_processors(rows.assign(machine='{"n_cores": 4}')) == 4


def test_file_cache_makes_tiles_in_its_own_time() -> None:
    """It keeps chunks, so its making tells nothing of the others, nor theirs of it."""
    rows = make_rows(
        "calibration", {"none": alone(0.3, 0.2, 0.0), "filecache": alone(0.3, 0.1, 0.0)}
    )
    found = predict_latencies(rows, [[("a", 0, 0, 0)]], think_s=0.0, seed=1)
    assert found.set_index("contender")["predicted_s"].to_dict() == pytest.approx(
        {"none": 0.5, "filecache": 0.4}
    )


def test_assumptions_are_those_measured() -> None:
    """The model gets means weighted by what users ask for, and the rest stays as it is."""
    rows = make_rows(
        "calibration",
        {
            "none": {**alone(0.3, 0.1, 0.15), "tile_nbytes": 5200.0},
            "redis": alone(0.01, 0.1, 0.1),
            "lru": alone(0, 0.1, 0.1),
            "filecache": {**alone(0.2, 0.1, 0.1), "n_lists": 18},
        },
    )
    rows["n_requests"] = [48, 12, 12, 36]
    workload = Workload(
        Datasets(Location("s3", "nothing"), (), {}), [], [[("a", 0, 0, 0)]], [], {}, 1.0, 0.0
    )
    found = learn_assumptions(rows, workload, entry_nbytes={"a": 5000})
    measured = {"make_s": 0.1, "open_s": 0.3, "redis_fetch_s": 0.01, "metadata_nbytes": 5000}
    measured |= {"shared_fetch_s": 0.2, "shared_gets": 3.0, "shared_lists": 3.0}
    measured |= {"open_gets": 6.0, "tile_gets": 2.0, "tile_read_nbytes": 1e6}
    measured |= {"make_cpu_s": 0.1, "open_cpu_s": 0.05, "tile_nbytes": 5200.0}
    assert asdict(found) == pytest.approx({**asdict(Assumptions()), **measured})


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ({"none": 0.5, "lru": 0.1, "redis": -0.14}, "Every predicted"),  # none is no cache
        ({"none": 0.0, "lru": 0.16, "redis": -0.1}, "beyond 15 % are those of lru"),
        ({"none": 0.0, "lru": 0.0, "redis": -0.3}, "beyond 15 % are those of redis"),
    ],
)
def test_errors_are_told(errors: dict[str, float], said: str) -> None:
    """A prediction that misses is named, whichever its sign."""
    frame = pd.DataFrame({"contender": list(errors), "relative_error": list(errors.values())})
    assert said in tell_errors(frame)


@pytest.mark.parametrize(("share", "said"), [(0.02, "at most 0.02"), (0.6, "it was measured too")])
def test_generator_is_told(share: float, said: str) -> None:
    """A load generator that took more than half a core is said to be measured too."""
    assert said in tell_generator(share)


def test_the_reference_names_no_fastest_cache_that_is_none() -> None:
    """What opens for each tile is never among them, the page names those of its rows, and a faster one would be found."""
    rows = read_records([ROOT / "results" / "reference" / "caching-costs" / "in-region.csv"])
    under_load = select_loads(rows)
    caches = [name for name in under_load["contender"].unique() if name not in ("none", "control")]
    judged = {
        name: statistics.compare(under_load, name, "none", control="control", value="p50_s")
        for name in caches
    }
    ranking = rankings.rank(under_load, control="control", value="p50_s")
    tails = rankings.rank(under_load, control="control", value="p95_s")
    shipped = {"lru": judged["lru"], "none-v3": judged["redis"]}
    # whom the table of the fastest does not tell apart, that of the service as shipped does not either
    rule = {"control": "control", "value": "p50_s", "n_compared": len(caches)}
    over = {it: statistics.compare(under_load, it, "as-shipped", **rule) for it in ranking.fastest}  # type: ignore[arg-type]
    assert "as-shipped" in over and "faster" not in {one.verdict for one in over.values()}
    assert len(ranking.fastest) > 1
    assert not {"none", "none-v3", "filecache", "filecache-v3"} & {*ranking.fastest}
    planted = under_load.assign(
        p50_s=under_load["p50_s"].mask(under_load["contender"] == "filecache", 0.001)
    )
    (winner,) = rankings.rank(planted, control="control", value="p50_s").fastest
    assert winner == "filecache"
    assert ranking.others["none"].verdict == ranking.others["filecache"].verdict == "slower"
    errors = pd.DataFrame({"contender": ["none", "lru"], "relative_error": [0.0, 0.1]})
    errors["p95_error"] = [0.0, 0.2]
    opening = pd.DataFrame({"open_s": [0.3], "make_s": [0.1], "bound": [4.0]})
    found = find_all(
        pd.concat([rows, rows.assign(contender=rows["contender"].replace("lru", "as-shipped"))]),
        opening,
        errors,
        judged=judged,
        shipped=shipped,
        ranking=ranking,
        tails=tails,
        growth_nbytes=3.1e6,
        profile=get_profile("in-region"),
    )
    page = ROOT / "results" / "reference" / "caching-costs" / "in-region.ipynb"
    glued = list_glued(nbformat.read(page, as_version=4))
    for key in ("best-cache", "best-cache-p95"):
        assert found[key] == glued[key]
        assert found[key].startswith("among the fastest: ")
    faster = [name for name, one in judged.items() if one.verdict == "faster"]
    assert {*ranking.fastest} <= {*faster}
    assert found["verdict-cache"].count("(faster)") == len(faster)
    # the 95th percentiles have another order, and no single fastest either
    assert len(tails.fastest) > 1 and not {"none", "filecache"} & {*tails.fastest}
    assert found["verdict-shipped"].endswith(
        "against it, faster: lru, no cache told the format (none-v3)."
    )
    assert found["shipped-growth"] == "3.1 MB"


def test_wrong_pictures_are_said_first() -> None:
    """Who served a wrong picture is named, and who does so until a restart."""
    watched = pd.DataFrame(
        {
            "values": ["new", "new", "old picture"],
            "shape": ["wrong picture", "wrong picture", "old picture"],
            "new data": ["after a restart", "after 5 s", "after 5 s"],
        },
        index=["as-shipped", "lru", "filecache"],
    )
    said = find_staleness(watched)["verdict-staleness"]
    assert "as-shipped, lru served wrong pictures with status 200" in said
    assert said.endswith("only a restart ends it for as-shipped.")
    others = find_staleness(watched.drop("as-shipped"))["verdict-staleness"]
    assert others.endswith("; it ends when entries expire.")


def test_bill_says_what_listings_cost_and_what_comes_first() -> None:
    """Listings are a part of the bill of a file cache, none of one that is told the format."""
    given = change(Assumptions(), {"shared_lists": 4.0, "shared_gets": 4.0})
    ratios = pd.DataFrame({"datasets": [8, 100], "error": [0.01, -0.02]})
    known = {"told": Assumptions(), "peak_nbytes": 4.2e8}
    file_caches = ["filecache", "filecache-v3"]
    found = find_costs(given, get_prices(), ratios, measured=file_caches, **known)  # type: ignore[arg-type]
    assert found["verdict-cost"].startswith(
        "A service held at most 0.42 GB. Without any cache a month costs "
    )
    assert found["peak-memory"] == "0.42 GB"
    assert found["shared-listings-cost"] == "9,590 USD a month"  # 480 million times 4 at 5e-6
    assert found["shared-cost"] > found["shared-told-cost"]
    assert found["verdict-cheapest"] in found["verdict-cost"]
    # what no contender stands for has no bill, and its row says what it rests on
    none = find_costs(given, get_prices(), ratios, measured=["none"], **known)  # type: ignore[arg-type]
    assert none["shared-cost"] == none["shared-told-cost"] == "not measured"
    rows = tabulate_costs(given, get_prices(), measured=["none", "lru"])
    assert rows["rests on"].to_dict() == {
        **dict.fromkeys(rows.index, "defaults"),
        **dict.fromkeys(("none", "cdn"), "none"),
        **dict.fromkeys(("process", "cdn-process"), "lru"),
    }
