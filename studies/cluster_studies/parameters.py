"""Parameters of the two studies of growing clusters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from helpers.arrays.stores import open_entry
from helpers.parameters import RECORD, ArrayShape, OneOf, OwnNotebook, RecordName, Shape
from studies.cluster_scaling.parameters import ClusterParameters
from studies.cluster_studies.sources import SOURCES, TABLES
from wire.errors import UserError

_NOT_READ_THERE = frozenset(
    {"entries", "steps_per_worker", "cluster_kind", "cluster_address", "cluster_options"}
)
"""Parameters that stores of 2020 alone take."""


class Parameters(ClusterParameters):
    """An array, the sources to read it from, and the clusters to read it with."""

    study = "cluster-studies"
    own_notebooks: ClassVar = {
        "stores-of-2020": OwnNotebook(
            {"contenders": ["zarr-2020", "netcdf-2020", "opendap", "zarr-today"]}
        ),
        "formats-of-2022": OwnNotebook(
            {"contenders": ["csv", "parquet-parts", "zarr-array", "tiledb"]}, _NOT_READ_THERE
        ),
        "formats-at-size": OwnNotebook(
            {"contenders": ["zarr-group", "zarr-array", "csv", "parquet-parts"]}, _NOT_READ_THERE
        ),
        "many-files": OwnNotebook(
            {
                "dataset": "enlarged-ocean-temperature",
                "array_shape": [24, 1, 60, 80],
                "chunk_shape": [1, 1, 60, 80],
                "contenders": ["files-recipe", "files-objects", "files-tasks", "zarr-today"],
                "n_workers": [2],
            },
            _NOT_READ_THERE,
        ),
        "many-steps": OwnNotebook(
            {
                "dataset": "enlarged-ocean-temperature",
                "array_shape": [600, 1, 20, 30],
                "chunk_shape": [1, 1, 20, 30],
                "contenders": [
                    "long-recipe",
                    "long-objects",
                    "long-stored-chunks",
                    "long-icechunk",
                ],
                "n_workers": [2],
            },
            _NOT_READ_THERE,
        ),
    }

    dataset: str = Field("enlarged-relief", description="entry of catalog.yml that is made here")
    array_shape: ArrayShape = Field([1, 1, 180, 360], description="elements: time, depth, y, x")
    chunk_shape: Shape = Field([1, 1, 90, 90], description="elements of a stored chunk")
    contenders: list[Annotated[str, OneOf(SOURCES)]] = Field(
        ["zarr-2020", "netcdf-2020", "opendap", "csv", "parquet-parts", "zarr-array", "tiledb"],
        description="sources to compare",
    )
    entries: list[str] = Field(
        [], description="entries of catalog.yml that are read where they are"
    )
    dilation_per_worker: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = Field(
        0.0, description="factor for each worker that slows down time"
    )
    record: RecordName = Field("cluster-studies.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for name in self.entries:
            open_entry(name)
        if not [*self.contenders, *self.entries]:
            raise UserError("contenders", "none", "at least one, or an entry")
        if self.contenders and (self.store, self.cluster_kind) != ("embedded", "local"):
            raise UserError(
                "contenders",
                (
                    f"{self.contenders[0]!r} at store {self.store} with cluster_kind: "
                    f"{self.cluster_kind}"
                ),
                "none but entries, or the embedded store and local",
            )
        tables = [name for name in self.contenders if SOURCES[name].layout in TABLES]
        if tables and self.steps_per_worker:
            raise UserError(
                "steps_per_worker",
                f"{self.steps_per_worker} with {tables[0]}",
                "0, as a table is read whole",
            )
        return self
