"""Who trusts the gateway: hellos are told apart, and readers of its file are found."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.bed.certificates import Authority
from wire.trace import launch, trust


def say_hello(context: ssl.SSLContext, host: str | None) -> bytes:
    """Return what a context says first."""
    heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(heard, said, server_hostname=host).do_handshake()
    return said.read()


def test_a_context_is_known_by_its_hello() -> None:
    """It is the same each time, and another for another host, ciphers or protocols."""
    usual, other, web = (ssl.create_default_context() for _ in range(3))
    other.set_ciphers("ECDHE+AESGCM")
    web.set_alpn_protocols(["h2", "http/1.1"])
    hellos = [say_hello(usual, "a.example"), say_hello(usual, "a.example"), say_hello(usual, "b.example"), say_hello(other, "a.example"), say_hello(web, "a.example")]  # fmt: skip
    parsed = [hello for hello in map(trust.parse_hello, hellos) if hello is not None]
    assert len(parsed) == 5 and len({hello.fingerprint for hello in parsed}) == 4
    assert parsed[0] == parsed[1]
    assert (parsed[2].server_name, parsed[4].protocols) == ("b.example", (b"h2", b"http/1.1"))


@given(st.binary(max_size=200), st.integers(0, 300))
def test_what_is_no_hello_is_none(noise: bytes, n: int) -> None:
    """Noise, and a hello that is cut short or has noise in it, are parsed or refused, and nothing else."""
    hello = say_hello(ssl.create_default_context(), "a.example")
    assert trust.parse_hello(hello[: min(n, 100)]) is None
    for data in (noise, hello[:n] + noise, hello[:60] + noise + hello[60:]):
        trust.parse_hello(data)


def test_readers_of_a_file_are_found(tmp_path: Path) -> None:
    """Of two processes with the same name of it, the one that has read it trusts it."""
    token, path = "ab" * 8, tmp_path / "file.pem"
    path.write_bytes(b"x" * 100_000)
    readers = trust.BundleReaders(tmp_path, token)
    script = "import sys; sys.stdin.readline(); file = open(sys.argv[1]); print(flush=True); sys.stdin.readline()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with launch._marked(token):
        processes = [
            subprocess.Popen([sys.executable, "-c", script, os.fspath(path)], **pipes)  # type: ignore[call-overload]
            for _ in range(2)
        ]
    first, second = processes
    assert trust.has_mark(first.pid, token) and not trust.has_mark(os.getpid(), token)
    first.stdin.write("\n")
    first.stdin.flush()
    first.stdout.readline()
    assert readers.has_opened(first.pid, {path.name})
    assert not readers.has_opened(second.pid, {path.name})
    assert not readers.has_opened(first.pid, {"other.pem"})
    for process in processes:
        process.communicate("\n\n")


def test_a_server_is_verified_as_the_program_would(tmp_path: Path) -> None:
    """By the files that it named alone, or not at all if it does not."""
    ours, theirs = Authority("one"), Authority("two")
    for name, authority in (("ours", ours), ("theirs", theirs)):
        (tmp_path / f"{name}.pem").write_bytes(authority.pem)
    usual = [tmp_path / "ours.pem"]
    named = trust.Trust((os.fspath(tmp_path / "theirs.pem"),), flags=0)
    for who, server, is_good in (
        (trust.Trust(), ours, True),
        (trust.Trust(), theirs, False),
        (named, theirs, True),
        (named, ours, False),
        (trust.Trust(is_verifying=False), theirs, True),
    ):
        assert shakes_hands(who.make_context(usual), server) == is_good
    with pytest.raises(OSError, match="none"):
        trust.Trust((os.fspath(tmp_path / "none"),), flags=0).make_context(usual)


def shakes_hands(context: ssl.SSLContext, server: Authority) -> bool:
    """Tell whether a client takes the certificate of a server."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(down, up, server_hostname="a.example")
    answering = server.server_context("a.example").wrap_bio(up, down, server_side=True)
    for side in (client, answering, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError:
            return False
    return True
