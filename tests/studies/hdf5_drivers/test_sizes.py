"""Granules without values stand for real ones, and what is said of lengths follows the numbers."""

from __future__ import annotations

from pathlib import Path

import h5py
import pandas as pd
import pytest

from helpers.models.caches import Read, Reading
from helpers.models.transfer import ClientCosts, Network
from studies.hdf5_drivers import sizes
from studies.hdf5_drivers.drivers import MIB
from studies.hdf5_drivers.files import Granule, write_granule
from studies.hdf5_drivers.findings import (
    DEFAULT,
    ORIGINAL,
    TUNED,
    UNTUNED,
    WHOLE,
    block_cache_nbytes,
)
from studies.hdf5_drivers.prediction import Recorded
from studies.hdf5_drivers.sizes import PAGED, REPACKED, WAYS

COSTS = {"fsspec": ClientCosts(request_s=0.001, start_s=0.1)}
NETWORK = Network(0.03, 0.1, stream_nbytes_per_s=36e6, aggregate_nbytes_per_s=200e6)


def test_a_hollow_granule_is_laid_out_as_a_real_one(tmp_path: Path) -> None:
    """It has the length, the chunks and the requests of the real one, and takes no room on disk."""
    granule, real, hollow = Granule(200_000), tmp_path / "real.h5", tmp_path / "hollow.h5"
    write_granule(granule, real)
    sizes.write_hollow(granule, hollow, sizes.count_stored(real))
    assert hollow.stat().st_size == pytest.approx(real.stat().st_size, rel=0.1)
    assert 512 * hollow.stat().st_blocks < hollow.stat().st_size / 2
    with h5py.File(real) as one, h5py.File(hollow) as other:
        assert one["gt3r/heights/h_ph"].shape == other["gt3r/heights/h_ph"].shape
    found, expected = (sizes.record_sizes(path) for path in (hollow, real))
    for name, layout in WAYS:
        told, wanted = (
            sizes.predict_way(name, each[layout][0], NETWORK, COSTS) for each in (found, expected)
        )
        assert told.n_requests == pytest.approx(wanted.n_requests, abs=1), (name, layout)
        assert told.seconds == pytest.approx(wanted.seconds, rel=0.1), (name, layout)


def test_the_whole_file_comes_in_ranges_at_once() -> None:
    """Ten connections take a tenth of the time of one, where the link lets them."""
    reads, n = Reading((Read(0, 10), Read(790 * MIB, 10), Read(0, 10))), 800 * MIB
    recorded, free = Recorded(reads, 0, n, 0, 0, ()), Network(stream_nbytes_per_s=36e6)
    whole = sizes.predict_way(WHOLE, recorded, free, {"fsspec": ClientCosts()})
    assert (whole.n_requests, whole.nbytes) == (100, n)
    assert whole.seconds == pytest.approx(n / 360e6, rel=0.01)
    tuned = sizes.predict_way(TUNED, recorded, free, {"fsspec": ClientCosts()})
    assert (tuned.n_requests, tuned.nbytes) == (2, 16 * MIB)


def test_gains_are_told_below_and_above_the_cache(tmp_path: Path) -> None:
    """The sentences are of the rows; without a measured case nothing is said of errors."""
    limit, path = block_cache_nbytes(), tmp_path / "sizes.csv"
    seconds = {
        (UNTUNED, ORIGINAL): (8.0, 80.0),
        (DEFAULT, ORIGINAL): (2.0, 40.0),
        (TUNED, ORIGINAL): (2.0, 50.0),
        (WHOLE, ORIGINAL): (0.5, 5.0),
        (TUNED, PAGED): (4.0, 8.0),
        (DEFAULT, REPACKED): (2.0, 20.0),
        (TUNED, REPACKED): (1.0, 4.0),
        (WHOLE, REPACKED): (0.5, 5.0),
    }
    pd.DataFrame(
        [
            {"file_nbytes": nbytes, "driver": way[0], "layout": way[1], "seconds": times[at]}
            | {"nbytes": 2e8 if way[1] == PAGED else (1e8, 4e8)[at]}
            for way, times in seconds.items()
            for at, nbytes in enumerate((limit / 5, limit * 2))
        ]
    ).to_csv(path, index=False)
    text = sizes.render_sizes(path, tmp_path)
    assert "settings alone 4 to 4 of files that fit in the cache, 1.6 to 1.6 of larger" in text
    assert "they were: 2 to 2 of files that fit in the cache, 10 to 10 of larger" in text
    assert "as written, 2 times at 54 MB and 0.5 times at 540 MB" in text
    assert "repack: 8 to 8 of files that fit in the cache, 20 to 20 of larger" in text
    assert "as it is written: 2 to 2 of files that fit in the cache, 10 to 10 of larger" in text
    assert "errs" not in text
    assert "<svg" in sizes.draw_sizes(path, tmp_path)


def test_the_kept_record_reaches_gigabytes() -> None:
    """It has every way below and far above the cache, and stands beside what the cases measured."""
    table = sizes.pivot(pd.read_csv(sizes.RECORD))
    assert [*table] == [*WAYS]
    assert table.notna().all(axis=None)
    assert table.index.min() < block_cache_nbytes() < 6e9 < table.index.max()
    assert "the replay errs by" in sizes.render_sizes()
