"""One client's connection: its requests one after the other, a row for each."""

from __future__ import annotations

import socket
import time

from helpers.storage.network.exchange import CutShort, Exchange, RowMeter, refuse
from helpers.storage.network.heads import BadHead, Head, key_of, parse_request, range_of
from helpers.storage.network.imposed import Network
from helpers.storage.network.pipes import Gone, Pipe
from helpers.storage.network.streams import Source
from helpers.storage.network.trace import Draft
from helpers.storage.network.upstream import Upstream


class Connection:
    """Serve one client's connection until either side ends it.

    Parameters
    ----------
    network : Network
        What is imposed, and the trace.
    sock : socket.socket
        The accepted connection.
    number : int
        Its number in the trace.
    """

    def __init__(self, network: Network, sock: socket.socket, number: int) -> None:
        self._network = network
        self._client = Source(sock)
        self._number = number
        self._upstream = Upstream(network.address)
        self._pipe = Pipe(is_spliced=network.is_spliced)

    def serve(self) -> None:
        """Serve requests, then close both sides."""
        try:
            while self._serve_one():
                pass
        except (Gone, CutShort):
            pass  # how connections end: the row of a request under way is written by now
        finally:
            self._upstream.close()
            self._client.sock.close()
            self._pipe.close()

    def _serve_one(self) -> bool:
        """Serve one request and write its row; tell whether the connection goes on."""
        try:
            raw = self._client.read_head()
            draft = Draft(time.perf_counter(), self._number)
            request = parse_request(raw) if raw else None
        except BadHead as error:
            return self._refuse(str(error))
        if request is None:
            return False
        try:
            return self._exchange(request, draft).serve()
        finally:
            self._network.trace.add(draft)

    def _refuse(self, reason: str) -> bool:
        """Answer 400 to what is no request, of which the row says nothing else."""
        draft = Draft(time.perf_counter(), self._number)
        try:
            return refuse(self._client, RowMeter(self._network.trace, draft), 400, reason)
        finally:
            self._network.trace.add(draft)

    def _exchange(self, request: Head, draft: Draft) -> Exchange:
        """Join a request to the terms of its arrival."""
        terms = self._network.admit(draft.start_s)
        draft.tag = terms.tag
        draft.method = request.first[0].decode("ascii")
        draft.key = key_of(request.first[1])
        draft.range_start, draft.range_nbytes = range_of(request, None)
        meter = RowMeter(self._network.trace, draft)
        return Exchange(self._client, self._upstream, self._pipe, request, terms, meter)
