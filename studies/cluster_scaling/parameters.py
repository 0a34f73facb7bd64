"""Parameters of cluster scaling, and what every study of clusters takes."""

from __future__ import annotations

import math
from typing import Annotated, Self
from urllib.parse import urlsplit

import dask
from distributed.system import MEMORY_LIMIT
from pydantic import Field, model_validator

from helpers import parameters
from helpers.arrays.clusters import KINDS, read_options
from helpers.arrays.readers import READERS, Codec
from helpers.arrays.stores import check_chunk_shape, open_entry
from helpers.parameters import (
    RECORD,
    ArrayShape,
    DilationOrAuto,
    OneOf,
    RecordName,
    Seed,
    Shape,
)
from wire.bed.networks import get_profile, profile_names
from wire.errors import UserError, show


def _check_reach(store: str, *, kind: str, address: str) -> None:
    """Refuse workers of other machines for a store that only this one can reach."""
    if store != "embedded" or kind == "local":
        return
    where = address or (dask.config.get("gateway.address", None) if kind == "gateway" else None)
    host = urlsplit(where or "").hostname
    if host and host not in ("localhost", "127.0.0.1", "::1"):
        raise UserError(
            "store",
            f"'embedded' with cluster_kind: {kind} at {where}",
            (
                "the address of a bucket, s3://BUCKET/PREFIX, because the embedded store "
                "listens on this machine alone"
            ),
        )


class ClusterParameters(parameters.Parameters):
    """An array, and the clusters to read it with: what two studies take."""

    dataset: str = Field("enlarged-ocean-temperature", description="entry of catalog.yml")
    array_shape: ArrayShape = Field([2, 20, 180, 240], description="elements: time, depth, y, x")
    chunk_shape: Shape = Field([1, 5, 180, 240], description="elements of a stored chunk")
    codec: Codec = Field("blosc-zstd", description="compression of the chunks")
    contenders: list[str] = Field([], description="each study names its own")
    n_workers: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=1)] = Field(
        [1, 2], description="sizes of the cluster"
    )
    threads_per_worker: Annotated[int, Field(ge=1, le=256)] = Field(
        2, description="threads of each worker"
    )
    steps_per_worker: Annotated[int, Field(ge=0)] = Field(
        0, description="steps of time for each worker; 0: all read the whole array"
    )
    cluster_kind: Annotated[str, OneOf(KINDS)] = Field("local", description="where the workers run")
    cluster_address: str = Field(
        "", description="of gateway or scheduler; empty for the configured one"
    )
    cluster_options: list[str] = Field(
        [], description="of a gateway or of Slurm, each a name and a value"
    )
    seed: Seed = Field(2020, description="of values, order and network delays")

    @model_validator(mode="after")
    def _check_cluster(self) -> Self:
        check_chunk_shape(self.array_shape, self.chunk_shape)
        most_steps = max(self.n_workers) * self.steps_per_worker
        if most_steps > self.array_shape[0] or self.steps_per_worker % self.chunk_shape[0]:
            raise UserError(
                "steps_per_worker",
                f"{self.steps_per_worker} for {max(self.n_workers)} workers",
                f"together at most {self.array_shape[0]}, in whole chunks",
            )
        open_entry(self.dataset)
        read_options(self.cluster_kind, self.cluster_options)
        if self.cluster_kind == "local":
            chunk_nbytes = 4 * math.prod(self.chunk_shape)
            _check_memory(max(self.n_workers), self.threads_per_worker * chunk_nbytes)
        return self


class Parameters(ClusterParameters):
    """An array, the readers to compare, and the clusters to read it with."""

    study = "cluster-scaling"

    contenders: Annotated[list[Annotated[str, OneOf(READERS)]], Field(min_length=1)] = Field(
        [
            "zarr-s3fs",
            "zarr-s3fs-one-get",
            "zarr-obstore",
            "zarr-zarrs",
            "netcdf-fsspec",
            "references",
        ],
        description="readers to compare",
    )
    dilation: DilationOrAuto = Field(
        1.0, description="factor that slows down the network and its time, or auto"
    )
    record: RecordName = Field("cluster-scaling.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        _check_dilated(self.profile, self.dilation)
        fit = [name for name in READERS if not READERS[name].needs_s3]
        if self.store.startswith("file:") and (unfit := {*self.contenders} - {*fit}):
            raise UserError(
                "contenders", f"{sorted(unfit)[0]!r} with store {self.store}", ", ".join(fit)
            )
        _check_reach(self.store, kind=self.cluster_kind, address=self.cluster_address)
        return self


# A process with Dask and the readers, after reading through each, holds 0.21 GB; the kernel, the
# server and the proxy together as much as a few of them.
_WORKER_NBYTES, _REST_NBYTES = 250_000_000, 1_000_000_000
# What a thread reads is in memory encoded, decoded, and as the block that it is copied to.
_COPIES = 3


def _check_memory(n_workers: int, read_nbytes: int) -> None:
    """Refuse more workers, each reading so much at once, than this machine's memory carries."""
    each_nbytes = _WORKER_NBYTES + _COPIES * read_nbytes
    n_fitting = int((MEMORY_LIMIT - _REST_NBYTES) // each_nbytes)
    if n_workers > n_fitting:
        sum_nbytes = _REST_NBYTES + n_workers * each_nbytes
        raise UserError(
            "n_workers",
            (
                f"{n_workers}; each takes {each_nbytes / 1e9:.2g} GB and the rest "
                f"{_REST_NBYTES / 1e9:g}, which are {sum_nbytes / 1e9:.0f} of this machine's "
                f"{MEMORY_LIMIT / 1e9:.0f} GB"
            ),
            f"at most {max(0, n_fitting)}, or smaller chunks",
        )


def _check_dilated(name: str, dilation: float | str) -> None:
    """Refuse to slow down a network that is one machine's link."""
    if dilation != 1 and get_profile(name).worker_mb_per_s is None:
        allowed = [
            name for name in profile_names() if get_profile(name).worker_mb_per_s is not None
        ]
        raise UserError(
            "profile",
            f"{name!r} with dilation {show(dilation)}",
            f"{', '.join(allowed)}, with a link for each worker",
        )
