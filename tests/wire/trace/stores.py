"""Stores behind TLS, whose certificates are of an authority of their own and whose names lead nowhere else."""

from __future__ import annotations

import os
import socket
import threading
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.stores import Handler, Ranges, serve
from wire.bed.certificates import Authority, write_bundle

SECRET = "hunter2-of-the-tests"


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for sock in (source, sink):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def open_hosts(bundle: Path, targets: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Be the proxy of a user who logs in, behind which plain servers are hosts with TLS; yield the variables."""
    authority = Authority("another")
    write_bundle(bundle, authority)

    class Hosts(Handler):
        def do_CONNECT(self) -> None:
            """Answer in the name of the host, and pass on what comes."""
            self.close_connection = True
            host = self.path.partition(":")[0]
            login = b64decode(self.headers.get("Proxy-Authorization", "Basic ")[6:]).decode()
            self.answer(200 if login == f"user:{SECRET}" else 407)
            target, context = urlsplit(targets[host]), authority.server_context(host)
            with (
                suppress(OSError),
                context.wrap_socket(self.connection, server_side=True) as client,
                socket.create_connection((str(target.hostname), target.port or 80)) as server,
            ):
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = threading.Thread(target=pump, args=(server, client), daemon=True)
                back.start()
                pump(client, server)
                back.join()

    with serve(Hosts) as url:
        proxy = url.replace("//", f"//user:{SECRET}@")
        trusted = dict.fromkeys(("SSL_CERT_FILE", "AWS_CA_BUNDLE", "OTHER"), os.fspath(bundle))
        yield {"HTTPS_PROXY": proxy, "NO_PROXY": "127.0.0.1", **trusted}


class Objects(Ranges):
    """A web server of files that names them as stores of objects do."""

    def end_headers(self) -> None:
        """Send what a cache asks for, too."""
        self.send_header("Last-Modified", "Wed, 25 Nov 2026 12:00:00 GMT")
        self.send_header("ETag", f'"{abs(hash(self.path.partition("?")[0]))}"')
        super().end_headers()
