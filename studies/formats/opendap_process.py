"""An OPeNDAP server of one array in memory, by pydap: a process of its own, as archives run it.

``python -m studies.formats.opendap_process ADDRESS VARIABLE`` fetches ``array.npy`` below an address
and prints its port. pydap's handler of arrays is taken, not that of netCDF files: the latter
shortens what only a part is asked of, and clients take what follows for values.
"""

from __future__ import annotations

import sys
from io import BytesIO
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import numpy as np
import obstore
from pydap.handlers.lib import BaseHandler
from pydap.model import BaseType, DatasetType

from helpers.arrays.writers import DIMENSIONS
from helpers.objectstore.locations import parse_location


class _Server(ThreadingMixIn, WSGIServer):
    """Answers several at once, as an archive does."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet: what is written is on the clock."""


def serve(address: str, variable: str) -> None:
    """Serve until killed."""
    content = obstore.get(parse_location(address).obstore(), "array.npy").bytes()
    dataset = DatasetType("array")
    dataset[variable] = BaseType(variable, np.load(BytesIO(content)), dims=DIMENSIONS)
    application = BaseHandler(dataset)
    with make_server(
        "127.0.0.1", 0, application, server_class=_Server, handler_class=_Quiet
    ) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    serve(*sys.argv[1:])
