"""The authority of a run: whom its certificates convince, and of what."""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi
import pytest

from wire.bed.certificates import Authority, find_bundles, find_bundles_of, write_bundle


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> str | None:
    """Let a client and a server agree in memory; return the protocol they speak."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(down, up, server_hostname=host)
    far = server.wrap_bio(up, down, server_side=True)
    waiting = [near, far]
    while waiting:
        for side in [*waiting]:
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    return near.selected_alpn_protocol()


@pytest.mark.parametrize(
    "host", ["bucket.s3.eu-west-1.amazonaws.com", "192.0.2.1", "h" * 63 + ".org"]
)
def test_a_bundle_is_what_a_strict_client_needs(host: str, tmp_path: Path) -> None:
    """With the bundle a host is believed and HTTP/1.1 is all that it offers; another host's name is not."""
    authority, other = Authority(), tmp_path / "other.pem"
    other.write_bytes(Authority().pem)
    bundle = write_bundle(tmp_path / "bundle.pem", authority, [other, tmp_path / "none.pem", other])
    assert bundle.read_text().count("BEGIN CERTIFICATE") == 2
    client = ssl.create_default_context(cafile=bundle)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.set_alpn_protocols(["h2", "http/1.1"])
    assert shake_hands(client, authority.server_context(host), host) == "http/1.1"
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, authority.server_context("elsewhere.org"), host)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, Authority().server_context(host), host)
    assert authority.server_context(host) is authority.server_context(host)


def test_a_certificate_of_several_files_is_in_a_bundle_once(tmp_path: Path) -> None:
    """Of two files that share one, as those of a system and certifi do, a client parses it once."""
    shared, first, second, authority = (Authority() for _ in range(4))
    for name, own in (("first", first), ("second", second)):
        content = b"# a comment\n" + shared.pem.replace(b"\n", b"\r\n") + b"# and one\n" + own.pem
        (tmp_path / f"{name}.pem").write_bytes(content)
    others = [tmp_path / "first.pem", tmp_path / "second.pem"]
    bundle = write_bundle(tmp_path / "bundle.pem", authority, others)
    client = ssl.create_default_context(cafile=bundle)
    assert len(client.get_ca_certs()) == bundle.read_text().count("BEGIN CERTIFICATE") == 4
    assert b"comment" not in bundle.read_bytes()
    for server in (shared, first, second, authority):
        assert shake_hands(client, server.server_context("a.org"), "a.org") is None


def test_a_variable_stands_for_what_its_clients_trust_alone(tmp_path: Path) -> None:
    """It is the user's own file, or the clients' default, and where these differ all that are known."""
    own = tmp_path / "own.pem"
    own.write_bytes(Authority().pem)
    environment = {"SSL_CERT_FILE": str(own)}
    assert find_bundles_of("SSL_CERT_FILE", environment) == (own,)
    assert find_bundles_of("certifi", environment) == (Path(certifi.where()),)
    assert find_bundles_of("REQUESTS_CA_BUNDLE", environment) == (Path(certifi.where()),)
    everything = find_bundles(environment)
    assert own.resolve() in everything and len(everything) > 1
    assert find_bundles_of("GDAL_CURL_CA_BUNDLE", environment) == everything
    missing = {"SSL_CERT_FILE": str(tmp_path / "none.pem")}
    assert find_bundles_of("SSL_CERT_FILE", missing) == find_bundles(missing)
