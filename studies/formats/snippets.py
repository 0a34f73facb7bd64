"""What a user writes to read a format: the code that is measured, as it is shown and counted.

Shown is the function that opens a format, with every other one of this study and of the shared
readers that it calls. Left out are annotations, docstrings, comments and the silencing of warnings;
each statement is one line, however long. Where the store is and who asks is given.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CodeType, ModuleType
from typing import Any

from studies.formats.clients import CLIENTS, Client

_OF_THE_BOOK = ("studies.formats.", "helpers.arrays.readers")
_SILENCING = ("catch_warnings", "filterwarnings", "expected_warning")


class _Shorten(ast.NodeTransformer):
    """Leave out what a user would not write."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Drop the docstring, and the type of what is returned."""
        node.returns = None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Drop the type of an argument."""
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Drop the type of a variable."""
        assert node.value is not None  # a declaration alone is no line of these functions
        plain = ast.Assign([node.target], node.value)
        return self.generic_visit(ast.copy_location(plain, node))

    def visit_With(self, node: ast.With) -> Any:
        """Take out of it what is done while warnings are silenced."""
        self.generic_visit(node)
        return node.body if _silences(node.items[0].context_expr) else node

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Drop what silences a warning."""
        return None if _silences(node.value) else self.generic_visit(node)


def _silences(node: ast.expr) -> bool:
    """Tell whether an expression is a call that silences warnings."""
    called = node.func if isinstance(node, ast.Call) else None
    return getattr(called, "attr", getattr(called, "id", "")) in _SILENCING


def _shorten(function: Callable[..., Any]) -> str:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return ast.unparse(ast.fix_missing_locations(_Shorten().visit(tree)))


def _list_calls(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """List the functions that a function names, of its own module and of those that it names."""
    named = [*_names_of(function.__code__)]
    for name in named:
        found = function.__globals__.get(name)
        if isinstance(found, ModuleType):
            yield from (getattr(found, one) for one in named if hasattr(found, one))
        elif found is not None:
            yield found


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)


def _unwrap(found: Any) -> Iterator[Callable[..., Any]]:
    """List the functions of the book behind an object: itself, or those that it was made from."""
    if isinstance(found, partial):
        yield from _unwrap(found.func)
        yield from _unwrap(found.keywords.get("open"))
    elif inspect.isfunction(found) and found.__module__.startswith(_OF_THE_BOOK):
        yield found


def find_functions(client: Client) -> list[Callable[..., Any]]:
    """List the functions that a read by a client runs, the first that which opens."""
    found: list[Callable[..., Any]] = []
    waiting = [*_unwrap(client.open)]
    while waiting:
        function = waiting.pop(0)
        if function not in found and not inspect.isgeneratorfunction(inspect.unwrap(function)):
            found.append(function)
            waiting += [one for call in _list_calls(function) for one in _unwrap(call)]
    return found


def _list_arguments(found: Any) -> Iterator[str]:
    """List the arguments by which a client differs from another of the same functions."""
    if isinstance(found, partial):
        for name, value in found.keywords.items():
            yield from (
                _list_arguments(value)
                if name == "open"
                else [f"{name}={getattr(value, '__name__', repr(value))}"]
            )


def show_code(name: str, n_requests: int) -> str:
    """Show what a user writes to read by a client: settings of zarr, functions, their arguments."""
    client = CLIENTS[name]
    code = [_shorten(one) for one in find_functions(client)]
    config = client.config(n_requests)
    if config and any("open_zarr(" in one for one in code):
        code.insert(0, f"zarr.config.set({config})")
    if arguments := [*_list_arguments(client.open)]:
        code.insert(0, f"# with {', '.join(arguments)}")
    return "\n".join(code)


def count_lines(code: str) -> int:
    r"""Count the lines of code that do something: names of functions and comments do not.

    Examples
    --------
    >>> count_lines("def read(steps):\n\n    return array[steps]")
    1
    """
    lines = [line.strip() for line in code.splitlines()]
    return sum(bool(line) and not line.startswith(("#", "def ", "async def ")) for line in lines)


def tell(names: Sequence[str], n_requests: int) -> str:
    """Write the code of contenders as Markdown, once for those that share it."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(show_code(name, n_requests), []).append(name)
    parts = (
        f"**{', '.join(group)}** ({count_lines(code)} lines)\n\n```python\n{code}\n```"
        for code, group in groups.items()
    )
    return "\n\n".join(parts)
