"""Studies: found in their folders, listed nowhere, and what is derived from their parameters."""

from __future__ import annotations

import importlib
import json
import pkgutil
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from helpers.errors import UserError
from helpers.parameters import Parameters, Study

_PACKAGE = "studies"

_PAGE = 88  # characters of a code line that a page shows without scrolling


def write_cell(model: type[Parameters]) -> str:
    """Write the parameter cell of a notebook; papermill reads its help text from the comments."""
    common = Parameters.model_fields  # a study's own stand before them
    own = {name: one for name, one in model.model_fields.items() if name not in common}
    lines = []
    for name, one in (own | {name: model.model_fields[name] for name in common}).items():
        extra = one.json_schema_extra
        unit = f" ({extra['unit']})" if isinstance(extra, dict) and "unit" in extra else ""
        start = f"{name}: {_type_name(one.annotation)} = "
        line = f"{start}{_write(one.default)}  # {one.description}{unit}"
        if len(line) > _PAGE and isinstance(one.default, list):
            items = "".join(f"    {_write(item)},\n" for item in one.default)
            line = f"{start}[\n{items}]  # {one.description}{unit}"
        lines.append(line)
    return "\n".join(lines)


def _write(value: Any) -> str:
    """Write a default as Python does, with the quotes of its formatter."""
    return json.dumps(value, ensure_ascii=False)


def _type_name(annotation: Any) -> str:
    """Write a type as plain Python, without its bounds."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is list:
        return f"list[{_type_name(get_args(annotation)[0])}]"
    if get_origin(annotation) in (Union, UnionType):
        return _type_name(get_args(annotation)[0])  # papermill reads no more than one
    return str(annotation.__name__)


def case_schema(model: type[Parameters], study: str) -> dict[str, Any]:
    """Make the JSON Schema of a case file: every parameter may be left out, no other may stand."""
    schema = model.model_json_schema()
    schema.pop("description", None)
    for one in schema["properties"].values():
        one.pop("title", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"a case of {study}",
    }


def list_studies() -> list[str]:
    """List the names of the studies, which are those of their folders; none is imported."""
    package = importlib.import_module(_PACKAGE)
    folders = [found.name for found in pkgutil.iter_modules(package.__path__) if found.ispkg]
    return [name.replace("_", "-") for name in folders]


def find_studies() -> dict[str, Study]:
    """Find all studies, by name."""
    return {name: find_study(name) for name in list_studies()}


def find_study(name: str) -> Study:
    """Find the study of a notebook without the others, or say which there are."""
    study: Study = _import(name, "").STUDY
    return study


def find_parameters(name: str) -> type[Parameters]:
    """Find the model of the parameters of a study."""
    model: type[Parameters] = _import(name, ".parameters").Parameters
    return model


def _import(name: str, module: str) -> Any:
    if name not in (names := list_studies()):
        raise UserError(f"study: {name!r}; allowed: {', '.join(names)}")
    return importlib.import_module(f"{_PACKAGE}.{name.replace('-', '_')}{module}")
