"""Schemas of the dataclasses that programs print as JSON, for programs that read them."""

from __future__ import annotations

import ast
import inspect
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def make_dataclass_schema(kind: type) -> dict[str, Any]:
    """Make the schema of a dataclass, with the comment at each field as its description."""
    from pydantic import TypeAdapter

    schema: dict[str, Any] = TypeAdapter(kind).json_schema(mode="serialization")
    classes = {cls.__name__: cls for cls in list_dataclasses(kind)}
    for name, part in {kind.__name__: schema, **schema.get("$defs", {})}.items():
        part["description"] = (inspect.getdoc(classes[name]) or "").partition("\n")[0]
        for field, text in read_comments(classes[name]).items():
            if field in part.get("properties", {}) and text:
                part["properties"][field]["description"] = text
    return schema


def list_dataclasses(kind: type) -> Iterator[type]:
    """List a dataclass and those that its fields hold, however deep.

    Yields
    ------
    type
        Each class, before those of its fields.
    """
    yield kind
    hints = get_type_hints(kind, vars(sys.modules[kind.__module__]))
    waiting = [hints[field.name] for field in fields(kind)]
    while waiting:
        hint = waiting.pop()
        if isinstance(hint, type) and is_dataclass(hint):
            yield from list_dataclasses(hint)
        waiting.extend(get_args(hint))


def read_comments(kind: type) -> dict[str, str]:
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
