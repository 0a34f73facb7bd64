"""Processors slowed down: no more than asked for, waits left alone, nothing left stopped behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.refusals import refused
from wire.bed import machine
from wire.bed.machine import Governor, check_processors, observed, open_governor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what threads compute is in /proc")

# A client says that it is ready, and computes or waits until its standard input ends.
_CLIENT = """
import hashlib, numcodecs, subprocess, sys, threading, time
packed, plain = numcodecs.Zstd().encode(bytes(4_000_000)), bytes(200_000)
def spin():
    while True:
        hashlib.sha256(plain)
def decode():
    while True:
        numcodecs.Zstd().decode(packed)
def rest():
    while True:
        time.sleep(0.02)
def start():
    time.sleep(0.2)
    subprocess.Popen([sys.executable, "-c", "while True: pass"])
def spin_later():
    time.sleep(0.2)
    threading.Thread(target=spin, daemon=True).start()
def end_early():
    until_s = time.perf_counter() + 0.2
    while time.perf_counter() < until_s:
        hashlib.sha256(plain)
def spin_and_end():
    time.sleep(0.2)
    threading.Thread(target=end_early).start()
print("ready", flush=True)
for _ in range({n}):
    threading.Thread(target={what}, daemon=True).start()
sys.stdin.read()
"""
_SECONDS = 2.0
_MOST = 1.1  # over what is asked for: a busy machine may give less, and never more


@pytest.fixture(scope="module")
def one() -> Iterator[Governor]:
    """Start a governor for all tests that leave it alive."""
    with open_governor() as machine:
        yield machine


def start(what: str, n: int = 1) -> subprocess.Popen[bytes]:
    """Start a client."""
    command = [sys.executable, "-c", _CLIENT.format(what=what, n=n)]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdout is not None and client.stdout.readline() == b"ready\n"
    return client


def end(client: subprocess.Popen[bytes]) -> None:
    """End a client with its children."""
    for process in (*psutil.Process(client.pid).children(), client):
        process.kill()
    client.communicate()


@pytest.mark.parametrize(
    ("what", "n_threads", "n_processors", "dilation", "client", "thread"),
    [
        # processors that the client gets of this machine, and its busiest thread of these
        ("spin", 1, 4, 5, 0.2, 0.2),  # more processors do not help one thread
        ("spin", 8, 4, 10, 0.4, 0.1),
        ("decode", 2, 1, 5, 0.2, 0.2),
        ("decode", 2, 4, 5, 0.4, 0.2),
    ],
)
def test_no_more_than_asked_for(  # a line of the table
    one: Governor,
    what: str,
    n_threads: int,
    n_processors: int,
    dilation: float,
    client: float,
    thread: float,
) -> None:
    """A client has n processors, each 1/k as fast, and no thread has more than one of them."""
    process = start(what, n_threads)
    began_s = time.perf_counter()
    with one.slowed([process.pid], n_processors=n_processors, dilation=dilation) as spent:
        time.sleep(_SECONDS)
    took_s = time.perf_counter() - began_s
    end(process)
    assert 0 < spent.client_s <= _MOST * client * took_s
    assert 0 < spent.thread_s <= _MOST * thread * took_s
    assert 0 < spent.stopped_s < took_s


def test_waits_are_not_slowed(one: Governor) -> None:
    """Who waits is stopped only for the little that it computes."""
    process = start("rest")
    with one.slowed([process.pid], n_processors=1, dilation=5) as spent:
        time.sleep(_SECONDS)
    end(process)
    assert spent.stopped_s <= 5 * spent.client_s + 0.05


def test_each_root_is_a_machine_and_some_are_none(one: Governor) -> None:
    """Two machines have a processor each, and a third process is left out of it."""
    first, second, third = clients = [start("spin") for _ in range(3)]
    began_s = time.perf_counter()
    with one.slowed([first.pid, second.pid], [third.pid], n_processors=1, dilation=10) as spent:
        time.sleep(_SECONDS)
        free_s = sum(psutil.Process(third.pid).cpu_times()[:2])
    took_s = time.perf_counter() - began_s
    for client in clients:
        end(client)
    assert 0.1 * _MOST * took_s < spent.client_s <= 0.2 * _MOST * took_s
    assert spent.thread_s <= 0.1 * _MOST * took_s < free_s


def test_what_a_client_starts_later_is_counted(one: Governor) -> None:
    """A child that computes is slowed and counted with its parent."""
    process = start("start")
    began_s = time.perf_counter()
    with one.slowed([process.pid], n_processors=1, dilation=5) as spent:
        time.sleep(2 * _SECONDS)
    took_s = time.perf_counter() - began_s
    end(process)
    # all but what it computed before it was seen
    late_s = 0.2 + 2 * machine._PROCESSES_S
    assert 0.05 * took_s < spent.client_s <= _MOST * 0.2 * took_s + late_s


def test_no_file_stays_open() -> None:
    """A record has hundreds of reads, and a client dozens of threads: each is looked at anew."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with observed([os.getpid()]):
            pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_nothing_is_slowed_where_nothing_is_asked() -> None:
    """What a client computes is counted all the same, its threads and its children."""
    process = start("spin", 2)
    with observed([process.pid]) as spent:
        time.sleep(_SECONDS / 2)
    end(process)
    assert 0 < spent.thread_s < spent.client_s and spent.stopped_s == 0


