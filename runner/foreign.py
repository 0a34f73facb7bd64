"""Pages of notebooks that somebody else may have executed: the project's cells, and outputs that cannot act.

A digest shows that a notebook is as its sender left it, not that its sender ran ours. So a page has
text and code of the notebook in this project, and from the executed one its outputs alone, made
anew: plain text, tables of the text of their cells, and pictures of shapes.
"""

from __future__ import annotations

import ast
import base64
import binascii
import html
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from wire.errors import UserError

Notebook = dict[str, Any]

INJECTED = "injected-parameters"
"""Tag of the cell that papermill adds: the parameters of the case."""
_MAX_CHARACTERS = 4_000_000  # of an output; the largest picture of ours has a tenth
_LEFT_OUT = "an output was left out: it is larger than any of ours, or no picture of shapes"


def rebuild(executed: Notebook, sources: Iterable[Notebook]) -> Notebook:
    """Make a notebook of the first of `sources` with the same cells, and of the outputs of `executed`.

    Names, tags, captions and whatever else steers the page are those of the source.
    """
    cells = [cell for cell in executed["cells"] if not _is_injected(cell)]
    written = [_identify(cell) for cell in cells]
    for source in sources:
        if written == [_identify(cell) for cell in source["cells"]]:
            break
    else:
        raise UserError(
            "its text or code",
            "not that of the project's notebook",
            "a notebook of notebooks/, as it is now or at the commit of the record",
        )
    own, rebuilt = iter(source["cells"]), []
    for cell in executed["cells"]:
        clean = _copy_parameters(cell) if _is_injected(cell) else _copy_cell(next(own))
        if clean["cell_type"] == "code":
            clean["execution_count"] = cell.get("execution_count")
            clean["outputs"] = [*map(clean_output, cell.get("outputs", ()))]
        rebuilt.append(clean)
    metadata = {
        name: source["metadata"][name]
        for name in ("kernelspec", "language_info")
        if name in source["metadata"]
    }
    return {**source, "metadata": metadata, "cells": rebuilt}


def find_sources(path: Path, commits: Iterable[str], root: Path) -> Iterator[Notebook]:
    """Find a notebook of the project: as it is now, then at commits that the checkout is built on.

    Others may be in the repository too, as a branch that somebody sent and nobody has read yet.
    """
    if path.exists():
        yield _read(path.read_text(encoding="utf-8"))
    # of a case that has a notebook of its own by now, and had that of its study
    places = dict.fromkeys((path, path.with_name(f"{path.name.partition('.')[0]}.ipynb")))
    names = [place.relative_to(root).as_posix() for place in places]
    for commit in commits:
        if not re.fullmatch(r"[0-9a-f]{40}", commit):
            continue
        ancestry = ["merge-base", "--is-ancestor", commit, "HEAD"]
        if _run_git(ancestry, root) is None:
            continue
        for name in names:
            if text := _run_git(["show", f"{commit}:{name}"], root):
                yield _read(text)


def _run_git(arguments: list[str], root: Path) -> str | None:
    """Run git and return what it prints, or nothing where it fails or there is none."""
    try:
        completed = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:  # no git: of a notebook there is what lies here
        return None
    return None if completed.returncode else completed.stdout


def _read(text: str) -> Notebook:
    notebook: Notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    return notebook


def _identify(cell: Mapping[str, Any]) -> tuple[str, str]:
    return cell["cell_type"], cell["source"]


def _is_injected(cell: Mapping[str, Any]) -> bool:
    return cell["cell_type"] == "code" and INJECTED in cell["metadata"].get("tags", ())


def _copy_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {**cell, "metadata": {**cell["metadata"]}}


