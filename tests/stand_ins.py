"""A process that answers as Google Cloud Storage and as an OPeNDAP server do: small, and for reading only.

``python -m tests.stand_ins FOLDER`` prints its port; ``pydap`` instead of a folder serves by that library.
Objects of a bucket are the files below
FOLDER/BUCKET; the one dataset of the OPeNDAP server has the variables of `VARIABLES`.
"""

from __future__ import annotations

import re
import struct
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from wsgiref.simple_server import WSGIRequestHandler, make_server

import numpy as np
from numpy.typing import NDArray

SHAPE = (4, 6, 8)
DIMENSIONS = ("time", "lat", "lon")
VARIABLES: dict[str, NDArray[Any]] = {
    "time": np.arange(4.0),
    "lat": np.linspace(-75, 75, 6),
    "lon": np.linspace(0, 315, 8),
    "sst": np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE),
    "tas": np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE) + 200,
}
_TYPES = {"float64": "Float64", "float32": "Float32"}
_UNITS = {"time": "days since 2020-01-01", "lat": "degrees_north", "lon": "degrees_east"}
_OBJECT = re.compile(r"/download/storage/v1/b/(?P<bucket>[^/]+)/o/(?P<key>[^/]+)")


def dimensions_of(name: str) -> tuple[str, ...]:
    """Name the dimensions of a variable: a coordinate is its own."""
    return (name,) if VARIABLES[name].ndim == 1 else DIMENSIONS


def select(query: str) -> dict[str, NDArray[Any]]:
    """Cut the variables as a constraint asks: ``sst[0:1:3][2][0:7]``, all of them without one."""
    found = {}
    for name, ranges in re.findall(r"(\w+)((?:\[[\d:]+\])*)", query):
        cuts = []
        for part in re.findall(r"\[([\d:]+)\]", ranges):
            first, *rest = map(int, part.split(":"))
            last, step = (rest or [first])[-1], rest[0] if len(rest) == 2 else 1
            cuts.append(slice(first, last + 1, step))
        found[name] = VARIABLES[name][tuple(cuts)]
    return found or VARIABLES


def describe(arrays: dict[str, NDArray[Any]]) -> str:
    """Write the structure of a dataset (DDS)."""
    lines = []
    for name, values in arrays.items():
        pairs = zip(dimensions_of(name), values.shape, strict=True)
        extents = "".join(f"[{dimension} = {n}]" for dimension, n in pairs)
        lines.append(f"    {_TYPES[str(values.dtype)]} {name}{extents};\n")
    return f"Dataset {{\n{''.join(lines)}}} stand_in;\n"


def annotate() -> str:
    """Write the attributes of a dataset (DAS)."""
    units = {name: _UNITS.get(name, "K") for name in VARIABLES}
    lines = [
        f'    {name} {{\n        String units "{unit}";\n    }}\n' for name, unit in units.items()
    ]
    return f"Attributes {{\n{''.join(lines)}}}\n"


def encode(arrays: dict[str, NDArray[Any]]) -> bytes:
    """Write values as DAP 2 has them: XDR arrays, each with its length twice."""
    parts = [
        struct.pack(">II", values.size, values.size)
        + np.ascontiguousarray(values).astype(values.dtype.newbyteorder(">")).tobytes()
        for values in arrays.values()
    ]
    return describe(arrays).encode() + b"\nData:\n" + b"".join(parts)


class Handler(BaseHTTPRequestHandler):
    """Answer a request by its path."""

    folder: Path

    def do_GET(self) -> None:
        """Send an object or a part of the dataset, or say that it is not there."""
        path, _, query = self.path.partition("?")
        query = unquote(query)
        if match := _OBJECT.fullmatch(path):
            file = self.folder / match["bucket"] / unquote(match["key"])
            return self._send(200, file.read_bytes()) if file.is_file() else self._send(404, b"{}")
        kind = path.rpartition(".")[2]
        if "/dodsC/" not in path or kind not in ("dds", "das", "dods"):
            return self._send(404, b"")
        if kind == "das":
            return self._send(200, annotate().encode())
        arrays = select(query)
        return self._send(200, describe(arrays).encode() if kind == "dds" else encode(arrays))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


def serve(folder: Path) -> None:
    """Serve until killed."""
    Handler.folder = folder
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


def serve_with_pydap() -> None:
    """Serve the same variables by pydap, whose handler of arrays in memory cuts them right."""
    from pydap.handlers.lib import BaseHandler
    from pydap.model import BaseType, DatasetType

    dataset = DatasetType("stand_in")
    for name, values in VARIABLES.items():
        units = {"units": _UNITS.get(name, "K")}
        dataset[name] = BaseType(name, values, dims=dimensions_of(name), attributes=units)
    app = BaseHandler(dataset)
    with make_server("127.0.0.1", 0, app, handler_class=_Quiet) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


if __name__ == "__main__":
    serve_with_pydap() if sys.argv[1] == "pydap" else serve(Path(sys.argv[1]))
