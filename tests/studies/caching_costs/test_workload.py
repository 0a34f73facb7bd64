"""Plans of requests, datasets of the published matrix, and latency from requests that were alone."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace

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
from studies.caching_costs.datasets import (
    Datasets,
    DatasetSpec,
    dataset_names,
    make_specs,
    published_specs,
)
from studies.caching_costs.findings import (
    find_all,
    find_costs,
    find_staleness,
    read_peak,
    select_loads,
    tabulate_costs,
    tell_errors,
    tell_generator,
)
from studies.caching_costs.prediction import (
    compare_hit_ratios,
    count_processors,
    describe_machine,
    isolate,
    isolate_anew,
    learn_assumptions,
    predict_latencies,
)
from studies.caching_costs.service import Tile
from studies.caching_costs.workload import (
    Workload,
    measure_speed_of_all,
    warm_plan,
    zipf_weights,
)


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


def alone(open_s: float, make_s: float, cpu_s: float, dataset: str = "a") -> dict[str, float]:
    """Give the numbers of two requests to one dataset that were alone."""
    costs = {"latency_s": open_s + make_s, "open_s": open_s, "cpu_s": cpu_s}
    return {f"{dataset}|{name}|{k}": value for k in range(2) for name, value in costs.items()}


ASKED_ALONE: list[Tile] = [("a", 1, 0, 0), ("a", 1, 1, 0)]


def make_workload(warm: list[list[Tile]], alone: list[Tile] = ASKED_ALONE) -> Workload:
    """Plan tiles of dataset a, and of b, whose chunk has as many values as a hundred of a's."""
    sides = {"a": 8, "b": 80}
    specs = tuple(DatasetSpec(name, "zarr", (n, n), (n, n)) for name, n in sides.items())
    return Workload(Datasets(Location("s3", "none"), specs, {}), [], warm, [alone], {}, 1.0, 0.0)


def test_prediction_adds_opening_and_making() -> None:
    """Alone on the processor, a request takes its own opening and the making that all share."""
    rows = make_rows("calibration", {"none": alone(0.3, 0.1, 0.1), "redis": alone(0.01, 0.1, 0.1)})
    expected = predict_latencies(rows, make_workload([[("a", 0, 0, 0)] * 3]), seed=1)
    found = expected.set_index("contender")["predicted_s"]
    assert found.to_dict() == pytest.approx({"none": 0.4, "redis": 0.11})


def test_prediction_counts_company() -> None:
    """Two users who only compute take twice as long together as alone."""
    rows = make_rows("calibration", {"none": alone(0.0, 0.2, 0.2)})
    expected = predict_latencies(rows, make_workload([[("a", 0, 0, 0)]] * 2), seed=1)
    assert expected.loc[0, ["predicted_s", "alone_s"]].tolist() == pytest.approx([0.4, 0.2])


def test_users_store_and_network_compute_too() -> None:
    """What they took of the processors while a request was alone is no wait: several at once share them."""
    told = {"a|latency_s|0": 0.5, "a|open_s|0": 0.0, "a|cpu_s|0": 0.1, "elsewhere_s": 0.4}
    rows = make_rows("calibration", {"none": told}).assign(machine='{"n_cores": 2}')
    many = make_workload([[("a", 0, 0, 0)]] * 4)
    # four share the interpreter for 0.4 s, and then two processors for 0.8 s
    last_s = predict_latencies(rows, many, seed=1)["predicted_p95_s"]
    assert float(last_s.iloc[0]) == pytest.approx(1.2)
    left_out = make_rows("calibration", {"none": told | {"elsewhere_s": 0.0}})
    assert predict_latencies(left_out, many, seed=1)["predicted_p95_s"].iloc[0] == pytest.approx(
        0.8
    )


