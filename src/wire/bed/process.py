"""The proxy's process: `python -m wire.bed.process FD HOST PORT SEED DILATION OWNER_PID`.

It sends the port it listens on over the pipe of that descriptor, then answers each command that
comes, a tuple of its name and arguments. It ends with its owner: at the end of the pipe, which
comes however the owner ended, or when its parent is another process than its owner.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection as CommandPipe
from pathlib import Path
from typing import Any

from wire.bed.emulation import EmulatedConnection, Emulation
from wire.bed.networks import Profile
from wire.bed.relay import LOOPBACK, STACK_NBYTES, Relay, RowCollector, accept_all, listen
from wire.bed.requests import RequestRow

# How often the owner is looked for, should another process hold its pipe open.
OWNER_CHECK_S = 1.0


class EmulatedNetwork:
    """Relay connections to a server over an emulated network, and obey the owner's commands."""

    def __init__(self, address: tuple[str, int], emulation: Emulation) -> None:
        self._address, self._emulation = address, emulation
        self._collector = RowCollector()
        self.commands: dict[str, Callable[..., Any]] = {
            "emulate": self._emulate,
            "tag": self._set_tag,
            "encrypt": self._encrypt,
            "take": self.take_rows,
        }

    def open_relay(self, client: socket.socket, number: int) -> Relay:
        """Make the relay of a connection."""
        relay = Relay(client, number, self._collector, address=self._address)
        relay.hooks = (EmulatedConnection(self._emulation),)
        return relay

    def take_rows(self) -> list[RequestRow]:
        """Return the rows since the last call."""
        return self._collector.take()

    def _emulate(self, profile: Profile, dilation: float | None) -> None:
        self._emulation.emulate(profile, dilation)

    def _set_tag(self, tag: str) -> None:
        self._emulation.tag = tag

    def _encrypt(self, bundle: Path) -> None:
        """Answer clients by TLS too, from now on, and write what they are to trust."""
        from wire.bed.certificates import (  # slow to import
            Authority,
            find_bundles,
            write_bundle,
        )

        authority = Authority()
        write_bundle(bundle, authority, find_bundles(os.environ))
        self._emulation.tls = authority.server_context(LOOPBACK)


def main(arguments: list[str]) -> None:
    """Answer commands until the owner is gone; threads under way end with the process."""
    descriptor, host, port, seed, dilation, owner_pid = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner, who then stops us
    threading.stack_size(STACK_NBYTES)
    pipe, owner, listener = CommandPipe(int(descriptor)), int(owner_pid), listen()
    emulation = Emulation(seed=int(seed), dilation=float(dilation), owner_pid=owner)
    network = EmulatedNetwork((host, int(port)), emulation)
    threading.Thread(target=accept_all, args=(listener, network.open_relay), daemon=True).start()
    pipe.send(listener.getsockname()[1])
    with suppress(EOFError):
        while os.getppid() == owner:
            if pipe.poll(OWNER_CHECK_S):
                command, *options = pipe.recv()
                pipe.send(network.commands[command](*options))


if __name__ == "__main__":
    main(sys.argv[1:])
