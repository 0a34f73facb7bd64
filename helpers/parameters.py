"""The parameters of the book: one name, one meaning, one check.

A notebook declares which of these it takes, with its defaults, in its cell
tagged ``parameters``; a parameter file overrides some of them. papermill
accepts any name in silence, so this module refuses what is unknown, of
another type or out of bounds, before anything runs.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import nbformat
import papermill
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from helpers.errors import UserError, cut, show
from helpers.storage.caches import CACHES
from helpers.storage.catalogs import open_entry
from helpers.storage.clusters import KINDS, check_reach
from helpers.storage.drivers import DRIVERS, TASKS
from helpers.storage.formats import CODECS, READERS
from helpers.storage.hdf5.files import LAYOUTS as FILE_LAYOUTS
from helpers.storage.network import profile_names
from helpers.storage.stores import check_chunk_shape
from helpers.storage.wires import check_profile
from helpers.tiles.matrix import map_names

_MOST = 2**63 - 1  # what other programs take as a whole number too
Count = Annotated[int, Field(ge=1, le=_MOST)]
Shape = Annotated[list[Count], Field(min_length=4, max_length=4)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _choice(allowed: tuple[str, ...]) -> Any:
    pattern = "|".join(allowed)
    return Annotated[str, Field(pattern=f"^({pattern})$", description=", ".join(allowed))]


_READER: TypeAlias = _choice(tuple(READERS))  # type: ignore[valid-type]
_CACHE: TypeAlias = _choice(CACHES)  # type: ignore[valid-type]
_MAP: TypeAlias = _choice(map_names())  # type: ignore[valid-type]
_DRIVER: TypeAlias = _choice(tuple(DRIVERS))  # type: ignore[valid-type]
_FILE_LAYOUT: TypeAlias = _choice(FILE_LAYOUTS)  # type: ignore[valid-type]
_TASK: TypeAlias = _choice(tuple(TASKS))  # type: ignore[valid-type]
_MEDIUM: TypeAlias = _choice(("hdf5", "zarr", "sharded"))  # type: ignore[valid-type]
_EXTRA: TypeAlias = _choice(("rewriting", "codecs", "chunk-cache"))  # type: ignore[valid-type]

GLOSSARY: Mapping[str, Any] = {
    "dataset": str,
    "array_shape": Shape,
    "chunk_shape": Shape,
    "codec": _choice(CODECS),
    "contenders": Annotated[list[_READER], Field(min_length=1)],
    "profile": _choice(profile_names()),
    "n_workers": Annotated[list[Count], Field(min_length=1)],
    "threads_per_worker": Count,
    "chunks_per_task": Count,
    "n_photons": Annotated[int, Field(ge=6000, le=_MOST)],
    "drivers": Annotated[list[_DRIVER], Field(min_length=1)],
    "file_layouts": Annotated[list[_FILE_LAYOUT], Field(min_length=1)],
    "tasks": Annotated[list[_TASK], Field(min_length=1)],
    "more_drivers": list[_DRIVER],
    "more_layouts": list[_FILE_LAYOUT],
    "metadata_tasks": list[_TASK],
    "metadata_drivers": list[_DRIVER],
    "metadata_layouts": list[_FILE_LAYOUT],
    "metadata_group": str,
    "block_mib": list[Count],
    "page_buffer_mib": list[Count],
    "n_blocks": Count,
    "time_budget_s": Positive,
    "access_time_s": Positive,
    "max_chunks": Count,
    "target_width": Positive,
    "seed": Annotated[int, Field(ge=0, le=_MOST)],
    "store": str,
    "cluster_kind": _choice(KINDS),
    "cluster_address": str,
    "media": Annotated[list[_MEDIUM], Field(min_length=1)],
    "scale_factor": Annotated[float, Field(ge=1, allow_inf_nan=False)],
    "extras": list[_EXTRA],
    "n_boxes": Count,
    "caches": Annotated[list[_CACHE], Field(min_length=1)],
    "maps": Annotated[list[_MAP], Field(min_length=1)],
    "map_scale": Annotated[float, Field(gt=0, le=1)],
    "n_requests": Count,
    "n_users": Count,
    "spawn_rate": Positive,
    "think_s": Annotated[float, Field(ge=0, allow_inf_nan=False)],
    "zipf_exponent": Annotated[float, Field(ge=0, allow_inf_nan=False)],
    "n_datasets": Count,
    "n_lookups": Count,
    "redis_url": str,
    "record": Annotated[str, Field(pattern=r"^[\w.-]+\.csv$", description="NAME.csv")],
}
"""Every parameter of every notebook, with its type and bounds."""


def check_parameters(values: Mapping[str, Any], where: str = "parameters") -> None:
    """Refuse values that a study cannot run with.

    Parameters
    ----------
    values : mapping
        Parameters by name; names that the glossary does not have are refused.
    where : str
        What the message begins with, such as the parameter file.

    Raises
    ------
    UserError
        Naming the first parameter that is wrong, its value and what is allowed.
    """
    _refuse_unknown(values, tuple(GLOSSARY), where)
    fields: dict[str, Any] = {name: (GLOSSARY[name], ...) for name in values}
    model: type[BaseModel] = create_model(
        "Parameters", __config__=ConfigDict(strict=True), **fields
    )
    try:
        model.model_validate(dict(values))
    except ValidationError as error:
        raise UserError(f"{where}: {_explain(error)}") from error
    if "array_shape" in values and "chunk_shape" in values:
        check_chunk_shape(values["array_shape"], values["chunk_shape"])
    if "dataset" in values:
        open_entry(values["dataset"])
    if "store" in values and "profile" in values:
        check_profile(values["store"], values["profile"])
    if "store" in values and "cluster_kind" in values:
        kind, address = values["cluster_kind"], values.get("cluster_address", "")
        check_reach(values["store"], kind=kind, address=address)


def _refuse_unknown(values: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name, value in values.items():
        if name not in known:
            raise UserError(
                f"{where}: {_name(name)}: {show(value)}; no such parameter;"
                f" allowed: {', '.join(known)}"
            )


def _name(name: object) -> str:
    """Write the name of a parameter, which in a file may be anything."""
    return cut(name) if isinstance(name, str) and name.isprintable() else show(name)


def _explain(error: ValidationError) -> str:
    """Say in one line what pydantic says in four."""
    first = error.errors()[0]
    name = str(first["loc"][0])
    choices = _description(GLOSSARY[name])
    allowed = choices if first["type"] == "string_pattern_mismatch" and choices else first["msg"]
    return f"{name}: {show(first['input'])}; allowed: {allowed}"


def _description(annotation: Any) -> str:
    """Find the description of an annotation or of the items of its list."""
    for part in getattr(annotation, "__metadata__", ()):
        if part.description:
            return str(part.description)
    inner = getattr(annotation, "__args__", ())
    return next((text for text in map(_description, inner) if text), "")


def read_defaults(notebook: Path) -> dict[str, Any]:
    """Read the parameters that a notebook declares, with their defaults.

    Raises
    ------
    UserError
        If the notebook has no cell tagged ``parameters``.
    """
    cells = nbformat.read(notebook, as_version=4).cells  # type: ignore[no-untyped-call]
    if not any("parameters" in cell.metadata.get("tags", []) for cell in cells):
        raise UserError(f"{notebook.name}: no cell is tagged parameters")
    found = papermill.inspect_notebook(str(notebook))
    return {name: ast.literal_eval(parameter["default"]) for name, parameter in found.items()}


def complete_parameters(notebook: Path, overrides: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Put a case's overrides over a notebook's defaults, and check the whole.

    Raises
    ------
    UserError
        If a name is not one of the notebook's, or a value is out of bounds.
    """
    defaults = read_defaults(notebook)
    _refuse_unknown(overrides, tuple(defaults), where)
    values = {**defaults, **overrides}
    check_parameters(values, where)
    return values
