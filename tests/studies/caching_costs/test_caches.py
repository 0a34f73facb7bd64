"""Caches of opened datasets: what they return, count, refuse and get over."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import BadSignature, Signer

from helpers.errors import UserError
from helpers.objectstore.testbed import Server
from studies.caching_costs.caches import (
    CACHES,
    SHIPPED_ENVIRONMENT,
    Cache,
    Told,
    dump,
    import_open_zarr,
    open_cache,
    seal,
    unseal,
)
from studies.caching_costs.datasets import (
    VARIABLE,
    Datasets,
    Origin,
    make_dataset,
    open_dataset,
)
from studies.caching_costs.valkey import Valkey, open_valkey
from tests.studies.caching_costs.tiles import WHOLE, make_datasets

KEY = b"0123456789abcdef0123456789abcdef"
ENTRY = "arrays-over-the-wire:single-4mib"


@pytest.fixture(scope="module")
def datasets(server: Server) -> Datasets:
    """Datasets in the store of the tests."""
    return make_datasets(server)


@pytest.fixture
def client(valkey: Valkey) -> Iterator[redis.Redis]:
    """Look into that Redis."""
    with contextlib.closing(redis.Redis.from_url(valkey.url)) as made:
        yield made


Make = Callable[..., Cache]


@pytest.fixture
def make(
    datasets: Datasets, valkey: Valkey, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> Make:
    """Make contenders, empty."""
    for variable, value in SHIPPED_ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    import_open_zarr().cache_clear()
    client.flushdb()
    OPENED.clear()

    def make_one(name: str, **settings: Any) -> Cache:
        origin = Origin(datasets.location, datasets.specs)
        return open_cache(name, origin, Told(KEY, **{"redis_url": valkey.url, **settings}))

    return make_one


OPENED: list[str] = []
"""What was opened, one after the other."""


def get(cache: Cache, datasets: Datasets, name: str = "single-4mib") -> xr.Dataset:
    """Get a dataset from a cache."""
    spec = next(spec for spec in datasets.specs if spec.name == name)

    def open_counted(origin: Origin) -> xr.Dataset:
        OPENED.append(name)
        return open_dataset(spec, origin)

    return cache.get(name, open_counted)


@pytest.mark.parametrize("dataset_name", WHOLE)
@pytest.mark.parametrize("name", CACHES)
def test_each_look_up_is_what_was_written(
    name: str, dataset_name: str, make: Make, datasets: Datasets
) -> None:
    """A dataset from a cache has the values and coordinates that were stored, and is opened once."""
    spec = next(spec for spec in datasets.specs if spec.name == dataset_name)
    written, cache = make_dataset(spec, seed=1), make(name)
    for _ in range(3):
        found = get(cache, datasets, dataset_name)
        np.testing.assert_array_equal(found[VARIABLE], written[VARIABLE])
        np.testing.assert_array_equal(found["lat"], written["lat"])
        assert found["time"].to_numpy() == written["time"].to_numpy()
    if name == "as-shipped":  # which opens by a function that keeps
        assert import_open_zarr().cache_info().hits == (2 if spec.kind == "zarr" else 0)
    else:
        assert len(OPENED) == (3 if name == "none" else 1)


@pytest.mark.parametrize("name", ["lru", "redis"])
def test_a_dataset_is_opened_once_at_a_time(name: str, make: Make, datasets: Datasets) -> None:
    """Of eight requests that come while nothing is kept one opens, and the others wait for it."""
    cache, opened = make(name), []
    spec = next(spec for spec in datasets.specs if spec.name == "single-4mib")

    def open_slowly(origin: Origin) -> xr.Dataset:
        opened.append(origin)
        time.sleep(0.2)
        return open_dataset(spec, origin)

    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda _: cache.get(spec.name, open_slowly), range(8))]
    assert len(opened) == 1
    assert all(one[VARIABLE].shape == found[0][VARIABLE].shape for one in found)


@pytest.mark.parametrize("name", ["lru", "redis"])
def test_entries_live_for_their_time(name: str, make: Make, datasets: Datasets) -> None:
    """After its time an entry is made anew, which is a miss and nothing else."""
    cache = make(name, ttl_s=1.5)
    get(cache, datasets)
    time.sleep(1.6)
    get(cache, datasets)
    assert len(OPENED) == 2


class Writes:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_what_another_wrote_is_made_anew(
    make: Make, datasets: Datasets, client: redis.Redis, tmp_path: Path
) -> None:
    """A bit that was turned, another name, a pickle under another key: no code of others runs."""
    cache = make("redis")
    get(cache, datasets)
    kept: Any = client.get(ENTRY)
    planted = pickle.dumps(Writes(tmp_path / "ran"))
    for entry in (kept[:-1] + bytes([kept[-1] ^ 1]), planted, Signer(b"other").sign(planted), b""):
        client.set(ENTRY, entry)
        OPENED.clear()
        assert get(cache, datasets)[VARIABLE].size and OPENED
    assert not (tmp_path / "ran").exists()


@given(name=st.text(), payload=st.binary(min_size=1), bit=st.integers(0, 7), data=st.data())
def test_a_seal_holds_for_its_name_and_no_bit_more(
    name: str, payload: bytes, bit: int, data: st.DataObject
) -> None:
    """What is sealed is read; under another name or with a bit turned it is not."""
    sealed = seal(name, KEY, xr.Dataset(attrs={"a": payload}))
    origin: Any = None
    assert unseal(name, KEY, sealed, origin).attrs["a"] == payload
    at = data.draw(st.integers(0, len(sealed) - 1))
    turned = sealed[:at] + bytes([sealed[at] ^ 1 << bit]) + sealed[at + 1 :]
    for wrong, where in ((turned, name), (sealed, name + "x")):
        with pytest.raises(BadSignature):
            unseal(where, KEY, wrong, origin)


def test_entries_hold_no_credential(make: Make, datasets: Datasets, client: redis.Redis) -> None:
    """A plain pickle of the same dataset holds the secret key; what is kept does not."""
    cache = make("redis")
    dataset = get(cache, datasets)
    secret = datasets.location.secret_key.encode()
    kept: Any = client.get(ENTRY)
    assert secret in pickle.dumps(dataset) and secret not in kept
    assert all(
        secret not in dump(open_dataset(spec, Origin(datasets.location)))
        for spec in datasets.specs
        if spec.kind == "netcdf"
    )


def test_a_redis_that_fails_is_no_cache_that_is_slow(datasets: Datasets) -> None:
    """Without its server a look-up fails, or the store would be measured under the name of Redis."""
    with open_valkey() as first:
        cache = open_cache("redis", Origin(datasets.location), Told(KEY, first.url))
        get(cache, datasets)
    with pytest.raises(redis.ConnectionError):
        get(cache, datasets)


def test_a_redis_is_nobody_elses(
    make: Make, datasets: Datasets, client: redis.Redis, valkey: Valkey
) -> None:
    """What is left in somebody's Redis says whose it is, and goes by itself; ours has a password."""
    get(make("redis", ttl_s=60), datasets)
    assert 0 < client.ttl(ENTRY) <= 60  # type: ignore[operator]
    stranger = redis.Redis(port=valkey.port)
    with contextlib.closing(stranger), pytest.raises(redis.AuthenticationError):
        stranger.set("a", "b")
    assert valkey.password not in repr(valkey)


@pytest.mark.parametrize("url", ["http://127.0.0.1", "redis://127.0.0.1:1/0"])
def test_no_redis_is_refused(url: str, datasets: Datasets) -> None:
    """One line names the parameter, and no password."""
    with pytest.raises(UserError, match="redis_url: no a"):
        open_cache("redis", Origin(datasets.location), Told(KEY, url))
