"""Schemas of what `wire trace` writes, made from the classes that it writes; JSON files of them lie here.

`python -m wire.trace.schemas` writes the files anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from wire.schemas import DIALECT, make_dataclass_schema, read_comments
from wire.trace import report, stored
from wire.trace.report import Report
from wire.trace.rows import CallSite, Run, TracedRequest

_TYPES = {"float": "number", "int": "integer", "bool": "boolean", "str": "string"}


def make_report_schema() -> dict[str, Any]:
    """Make the schema of what `--json` prints, the last line of standard output."""
    schema = make_dataclass_schema(Report)
    del schema["$defs"]["Finding"]["properties"]["rows"]
    properties = {"version": {"const": report.VERSION}, **schema["properties"]}
    properties["refused"] = {
        "description": properties["refused"].get("description", ""),
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"status": {"type": "integer"}, "count": {"type": "integer"}},
            "required": ["status", "count"],
        },
    }
    return {
        "$schema": DIALECT,
        **schema,
        "title": f"Report of wire trace, version {report.VERSION}",
        "description": "What `wire trace --json` and `wire trace show --json` print.",
        "properties": properties,
        "required": [*properties],
    }


def make_run_schema() -> dict[str, Any]:
    """Make the schema of `trace.json`."""
    schema = make_dataclass_schema(Run)
    definitions = schema.pop("$defs", {})
    definitions.pop("TracedRequest", None)
    definitions["CallSite"] = make_dataclass_schema(CallSite)
    for name in ("rows", "sites"):
        del schema["properties"][name]
    schema["required"] = [name for name in schema["required"] if name != "rows"]
    return {
        "$schema": DIALECT,
        "title": f"Run of a program under wire trace, version {stored.VERSION}",
        "description": "`trace.json`; the requests are in `trace.csv`.",
        "type": "object",
        "properties": {
            "version": {"const": stored.VERSION},
            "command": {"type": "string", "description": "as a shell takes it, without credentials"},
            "run": schema,
            "sites": {
                "type": "array",
                "items": {"$ref": "#/$defs/CallSite"},
                "description": "lines of the program, to which the column `site` points by place",
            },
        },
        "required": ["version", "command", "run", "sites"],
        "$defs": definitions,
    }  # fmt: skip


def make_table_schema() -> dict[str, Any]:
    """Make the Table Schema of `trace.csv`, a row a request."""
    comments = read_comments(TracedRequest)
    hints = get_type_hints(TracedRequest)
    columns = [name for name in hints if name not in ("tag", "worker")]
    site = {
        "name": "site",
        "type": "integer",
        "description": "place of the request's line in `sites` of `trace.json`; only where lines are known",
    }
    fields = [
        {
            "name": name,
            # a number that may be missing is a union, which has no name of its own
            "type": _TYPES.get(getattr(hints[name], "__name__", ""), "integer"),
            **({"description": comments[name]} if comments.get(name) else {}),
        }
        for name in columns
    ]
    return {"fields": [*fields, site], "missingValues": [""]}


SCHEMAS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "report.schema.json": make_report_schema,
    "trace.schema.json": make_run_schema,
    "trace.csv.schema.json": make_table_schema,
}


def format_schema(name: str) -> str:
    """Write a schema as its file has it."""
    return json.dumps(SCHEMAS[name](), indent=2, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> None:
    """Write the files of all schemas."""
    for name in SCHEMAS:
        (folder / name).write_text(format_schema(name), encoding="utf-8")
