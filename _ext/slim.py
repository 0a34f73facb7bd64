"""Load on each page only what it uses: no script of icons, no rule that matches nothing.

The theme comes with a script that draws two thousand icons, three fonts of them, the
style sheet of a whole framework, and, on every page, the index of the search. After
the build the fonts keep the glyphs that are used, style sheets the rules whose
classes occur, and pages the scripts that act on them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from fontTools import subset
from sphinx.application import Sphinx

# Names that scripts put together while they run.
_COMPOSED = ("bs-", "tooltip", "dropdown", "fade", "show", "modal", "collaps", "tippy")
_GROUPS = ("@media", "@supports", "@layer", "@container")
# Of pages other than the search page, which has its own.
_SEARCH = ("searchtools.js", "language_data.js", "searchindex.js")
_ICONS = "scripts/fontawesome.js"

_TOKEN = re.compile(
    r"/\*.*?\*/|url\((?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^)\"']*)\)"
    r"|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\\.|[{};]|(?:(?!url\()[^{};\"'/\\])+|/",
    re.DOTALL,
)
_ANYTHING_INSIDE = re.compile(
    r"\[[^\]]*\]|\"[^\"]*\"|:(?:not|is|where|has)\((?:[^()]|\([^()]*\))*\)"
)
_NAME = re.compile(r"[.#](-?[A-Za-z_][\w-]*)")


def split_rules(css: str) -> Iterator[tuple[str, str | None]]:
    """Split a style sheet into what stands before braces and in them; no braces, no body."""
    depth, head, body = 0, "", ""
    for piece in _TOKEN.findall(css):
        if depth == 0 and piece == ";":
            yield head.strip(), None
            head = ""
        elif piece == "}" and depth <= 1:
            yield head.strip(), body
            depth, head, body = 0, "", ""
        elif depth == 0 and piece == "{":
            depth = 1
        elif depth == 0:
            head += "" if piece.startswith("/*") else piece
        else:
            depth += (piece == "{") - (piece == "}")
            body += piece


def split_selectors(text: str) -> list[str]:
    """Split at commas that stand in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def is_used(selector: str, names: Collection[str]) -> bool:
    """Tell whether every class and id of a selector occurs in some page or script."""
    asked = _NAME.findall(_ANYTHING_INSIDE.sub("", selector))
    return all(name in names or name.startswith(_COMPOSED) for name in asked)


def purge(css: str, names: Collection[str]) -> str:
    """Leave out the rules that match nothing."""
    kept = []
    for head, body in split_rules(css):
        if body is None:
            kept.append(f"{head};")
        elif head.startswith(_GROUPS):
            if inner := purge(body, names):
                kept.append(f"{head}{{{inner}}}")
        elif head.startswith("@"):
            kept.append(f"{head}{{{body}}}")
        elif used := [one for one in split_selectors(head) if is_used(one, names)]:
            kept.append(f"{','.join(used)}{{{body}}}")
    return "\n".join(kept)


def list_names(pages: Collection[str], scripts: Collection[str]) -> set[str]:
    """List the classes and ids of pages, and every word that a script may make one of."""
    attributes = [text for page in pages for text in re.findall(r'(?:class|id)="([^"]*)"', page)]
    inline = [text for page in pages for text in re.findall(r"<script>(.*?)</script>", page, re.S)]
    words = re.findall(r"[A-Za-z_][\w-]*", "\n".join([*scripts, *inline]))
    return {*" ".join(attributes).split(), *words}


def subset_font(path: Path, css: str) -> Path:
    """Keep the glyphs that style sheets name, under a name of our own, as the licence asks."""
    glyphs = {ord(character) for character in re.findall("[\ue000-\uf8ff]", css)}
    glyphs |= {int(code, 16) for code in re.findall(r"\\([ef][0-9a-f]{3})\b", css)}
    options = subset.Options(flavor="woff", layout_features=[], hinting=False)
    font = subset.load_font(str(path), options)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=glyphs)
    cutter.subset(font)
    for record in font["name"].names:
        if record.nameID in (1, 3, 4, 6, 16):
            record.string = "BookIcons"
    made = path.with_suffix(".woff")
    subset.save_font(font, str(made), options)
    return made


_SOURCES = re.compile(
    r"url\(([^)]*)\.woff2\) format\(\"woff2\"\),\s*url\([^)]*\.ttf\) format\(\"truetype\"\)"
)
_NOTICE = """
The fonts beside this file are parts of Font Awesome Free 6: they keep the glyphs that
the book uses, and are called BookIcons. Icons: CC BY 4.0. Fonts: SIL OFL 1.1.
"""


def slim(folder: Path) -> None:
    """Slim a built book."""
    static = folder / "_static"
    paths = [path for path in folder.rglob("*.html") if "_static" not in path.parts]
    unused = "|".join(re.escape(name) for name in (_ICONS, *_SEARCH))
    script = re.compile(rf'\s*<script (?:defer )?src="[^"]*(?:{unused})[^"]*"></script>')
    for path in paths:
        text = path.read_text(encoding="utf-8")
        drop = re.compile(rf'\s*<script (?:defer )?src="[^"]*{re.escape(_ICONS)}[^"]*"></script>')
        text = (drop if path.name == "search.html" else script).sub("", text)
        path.write_text(text, encoding="utf-8")
    for path in [static / _ICONS, *static.rglob("*.map")]:
        path.unlink(missing_ok=True)
    pages = [path.read_text(encoding="utf-8") for path in paths]
    names = list_names(pages, [path.read_text("utf-8") for path in static.rglob("*.js")])
    sheets = [path for path in static.rglob("*.css") if path.name != "book.css"]
    for path in sheets:
        css = purge(path.read_text(encoding="utf-8"), names)
        path.write_text(_SOURCES.sub(r'url(\1.woff) format("woff")', css), encoding="utf-8")
    told = "".join(path.read_text(encoding="utf-8") for path in sheets)
    slim_fonts(static / "vendor" / "fontawesome", told)


def slim_fonts(folder: Path, css: str) -> None:
    """Replace the fonts of icons by the parts of them that are used."""
    for path in sorted(folder.rglob("*.ttf")):
        subset_font(path, css)
        path.unlink()
    for path in folder.rglob("*.woff2"):
        path.unlink()
    if folder.is_dir():
        (folder / "LICENSE.txt").write_text(_NOTICE.lstrip(), encoding="utf-8")


def choose_files(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Leave scripts and styles that are named after a page, or lie in its folder, to that page."""

    def is_wanted(file: Any) -> bool:
        path = Path(str(getattr(file, "filename", "") or ""))
        owners = {path.stem, path.parent.name} & {*app.env.all_docs}
        return not owners or pagename in owners

    for kind in ("script_files", "css_files"):
        context[kind] = [file for file in context[kind] if is_wanted(file)]


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Slim what was built without an error."""
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    if exception is None and app.builder.format == "html":
        slim(Path(app.outdir))


def setup(app: Sphinx) -> dict[str, bool]:
    """Run after what the theme writes at the end of a build."""
    app.connect("html-page-context", choose_files, priority=900)
    app.connect("build-finished", finish, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
