"""Each loader draws every sample once with its values, and requests as many chunks as it must."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from helpers.arrays.stores import StoredArray, prepare_array
from helpers.benchmark.contender import CheckError, Traced
from helpers.registry import list_missing
from studies.loaders import findings
from studies.loaders.loaders import LOADERS, Epoch
from studies.loaders.parameters import Parameters
from studies.loaders.workload import Drawn, LoaderRead, hash_samples, prepare_epoch
from tests.refusals import refused
from tests.stores import make_location, make_sample
from wire.bed.networks import get_profile
from wire.bed.proxy import open_proxy
from wire.bed.testbed import Server, Testbed

N_SAMPLES, SAMPLES_PER_CHUNK = 24, 4
N_CHUNKS = N_SAMPLES // SAMPLES_PER_CHUNK
SETTINGS = {"batch_size": 5, "n_processes": 2, "prefetch_factor": 2, "n_window": 2, "seed": 3}


@dataclass
class Place:
    """An array of samples, and who reads it."""

    stored: StoredArray
    testbed: Testbed
    epoch: Epoch
    hashes: list[int]

    def draw(self, name: str, block: int = 0) -> tuple[Drawn, dict[str, Traced], str]:
        """Draw an epoch by a loader in the steps of a measurement."""
        steps = LoaderRead(name, self.epoch, self.stored, self.testbed, self.hashes)
        steps.enter_block(block)
        steps.prepare()
        drawn = Drawn.consume(steps.open())
        counts = dict(steps.collect())
        return drawn, counts, steps.check(drawn)


@pytest.fixture(scope="module")
def place(server: Server) -> Iterator[Place]:
    """Store 24 samples in six chunks, and serve them through a proxy that counts."""
    location = make_location(server, "loaders")
    stored = prepare_array(
        make_sample((N_SAMPLES, 1, 20, 30)),
        location,
        chunk_shape=(SAMPLES_PER_CHUNK, 1, 20, 30),
        codec="blosc-zstd",
        layouts=("zarr",),
    )
    with ExitStack() as stack:
        proxy = stack.enter_context(
            open_proxy(server.endpoint_url, profile=get_profile("loopback"))
        )
        testbed = Testbed(location, location.through(proxy.endpoint_url), proxy)
        epoch = prepare_epoch(stored, SETTINGS, testbed)
        yield Place(stored, testbed, epoch, hash_samples(stored, epoch))


N_READS = {
    "naive": N_SAMPLES,
    "processes": N_SAMPLES,
    "batch": N_SAMPLES,
    "processes-batch": N_SAMPLES,
    "chunks": N_CHUNKS,
    "cache": N_CHUNKS,
    "cache-filled": 0,
    "xbatcher": N_SAMPLES,
    "xbatcher-threads": N_SAMPLES,
}


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_draws_each_sample_once(name: str, place: Place) -> None:
    """It reads a chunk for each sample, or each chunk once, as its kind has it."""
    if missing := list_missing(LOADERS[name].packages):
        pytest.skip(f"not installed: {', '.join(missing)}")
    drawn, counts, check = place.draw(name)
    assert check == "xxh3 of 24 samples, each once"
    assert drawn.first_batch_s > 0
    if name in N_READS:
        assert counts["n_requests"] == N_READS[name]
    else:  # it reads metadata when it begins
        n_requests = counts["n_requests"]
        assert isinstance(n_requests, int) and N_CHUNKS <= n_requests < N_SAMPLES


@pytest.mark.parametrize("name", ["naive", "chunks"])
def test_orders_are_random_and_differ_between_blocks(name: str, place: Place) -> None:
    """No epoch is in the stored order, and no two blocks have the same."""
    orders = [[*place.draw(name, block)[0].hashes] for block in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]
    assert [*range(N_SAMPLES)] not in orders


def test_a_wrong_or_missing_sample_is_found(place: Place) -> None:
    """A value that differs, a sample that is missing and one that comes twice are errors, and no row."""
    steps = LoaderRead("naive", place.epoch, place.stored, place.testbed, place.hashes)
    whole = Drawn(dict(enumerate(place.hashes)), N_SAMPLES)
    assert steps.check(whole)
    with pytest.raises(CheckError, match="1 of 24 samples differ"):
        steps.check(replace(whole, hashes={**whole.hashes, 7: 0}))
    with pytest.raises(CheckError, match="25 samples, not 24"):
        steps.check(replace(whole, n_samples=N_SAMPLES + 1))


def test_a_loader_whose_package_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line names the loader, and what to install; a batch larger than the array is refused too."""
    lacking = replace(LOADERS["insitubatch"], packages=("no_such_package",))
    monkeypatch.setitem(LOADERS, "insitubatch", lacking)  # type: ignore[arg-type]
    with refused("case: loaders", "'insitubatch' cannot run", "install no_such_package"):
        Parameters.check({"loaders": ["naive", "insitubatch"]}, "case")
    with refused("case: batch_size", "65", "at most 64"):
        Parameters.check({"batch_size": 65}, "case")


def test_gains_and_bytes_of_a_sample() -> None:
    """Twice as fast is a gain of two, and bytes are those of the network over the samples."""
    lines = []
    for block, factor in enumerate((1.0, 1.02, 0.98, 1.01, 0.99)):
        for name, seconds, nbytes in (
            ("naive", 4.0, 8e6),
            ("batch", 2.0, 8e6),
            ("again", 4.0, 8e6),
        ):
            lines.append(
                {
                    "contender": name,
                    "control_of": "naive" if name == "again" else "",
                    "phase": "measured",
                    "block": block,
                    "check": "xxh3 of 16 samples, each once",
                    "read_s": seconds * (factor if name != "again" else factor**2),
                    "open_s": 0.1,
                    "client_s": 1.0,
                    "wire_nbytes": nbytes,
                    "n_requests": 16.0,
                    "cpus": 0.0,
                    "dilation": 1.0,
                    "trace": '{"first_batch_s": 0.5}',
                }
            )  # fmt: skip
    rows = findings.prepare_rows(pd.DataFrame(lines))
    gains = findings.compare_loaders(rows)
    assert [*gains] == ["batch-gain"] and gains["batch-gain"].ratio.centre == pytest.approx(2)
    summary = findings.summarize(rows, samples_per_chunk=4)
    assert summary["naive-samples-per-s"].value == pytest.approx(4, rel=0.03)
    assert summary["batch-mb-per-sample"].value == 0.5
    claims = findings.list_claims(gains, rows)
    assert {key for key, claim in claims.items() if claim.holds} == {
        "batch-gains",
        "batch-reads-as-much",
        "ranks",
    }
    assert 0 < findings.find_noise(rows, "again") < 0.02
    assert np.isnan(findings.find_noise(rows, "nobody"))