def test_processors_are_compared_alone_and_together() -> None:
    """A record tells how fast a processor is while all are busy; an older one is taken at its word."""
    assert 0.05 < measure_speed_of_all() <= 1
    told = {"a|latency_s|0": 0.5, "a|open_s|0": 0.0, "a|cpu_s|0": 0.1}
    measured = {"speed_of_all": 0.6, "crowd_cost": 1.2, "crowd_cost_on_one": 1.1}
    rows = make_rows("calibration", {"none": told | measured})
    assert describe_machine(rows) == {"n_processors": 1, **measured}
    older = describe_machine(make_rows("calibration", {"none": told}))
    assert older == {"n_processors": 1} | dict.fromkeys(measured, 1.0)


def test_making_is_the_same_work_for_all_that_open_nothing() -> None:
    """Processor time of lru and redis is put together, reprojection holds no interpreter, and none has its own."""
    loads = {"none": alone(0.3, 0.1, 0.3), "lru": alone(0, 0.1, 0.1), "redis": alone(0, 0.1, 0.2)}
    warped = {"a|warp_s|0": 0.02, "a|warp_s|1": 0.04}
    rows = make_rows("calibration", {name: one | warped for name, one in loads.items()})
    tile = ("a", 2, 0, 0)
    found = {name: one[tile] for name, one in isolate(rows, make_workload([[tile]])).items()}
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
    found = predict_latencies(rows, make_workload([[("a", 0, 0, 0)]]), seed=1)
    assert found.set_index("contender")["predicted_s"].to_dict() == pytest.approx(
        {"none": 0.5, "filecache": 0.4}
    )


def test_a_tile_costs_what_it_cost_alone() -> None:
    """One that was alone is itself, another is like those of its zoom, and one of another zoom like all."""
    numbers = {}
    for k, (make_s, cpu_s) in enumerate([(0.1, 0.01), (0.2, 0.02), (0.6, 0.06)]):
        numbers |= {f"a|latency_s|{k}": make_s, f"a|open_s|{k}": 0.0, f"a|cpu_s|{k}": cpu_s}
    rows = make_rows("calibration", {"none": numbers})
    asked = [*ASKED_ALONE, ("a", 2, 0, 0)]
    tiles = {("a", 1, 1, 0): [0.2], ("a", 1, 0, 1): [0.1, 0.2], ("a", 3, 0, 0): [0.1, 0.2, 0.6]}
    found = isolate(rows, make_workload([[*tiles]], asked))["none"]
    assert {tile: one.make_s.tolist() for tile, one in found.items()} == tiles
    assert {tile: one.cpu_s for tile, one in found.items()} == pytest.approx(
        {tile: np.mean(make_s) / 10 for tile, make_s in tiles.items()}
    )
    # drawn anew, some of the requests are missing, and others are there twice
    rng = np.random.default_rng(1)
    drawn = isolate_anew(rows, make_workload([[*tiles]], asked), rng, 20)
    assert len({cost["none"]["a", 3, 0, 0].cpu_s for cost in drawn}) > 3


def test_a_chunk_is_needed_for_the_first_time_once() -> None:
    """What the cold phase or another user needed is there; who keeps chunks makes first tiles in their own time."""
    specs = (DatasetSpec("a", "zarr", (8, 16), (4, 8)), DatasetSpec("n", "netcdf", (8, 16), (4, 8)))
    datasets, cold = Datasets(Location("s3", "none"), specs, {}), [[("a", 1, 1, 0)]]
    west, east, north = ("a", 1, 0, 0), ("a", 2, 3, 1), ("a", 2, 0, 1)
    asked: list[list[Tile]] = [[east, west, north], [west, ("n", 1, 0, 0)]]
    workload = Workload(datasets, cold, asked, [[west, north]], {}, 1.0, 0.0)
    marked = workload.mark_first(asked)
    assert [[tile[0] for tile in user] for user in marked] == [["a", "a", "a"], ["a (first)", "n"]]
    assert [[tile[1:] for tile in user] for user in marked] == [
        [tile[1:] for tile in user] for user in asked
    ]
    numbers = {"a|latency_s|0": 0.5, "a|latency_s|1": 0.1}
    numbers |= {f"a|{name}|{k}": 0.0 for name in ("open_s", "cpu_s") for k in range(2)}
    kinds = {name: numbers for name in ("none", "lru-chunks")}
    workload = replace(workload, warm=[[east, north], [west]])
    found = isolate(make_rows("calibration", kinds), workload)
    assert {tile: one.make_s.tolist() for tile, one in found["lru-chunks"].items()} == {
        east: [0.1],
        north: [0.1],
        west: [0.1],
        ("a (first)", *west[1:]): [0.5],
    }
    assert found["none"][west].make_s.tolist() == [0.5]  # it keeps none
    assert not any("first" in name for name, *_ in found["none"])
    expected = predict_latencies(make_rows("calibration", kinds), workload, seed=1)
    late_s = expected.set_index("contender")["predicted_p95_s"]
    assert late_s["lru-chunks"] > 0.4  # one in three is the first


