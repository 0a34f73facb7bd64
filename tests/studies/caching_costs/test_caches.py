"""Caches of opened datasets: what they return, count, refuse and get over."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
import redis
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import BadSignature
from obstore.store import MemoryStore

from helpers.errors import UserError
from helpers.objectstore.testbed import Server
from studies.caching_costs import backends
from studies.caching_costs.backends import Valkey, open_valkey
from studies.caching_costs.caches import CACHES, Cache, open_cache
from studies.caching_costs.datasets import (
    VARIABLE,
    Datasets,
    ObjectFile,
    Origin,
    make_dataset,
    open_dataset,
    version_keys,
)
from studies.caching_costs.origins import SHIPPED_ENVIRONMENT, Counts
from tests.studies.caching_costs.tiles import make_datasets

KEY = b"0123456789abcdef0123456789abcdef"
WHOLE = ("single-4mib", "chunked-64mib", "unconsolidated", "chunked-coordinates")
WHOLE += ("netcdf", "references", "references-inlined", "icechunk", "long-axis")


@pytest.fixture(scope="module")
def datasets(server: Server) -> Datasets:
    """Datasets in the store of the tests."""
    return make_datasets(server)


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    """Serve a Redis for these tests."""
    with open_valkey() as running:
        yield running


Make = Callable[..., Cache]


@pytest.fixture
def make(
    datasets: Datasets, valkey: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """Make contenders, empty, on a folder of the test."""
    for variable, value in SHIPPED_ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    with contextlib.ExitStack() as stack:

        def make_one(name: str, **settings: Any) -> Cache:
            cache = open_cache(
                name,
                Origin(datasets.location, version_keys=version_keys(datasets.specs)),
                key=KEY,
                folder=tmp_path / name,
                redis_url=valkey.url,
                **{"n_entries": 2, **settings},
            )
            stack.callback(cache.close)
            cache.clear()
            return cache

        yield make_one


def get(cache: Cache, datasets: Datasets, name: str) -> xr.Dataset:
    spec = next(spec for spec in datasets.specs if spec.name == name)
    return cache.get(name, lambda origin: open_dataset(spec, origin))


@pytest.mark.parametrize("dataset_name", WHOLE)
@pytest.mark.parametrize("name", CACHES)
def test_first_and_second_read_are_what_was_written(
    name: str, dataset_name: str, make: Make, datasets: Datasets
) -> None:
    """A dataset from a cache has the values and coordinates that were stored."""
    spec = next(spec for spec in datasets.specs if spec.name == dataset_name)
    written, cache = make_dataset(spec, seed=1), make(name)
    for _ in range(2):
        found = get(cache, datasets, dataset_name)
        np.testing.assert_array_equal(found[VARIABLE], written[VARIABLE])
        np.testing.assert_array_equal(found["lat"], written["lat"])
        assert found["time"].to_numpy() == written["time"].to_numpy()


@pytest.mark.parametrize(
    ("start", "nbytes"),
    [
        (0, 10),  # inside the first block
        (2**18 - 5, 10),  # over the edge of two blocks
        (2**18, 2**18),  # exactly the second
        (100, 600_000),  # parts of three, and past the end
        (649_990, 100),  # the last bytes
        (700_000, 10),  # nothing
    ],
)
def test_an_object_as_a_file_reads_what_was_asked_for(start: int, nbytes: int) -> None:
    """Bytes from any place are those of the object, fewer at its end."""
    client, content = MemoryStore(), np.random.default_rng(1).bytes(650_000)
    obstore.put(client, "object", content)
    with ObjectFile(client, "object") as file:
        file.seek(start)
        assert file.read(nbytes) == content[start : start + nbytes]
        assert file.tell() == max(start, min(start + nbytes, 650_000))


@pytest.mark.parametrize(
    ("name", "hits", "misses"),
    [
        ("none", 0, 3),  # opens each time
        ("lru", 2, 1),
        ("diskcache", 2, 1),
        ("redis", 2, 1),
    ],
)
def test_hits_and_misses_are_counted(
    name: str, hits: int, misses: int, make: Make, datasets: Datasets
) -> None:
    """Three look-ups of one dataset, and nothing after it was emptied."""
    cache = make(name)
    for _ in range(3):
        get(cache, datasets, "single-4mib")
    assert cache.counts() == Counts(hits=hits, misses=misses)
    cache.clear()
    assert cache.counts() == Counts()
    get(cache, datasets, "single-4mib")
    assert cache.counts() == Counts(misses=1)


@pytest.mark.parametrize("name", ["lru", "redis"])
def test_who_misses_at_once_opens_once(name: str, make: Make, datasets: Datasets) -> None:
    """Of eight who ask while nothing is kept one opens, and the others wait for what it opened."""
    cache, opened = make(name), []
    spec = next(spec for spec in datasets.specs if spec.name == "single-4mib")

    def open_slowly(origin: Origin) -> xr.Dataset:
        opened.append(origin)
        time.sleep(0.2)
        return open_dataset(spec, origin)

    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda _: cache.get(spec.name, open_slowly), range(8))]
    assert len(opened) == 1
    assert cache.counts() == Counts(hits=7, misses=1)
    assert all(one[VARIABLE].shape == found[0][VARIABLE].shape for one in found)


def test_files_are_counted_by_object(make: Make, datasets: Datasets) -> None:
    """The second opening finds every object that the first one fetched."""
    cache = make("filecache")
    get(cache, datasets, "single-4mib")
    first = cache.counts()
    get(cache, datasets, "single-4mib")
    assert cache.counts().misses == first.misses > 0
    assert cache.counts().hits == first.hits + first.hits + first.misses


def test_lru_forgets_what_was_used_longest_ago(make: Make, datasets: Datasets) -> None:
    """Of three datasets in a cache for two, the second one is gone."""
    cache = make("lru")
    for name in ("single-4mib", "chunked-64mib", "single-4mib", "unconsolidated", "single-4mib"):
        get(cache, datasets, name)
    assert cache.counts() == Counts(hits=2, misses=3)
    get(cache, datasets, "chunked-64mib")
    assert cache.counts().misses == 4


def stored(cache: Cache) -> bytes:
    """Return the only entry of a cache that keeps entries."""
    found = cache._backend.get("single-4mib")  # type: ignore[attr-defined]
    assert found is not None
    return bytes(found)


@pytest.mark.parametrize("name", ["diskcache", "redis"])
def test_entries_hold_no_credential(name: str, make: Make, datasets: Datasets) -> None:
    """A plain pickle of the same dataset holds the secret key; what is kept does not."""
    cache = make(name)
    dataset = get(cache, datasets, "single-4mib")
    secret = str(datasets.location.secret_key).encode()
    assert secret in pickle.dumps(dataset)
    assert secret not in stored(cache)


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["diskcache", "redis"])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda sealed: sealed[:-1] + bytes([sealed[-1] ^ 1]),  # one bit of the MAC
        lambda sealed: bytes([sealed[0] ^ 1]) + sealed[1:],  # one bit of the payload
        lambda sealed: sealed[:40],  # cut short
        lambda sealed: b"",  # emptied
    ],
)
def test_corrupted_entry_is_counted_and_made_anew(
    name: str, spoil: Callable[[bytes], bytes], make: Make, datasets: Datasets
) -> None:
    """The reader of a spoilt entry gets the values that were stored, and the next one a hit."""
    cache = make(name)
    expected = get(cache, datasets, "single-4mib")[VARIABLE].to_numpy()
    cache._backend.put("single-4mib", spoil(stored(cache)))  # type: ignore[attr-defined]
    np.testing.assert_array_equal(get(cache, datasets, "single-4mib")[VARIABLE], expected)
    assert cache.counts() == Counts(misses=2, corrupt=1)
    get(cache, datasets, "single-4mib")
    assert cache.counts().hits == 1


@pytest.mark.parametrize("name", ["diskcache", "redis"])
def test_entry_of_another_does_not_run(
    name: str, make: Make, datasets: Datasets, tmp_path: Path
) -> None:
    """Whoever writes a pickle into the cache, signed by a key of their own, runs nothing."""
    cache, mark = make(name), tmp_path / "ran"
    foreign = backends.signer("single-4mib", b"another key of 16").sign(pickle.dumps(Bomb(mark)))
    cache._backend.put("single-4mib", foreign)  # type: ignore[attr-defined]
    get(cache, datasets, "single-4mib")
    assert not mark.exists()
    assert cache.counts() == Counts(misses=1, corrupt=1)


def test_diskcache_loads_no_pickle_of_its_own(
    make: Make, datasets: Datasets, tmp_path: Path
) -> None:
    """A row marked as pickle in the database, which diskcache would load unasked, is refused."""
    cache, mark = make("diskcache"), tmp_path / "ran"
    get(cache, datasets, "single-4mib")
    with contextlib.closing(sqlite3.connect(tmp_path / "diskcache" / "cache.db")) as database:
        bomb = pickle.dumps(Bomb(mark))
        database.execute("UPDATE Cache SET mode = 4, filename = NULL, value = ?", (bomb,))
        database.commit()
    get(cache, datasets, "single-4mib")
    assert not mark.exists()
    assert cache.counts() == Counts(misses=2, corrupt=1)


def test_corrupted_file_is_counted_and_fetched_again(
    make: Make, datasets: Datasets, tmp_path: Path
) -> None:
    """A bit of every cached file is turned; the values are still those that were stored."""
    cache = make("filecache")
    expected = get(cache, datasets, "single-4mib")[VARIABLE].to_numpy()
    n_objects = cache.counts().misses
    for path in (tmp_path / "filecache").rglob("*"):
        if path.is_file() and path.name not in ("cache", "mac"):
            content = path.read_bytes()
            path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    np.testing.assert_array_equal(get(cache, datasets, "single-4mib")[VARIABLE], expected)
    assert cache.counts().corrupt == n_objects
    assert cache.counts().misses == 2 * n_objects


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Let the kernel refuse every write to a file of this process, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("name", ["diskcache", "filecache"])
def test_full_disk_costs_no_dataset(name: str, make: Make, datasets: Datasets) -> None:
    """While nothing can be written the store is read, each failure counted; then it is kept."""
    cache = make(name)
    spec = next(spec for spec in datasets.specs if spec.name == "single-4mib")
    with full_disk():
        found = get(cache, datasets, "single-4mib")[VARIABLE].to_numpy()
    np.testing.assert_array_equal(found, make_dataset(spec, seed=1)[VARIABLE])
    assert cache.counts().errors > 0
    get(cache, datasets, "single-4mib")
    before = cache.counts()
    get(cache, datasets, "single-4mib")
    assert cache.counts().hits > before.hits
    assert cache.counts().errors == before.errors


def test_redis_may_go_and_come_back(
    datasets: Datasets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its server each look-up is an error and a miss; with it again, hits."""
    monkeypatch.setattr(backends, "_REST_S", 0.0)
    with open_valkey() as first:
        cache = open_cache(
            "redis", Origin(datasets.location), key=KEY, folder=tmp_path, redis_url=first.url
        )
        get(cache, datasets, "single-4mib")
    get(cache, datasets, "single-4mib")
    assert cache.counts() == Counts(misses=2, errors=2)  # neither read nor written
    with open_valkey(port=first.port, password=first.password):
        for _ in range(2):
            get(cache, datasets, "single-4mib")
        assert cache.counts() == Counts(hits=1, misses=3, errors=2)
        cache.close()


