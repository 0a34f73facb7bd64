"""The relay's own connection to the server: one for each client's."""

from __future__ import annotations

import select
import socket
import time

from helpers.storage.network.heads import BadHead, Head, parse_response
from helpers.storage.network.pipes import Gone, send
from helpers.storage.network.streams import Source, Way

# A server on loopback or in the same site accepts in well under this.
CONNECT_TIMEOUT_S = 10.0


class UpstreamError(ConnectionError):
    """The server gave no answer that could be passed on."""


class Upstream:
    """Hold one connection to the server, opened when first needed.

    Parameters
    ----------
    address : tuple of str and int
        Host and port.

    Attributes
    ----------
    is_spent : bool
        Whether the connection cannot carry another request.
    passed_s : float
        When the last request had been passed on with its body.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._source: Source | None = None
        self.is_spent = False
        self.passed_s = 0.0

    @property
    def url(self) -> str:
        """Where the server is, for messages."""
        return "http://{}:{}".format(*self._address)

    @property
    def open_source(self) -> Source:
        """The connection on which a response is being read."""
        if self._source is None:
            raise UpstreamError("no request is under way")
        return self._source

    def close(self) -> None:
        """Drop the connection, whatever is under way on it."""
        if self._source is not None:
            self._source.sock.close()
            self._source = None

    def open(self) -> Source:
        """Return a connection that is open as far as can be told without using it."""
        if self._source is not None and _is_readable(self._source.sock):
            self.close()  # an idle connection that has something to say says that it is closed
        if self._source is None:
            try:
                sock = socket.create_connection(self._address, CONNECT_TIMEOUT_S)
            except OSError as error:
                raise UpstreamError(str(error)) from error
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._source = Source(sock)
        return self._source

    def ask(self, request: Head, body: Way) -> Head:
        """Pass a request on and return the head of its final response.

        Parameters
        ----------
        request : Head
            Passed on untouched: signatures cover it.
        body : Way
            From the client to this connection.

        Returns
        -------
        Head
            Its body is still to be read.

        Raises
        ------
        UpstreamError
            If the server is gone or answers with what is no response.
        Gone
            If the client is.
        """
        source = self.open()
        try:
            return self._converse(request, body, source)
        except BadHead as error:
            raise UpstreamError(str(error)) from error
        except Gone as error:
            if error.sock is source.sock:
                raise UpstreamError(str(error)) from error
            raise

    def _converse(self, request: Head, body: Way, source: Source) -> Head:
        """Send a request with its body, pass interim responses, return the final one."""
        send(source.sock, request.raw)
        response = None
        if request.expects_continue and not self._is_body_coming(body.source, source):
            response = self._read_response(source, body.source)
        if response is None:
            self._pass_body(request, body)
        else:
            self.is_spent = True  # whether the client still sends its body is open
        self.passed_s = time.perf_counter()
        while response is None:
            response = self._read_response(source, body.source)
        return response

    def _pass_body(self, request: Head, body: Way) -> None:
        """Pass the body of a request on, as far as the server wants it."""
        try:
            body.move_body(request)
        except Gone as error:
            if error.sock is body.source.sock:
                raise
            self.is_spent = True  # it may have answered before it closed: read on

    def _is_body_coming(self, client: Source, source: Source) -> bool:
        """Wait for either side; tell whether the client sends without waiting for a 100."""
        if client.has_kept:
            return True
        readable, _, _ = select.select([client.sock, source.sock], [], [])
        return source.sock not in readable

    def _read_response(self, source: Source, client: Source) -> Head | None:
        """Read one response; an interim one is passed on at once, and None returned."""
        raw = source.read_head()
        if not raw:
            raise Gone(source.sock, "it closed the connection without an answer")
        response = parse_response(raw)
        if response.status >= 200:
            return response
        send(client.sock, raw)
        return None


def _is_readable(sock: socket.socket) -> bool:
    """Tell whether reading would return at once."""
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(0))
