"""The proxy's process: `python -m helpers.netem.proxy_process HOST PORT SEED DILATION OWNER_PID`.

It prints the port it listens on, then answers each line of its standard input,
a JSON list of a command and its arguments, with a line of JSON on its standard
output. It ends with its owner: at the end of its standard input, which comes
however the owner ended, or when its parent is another process than its owner.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from helpers.netem.exchange import CutShort, Exchange, Network, RowMeter, Upstream, refuse
from helpers.netem.http import BadHead, Head, key_of, parse_request, range_of
from helpers.netem.profiles import Profile
from helpers.netem.shaping import VirtualTime, Window
from helpers.netem.streams import Gone, Pipe, Source
from helpers.netem.trace import Draft


class Connection:
    """Serve one client's connection until either side ends it."""

    def __init__(self, network: Network, sock: socket.socket, number: int) -> None:
        self._network = network
        self._client = Source(sock)
        self._number = number  # in the trace
        self._accepted_s = network.time.now_s()
        self._is_new = True  # until its first request
        self._window = Window()
        self._worker: int | None = None  # looked up when first needed
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
            draft = self._draft(is_set_up=bool(raw))
            request = parse_request(raw) if raw else None
        except BadHead as error:
            return self._refuse(str(error))
        if request is None:
            return False
        try:
            return self._exchange(request, draft).serve()
        finally:
            self._network.trace.add(draft)

    def _draft(self, *, is_set_up: bool) -> Draft:
        """Begin the row of a request, which has arrived once its connection has been set up.

        A client that opened it earlier than it asked has waited for a part of that already.
        """
        is_first, self._is_new = self._is_new, False
        if is_first and is_set_up:
            self._network.set_up(self._accepted_s)
        return Draft(self._network.time.now_s(), self._number, is_first)

    def _refuse(self, reason: str) -> bool:
        """Answer 400 to what is no request, of which the row says nothing else."""
        draft = Draft(self._network.time.now_s(), self._number, self._is_new)
        try:
            return refuse(self._client, RowMeter(self._network.trace, draft), 400, reason)
        finally:
            self._network.trace.add(draft)

    def _find_worker(self) -> int:
        """Return the number of the process at the other end."""
        if self._worker is None:
            self._worker = self._network.workers.number_of(self._client.sock)
        return self._worker

    def _exchange(self, request: Head, draft: Draft) -> Exchange:
        """Join a request to the terms of its arrival."""
        terms = self._network.admit(draft.start_s)
        if terms.link.profile.worker_mb_per_s is not None:
            terms = replace(terms, worker=self._find_worker())
        draft.tag, draft.worker = terms.tag, terms.worker
        draft.method = request.first[0].decode("ascii")
        draft.key = key_of(request.first[1])
        draft.range_start, draft.range_nbytes = range_of(request, None)
        meter = RowMeter(self._network.trace, draft)
        ends = self._client, self._upstream, self._pipe
        return Exchange(*ends, request, terms, meter, self._window)


# Bytes that may lie between the proxy and a client that is not reading (the
# kernel doubles it). Unbounded, it would grow to 4 MB, and a client that
# decodes one chunk would find the next one fetched at memory speed; much less,
# and each send would wait for the client to be scheduled.
SEND_BUFFER_NBYTES = 1 << 18

# How often the owner is looked for, should another process hold its pipe open.
OWNER_CHECK_S = 1.0

BACKLOG = 1024

# 300 threads of the default 8 MiB would reserve 2.4 GB of addresses.
STACK_NBYTES = 1 << 18


def listen() -> socket.socket:
    """Listen on a free port of the loopback interface."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_NBYTES)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(BACKLOG)
    return listener


def accept_all(listener: socket.socket, network: Network) -> None:
    """Serve each connection in a thread of its own; accepted sockets inherit the listener's options."""
    for number in count(1):
        sock, _ = listener.accept()
        threading.Thread(target=Connection(network, sock, number).serve, daemon=True).start()


COMMANDS: dict[str, Callable[..., object]] = {
    "emulate": lambda network, given, k: network.emulate(Profile.from_mapping(given), k),
    "tag": Network.set_tag,
    "take": lambda network: network.trace.take(),
    "stats": lambda _network: {"cpu_s": sum(os.times()[:2])},  # of this process, real ones
}


def is_owned(owner_pid: int) -> bool:
    """Wait for a command; tell whether there may be one, False when the owner is gone."""
    while not select.select([0], [], [], OWNER_CHECK_S)[0]:
        if os.getppid() != owner_pid:
            return False
    return True


def obey(network: Network, owner_pid: int) -> None:
    """Answer commands until the owner says stop or is gone."""
    # unbuffered, so that `select` sees what is left
    with open(0, "rb", buffering=0, closefd=False) as commands:
        while is_owned(owner_pid):
            line = commands.readline()
            command, *arguments = json.loads(line) if line else ["stop"]
            if command == "stop":
                return
            print(json.dumps(COMMANDS[command](network, *arguments)), flush=True)


def main(arguments: list[str]) -> None:
    """Proxy until the owner is gone; threads under way end with the process."""
    host, port, seed, dilation, owner_pid = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner, who then stops us
    threading.stack_size(STACK_NBYTES)
    listener = listen()
    virtual = VirtualTime(float(dilation))
    address, owner = (host, int(port)), int(owner_pid)
    network = Network(address, seed=int(seed), owner_pid=owner, virtual=virtual)
    threading.Thread(target=accept_all, args=(listener, network), daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    obey(network, owner)


if __name__ == "__main__":
    main(sys.argv[1:])
