"""Stores behind TLS, whose certificates are of an authority of their own and whose names lead nowhere else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from helpers.netem.certificates import Authority
from tests.stores import Ranges


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for sock in (source, sink):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def end_tls(authority: Authority, host: str, target: tuple[str, int]) -> Iterator[tuple[str, int]]:
    """Stand before a plain server with the certificate of a host; yield where."""
    context = authority.server_context(host)

    def serve(sock: socket.socket) -> None:
        with (
            suppress(OSError),
            context.wrap_socket(sock, server_side=True) as client,
            socket.create_connection(target) as server,
        ):
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=pump, args=(server, client), daemon=True)
            back.start()
            pump(client, server)
            back.join()

    def accept() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                threading.Thread(target=serve, args=(sock,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)


class Objects(Ranges):
    """A web server of files that names them as stores of objects do."""

    def end_headers(self) -> None:
        """Send what a cache asks for, too."""
        self.send_header("Last-Modified", "Wed, 25 Nov 2026 12:00:00 GMT")
        self.send_header("ETag", f'"{abs(hash(self.path.partition("?")[0]))}"')
        super().end_headers()
