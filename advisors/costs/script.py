"""The cost model's own Python as JavaScript, so that the page's calculator has no formulas of its own.

What is translated are plain functions of numbers and the records that they
return, in the subset of Python that has the same meaning in both languages.
Anything else is refused where the book is built, never guessed. Arrays stand
behind `hits._total` alone: what it is given is written for one value, which
numpy broadcasts here and a loop repeats there.

A kept translator, pscript 0.8, was tried: it knows neither calls by keyword
nor unpacking nor generators, and warns from Python 3.12 on.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from advisors.costs import bill, demand
from helpers.models import hits

_LIBRARY = Path(__file__).with_name("worker.js")
_MODULES: tuple[ModuleType, ...] = (hits, demand, bill)

# What the page has of its own: numpy on one number, scipy's search for a root, and sums.
_OWN = ("_total", "brentq", "change", "check_prices")
_ROOTS = ("price_option", "cost_curves", "break_even_rates")

_OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
    ast.Eq: "===",
    ast.NotEq: "!==",
    ast.Is: "===",
    ast.IsNot: "!==",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.And: "&&",
    ast.Or: "||",
    ast.Not: "!",
    ast.USub: "-",
}
_METHODS = {"append": "{0}.push({1})", "startswith": "{0}.startsWith({1})", "values": "Object.values({0})"}  # fmt: skip
_LIBRARIES = ("math", "np", "itertools")
_BUILTINS = ("abs", "float", "getattr", "len", "max", "min", "range", "round", "sum", "tuple", "zip")  # fmt: skip


class Untranslatable(TypeError):
    """What has no equal in JavaScript, and where it stands."""


def write_formulas(roots: Sequence[str] = _ROOTS, own: Sequence[str] = _OWN) -> str:
    """Write the functions of the cost model, and all that they use, as JavaScript.

    Raises
    ------
    Untranslatable
        If a function uses what has no equal.

    Examples
    --------
    >>> print(write_formulas(["mean_cpu_s"]))
    function mean_cpu_s(assumptions, hit) {
    return (assumptions.make_cpu_s + ((1 - hit) * assumptions.open_cpu_s));
    }
    """
    found = _gather(_MODULES)
    wanted, written = [*roots], dict[str, str]()
    while wanted:
        name = wanted.pop()
        if name not in written:
            one = _Translator(found, own)
            written[name] = one.define(name)
            wanted += one.used
    return "\n".join(reversed(written.values()))


def write_worker() -> str:
    """Write the script that computes beside the page: what Python brings along, options, formulas."""
    return f"{_LIBRARY.read_text(encoding='utf-8')}\n{write_formulas()}\n"


def _gather(modules: Sequence[ModuleType]) -> dict[str, Any]:
    """List what modules define or hold, by name, which must mean one thing in all."""
    found: dict[str, Any] = {}
    for module in modules:
        for name, value in vars(module).items():
            if not name.startswith("__") and found.setdefault(name, value) is not value:
                raise Untranslatable(f"{name}: it is something else in {module.__name__}")
    return found


class _Translator:
    """Translates one function or record, and notes what it uses."""

    def __init__(self, found: Mapping[str, Any], own: Sequence[str]) -> None:
        self.found, self.own, self.used = found, own, list[str]()
        self.local: list[set[str]] = []

    def define(self, name: str) -> str:
        """Define what a name stands for."""
        value = inspect.unwrap(self.found[name]) if callable(self.found[name]) else self.found[name]
        if inspect.isclass(value):
            return self.record(value)
        if inspect.isfunction(value):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
            return self.statement(tree)
        return f"const {name} = {_literal(value)};"

    def record(self, kind: type) -> str:
        """Define what makes a record of its fields, and what it computes of them."""
        fields = dataclasses.fields(kind)
        given = [
            one.name + ("" if one.default is dataclasses.MISSING else f" = {_literal(one.default)}")
            for one in fields
        ]
        held = [one.name for one in fields]
        for name, value in vars(kind).items():
            if isinstance(value, property) and value.fget is not None:
                (tree,) = ast.parse(textwrap.dedent(inspect.getsource(value.fget))).body
                held.append(f"get {name}() {{ const self = this; {self.body(tree)} }}")
        return f"const {kind.__name__} = ({', '.join(given)}) => ({{ {', '.join(held)} }});"

    def body(self, tree: Any) -> str:
        """Write the statements of a function, its names declared."""
        names = [arg.arg for arg in _parameters(tree.args)]
        own = {node.id for node in _inside(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}  # fmt: skip
        nested = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.local.append({*names, *own, *nested})
        lines = [f"let {', '.join(sorted(own - {*names}))};"] if own - {*names} else []
        lines += [self.statement(node) for node in tree.body]
        self.local.pop()
        return "\n".join(filter(None, lines))

    def block(self, nodes: Sequence[ast.stmt]) -> str:
        return "{\n" + "\n".join(filter(None, map(self.statement, nodes))) + "\n}"

    def statement(self, node: ast.AST) -> str:
        """Translate a statement."""
        x = self.expression
        match node:
            case ast.FunctionDef(name=name):
                return f"function {name}({self.signature(node.args)}) {{\n{self.body(node)}\n}}"
            case ast.Expr(value=ast.Constant(value=str())):
                return ""  # what it does, in words
            case ast.Expr(value=value):
                return f"{x(value)};"
            case ast.Return(value=ast.expr() as value):
                return f"return {x(value)};"
            case ast.Assign(targets=targets, value=value):
                return f"{' = '.join(map(x, targets))} = {x(value)};"
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return f"{x(target)} = {x(value)};"
            case ast.AugAssign(target=target, op=op, value=value):
                return f"{x(target)} {_sign(op)}= {x(value)};"
            case ast.If(test=test, body=body, orelse=orelse):
                otherwise = f" else {self.block(orelse)}" if orelse else ""
                return f"if ({x(test)}) {self.block(body)}{otherwise}"
            case ast.While(test=test, body=body, orelse=[]):
                return f"while ({x(test)}) {self.block(body)}"
            case ast.For(target=target, iter=many, body=body, orelse=[]):
                return f"for ({x(target)} of {x(many)}) {self.block(body)}"
            case ast.Raise():
                return 'throw new Error("out of bounds");'  # the page refuses it before
            case ast.Break() | ast.Continue():
                return f"{type(node).__name__.lower()};"
        raise Untranslatable(f"{ast.unparse(node)!r}: no such statement in both languages")

    def signature(self, args: ast.arguments) -> str:
        """List parameters, those by keyword last, with what they are unless given."""
        first = [None] * (len(args.args) - len(args.defaults))
        unless = [*first, *args.defaults, *args.kw_defaults]
        pairs = zip(_parameters(args), unless, strict=True)
        return ", ".join(p.arg + (f" = {self.expression(d)}" if d else "") for p, d in pairs)

    def expression(self, node: ast.AST) -> str:
        """Translate an expression; each operation keeps its own parentheses."""
        x = self.expression
        match node:
            case ast.Constant(value=value):
                return _literal(value)
            case ast.Name(id=name):
                return self.name(name)
            case ast.Attribute(value=value, attr=name):
                return f"{x(value)}.{name}"
            case ast.Subscript(value=value, slice=ast.Slice(lower=low, upper=high, step=None)):
                ends = [x(low) if low else "0", *([x(high)] if high else [])]
                return f"{x(value)}.slice({', '.join(ends)})"
            case ast.Subscript(value=value, slice=ast.UnaryOp(op=ast.USub(), operand=index)):
                return f"{x(value)}.at(-{x(index)})"
            case ast.Subscript(value=value, slice=index):
                return f"{x(value)}[{x(index)}]"
            case ast.BinOp(left=left, op=op, right=right):
                return f"({x(left)} {_sign(op)} {x(right)})"
            case ast.UnaryOp(op=op, operand=operand):
                return f"({_sign(op)}{x(operand)})"
            case ast.BoolOp(op=op, values=values):
                return f"({f' {_sign(op)} '.join(map(x, values))})"
            case ast.Compare(left=left, ops=ops, comparators=others):
                pairs = itertools.pairwise([left, *others])
                said = [self.compare(op, *pair) for op, pair in zip(ops, pairs, strict=True)]
                return f"({' && '.join(said)})"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"({x(test)} ? {x(body)} : {x(orelse)})"
            case ast.Starred(value=value):
                return f"...{x(value)}"
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return f"[{', '.join(map(x, parts))}]"
            case ast.Dict(keys=keys, values=values):
                pairs_of = zip(keys, values, strict=True)
                return f"({{ {', '.join(f'[{x(k)}]: {x(v)}' if k else f'...{x(v)}' for k, v in pairs_of)} }})"
            case ast.Lambda(args=args, body=body):
                return self.within(args, lambda: f"(({self.signature(args)}) => {x(body)})")
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp():
                return self.comprehension(node)
            case ast.Call():
                return self.call(node)
        raise Untranslatable(f"{ast.unparse(node)!r}: no such expression in both languages")

    def within(self, names: ast.AST, write: Callable[[], str]) -> str:
        """Write what is said where some names are local."""
        inner = {n.arg if isinstance(n, ast.arg) else n.id for n in ast.walk(names) if isinstance(n, ast.arg | ast.Name)}  # fmt: skip
        self.local.append(inner)
        text = write()
        self.local.pop()
        return text

    def name(self, name: str) -> str:
        """Write a name; one that is neither local nor the language's own has to be defined."""
        if not any(name in known for known in self.local) and name not in (*_LIBRARIES, *_BUILTINS):
            if name not in self.found:
                raise Untranslatable(f"{name}: nothing in both languages")
            if name not in self.own:
                self.used.append(name)
        return name

    def compare(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> str:
        if isinstance(op, ast.In) and isinstance(right, ast.Tuple):
            return f"{self.expression(right)}.includes({self.expression(left)})"
        return f"{self.expression(left)} {_sign(op)} {self.expression(right)}"

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> str:
        """Translate one loop over a list, which keeps its own names."""
        if len(node.generators) > 1:
            raise Untranslatable(f"{ast.unparse(node)!r}: allowed is one loop")
        (loop,) = node.generators
        many, x = self.expression(loop.iter), self.expression

        def write() -> str:
            target = x(loop.target)
            chosen = "".join(f".filter(({target}) => {x(test)})" for test in loop.ifs)
            if isinstance(node, ast.DictComp):
                pairs = f"{many}{chosen}.map(({target}) => [{x(node.key)}, {x(node.value)}])"
                return f"Object.fromEntries({pairs})"
            return f"{many}{chosen}.map(({target}) => {x(node.elt)})"

        return self.within(loop.target, write)

    def call(self, node: ast.Call) -> str:
        """Translate a call; what is given by keyword goes to its place."""
        given = [self.expression(arg) for arg in node.args]
        match node.func:
            case ast.Attribute(value=value, attr=name) if name in _METHODS:
                return _METHODS[name].format(self.expression(value), ", ".join(given))
            case ast.Attribute(value=ast.Name(id=library)) if library in _LIBRARIES:
                pass
            case ast.Name(id=name) if name in self.found and name not in self.own:
                given += self.keywords(node, self.found[name], len(given))
            case ast.Name(id=name) if node.keywords and name not in ("zip", "brentq"):
                raise Untranslatable(f"{ast.unparse(node)!r}: allowed is a call without keywords")
            case ast.Name():
                pass
            case _:
                raise Untranslatable(f"{ast.unparse(node)!r}: no such call in both languages")
        return f"{self.expression(node.func)}({', '.join(given)})"

    def keywords(self, node: ast.Call, called: Any, n_given: int) -> list[str]:
        """List what is given by keyword in the order in which it is expected."""
        known = {one.arg: self.expression(one.value) for one in node.keywords if one.arg}
        names = [*inspect.signature(called).parameters][n_given:]
        if len(known) < len(node.keywords) or not set(known) <= set(names):
            raise Untranslatable(f"{ast.unparse(node)!r}: allowed are keywords that it has")
        while names and names[-1] not in known:
            names.pop()
        return [known.get(name, "undefined") for name in names]


def _parameters(args: ast.arguments) -> list[ast.arg]:
    """List all parameters, those by keyword last."""
    if args.vararg or args.kwarg:
        raise Untranslatable("any number of arguments: allowed are those with a name")
    return [*args.posonlyargs, *args.args, *args.kwonlyargs]


def _inside(tree: ast.AST) -> list[ast.AST]:
    """List the nodes of a function, but not those of what it defines inside."""
    nodes = []
    for node in ast.iter_child_nodes(tree):
        nodes.append(node)
        if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.DictComp):  # fmt: skip
            nodes += _inside(node)
    return nodes


def _sign(op: ast.AST) -> str:
    if type(op) not in _OPERATORS:
        raise Untranslatable(f"{type(op).__name__}: no such operator in both languages")
    return _OPERATORS[type(op)]


def _literal(value: object) -> str:
    """Write a constant."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return json.dumps(value)
    raise Untranslatable(f"{value!r}: no such constant in both languages")
