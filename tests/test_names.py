"""Names say what a thing is, so that somebody who has never seen the code can read it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.paths import ROOT

FOLDERS = ("_ext", "helpers", "runner", "src", "studies")
VAGUE = frozenset(
    [
        "one",
        "ones",
        "two",
        "found",
        "told",
        "at",
        "kept",
        "asked",
        "given",
        "said",
        "what",
        "how",
        "way",
        "each",
        "it",
        "ours",
        "theirs",
        "others",
        "other",
        "such",
        "same",
        "again",
        "known",
        "spelt",
        "spelled",
        "took",
        "taken",
        "made",
        "seen",
        "right_one",
        "that",
        "this",
        "these",
        "those",
        "them",
        "they",
        "who",
        "whom",
        "whose",
        "here",
        "there",
        "so",
        "far",
        "off",
        "by",
        "under",
        "above",
        "thing",
        "things",
        "piece",
        "like",
        "likes",
        "much",
        "many",
        "few",
        "some",
    ]
)
"""Pronouns, participles and prepositions: they say of a thing where it came from, not what it is."""

MOST = 0.005
"""Share of vague names among all that are bound; in code that engineers admire it is 0 to 0.014."""


def list_bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """List each name that an assignment, a loop, an argument or a definition binds, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno


def list_vague_names(code: str) -> tuple[list[tuple[str, int]], int]:
    """Return the vague names of a module, and the number of all names of more than a letter."""
    bound = [(name, line) for name, line in list_bound_names(ast.parse(code)) if len(name) > 1]
    return [(name, line) for name, line in bound if name.strip("_") in VAGUE], len(bound)


@pytest.mark.parametrize(
    ("code", "vague", "n_bound"),
    [
        ("one = 1", ["one"], 1),
        ("def describe(found, *, layout): return [told for told in found]", ["found", "told"], 4),
        ("for i, row in rows: _ = row", [], 1),  # a letter is an index, _ is thrown away
        ("class Asked: _at = 1", ["_at"], 2),
        ("one.two", [], 0),  # used, and bound elsewhere
    ],
)
def test_vague_names_are_counted(code: str, vague: list[str], n_bound: int) -> None:
    """Where a name is bound, in whatever way, and as often as it is."""
    names, n_names = list_vague_names(code)
    assert (sorted(name for name, _ in names), n_names) == (sorted(vague), n_bound)


def test_few_names_are_vague() -> None:
    """Of all that the code binds; the message lists the files that have most of them."""
    counts, n_names = dict[Path, int](), 0
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            vague, n_bound = list_vague_names(path.read_text(encoding="utf-8"))
            counts[path], n_names = len(vague), n_names + n_bound
    most = sorted(counts, key=lambda path: -counts[path])[:8]
    share = sum(counts.values()) / n_names
    listed = ", ".join(f"{path.relative_to(ROOT)} {counts[path]}" for path in most)
    assert share <= MOST, f"{share:.1%} of {n_names} names are vague: {listed}"
