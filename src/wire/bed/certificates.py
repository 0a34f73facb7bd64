"""Certificates of an authority that lives as long as its process: for TLS that ends in a relay.

Its own key never leaves memory; that of its hosts lies in a file of mode 600 while OpenSSL reads it,
where there is no memfd. The certificate goes into a bundle that programs are told to trust.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
import ssl
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# From a day ago, for clocks that are late, on; a program that runs for longer is none to trace.
_VALID_DAYS = 30

# One certificate in a file of many, whose comments between are no part of it.
_PEM_BLOCK = re.compile(
    rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----.*?-----END (?:TRUSTED |X509 )?CERTIFICATE-----",
    re.DOTALL,
)

# Each of these names a file of certificates, for the clients that the comment names.
BUNDLE_VARIABLES = (
    "SSL_CERT_FILE",  # Python's ssl, httpx, obstore, Icechunk, TensorStore
    "REQUESTS_CA_BUNDLE",  # requests
    "CURL_CA_BUNDLE",  # requests, curl
    "AWS_CA_BUNDLE",  # botocore, aiobotocore
    "GDAL_CURL_CA_BUNDLE",  # GDAL: rasterio sets certifi's otherwise
    "TILEDB_SSL_CA_FILE",
    "TILEDB_VFS_S3_CA_FILE",
)


class Authority:
    """Sign certificates of hosts, each when it is first asked for."""

    def __init__(self, name: str = "Arrays over the Wire, this run only") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())  # one for all: it costs a ms
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._lock, self._contexts = threading.Lock(), dict[tuple[str, str], ssl.SSLContext]()
        certificate = self._sign(self._name, self._key.public_key(), None)
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)
        """The authority's own certificate."""

    def server_context(self, host: str, pem: str = "", peers: Path | None = None) -> ssl.SSLContext:
        """Return what a server needs to answer in the name of a host; of protocols it offers HTTP/1.1 alone.

        Its certificate stands for another, the host's own, which is written into a folder under the number
        of the one that stands for it.
        """
        with self._lock:
            if (host, pem) not in self._contexts:
                self._contexts[host, pem] = self._make_context(host, pem, peers)
            return self._contexts[host, pem]

    def _make_context(self, host: str, pem: str, peers: Path | None) -> ssl.SSLContext:
        common = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
        leaf = self._sign(common, self._leaf_key.public_key(), host)
        if peers is not None:
            number = leaf.serial_number  # as DER has it, with a zero before a first bit that is set
            length = number.bit_length() // 8 + 1
            (peers / f"{number.to_bytes(length).hex()}.pem").write_text(pem)
        secret = self._leaf_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        with _as_file(leaf.public_bytes(serialization.Encoding.PEM) + secret) as path:
            context.load_cert_chain(path)
        return context

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, host: str | None
    ) -> x509.Certificate:
        """Sign the certificate of a host, or without one that of the authority."""
        is_authority = host is None
        begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        usages = (5, 6) if is_authority else (0,)  # to sign certificates, or data
        issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + datetime.timedelta(days=1 + _VALID_DAYS))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.KeyUsage(*(bit in usages for bit in range(9))), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(issuer_id, critical=False)
        )
        if host is not None:
            names = x509.SubjectAlternativeName([_name_of(host)])
            server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
            builder = builder.add_extension(names, critical=False)
            builder = builder.add_extension(server, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _name_of(host: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(host)


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yield a path of content for as long as OpenSSL reads it, on Linux without touching a disk."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("certificate"), "wb", buffering=0) as file:
            file.write(content)
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as named:  # of mode 600
            named.write(content)
            named.flush()
            yield named.name


def _find_certifi() -> str:
    """Return the path of certifi's file; nothing if it is not installed."""
    certifi = find_spec("certifi")
    origin = certifi.origin if certifi else None
    return os.path.join(os.path.dirname(origin), "cacert.pem") if origin else ""


def find_bundles(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Find the files of certificates that a program trusts: the system's, certifi's and those it is told of."""
    paths = [ssl.get_default_verify_paths().openssl_cafile, _find_certifi()]
    paths += [environment.get(name, "") for name in BUNDLE_VARIABLES]
    return tuple(dict.fromkeys(Path(path).resolve() for path in paths if os.path.isfile(path)))


def find_bundles_of(name: str, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Find the files that stand behind one variable, or behind certifi.

    It is the user's own where there is one, or else the default of the variable's clients, where all
    have the same: each certificate more costs each client that is made some 0.1 ms.
    """
    system = ssl.get_default_verify_paths().openssl_cafile
    defaults = {
        "SSL_CERT_FILE": system,
        "REQUESTS_CA_BUNDLE": _find_certifi(),
        "certifi": _find_certifi(),
    }
    path = environment.get(name, "") or defaults.get(name, "")
    return (Path(path),) if os.path.isfile(path) else find_bundles(environment)


def write_bundle(path: Path, authority: Authority, bundles: Iterable[Path] = ()) -> Path:
    """Write the certificates of files, such as certifi's and the user's own, and of an authority into one file.

    A client parses the file for each context that it makes, so a certificate that several files hold
    is written once: a system and certifi share most of theirs. A file that is not there adds nothing.
    """
    contents = [bundle.read_bytes() for bundle in bundles if bundle.is_file()]
    blocks = [block for content in contents for block in _PEM_BLOCK.findall(content)]
    distinct = {b"".join(block.split()): block for block in (*blocks, authority.pem.strip())}
    path.write_bytes(b"\n".join(distinct.values()) + b"\n")
    return path
