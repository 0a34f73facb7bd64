"""Tests of what becomes JavaScript, and of what is refused."""

from __future__ import annotations

import ast

import pytest

from advisors.costs.script import Untranslatable, _Translator, write_formulas


def translate(text: str) -> str:
    """Translate a statement that knows nothing else."""
    return _Translator({}, ()).statement(ast.parse(text).body[0]).replace("\n", " ")


@pytest.mark.parametrize(
    ("python", "javascript"),
    [
        ("def f(a, *, b=2): return a if 0 < a <= b else -a", "function f(a, b = 2) { return ((0 < a && a <= b) ? a : (-a)); }"),
        ("def f(a): return [*a[1:], a[-1], {**a[0], 'n': None}]", "function f(a) { return [...a.slice(1), a.at(-1), ({ ...a[0], [\"n\"]: null })]; }"),
        ("def f(a): return sum(x ** 2 for x in a if x)", "function f(a) { return sum(a.filter((x) => x).map((x) => (x ** 2))); }"),
        ("def f(a):\n    low = high = a\n    low += 1\n    return high == low", "function f(a) { let high, low; low = high = a; low += 1; return (high === low); }"),
    ],
)  # fmt: skip
def test_python_becomes_javascript(python: str, javascript: str) -> None:
    """Names are declared, comparisons are chained, lists are spread, and each operation keeps its parentheses."""
    assert translate(python) == javascript


@pytest.mark.parametrize(
    "python",
    [
        "def f(a): return a // 2",  # rounds to another side
        "def f(a): return a % 2",
        "def f(a): return a @ a",
        "def f(a): return {1, 2}",
        "def f(a): return a in b",  # not told of b
        "def f(a): return f'{a}'",
        "def f(a): return a[::2]",
        "def f(a): return [x for y in a for x in y]",
        "def f(a): return a.sort()",
        "def f(a): return max(a, key=len)",
        "def f(*a): return a",
        "def f(a):\n    with a: pass",
        "def f(a):\n    for x in a: pass\n    else: return 1",
    ],
)
def test_what_means_something_else_is_refused(python: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(Untranslatable):
        translate(python)


def test_all_that_is_used_is_there() -> None:
    """Each name is defined once, whatever uses it."""
    text = write_formulas()
    names = [line.split("(")[0].split()[1] for line in text.splitlines() if line.startswith("function ")]  # fmt: skip
    assert {"price_option", "hit_ratio", "least_stored_gb", "break_even_rates"} <= set(names)
    assert len(text) < 40_000
