"""Settings of one process: what they ask for, what a store refuses of it, and which is chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from s3fs import S3FileSystem

from helpers.benchmark.contender import CheckError
from studies.requests_in_flight import findings, prediction, workload
from studies.requests_in_flight.parameters import Parameters
from studies.requests_in_flight.workload import Setting, TunedRead, list_settings
from tests.refusals import refused
from tests.stores import make_location, make_stored
from wire.bed.networks import Profile, get_profile
from wire.bed.proxy import open_proxy
from wire.bed.testbed import Server, Testbed

NETWORK = Profile("example", requests_per_s=5600, aggregate_mb_per_s=4000, worker_mb_per_s=100)
PART = workload.share_profile(NETWORK, 1)
SETTINGS = list_settings([1, 4], [4, 64])


def make_rows(seconds: Mapping[str, float], refused: Mapping[str, int]) -> pd.DataFrame:
    """Make five measured blocks of 100 requests of 1 MB, and a control of the first setting."""
    rng, lines = np.random.default_rng(1), []
    first = SETTINGS[0].name
    for block in range(5):
        for name in [*seconds, "control"]:
            of = first if name == "control" else ""
            lines.append(
                {
                    "phase": "measured",
                    "block": block,
                    "contender": name,
                    "control_of": of,
                    "is_ceiling": False,
                    "read_s": seconds[of or name] * rng.uniform(0.99, 1.01),
                    "wire_nbytes": 1e8,
                    "n_requests": 100.0,
                    "trace": json.dumps(
                        {"n_failed_requests": refused.get(of or name, 0), "n_new_connections": 90}
                    ),
                    "machine": json.dumps({"n_cores": 2, "cpu": "one"}),
                }
            )
    return pd.DataFrame(lines)


def test_a_process_has_its_part_of_what_is_shared() -> None:
    """Of the rate of requests and of the link of all, but no more than its own link has."""
    part = workload.share_profile(NETWORK, 8)
    assert (part.requests_per_s, part.aggregate_mb_per_s) == (700, 100)
    assert workload.share_profile(NETWORK, 80).aggregate_mb_per_s == 50
    assert workload.share_profile(NETWORK, 1, 1875).aggregate_mb_per_s == 1875
    assert workload.share_profile(get_profile("loopback"), 8).aggregate_mb_per_s is None


def test_requests_in_flight_are_the_product() -> None:
    """And the name says which setting it was."""
    assert [one.in_flight for one in SETTINGS] == [4, 64, 16, 256]
    assert Setting(4, 64).name == "4 x 64" and "num_workers=4" in findings.write_code(
        Setting(4, 64)
    )


def test_the_fewest_requests_of_the_quickest_safe_ones_are_chosen() -> None:
    """Not the quickest, where it was refused requests once, or would be in a longer read."""
    names = [one.name for one in SETTINGS]
    seconds = dict(zip(names, [4.0, 1.0, 1.0, 0.5], strict=True))
    rows = findings.add_rates(make_rows(seconds, {names[3]: 10}), PART)
    expected = pd.DataFrame({"contender": names, "is_over_rate": False})
    safe = findings.find_safe(rows, expected, SETTINGS)
    assert safe == SETTINGS[:3]
    chosen, ranking = findings.choose(rows, safe, control="control")
    assert chosen == Setting(4, 4) and ranking is not None
    table = findings.tabulate(rows, expected, SETTINGS)
    assert [*table["refused"]] == [0, 0, 0, 10] and [*table["threads"]] == [1, 1, 4, 4]
    assert table.loc["4 x 4", "share"] == pytest.approx(100, rel=0.02)
    too_fast = expected.assign(is_over_rate=[False, True, False, True])
    assert findings.find_safe(rows, too_fast, SETTINGS) == [Setting(1, 4), Setting(4, 4)]
    assert findings.choose(rows, [], control="control") == (None, None)
    with refused("control", "^of 1 x 4, which was refused"):
        findings.choose(rows, SETTINGS[1:], control="control")


RATE = 687.5  # requests a second, of which a burst of 68.75 passes


@pytest.mark.parametrize(
    ("setting", "n_steps", "is_refused", "is_over_rate", "fits_burst"),
    [
        (Setting(1, 4), 0, False, False, True),
        (Setting(1, 64), 0, False, True, True),  # 64 requests in all
        (Setting(1, 64), 8, True, True, False),  # eight waves of the same
        (Setting(2, 64), 0, True, True, False),  # 128 at once
        (Setting(4, 4), 0, False, False, False),
    ],
)
def test_a_burst_passes_and_a_longer_read_is_refused(
    setting: Setting, n_steps: int, is_refused: bool, is_over_rate: bool, fits_burst: bool
) -> None:
    """64 in flight of 26 ms and their bytes are some 2000 a second, four some 140."""
    n_all = 64 * setting.count_steps(n_steps)
    row = {"phase": "calibration", "contender": setting.name, "read_s": 0.1}
    rows = pd.DataFrame([row | {"n_requests": 1.0 * n_all, "wire_nbytes": n_all * 1e5}])
    part = workload.share_profile(get_profile("in-region"), 8)
    assert part.requests_per_s == RATE
    found = prediction.predict_settings(rows, [setting], part, n_chunks=64, n_steps=n_steps).iloc[0]
    told = tuple(found[["is_refused", "is_over_rate", "fits_burst"]])
    assert told == (is_refused, is_over_rate, fits_burst)
    if setting == Setting(1, 4):
        assert found["asks_per_s"] == pytest.approx(140, rel=0.2)
    assert found["predicted_mb_per_s"] <= 1.01 * RATE * 0.1


@pytest.mark.parametrize("has_copy", [False, True])
def test_the_noise_of_a_lead_is_that_of_the_first_client(has_copy: bool) -> None:
    """That of its second copy, or its spread; the noise of the settings is another quantity."""
    seconds = {"zarr-obstore": [1.0, 1.5, 1.0, 1.5], "zarr-s3fs": [5.0] * 4}
    seconds |= {"control": [1.0, 1.5, 1.0, 1.5]} if has_copy else {}
    lines = [
        {"phase": "measured", "block": block, "contender": name, "read_s": s * mb}
        | {"control_of": "zarr-obstore" if name == "control" else "", "chunk_mb": mb}
        for name, times in seconds.items()
        for mb in (1.0, 4.0)
        for block, s in enumerate(times)
    ]
    rows = pd.DataFrame(lines)
    clients = [*seconds]
    leads = findings.compare_clients(rows, clients)
    assert [*leads] == [("zarr-s3fs", 1.0), ("zarr-s3fs", 4.0)]
    lead = leads["zarr-s3fs", 1.0]
    assert lead.noise == pytest.approx(1.0 if has_copy else 1.26, rel=0.01)
    assert lead.quantity == "zarr-s3fs over zarr-obstore, read_s"
    falls = findings.compare_ends(rows, "zarr-s3fs", "zarr-obstore", leads)
    assert falls.centre == pytest.approx(1) and falls.noise == lead.noise


def test_clients_are_ranked_where_no_thread_decides_at_any_size() -> None:
    """A thread that computes for longer than its read is reported to take ranks nothing, unless CPU time counts."""
    lines = [
        {"phase": "measured", "block": block, "contender": name, "control_of": "", "chunk_mb": mb}
        | {
            "open_s": 0.0,
            "read_s": 1.0,
            "thread_s": share,
            "client_s": share,
            "dilation": 5.0,
            "cpus": 0,
            "mb_per_s": 1.0,
        }
        | {"array_nbytes": 8e6, "in_flight": 4.0}
        for (name, mb), share in {
            ("zarr-obstore", 1.0): 0.1,
            ("zarr-obstore", 4.0): 0.2,
            ("zarr-s3fs", 1.0): 0.4,
            ("zarr-s3fs", 4.0): 1.3,
        }.items()
        for block in range(3)
    ]
    rows = pd.DataFrame(lines)
    clients = ["zarr-obstore", "zarr-s3fs", "control-zarr-s3fs"]
    assert findings.can_rank_clients(rows[rows["chunk_mb"] == 1.0], clients)
    assert not findings.can_rank_clients(rows, clients)
    assert findings.can_rank_clients(rows.assign(cpus=4), clients)
    table = findings.tabulate_flight(rows, 4)
    assert table.loc[("zarr-s3fs", 4.0), "busiest thread (%)"] == pytest.approx(130)
    assert table.loc[("zarr-obstore", 1.0), "waves"] == 2
    assert table.loc[("zarr-obstore", 4.0), "waves"] == 0.5


def test_a_store_that_refuses_is_read_all_the_same(server: Server) -> None:
    """Refused requests are asked again and counted, values are compared, other values refused."""
    stored = make_stored(make_location(server, "in-flight"))
    slow = replace(get_profile("loopback"), requests_per_s=20)
    with open_proxy(server.endpoint_url, profile=slow) as proxy:
        testbed = Testbed(stored.location, stored.location.through(proxy.endpoint_url), proxy)
        counts = []
        plans = [(Setting(2, 8), workload.OBSTORE), (Setting(1, 1), workload.OBSTORE)]
        for one, client in [*plans, (Setting(1, 8), "zarr-s3fs-one-get-32")]:
            read = TunedRead(one, stored, testbed, client=client)
            read.prepare()
            threads = {"scheduler": "threads", "num_workers": one.n_threads}
            sums = read.open().compute(**threads)
            counts.append(read.collect())
            assert read.check(sums) == f"xxh3 of {sums.size} chunks"
            if client in workload.POOLS:
                (opened,) = S3FileSystem._cache.values()
                assert opened._s3.meta.config.max_pool_connections == workload.POOLS[client]
            with pytest.raises(CheckError, match="1 of"):
                read.check(np.where(np.arange(sums.size).reshape(sums.shape) == 0, 0, sums))
    assert counts[0]["n_failed_requests"] > 0
    # on a busy machine a client asks again before the proxy has noted the end of its answer
    assert counts[1]["max_in_flight"] < counts[0]["max_in_flight"]


@pytest.mark.parametrize(
    ("values", "where", "value", "allowed"),
    [
        ({"n_threads": [1, 3]}, "n_threads", "^3$", "^at most 2, a step of time for each"),
        ({"n_threads": [1, 1]}, "n_threads", "^1 twice$", "^each number once$"),
        ({"concurrency": []}, "concurrency", "", "^at least 1 in the list$"),
        ({"concurrency": [0]}, "concurrency", "", "."),
        ({"clients": ["curl"]}, "clients", "", "zarr-obstore"),
        ({"client_chunk_shapes": []}, "client_n_chunks", "^1 ", "^0, one for each"),
        (
            {"n_steps": 2, "array_shape": [4, 16, 60, 80]},
            "n_steps",
            "^2$",
            "^0, or from 8, 8 waves of requests for each setting, to 4",
        ),
        ({"n_processes": 0}, "n_processes", "^0$", "^at least 1"),
        (
            {"n_threads": [8], "concurrency": [1024], "array_shape": [8, 16, 60, 80]},
            "concurrency",
            "^1024 in each of 8 threads$",
            "^4096 requests",
        ),
        ({"store": "s3://b/p", "profile": "loopback", "dilation": 2.0}, "dilation", "^2$", "^1"),
    ],
)
def test_bad_parameters_are_one_line(
    values: dict[str, object], where: str, value: str, allowed: str
) -> None:
    """Before anything is written or measured."""
    with refused(f"case: {where}", value, allowed):
        Parameters.check(values, "case")
