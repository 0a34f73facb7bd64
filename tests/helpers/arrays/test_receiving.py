"""Objects received into memory that is used again: over a sound network, a failing one, and through obstore."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import obstore
import pytest
import xxhash

from helpers.arrays import receiving
from helpers.arrays.direct import open_direct
from helpers.arrays.receiving import Receiver
from helpers.netem.profiles import Faults, Profile
from helpers.netem.proxy import open_proxy
from helpers.objectstore.testbed import Server, Testbed
from tests.stores import make_location, make_stored

CONTENT = bytes(range(256)) * 4000
SOUND = Profile("sound")


def receive(receiver: Receiver, key: str, buffer: bytearray | None = None) -> bytes:
    """Receive what is there, and copy it."""
    found = receiver.receive(key, bytearray() if buffer is None else buffer)
    assert found is not None
    return bytes(found)


@pytest.fixture(scope="module")
def testbed(server: Server) -> Iterator[Testbed]:
    """Put a proxy that can fail before the store of the tests, and an object behind it."""
    near = make_location(server, "receiving")
    obstore.put(near.obstore(), "one", CONTENT)
    obstore.put(near.obstore(), "small", b"small")
    with open_proxy(server.endpoint_url, profile=SOUND) as proxy:
        yield Testbed(near, near.through(proxy.endpoint_url), proxy)


@pytest.fixture
def receiver(testbed: Testbed) -> Receiver:
    """Receive over a sound network, with an empty trace."""
    testbed.emulate(SOUND)
    testbed.take_trace()
    return Receiver(testbed.far.obstore())


def test_objects_come_into_the_memory_that_is_given(testbed: Testbed, receiver: Receiver) -> None:
    """One connection brings them all, and a buffer that is long enough is not made anew."""
    buffer = bytearray()
    for key, content in {"one": CONTENT, "small": b"small"}.items():
        found = receiver.receive(key, buffer)
        assert found is not None and found.obj is buffer and found == content
        found.release()
    assert len(buffer) == len(CONTENT)
    trace = testbed.take_trace()
    assert [one.status for one in trace] == [200, 200]
    assert [one.is_first for one in trace] == [True, False]


def test_what_is_not_there_is_nothing(receiver: Receiver) -> None:
    """As a chunk of fill is not; the next object comes all the same."""
    assert receiver.receive("none", bytearray()) is None
    assert receive(receiver, "small") == b"small"


@pytest.mark.parametrize("fault", ["error_503", "reset", "truncate"])
def test_a_request_that_fails_is_asked_again(
    testbed: Testbed, receiver: Receiver, fault: str
) -> None:
    """By obstore, which waits and repeats; never half an object."""
    rates: dict[str, Any] = {fault: 0.5}
    testbed.emulate(Profile("faulty", faults=Faults(**rates)))
    for _ in range(8):
        assert receive(receiver, "one") == CONTENT
    failed = [one for one in testbed.take_trace() if one.status != 200 or one.is_cut]
    assert failed, "or nothing was tried"


def test_silence_is_not_waited_out(
    testbed: Testbed, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection on which nothing comes any more is given up."""
    monkeypatch.setattr(receiving, "_SILENCE_S", 0.3)
    testbed.emulate(Profile("silent", faults=Faults(stall=1, stall_s=1.0)))
    assert receive(receiver, "one") == CONTENT
    assert len(testbed.take_trace()) == 2


def test_a_connection_that_was_closed_meanwhile(testbed: Testbed, server: Server) -> None:
    """Its object comes through obstore, and those after it over a new connection."""
    with open_proxy(server.endpoint_url, profile=SOUND) as proxy:
        receiver = Receiver(testbed.near.through(proxy.endpoint_url).obstore())
        assert receive(receiver, "small") == b"small"
        for connection in receiver._idle:
            connection.sock.close()
        assert [receive(receiver, "small") for _ in range(2)] == [b"small"] * 2


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy"])
def test_a_proxy_is_left_to_obstore(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Which reads the same variables, and knows how to speak to it."""
    monkeypatch.setenv(name, "http://192.0.2.1:9")
    assert receive(receiver, "small", buffer := bytearray()) == b"small" and not buffer


def test_what_is_not_signed_is_left_to_obstore(testbed: Testbed, tmp_path: Any) -> None:
    """A store in memory, one on disk, and one that is read anonymously have nothing to sign."""
    disk = obstore.store.LocalStore(tmp_path)
    for store in (obstore.store.MemoryStore(), disk):
        obstore.put(store, "small", b"small")
        assert receive(Receiver(store), "small", buffer := bytearray()) == b"small" and not buffer
    anonymous = obstore.store.S3Store("b", region="us-east-1", skip_signature=True)
    assert not Receiver(anonymous)._is_plain


def test_it_goes_to_other_processes(receiver: Receiver) -> None:
    """As a Dask graph takes it, without its connections."""
    receive(receiver, "small")
    there = pickle.loads(pickle.dumps(receiver))
    assert not there._idle and receive(there, "small") == b"small"


def test_an_array_is_read_while_requests_fail(testbed: Testbed) -> None:
    """Many threads, few buffers, chunks of different lengths: every value is right."""
    stored = make_stored(testbed.near, layouts=("zarr",))
    far = stored.seen_from(testbed.far).at("zarr")
    array = open_direct(far.obstore(), stored.variable, n_requests=3)
    bounds = [(0, n) for n in stored.shape]
    expected = array.read(bounds).copy()
    testbed.emulate(Profile("faulty", faults=Faults(reset=0.2, truncate=0.2)))
    np.testing.assert_array_equal(array.read(bounds), expected)
    testbed.emulate(SOUND)
    store = stored.at("zarr").obstore()
    held = {key: bytes(obstore.get(store, key).bytes()) for key in array.receive(bounds)}
    assert len(held) == stored.n_chunks
    assert array.receive(bounds) == {
        key: xxhash.xxh3_64_intdigest(content) for key, content in held.items()
    }