def _copy_parameters(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the cell of parameters, which may assign literals and nothing else: readers may run it."""
    try:
        statements = ast.parse(cell["source"]).body
        for statement in statements:
            if not (
                isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
            ):
                raise ValueError("a statement")
            _check_literal(statement.value)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(
            "its cell of parameters", "does more than assign them", "NAME = VALUE on each line"
        ) from error
    return {
        "cell_type": "code",
        "id": "injected-parameters",
        "metadata": {"tags": [INJECTED]},
        "source": cell["source"],
    }


def _check_literal(value: ast.expr) -> None:
    """Refuse an expression that is no literal, nor ``float("nan")``, as papermill writes it."""
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id == "float"
    ):
        if len(value.args) != 1 or value.keywords:
            raise ValueError("not one number")
        value = value.args[0]
    ast.literal_eval(value)


def clean_output(output: Mapping[str, Any]) -> dict[str, Any]:
    """Make an output anew, of what cannot act in a browser.

    Examples
    --------
    >>> output = {"output_type": "display_data", "data": {"text/html": "<script>x()</script>"}}
    >>> clean_output(output)["data"]
    {'text/plain': ''}
    """
    kind = output["output_type"]
    if kind == "stream":
        name = "stderr" if output.get("name") == "stderr" else "stdout"
        return {"output_type": "stream", "name": name, "text": _cut(output.get("text"))}
    if kind == "error":
        text = "\n".join(map(str, output.get("traceback", ())))
        return {"output_type": "stream", "name": "stderr", "text": _cut(text)}
    clean: dict[str, Any] = {
        "output_type": "display_data",
        "metadata": {},
        "data": _clean_data(output["data"]),
    }
    if kind == "execute_result":
        clean |= {"output_type": kind, "execution_count": output.get("execution_count")}
    return clean


def _clean_data(data: Mapping[str, Any]) -> dict[str, str]:
    """Choose the best form of an output that can be made anew."""
    text = _cut(data.get("text/plain"))
    makers = {
        "image/svg+xml": clean_svg,
        "image/png": clean_png,
        "text/html": rebuild_table,
    }
    for kind, make in makers.items():
        content = _join(data.get(kind))
        picture = make(content) if content and len(content) <= _MAX_CHARACTERS else ""
        if picture:
            return {kind: picture, "text/plain": text}
        if content and kind.startswith("image/"):
            return {"text/plain": _LEFT_OUT}
    if markdown := _cut(data.get("text/markdown")):
        return {"text/plain": re.sub(r"(?m)^```\w*\n?", "", markdown)}
    return {"text/plain": text}


def _join(content: Any) -> str:
    """Join what notebooks write as a text or as its lines; nothing of anything else."""
    if isinstance(content, list):
        content = "".join(map(str, content))
    return content if isinstance(content, str) else ""


def _cut(content: Any) -> str:
    text = _join(content)
    return text if len(text) <= _MAX_CHARACTERS else _LEFT_OUT


def clean_png(content: str) -> str:
    """Return a picture if it is one, else nothing."""
    try:
        picture = base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError):
        return ""
    is_picture = picture.startswith(b"\x89PNG\r\n\x1a\n")
    return base64.b64encode(picture).decode() if is_picture else ""


_MAX_TABLE = 1_000_000  # characters; a table of ours has some ten thousand
# A tag ends before the next begins, so that reading takes time in proportion to the length.
_TOKENS = re.compile(r"<(?P<end>/?)(?P<name>[a-zA-Z]\w*)(?P<attributes>[^<>]*)>|(?P<text>[^<]+)")
_SPANS = re.compile(r"\b(rowspan|colspan)=[\"']?([1-9]\d{0,2})\b", re.ASCII)
_SILENT = {"script", "style", "template", "noscript"}


def rebuild_table(content: str) -> str:
    r"""Write the first table anew, of the text of its cells; nothing where there is none.

    Examples
    --------
    >>> rebuild_table('<table onclick="x()"><tr><td rowspan="2"><a href="javascript:x()">1 &lt; 2</a>')
    '<table border="1" class="dataframe">\n<tr><td rowspan="2">1 &lt; 2</td></tr>\n</table>'
    """
    rows, n_heads, is_of_texts = list[list[_TableCell]](), 0, False
    is_inside = is_cell = False
    silent = ""
    for token in _TOKENS.finditer(content[:_MAX_TABLE]):
        name, is_end = (token["name"] or "").lower(), bool(token["end"])
        if silent:
            silent = "" if is_end and name == silent else silent
        elif name in _SILENT:
            silent = name
        elif name == "table" and is_end and is_inside:
            break
        elif name == "table":
            is_inside, is_of_texts = True, "texts" in token["attributes"]
        elif name == "thead" and is_end:
            n_heads = len(rows)
        elif name in ("tr", "th", "td"):
            is_cell = is_inside and not is_end and name != "tr"
            if is_inside and not is_end and (name == "tr" or not rows):
                rows.append([])
            if is_cell:
                attributes = dict(_SPANS.findall(token["attributes"]))
                spans = [f' {span}="{n}"' for span, n in attributes.items()]
                rows[-1].append(_TableCell(name, "".join(spans)))
        elif is_cell:
            rows[-1][-1].parts.append(html.unescape(token["text"] or " "))
    lines = [f"<tr>{''.join(map(_write_cell, row))}</tr>" for row in rows if row]
    if not lines:
        return ""
    if n_heads := min(n_heads, len(lines)):
        lines[0] = f"<thead>{lines[0]}"
        lines[n_heads - 1] += "</thead>"
    shown = "dataframe texts" if is_of_texts else "dataframe"
    return "\n".join([f'<table border="1" class="{shown}">', *lines, "</table>"])


@dataclass(frozen=True, slots=True)
class _TableCell:
    name: str  # th or td
    spans: str  # attributes
    parts: list[str] = field(default_factory=list)  # of its text


def _write_cell(cell: _TableCell) -> str:
    text = html.escape(" ".join(" ".join(cell.parts).split()), quote=False)
    return f"<{cell.name}{cell.spans}>{text}</{cell.name}>"


_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}"
SHAPES = {"svg", "g", "defs", "use", "path", "rect", "circle", "ellipse", "line", "polyline"}
SHAPES |= {"polygon", "text", "tspan", "clipPath", "style", "title", "desc"}
_ATTRIBUTES = {"id", "d", "x", "y", "x1", "x2", "y1", "y2", "dx", "dy", "cx", "cy", "r", "rx", "ry"}
_ATTRIBUTES |= {"width", "height", "viewBox", "version", "type", "transform", "points", "style"}
_ATTRIBUTES |= {"clip-path", "clip-rule", "fill", "fill-opacity", "fill-rule", "stroke", "opacity"}
_ATTRIBUTES |= {"stroke-width", "stroke-linecap", "stroke-linejoin", "stroke-dasharray"}
_ATTRIBUTES |= {"stroke-opacity", "stroke-dashoffset", "text-anchor", "preserveAspectRatio"}
_LOADS = re.compile(r"""[\\<@]|/\*|\burl\s*\(\s*(?!["']?\#[\w-]+["']?\s*\))|expression|script|image-set|\bsrc\b""", re.IGNORECASE)  # fmt: skip
_DEEPEST = 60  # groups inside one another; of Matplotlib there are about ten


def clean_svg(content: str) -> str:
    """Write a picture anew, of its shapes and texts; nothing where it is none.

    Left out are scripts, handlers, links, foreign content, and styles that load or import anything.

    Examples
    --------
    >>> svg = '<svg xmlns="http://www.w3.org/2000/svg"><script>x()</script><path d="M0 0" onload="x()"/></svg>'
    >>> clean_svg(svg).splitlines()[-1]
    '<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0" /></svg>'
    """
    if "<!ENTITY" in content.upper():
        return ""
    try:
        # no entity stands in it, which is what parsing XML of a stranger has to fear
        picture = _copy_shape(ET.fromstring(content), 0)  # noqa: S314
    except (ET.ParseError, ValueError, RecursionError):
        return ""
    if picture is None or picture.tag != f"{_SVG}svg":
        return ""
    ET.register_namespace("", _SVG.strip("{}"))
    ET.register_namespace("xlink", _XLINK.strip("{}"))
    body = ET.tostring(picture, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8" standalone="no"?>\n{body}'


def _copy_shape(element: ET.Element, depth: int) -> ET.Element | None:
    """Copy an element of a picture with what is in it, or nothing if it is no shape."""
    name = element.tag.removeprefix(_SVG) if element.tag.startswith(_SVG) else ""
    if name not in SHAPES or depth > _DEEPEST:
        return None
    copy = ET.Element(element.tag)
    for attribute, value in element.attrib.items():
        if attribute in (f"{_XLINK}href", "href"):
            is_kept = bool(re.fullmatch(r"#[\w-]+", value))
        else:
            is_kept = attribute in _ATTRIBUTES and not _LOADS.search(value)
        if is_kept:
            copy.set(attribute, value)
    is_style = name == "style"
    if element.text and not (is_style and _LOADS.search(element.text)):
        copy.text = element.text
    for child in () if is_style else element:
        shape = _copy_shape(child, depth + 1)
        if shape is not None:
            shape.tail = child.tail
            copy.append(shape)
    return copy
