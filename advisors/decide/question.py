"""The question: an array, how it is read and how often, from where, and what must stay as it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from advisors.chunks.answers import (
    CHUNK_MS,
    bounds_from,
    parse_access,
    read_extents,
    store_from,
    type_of,
)
from advisors.chunks.problem import Access, AccessPattern, check_size
from helpers.arrays.chunks import Shape, check_within
from helpers.errors import UserError, show
from helpers.models.access import Store
from helpers.netem.profiles import get_profile

Format = Literal["zarr", "hdf5", "references"]
Reader = Literal["any", "xarray", "zarr", "h5py", "gdal"]

FORMATS: Mapping[Reader, tuple[Format, ...]] = {
    "any": ("zarr", "hdf5", "references"),
    "xarray": ("zarr", "hdf5", "references"),
    "zarr": ("zarr", "references"),
    "h5py": ("hdf5",),
    "gdal": ("zarr", "hdf5"),
}
"""What each reader opens."""

IN_FLIGHT = 10
"""Requests that zarr has in flight by default, with which chunk shapes were measured."""

_SERVICE = ("datasets", "change_every_s")  # what only a service with requests a second has


class Question(BaseModel):
    """What is to be decided; every default is an assumption that the answer tells."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    shape: Shape = Field(description="elements for each dimension, as 87600,721,1440")
    dtype: str = Field("float32", description="type of an element")
    access: tuple[str, ...] = Field(
        ("series:0.5", "map:0.5"),
        description="series, map, whole, or a box such as 365x10x10, each with how often",
    )
    store: str = Field("in-region", description="network between reader and store")
    arrays: int = Field(1, ge=1, le=10**9, description="arrays or files of this shape")
    compression: float = Field(1.0, gt=0, description="array bytes over stored bytes")
    reads_per_month: float = Field(10_000, ge=0, description="accesses a month, all together")
    cores: int = Field(2, ge=1, le=4096, description="processors of the machine that reads")
    memory_gb: float = Field(8, gt=0, description="its memory, GB")
    decode_mb_per_s: float = Field(500, gt=0, description="decoding by one worker, MB/s")
    max_objects: int = Field(1_000_000, ge=1, description="objects in the store, all together")
    budget_usd_month: float | None = Field(None, gt=0, description="most that a month may cost")
    must_stay: Literal["any", "hdf5"] = Field("any", description="format that has to stay")
    may_rewrite: bool = Field(True, description="whether the bytes may be written anew")
    reader: Reader = Field("any", description="library that has to read it")
    chunks: Shape | None = Field(None, description="chunk shape of the HDF5 files that are there")
    requests_per_s: float | None = Field(None, gt=0, description="of a tile service, on average")
    datasets: int | None = Field(None, ge=1, description="datasets of a tile service")
    change_every_s: float | None = Field(
        None, gt=0, description="seconds after which a dataset changes"
    )

    @classmethod
    def ask(cls, **given: Any) -> Self:
        """Check a question; what is wrong first is told in one line."""
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise UserError(_explain(error)) from error

    @field_validator("shape", "chunks", mode="before")
    @classmethod
    def _read_shape(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, str):
            return value
        return read_extents(value, ",", str(info.field_name), "whole numbers and commas")

    @field_validator("access", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse what contradicts itself, in the words of whatever takes it."""
        check_size(self.shape)
        type_of(self.dtype)
        get_profile(self.store)
        if self.chunks is not None:
            check_within("chunks", self.chunks, self.shape)
        self.pattern()
        for name in _SERVICE:
            if getattr(self, name) is not None and self.requests_per_s is None:
                raise UserError(f"{name}: {getattr(self, name)}; allowed: with requests_per_s")
        return self

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return type_of(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of one array."""
        return math.prod(self.shape) * self.itemsize

    @property
    def is_file_there(self) -> bool:
        """Whether the answer is about HDF5 files that are there."""
        is_told = self.chunks is not None or self.must_stay == "hdf5" or not self.may_rewrite
        return is_told or self.reader == "h5py"

    @property
    def formats(self) -> tuple[Format, ...]:
        """List what may be read: files that stay as they are can be read through references too."""
        readable = FORMATS[self.reader]
        if self.must_stay == "hdf5" or not self.may_rewrite:
            return tuple(one for one in readable if one != "zarr")
        return readable if self.is_file_there else tuple(one for one in readable if one == "zarr")

    def accesses(self) -> tuple[list[Access], list[float]]:
        """Read the accesses, under their own names, and how often each happens."""
        pairs = [parse_access(text, self.shape) for text in self.access]
        names = [access.name for access, _ in pairs]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise UserError(f"access: {sorted(repeated)[0]!r} is there twice; allowed: each once")
        return [access for access, _ in pairs], [weight for _, weight in pairs]

    def pattern(self, n_connections: int = IN_FLIGHT) -> AccessPattern:
        """Describe the problem as the search for chunk shapes takes it."""
        accesses, weights = self.accesses()
        options = {
            "chunk_nbytes": None,
            "max_objects": max(1, self.max_objects // self.arrays),
            "memory_nbytes": max(1, int(self.memory_gb * 1e9)),
        }
        store = self.machine(n_connections)
        return AccessPattern(
            self.shape,
            self.itemsize,
            accesses,
            weights,
            store,
            bounds_from(options),
            reads_shards_abreast=True,
        )

    def machine(self, n_connections: int, n_workers: int = 1) -> Store:
        """Describe workers that share the requests in flight; each decodes by itself."""
        options = {
            "profile": self.store,
            "connections": n_connections,
            "decode_mb_per_s": self.decode_mb_per_s,
            "chunk_ms": CHUNK_MS,
            "compression_ratio": self.compression,
        }
        return store_from(options, n_workers=n_workers)


def _explain(error: ValidationError) -> str:
    """Say in one line what is wrong first."""
    first = error.errors(include_url=False)[0]
    told = first.get("ctx", {}).get("error")
    if isinstance(told, UserError):
        return str(told)
    name = ".".join(str(part) for part in first["loc"])
    allowed = first["msg"].removeprefix("Input should be ")
    return f"{name}: {show(first['input'])}; allowed: {allowed}"
