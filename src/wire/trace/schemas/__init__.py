"""Schemas of what `wire trace` writes, made from the classes that it writes; JSON files of them lie here.

`python -m wire.trace.schemas` writes the files anew.
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import tokenize
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from wire.trace import report, rows, stored
from wire.trace.report import Report
from wire.trace.rows import CallSite, Run, TracedRequest

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {"float": "number", "int": "integer", "bool": "boolean", "str": "string"}


def make_report_schema() -> dict[str, Any]:
    """Make the schema of what `--json` prints, the last line of standard output."""
    schema = _make_schema(Report)
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
    schema = _make_schema(Run)
    definitions = schema.pop("$defs", {})
    definitions.pop("TracedRequest", None)
    definitions["CallSite"] = _make_schema(CallSite)
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
    comments = _read_comments(TracedRequest)
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


def _make_schema(kind: type) -> dict[str, Any]:
    """Make the schema of a dataclass, with the comment at each field as its description."""
    from pydantic import TypeAdapter

    schema: dict[str, Any] = TypeAdapter(kind).json_schema(mode="serialization")
    classes = {
        name: getattr(report, name, None) or getattr(rows, name) for name in schema.get("$defs", {})
    }
    for name, part in {kind.__name__: schema, **schema.get("$defs", {})}.items():
        cls = kind if name == kind.__name__ else classes[name]
        part["description"] = (inspect.getdoc(cls) or "").partition("\n")[0]
        for field, text in _read_comments(cls).items():
            if field in part.get("properties", {}) and text:
                part["properties"][field]["description"] = text
    return schema


def _read_comments(kind: type) -> dict[str, str]:
    """Read the comment behind each field of a class, or the lines of comments before it."""
    texts = dict[str, str]()
    for cls in reversed(kind.__mro__[:-1]):
        source = inspect.getsource(cls)
        comments = {
            token.start[0]: (token.string.lstrip("# "), not token.line.split("#")[0].strip())
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        }
        (node,) = ast.parse(source).body
        assert isinstance(node, ast.ClassDef)
        for statement in node.body:
            if not isinstance(statement, ast.AnnAssign) or not isinstance(
                statement.target, ast.Name
            ):
                continue
            lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
            behind = [
                comments[line][0] for line in lines if line in comments and not comments[line][1]
            ]
            before, line = list[str](), statement.lineno - 1
            while line in comments and comments[line][1]:
                before.insert(0, comments[line][0])
                line -= 1
            inside = [comments[line][0] for line in lines if line in comments and comments[line][1]]
            texts[statement.target.id] = " ".join([*before, *inside, *behind])
    return texts


def write_schemas(folder: Path) -> None:
    """Write the files of all schemas."""
    for name in SCHEMAS:
        (folder / name).write_text(format_schema(name), encoding="utf-8")
