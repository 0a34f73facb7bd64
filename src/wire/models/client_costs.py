"""What a client takes next to the network, for a request, a chunk and a byte: measured, in a table.

The table `client_costs.csv` is fitted to two cases of the book's records, and to no other: what
predictions are held against was not used for it. To fit it again::

    python -m wire.models.client_costs results/reference > src/wire/models/client_costs.csv
"""

from __future__ import annotations

import csv
import json
import math
import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np

from wire.bed.networks import get_profile, of_one_process
from wire.models.access import IoCounts, Store, access_seconds
from wire.models.transfer import network_with_tail


@dataclass(frozen=True, slots=True)
class ClientCosts:
    """What a client takes next to the network, on the machine of the records."""

    request_ms: float  # a request, of client and server together; requests wait for it side by side
    chunk_ms: float  # a chunk, of one CPU
    copy_mb_per_s: float  # bytes of chunks that are not compressed, of one CPU
    decode_mb_per_s: float  # bytes of the array that are received and decompressed, of one CPU

    def apply(self, store: Store, *, is_compressed: bool, n_cores: int = 1) -> Store:
        """Add these costs to what an access meets."""
        rate = self.decode_mb_per_s if is_compressed else self.copy_mb_per_s
        return replace(
            store,
            wait_s=self.request_ms / 1000,
            chunk_s=self.chunk_ms / 1000,
            decode_s_per_nbyte=1e-6 / (rate * n_cores),
        )


@lru_cache(1)
def read_client_costs() -> Mapping[str, ClientCosts]:
    """Read the table, by the clients' names in the records."""
    text = resources.files("wire.models").joinpath("client_costs.csv").read_text("utf-8")
    return {
        row.pop("client"): ClientCosts(**{name: float(value) for name, value in row.items()})
        for row in csv.DictReader(text.splitlines())
    }


CALIBRATED = ("formats/in-region", "chunk-shape/in-region")
"""Cases to which the table is fitted."""

_CLIENTS = {"zarr-obstore": 1, "zarr-s3fs": 2, "zarr-s3fs-one-get": 1}  # requests for a chunk
_CHUNK_NBYTES = 2_048_000  # of an array's chunk in the case of formats
_IN_FLIGHT = 10
_REQUESTS_MS = [n / 4 for n in range(81)]


@dataclass(frozen=True, slots=True)
class MeasuredRead:
    """The median of a contender's reads in a record."""

    contender: str
    access: str
    layout: str
    read_s: float
    client_s: float  # CPU time of the client, of the machine's clock
    n_requests: float
    wire_nbytes: float
    dilation: float


def read_medians(path: Path) -> list[MeasuredRead]:
    """Read the medians of a record's measured reads, without its controls."""
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["phase"] == "measured" and not row["control_of"] and row["n_requests"]:
                layout = json.loads(row["settings"]).get("layout", "")
                groups.setdefault((row["contender"], row["point"], layout), []).append(row)

    def median(rows: Iterable[Mapping[str, str]], name: str) -> float:
        return statistics.median(float(row[name]) for row in rows)

    names = ("read_s", "client_s", "n_requests", "wire_nbytes", "dilation")
    return [
        MeasuredRead(
            contender,
            json.loads(point).get("access", ""),
            layout,
            *(median(rows, name) for name in names),
        )
        for (contender, point, layout), rows in groups.items()
    ]


def fit_client_costs(records: Path) -> dict[str, ClientCosts]:
    """Fit the costs of each client to the two cases of `CALIBRATED`.

    CPU time of reads of chunks of many sizes that are not compressed gives a chunk's and a byte's;
    CPU time of compressed ones, less these, that of decompression. What the median reads take beyond
    network and CPU time is taken by their requests.
    """
    formats, shapes = (read_medians(records / f"{case}.csv") for case in CALIBRATED)
    plain = [read for read in shapes if read.layout == "zarr"]
    terms = np.asarray([[1.0, read.n_requests, read.wire_nbytes] for read in plain])
    seconds = np.asarray([read.client_s for read in plain])
    (_, chunk_s, nbyte_s), *_ = np.linalg.lstsq(terms / seconds[:, None], np.ones(len(plain)))
    by_place = {(read.contender, read.access): read for read in formats if read.layout == "zarr"}
    series, whole = (by_place["zarr-obstore", access] for access in ("series", "whole"))
    n_chunks = whole.n_requests - series.n_requests
    decode_s = (whole.client_s - series.client_s - n_chunks * chunk_s) / (n_chunks * _CHUNK_NBYTES)
    network = network_with_tail(of_one_process(get_profile("in-region")))
    link = 1e6 * (get_profile("in-region").worker_mb_per_s or math.inf)
    network = replace(network, aggregate_nbytes_per_s=min(network.aggregate_nbytes_per_s, link))

    def compute_error(contender: str, request_ms: float) -> float:
        errors, in_turn = list[float](), _CLIENTS[contender]
        for access in ("series", "whole"):
            read = by_place[contender, access]
            n = read.n_requests / in_turn
            store = Store(
                network,
                _IN_FLIGHT,
                chunk_s=chunk_s / read.dilation,
                decode_s_per_nbyte=decode_s / read.dilation,
                wait_s=request_ms / 1000 / read.dilation,
                is_cold=True,
            )
            counts = IoCounts(n, _CHUNK_NBYTES, 0.0, read.n_requests, read.wire_nbytes / n)
            errors.append(math.log(float(access_seconds(store, counts)) / read.read_s))
        return abs(sum(errors))

    return {
        contender: ClientCosts(
            min(_REQUESTS_MS, key=lambda request_ms: compute_error(contender, request_ms)),
            round(1000 * chunk_s, 2),
            round(1e-6 / nbyte_s, -1),
            round(1e-6 / decode_s, -1),
        )
        for contender in _CLIENTS
    }


def write_table(costs: Mapping[str, ClientCosts]) -> str:
    """Write costs as the table that ships."""
    lines = ["client,request_ms,chunk_ms,copy_mb_per_s,decode_mb_per_s"]
    for client, cost in costs.items():
        values = (cost.request_ms, cost.chunk_ms, cost.copy_mb_per_s, cost.decode_mb_per_s)
        lines.append(",".join([client, *(f"{value:g}" for value in values)]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(write_table(fit_client_costs(Path(sys.argv[1]))))