def test_redis_that_hangs_is_left_alone_for_a_while(
    datasets: Datasets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look-up waits for a server that does not answer; the others do not, and it is asked again."""
    with open_valkey() as running:
        cache = open_cache(
            "redis", Origin(datasets.location), key=KEY, folder=tmp_path, redis_url=running.url
        )
        client = cache._backend._client  # type: ignore[attr-defined]
        asked: list[str] = []
        send = client.execute_command
        monkeypatch.setattr(
            client, "execute_command", lambda *a, **k: (asked.append(a[0]), send(*a, **k))[1]
        )
        os.kill(running.child.pid, signal.SIGSTOP)
        try:
            for _ in range(3):
                get(cache, datasets, "single-4mib")
            assert asked == ["GET"]
            assert cache.counts() == Counts(misses=3, errors=6)
            monkeypatch.setattr(backends, "_REST_S", 0.0)
            cache._backend._asleep_until = 0.0  # type: ignore[attr-defined]
            get(cache, datasets, "single-4mib")
            assert asked[1:] == ["GET", "SET"]
        finally:
            os.kill(running.child.pid, signal.SIGCONT)
        for _ in range(2):
            get(cache, datasets, "single-4mib")
        assert cache.counts().hits == 1
        cache.close()


def test_keys_in_redis_are_prefixed_and_expire(datasets: Datasets, tmp_path: Path) -> None:
    """What is left in somebody's Redis says whose it is, and goes by itself."""
    with open_valkey() as running, contextlib.closing(redis.Redis.from_url(running.url)) as client:
        cache = open_cache(
            "redis",
            Origin(datasets.location),
            key=KEY,
            folder=tmp_path,
            redis_url=running.url,
            ttl_s=60,
        )
        get(cache, datasets, "single-4mib")
        (name,) = client.keys()
        assert name.startswith(b"arrays-over-the-wire:")
        assert 0 < client.ttl(name) <= 60
        cache.close()


@pytest.mark.parametrize("name", ["lru", "diskcache", "filecache", "redis"])
def test_entries_live_as_long_as_they_are_told(name: str, make: Make, datasets: Datasets) -> None:
    """After its time an entry is made anew, which is a miss and nothing else."""
    cache = make(name, ttl_s=1.5)
    get(cache, datasets, "single-4mib")
    first = cache.counts()
    time.sleep(1.6)
    get(cache, datasets, "single-4mib")
    assert cache.counts() == Counts(hits=2 * first.hits, misses=2 * first.misses)


def test_redis_keeps_what_others_have_there(make: Make, datasets: Datasets, valkey: Valkey) -> None:
    """Emptying the cache deletes its own entries alone."""
    with contextlib.closing(redis.Redis.from_url(valkey.url)) as client:
        client.set("of others", "kept")
        cache = make("redis")
        get(cache, datasets, "single-4mib")
        cache.clear()
        assert client.keys() == [b"of others"]
        client.delete("of others")


def test_our_redis_asks_for_its_password(valkey: Valkey) -> None:
    """Another user of this machine cannot read or write it, nor see the password in its name."""
    stranger = redis.Redis(port=valkey.port)
    with contextlib.closing(stranger), pytest.raises(redis.AuthenticationError):
        stranger.set("a", "b")
    assert valkey.password not in repr(valkey)


@pytest.mark.parametrize(
    ("given_", "named"),
    [
        ({"name": "memcached"}, "caches: 'memcached'"),  # unknown contender
        ({"key": b"short"}, "key: 5 bytes"),
        ({"name": "redis", "redis_url": "http://127.0.0.1"}, "redis_url"),  # no such scheme
        ({"name": "redis", "redis_url": "redis://127.0.0.1:1/0"}, "redis_url"),  # nobody there
        ({"name": "diskcache", "folder": Path("/proc/none")}, "folder"),  # cannot be made
    ],
)
def test_bad_input_is_refused(
    given_: dict[str, Any], named: str, datasets: Datasets, tmp_path: Path
) -> None:
    """One line names what is wrong."""
    arguments: dict[str, Any] = {"name": "none", "key": KEY, "folder": tmp_path} | given_
    with pytest.raises(UserError, match=named) as caught:
        open_cache(arguments.pop("name"), Origin(datasets.location), **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["diskcache", "filecache"])
def test_folder_that_others_may_write_to_is_refused(
    name: str, datasets: Datasets, tmp_path: Path
) -> None:
    """Who can write to the folder could plant a database of their own."""
    tmp_path.chmod(0o777)
    with pytest.raises(UserError, match="others may write"):
        open_cache(name, Origin(datasets.location), key=KEY, folder=tmp_path)


@given(payload=st.binary(), name=st.text(), other=st.text(), place=st.integers(min_value=0))
def test_seal_holds_for_its_name_and_no_bit_more(
    payload: bytes, name: str, other: str, place: int
) -> None:
    """What is sealed comes back; under another name or with a bit turned it does not."""
    sealed = backends.signer(name, KEY).sign(payload)
    assert backends.signer(name, KEY).unsign(sealed) == payload
    turned = bytearray(sealed)
    turned[place % len(sealed)] ^= 1
    with pytest.raises(BadSignature):
        backends.signer(name, KEY).unsign(bytes(turned))
    if other != name:
        with pytest.raises(BadSignature):
            backends.signer(other, KEY).unsign(sealed)


# entries that are spoilt


def _lists(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("cache") if path.is_file()]
    assert found
    return found


def _write_all(text: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for path in _lists(folder):
            path.write_text(text)

    return spoil


def _change_all(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for path in _lists(folder):
            listed = json.loads(path.read_text())
            path.write_text(json.dumps({key: change(entry) for key, entry in listed.items()}))

    return spoil


def _pickle_all(folder: Path) -> None:
    for path in _lists(folder):
        path.write_bytes(pickle.dumps(Bomb(folder.parent / "ran")))


def _lose_data(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("cache", "mac"):
            path.unlink()


def _change_unsigned(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.name == "mac":
            path.unlink()
        elif path.is_file() and path.name != "cache":
            path.write_bytes(b"of another" + path.read_bytes())


def _link_outside(folder: Path) -> None:
    for path in list(folder.iterdir()):
        outside = folder.parent / f"outside-{path.name}"
        path.rename(outside)
        path.symlink_to(outside)


SPOILT_LISTS = {
    "list": _write_all("[]"),
    "null": _write_all("null"),
    "number": _write_all("1"),
    "empty": _write_all(""),
    "no entry": _write_all("{}"),
    "deep": _write_all("[" * 100_000),
    "no fields": _change_all(lambda _: {}),
    "null entry": _change_all(lambda _: None),
    "no file name": _change_all(lambda e: {k: v for k, v in e.items() if k != "fn"}),
    "no time": _change_all(lambda e: {k: v for k, v in e.items() if k not in ("time", "blocks")}),
    "odd name": _change_all(lambda e: e | {"fn": 3}),
    "a file elsewhere": _change_all(lambda e: e | {"fn": "../../kept"}),
    "a file by its full path": _change_all(lambda e: e | {"fn": "/etc/hostname"}),
    "pickle": _pickle_all,
    "data gone": _lose_data,
    "data of another, and no MAC": _change_unsigned,
    "folder elsewhere": _link_outside,
}


@pytest.mark.parametrize("spoil", SPOILT_LISTS.values(), ids=SPOILT_LISTS)
def test_spoilt_list_of_files_is_counted_and_fetched_again(
    spoil: Callable[[Path], None], make: Make, datasets: Datasets, tmp_path: Path
) -> None:
    """Whatever is wrong beside a cached file costs a fetch, and touches nothing elsewhere."""
    cache = make("filecache")
    expected = get(cache, datasets, "single-4mib")[VARIABLE].to_numpy()
    n_objects = cache.counts().misses
    (tmp_path / "kept").write_bytes(b"kept")
    spoil(tmp_path / "filecache")
    outside = {
        path: path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and "filecache" not in path.parts
    }
    for _ in range(2):
        found = get(cache, datasets, "single-4mib")[VARIABLE].to_numpy()
        np.testing.assert_array_equal(found, expected)
    assert cache.counts() == Counts(
        misses=2 * n_objects, corrupt=n_objects, hits=cache.counts().hits
    )
    assert all(path.read_bytes() == content for path, content in outside.items())
    assert not (tmp_path / "ran").exists()


def test_absent_objects_leave_nothing(make: Make, tmp_path: Path) -> None:
    """What is not in the store is no entry, and no spoilt one when asked for again."""
    cache = make("filecache")
    origin = cache._origin  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            origin.read_object("maps/nothing")
    assert cache.counts() == Counts()
    assert list((tmp_path / "filecache").iterdir()) == []


VICTIM = "UPDATE Cache SET filename = '{}'"
SPOILT_ROWS = {
    "file gone": "",
    "no file name": "UPDATE Cache SET filename = NULL",
    "a file above": VICTIM.format("../elsewhere/victim"),
    "a file below and above": VICTIM.format("aa/../../elsewhere/victim"),
    "a file by its full path": VICTIM.format("{victim}"),
    "a link": VICTIM.format("ab/cd/0123456789abcdef0123456789ab.val"),
    "odd mode": "UPDATE Cache SET mode = 9",
    "text": "UPDATE Cache SET mode = 3",
    "a number": "UPDATE Cache SET mode = 1, filename = NULL, value = 3",
    "a file name of bytes": "UPDATE Cache SET filename = X'FF00'",
}


@pytest.mark.parametrize("statement", SPOILT_ROWS.values(), ids=SPOILT_ROWS)
@pytest.mark.parametrize("is_emptied", [False, True])
def test_spoilt_row_is_counted_and_made_anew(
    statement: str, is_emptied: bool, make: Make, datasets: Datasets, tmp_path: Path
) -> None:
    """A row that does not lead to its own file costs an opening, and deletes no file of others."""
    cache, folder = make("diskcache"), tmp_path / "diskcache"
    disk = cache._backend._cache.disk  # type: ignore[attr-defined]
    disk.min_file_size = 0  # so that entries are files, as large ones are
    expected = get(cache, datasets, "single-4mib")[VARIABLE].to_numpy()
    victim = tmp_path / "elsewhere" / "victim"
    victim.parent.mkdir()
    victim.write_bytes(b"of others")
    if not statement:
        for path in folder.rglob("*.val"):
            path.unlink()
    (folder / "ab" / "cd").mkdir(parents=True)
    (folder / "ab" / "cd" / "0123456789abcdef0123456789ab.val").symlink_to(victim)
    with contextlib.closing(sqlite3.connect(folder / "cache.db")) as database:
        database.execute(statement.format(victim=victim))
        database.commit()
    if is_emptied:
        cache.clear()
    else:
        np.testing.assert_array_equal(get(cache, datasets, "single-4mib")[VARIABLE], expected)
        assert cache.counts() == Counts(misses=2, corrupt=1)
        get(cache, datasets, "single-4mib")
        assert cache.counts() == Counts(hits=1, misses=2, corrupt=1)
    assert victim.read_bytes() == b"of others"


def test_odd_value_in_redis_is_counted_and_made_anew(
    make: Make, datasets: Datasets, valkey: Valkey
) -> None:
    """A list under the name of an entry is a spoilt entry, not a server that fails."""
    cache = make("redis")
    get(cache, datasets, "single-4mib")
    with contextlib.closing(redis.Redis.from_url(valkey.url)) as client:
        (name,) = client.keys()
        client.delete(name)
        client.rpush(name, "a", "b")
    for _ in range(2):
        get(cache, datasets, "single-4mib")
    assert cache.counts() == Counts(hits=1, misses=2, corrupt=1)