def test_a_thread_that_starts_later_is_counted() -> None:
    """The busiest thread may be one that a read starts, as a pool made for it does."""
    process = start("spin_later")
    with observed([process.pid]) as spent:
        time.sleep(_SECONDS / 2)
    end(process)
    assert 0.5 * spent.client_s < spent.thread_s <= spent.client_s


def test_a_thread_that_has_ended_is_in_what_the_client_computed() -> None:
    """Nobody can tell its seconds any more: only all those of the client bound them from above."""
    process = start("spin_and_end")
    with observed([process.pid]) as spent:
        time.sleep(_SECONDS / 2)
    end(process)
    assert spent.thread_s < 0.5 * spent.client_s


def wait_until_goes_on(pids: list[int]) -> None:
    """Wait until none of these that are left is stopped."""
    until_s = time.monotonic() + 10

    def is_stopped(pid: int) -> bool:
        return psutil.pid_exists(pid) and psutil.Process(pid).status() == psutil.STATUS_STOPPED

    while any(map(is_stopped, pids)):
        assert time.monotonic() < until_s, "stopped for good"
        time.sleep(0.05)


_OWNER = """
import sys, time
from wire.bed.machine import open_governor
with open_governor() as one, one.slowed([int(sys.argv[1])], n_processors=1, dilation=1000):
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("killed", ["governor", "owner", "client"])
def test_nothing_is_left_stopped(killed: str) -> None:
    """Whoever is killed while the client is stopped, the others go on, and the governor ends."""
    client = start("spin", 2)
    command = [sys.executable, "-c", _OWNER, str(client.pid)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "."})
    assert owner.stdout is not None and owner.stdout.readline() == b"ready\n"
    (one,) = psutil.Process(owner.pid).children()
    helping = [one, *one.children()]
    time.sleep(0.5)  # in which it is stopped
    assert psutil.Process(client.pid).status() == psutil.STATUS_STOPPED
    os.kill({"governor": one.pid, "owner": owner.pid, "client": client.pid}[killed], signal.SIGKILL)
    if killed == "client":
        client.communicate()
        owner.terminate()
    wait_until_goes_on([client.pid])
    owner.kill()
    owner.communicate()
    assert not psutil.wait_procs(helping, timeout=10)[1]
    if killed != "client":
        end(client)


@pytest.mark.parametrize(
    ("platform", "n_machines", "value", "allowed"),
    [
        ("darwin", 1, "^8$", "^none on darwin"),
        ("linux", 1, "are 2 of this machine$", "^at most 1, or a dilation of at least 8$"),
        ("linux", 2, "^8 in each of 2 ", " or a dilation of at least 16$"),
    ],
)
def test_what_cannot_be_given_is_refused(
    monkeypatch: pytest.MonkeyPatch, platform: str, n_machines: int, value: str, allowed: str
) -> None:
    """More processors than are free here, or a system that does not count them, are one line."""
    monkeypatch.setattr(machine.sys, "platform", platform)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: {0, 1})
    with refused("processors", value, allowed):
        check_processors(8, 4, n_machines=n_machines)
    if platform == "linux":
        check_processors(8, 8 * n_machines, n_machines=n_machines)
