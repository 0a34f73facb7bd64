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


def find_studies() -> dict[str, Study]:
    """Find every folder of studies that declares one, by the name of its notebook."""
    package = importlib.import_module(_PACKAGE)
    modules = [
        importlib.import_module(f"{_PACKAGE}.{found.name}")
        for found in pkgutil.iter_modules(package.__path__)
        if found.ispkg
    ]
    return {module.STUDY.name: module.STUDY for module in modules}


def find_study(name: str) -> Study:
    """Find the study of a notebook, or say which there are."""
    studies = find_studies()
    if name not in studies:
        raise UserError(f"study: {name!r}; allowed: {', '.join(studies)}")
    return studies[name]
