"""What the processes of a Dask cluster have in common: certificates, connections, software."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import distributed

from helpers.errors import UserError


class Connection(ssl.SSLSocket):
    """A connection under TLS whose end is not taken for that of the others of its thread.

    After an error of the system, such as a peer that is gone, Python leaves OpenSSL's queue of
    errors as it is, and the next read of a healthy connection takes what it finds there for its
    own error (CPython gh-148594). With OpenSSL 3.5 the scheduler of a cluster so drops its workers as
    they come. Python empties the queue whenever it makes a TLS object.
    """

    def read(self, *arguments: Any) -> Any:
        """Read, and leave no error behind."""
        return self._leave_no_error(super().read, *arguments)

    def send(self, *arguments: Any) -> int:
        """Write, and leave no error behind."""
        return int(self._leave_no_error(super().send, *arguments))

    def do_handshake(self, *arguments: Any) -> None:
        """Agree on keys, and leave no error behind."""
        self._leave_no_error(super().do_handshake, *arguments)

    def _leave_no_error(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except ssl.SSLError:  # also that nothing is there yet; after these Python empties it
            raise
        except OSError:
            empty = ssl.MemoryBIO(), ssl.MemoryBIO()
            self.context.wrap_bio(*empty, server_side=bool(self.server_side))
            raise


class Security(distributed.Security):
    """Certificates of a cluster, whose connections are `Connection`."""

    def _get_tls_context(self, tls: dict[str, Any], purpose: ssl.Purpose) -> Any:
        context = super()._get_tls_context(tls, purpose)  # type: ignore[no-untyped-call]
        if context is not None:
            context.sslsocket_class = Connection
        return context


def make_certificates(folder: Path | None = None) -> Security:
    """Make certificates for one cluster alone; in files of `folder` that their owner alone reads."""
    made = Security.temporary()  # type: ignore[no-untyped-call]
    if folder is None:
        return made  # type: ignore[no-any-return]
    roles = ("client", "scheduler", "worker")
    names = ["tls_ca_file", *(f"tls_{role}_{kind}" for role in roles for kind in ("key", "cert"))]
    for name in names:
        path = folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_text(getattr(made, name))
    files = {name: str(folder / f"{name}.pem") for name in names}
    return Security(require_encryption=True, **files)  # type: ignore[no-untyped-call]


def name_versions() -> str:
    """Name what connections between the processes of a cluster depend on."""
    packages = (f"{name} {version(name)}" for name in ("distributed", "tornado"))
    return ", ".join((f"Python {sys.version.split()[0]}", ssl.OPENSSL_VERSION, *packages))


# Packages whose tasks cross from one process to another, and how many numbers of a version count.
_SAME = {"python": 2, "dask": 3, "distributed": 3, "numpy": 1, "cloudpickle": 1}


def check_versions(found: Mapping[str, Any]) -> None:
    """Refuse a scheduler or worker that runs other software than the client, before it fails midway.

    `found` is what `distributed.Client.get_versions` returns. What else differs stands in each
    row, which names the versions of the workers.
    """
    own = found["client"]["packages"]
    others = {"the scheduler": found["scheduler"], **found["workers"]}
    for where, told in others.items():
        theirs = (told or {}).get("packages", {})
        for name, n in _SAME.items():
            versions = [str(of.get(name)) for of in (own, theirs)]
            if versions[0].split(".")[:n] != versions[1].split(".")[:n]:
                place = where if where == "the scheduler" else "a worker"
                raise UserError(
                    f"cluster: {name} {versions[0]} here, {versions[1]} on {place};"
                    " allowed: the same on client, scheduler and workers, as environment.yml has it"
                )