def test_large_chunks_and_clients_need_no_interpreter() -> None:
    """What grows with bytes is beside the interpreter, as far as requests agree on it; so is what its threads did not do."""
    cpu_s = {"a": [0.03, 0.03, 0.032, 0.028], "b": [0.13, 0.13, 0.128, 0.132]}
    names = [name for name, seconds in cpu_s.items() for _ in seconds]
    numbers, untold = dict[str, float](), dict[str, float]()
    for k, (name, seconds) in enumerate(zip(names, [*cpu_s["a"], *cpu_s["b"]], strict=True)):
        untold |= {f"{name}|latency_s|{k}": 0.5, f"{name}|open_s|{k}": 0.0}
        untold |= {f"{name}|cpu_s|{k}": seconds}
        numbers |= {f"{name}|outside_s|{k}": 0.01}
    asked: list[Tile] = [(name, 1, 0, 0) for name in names]
    workload = make_workload([[("a", 1, 0, 0), ("b", 1, 0, 0)]], asked)
    told = make_rows("calibration", {"lru": untold | numbers, "none": untold | numbers})
    for rows, outside_s in ((told, 0.01), (make_rows("calibration", {"none": untold}), 0.0)):
        found = {tile[0]: one for tile, one in isolate(rows, workload)["none"].items()}
        small, large = found["a"].beside_s - outside_s, found["b"].beside_s - outside_s
        assert 0 < small < 0.002  # its bytes are a hundredth
        assert 0.09 < large < 0.1  # a little less than the slope itself
        assert found["b"].cpu_s == pytest.approx(0.13)
    # requests that scatter by more than the sizes differ show nothing
    noisy = {
        name: k % 2 * 0.1 if "cpu" in name else s for k, (name, s) in enumerate(untold.items())
    }
    (one, *_) = isolate(make_rows("calibration", {"none": noisy}), workload)["none"].values()
    assert one.beside_s == 0


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
    found = learn_assumptions(rows, make_workload([[("a", 0, 0, 0)]]), entry_nbytes={"a": 5000})
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
    assert ranking.others["as-shipped"].verdict == "slower"
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


def test_memory_is_that_of_the_rows() -> None:
    """The largest peak of a measured load counts, whoever asks; rows of before do not tell it."""
    told = {"none": {"peak_nbytes": 3e8}, "lru": {"peak_nbytes": 1.6e9}}
    rows = pd.concat([make_rows("measured", told), make_rows("calibration", {"lru": {}})])
    assert read_peak(rows) == 1.6e9
    assert np.isnan(read_peak(make_rows("measured", {"none": {"p50_s": 1.0}})))


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
    # a page that is rendered from rows that do not tell it says nothing of memory
    untold = find_costs(given, get_prices(), ratios, measured=[], told=given, peak_nbytes=np.nan)
    assert untold["peak-memory"] == "not measured"
    assert untold["verdict-cost"].startswith("Without any cache a month costs ")
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
