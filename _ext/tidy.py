"""Write what notebooks print as a reader reads it: tables in words and plain numbers, sentences.

Executed notebooks stay as they ran; the built pages show their tables with one
row of heads, without a column that only counts rows, without exponents and
Python's own spelling, in a frame that a keyboard reaches. Controls of the theme that have no
name get one.
"""

# ruff: noqa: RUF001, RUF002 - shapes are written with a sign of multiplication

from __future__ import annotations

import ast
import html
import math
import re
from pathlib import Path

import yaml
from bs4 import BeautifulSoup, Tag
from sphinx.application import Sphinx

from helpers.book.arrange import slim_figure

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_KEY = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
_TABLE = re.compile(
    r"(?:<style[^>]*>[^<]*</style>\s*)?<table\b(?=[^>]*(?:\"dataframe\"|id=\"T_)).*?</table>",
    re.DOTALL,
)
_TEXT = re.compile(
    r'<div class="output text_plain[^>]*><div class="highlight"><pre><span></span>'
    r"((?:'|&#39;|\"|&quot;)[^<]*(?:'|&#39;|\"|&quot;))\s*</pre></div>\s*</div>",
    re.DOTALL,
)
_PRICED = re.compile(r"\b[a-z0-9]+(?:_[a-z0-9]+)*_gb_s\b")  # among the words of a finding
_MISSING = {"None", "NaN", "nan", "NaT", "<NA>"}
_SPELT = {"True": "yes", "False": "no", "inf": "without end", **dict.fromkeys(_MISSING, "–")}
_NO_NUMBER = {"", "-", "inf", *_MISSING}  # in a column of numbers
_ALIKE = (
    (re.compile(r"(?<=\d) x (?=\d)"), " × "),
    (re.compile(r"(?<=\d)%"), " %"),
    # an interval, in brackets of its own unless it stands in some
    (re.compile(r"\((-?[\d.,]+) \[(-?[\d.,]+), (-?[\d.,]+)\] ([^()]*)\)"), r"(\1, \2 to \3, \4)"),
    (re.compile(r"(?<=\d) \[(-?[\d.,]+), (-?[\d.,]+)\]"), r" (\1 to \2)"),
    # thousands apart; neither names nor lists
    (
        re.compile(r"(?<![\w.,:/=@#-])(?<!\d, )\d{5,}(?![\w:/@-]|\.\w|, ?\d)"),
        lambda m: f"{int(m[0]):,}",
    ),
)
_UNITS = {
    "_gb_s": "GB s",
    "_1e3": "a thousand",
    "_mb_per_s": "MB/s",
    "_per_s": "a second",
    "_nbytes": "bytes",
    "_mb": "MB",
    "_gb": "GB",
    "_ms": "ms",
    "_s": "s",
}
_WORDS = {"usd": "USD", "gb": "GB", "cdn": "CDN", "nat": "NAT", "hdf5": "HDF5", "ros3": "ROS3"}
_MIB = 2**20
_PROSE = 14  # letters in a cell, in the mean: more is text, to be read line by line
_PHONE = 335.0  # px that a table has there
_MOST_CARDS = 12  # rows of numbers: more are compared down their columns, in a frame that scrolls
_BREAK = re.compile(r"\s|(?<=-)")
_NAME, _LONG = 9, 30  # letters of a row's name that has a width, and of one that may break
_ROOM = 50  # that words take more than names at the left of a figure, pt
_FINDINGS = yaml.safe_load(Path(__file__).with_name("findings.yaml").read_text("utf-8"))
_NAMED_BY_KEY = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_BARE = re.compile(r"^-?\d[\d.,]*(?: (?:\(-?\d[^)]*\)|\[-?\d[^\]]*\]))?(?=$|, | \((?!-?\d))")


def spell(key: str, *, is_head: bool = False) -> str:
    """Spell a name of the code in words, its unit in brackets.

    Examples
    --------
    >>> spell("stream_mb_per_s"), spell("n_workers", is_head=True), spell("n_blocks")
    ('stream (MB/s)', 'workers', 'number of blocks')
    """
    if not _KEY.fullmatch(key):
        return key
    unit = next((end for end in _UNITS if key.endswith(end)), "")
    stem = key.removesuffix(unit)
    if stem.startswith("n_"):
        stem = stem[2:] if is_head else f"number_of_{stem[2:]}"
    text = " ".join(_WORDS.get(word, word) for word in stem.split("_"))
    return f"{text} ({_UNITS[unit]})" if unit else text


def write_number(text: str) -> str:
    """Write a number to three digits without an exponent, and with no more decimals than it had.

    Examples
    --------
    >>> write_number("4.09e+03"), write_number("8.71e-05"), write_number("67108864.000000")
    ('4090', '0.0000871', '67,108,864')
    >>> write_number("0.11700"), write_number("67.0"), write_number("-0.000")
    ('0.117', '67', '0')
    """
    value = float(text)
    if value == round(value) or abs(value) >= 100:
        return _group(value)
    decimals = 2 - math.floor(math.log10(abs(value)))
    if "e" not in text:
        decimals = min(decimals, len(text.partition(".")[2].rstrip("0")))
    return f"{value:.{max(decimals, 0)}f}"


def _group(value: float) -> str:
    """Write a whole number, its thousands apart where there are many."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value + 0.0:.0f}".replace("-0", "0")


def write_text(text: str) -> str:
    """Write a cell of words, free of Python's spelling.

    Examples
    --------
    >>> write_text("'disk'"), write_text("(1, 10, 320, 400)"), write_text("block_size=8388608")
    ('disk', '1 × 10 × 320 × 400', 'block_size=8 MiB')
    """
    text = _SPELT.get(text, text).replace("`", "")
    text = re.sub(r"^(['\"])(.*)\1$", r"\2", text)
    text = re.sub(r"^\((\d+(?:, \d+)+)\)$", lambda m: m[1].replace(", ", " × "), text)
    text = re.sub(r"(?<![\w.])-?\d+\.\d+e[+-]\d+", lambda m: write_number(m[0]), text)
    text = _PRICED.sub(lambda m: spell(m[0]), text)
    return re.sub(r"(?<==)\d{7,}\b", lambda m: _write_bytes(int(m[0])), spell(text))


def _write_bytes(nbytes: int) -> str:
    """Write the bytes of a setting in MiB where they are whole ones."""
    return f"{nbytes // _MIB} MiB" if nbytes % _MIB == 0 else f"{nbytes:,}"


def write_alike(fragment: str) -> str:
    """Write numbers, intervals and percents in one style; tags and code stay as they are.

    Examples
    --------
    >>> write_alike("<td>1.43 [1.38, 1.45] times of 20000 tiles, 8 x 4, 5%</td>")
    '<td>1.43 (1.38 to 1.45) times of 20,000 tiles, 8 × 4, 5 %</td>'
    """
    parts = re.split(r"(<code\b.*?</code>|<[^>]*>)", fragment, flags=re.DOTALL)
    for pattern, told in _ALIKE:
        parts[::2] = [pattern.sub(told, part) for part in parts[::2]]
    return "".join(parts)


def is_numeric(texts: list[str]) -> bool:
    """Tell whether the cells of a column are numbers, if any, where they are known."""
    return all(_NUMBER.fullmatch(text) or text in _NO_NUMBER for text in texts)


def name_finding(key: str, told: str) -> tuple[str, str]:
    """Name a finding in words, and give its number a unit.

    Examples
    --------
    >>> name_finding("ms-per-chunk", "3.01 (2.66 to 4.15)")
    ('each more chunk, a task a chunk', '3.01 (2.66 to 4.15) ms')
    >>> name_finding("ratio-best-to-s3fs", "1.2 (cannot be told apart)")[1]
    '1.2 times as fast (cannot be told apart)'
    >>> name_finding("zarr-rank-of-halves", "0.964")
    ('zarr: rank correlation of two halves of the reads', '0.964 of 1')
    >>> name_finding("of-tomorrow", "5 %"), name_finding("A/A noise, 50:50", "12 ms")
    (('of tomorrow', '5 %'), ('A/A noise, 50:50', '12 ms'))
    """
    medium, _, rest = key.partition("-")
    found = _FINDINGS.get(key, _FINDINGS.get(f"MEDIUM-{rest}"))
    if found is None:
        return key.replace("-", " ") if _NAMED_BY_KEY.fullmatch(key) else key, told
    words, unit = found if isinstance(found, list) else (found, "")
    words = words.replace("MEDIUM", _WORDS.get(medium, medium))
    return words, _BARE.sub(lambda number: f"{number[0]} {unit}", told) if unit else told


def write_column(texts: list[str]) -> list[str]:
    """Write the cells of one column alike: all as numbers, or all as words."""
    if not is_numeric(texts) or not {*texts} - _NO_NUMBER:
        return [write_text(text) for text in texts]
    told = {**_SPELT, "": "–", "-": "–"}
    return [told.get(text) or write_number(text) for text in texts]


def read_heads(table: Tag, n_index: int) -> list[str] | None:
    """Read one head for each column; none where columns have heads on two levels.

    pandas writes the names of the index below those of the columns, and the name of
    all columns, such as `n_workers`, at their left.
    """
    rows = [
        [_text(cell) for cell in row.find_all("th") for _ in range(int(cell.get("colspan", 1)))]
        for row in table.thead.find_all("tr")
    ]
    below = rows[1][:n_index] if len(rows) > 1 else [""] * n_index
    if len(rows) > 2 or (len(rows) == 2 and any(rows[1][n_index:])):
        return None
    over = rows[0][n_index - 1] if n_index else ""
    heads = [spell(name, is_head=True) for name in rows[0][n_index:]]
    if over:
        heads = [_join(over, head) for head in heads]
    return [spell(name, is_head=True) for name in below] + heads


def _join(over: str, head: str) -> str:
    """Join the name of all columns with that of one: 8 workers, rate 185; a word needs no other."""
    word = spell(over, is_head=True)
    if over.startswith("n_"):
        return f"{head} {word}"
    return f"{word} {head}" if _NUMBER.fullmatch(head) else head


def _text(cell: Tag) -> str:
    return " ".join(cell.get_text().replace("\xa0", " ").split())


def tidy_table(fragment: str) -> str:
    """Write one table of pandas anew; empty if it has no row."""
    soup = BeautifulSoup(fragment, "html.parser")
    table = soup.table
    rows = table.tbody.find_all("tr") if table is not None and table.tbody else []
    if not rows or table.thead is None:
        return "" if not rows else fragment
    n_index = max(len(row.find_all("th")) for row in rows)
    heads = read_heads(table, n_index)
    counted = [_text(row.th) for row in rows if row.th]
    if heads and n_index == 1 and not heads[0] and counted == [str(i) for i in range(len(rows))]:
        for row in rows:
            row.th.extract()
        heads, n_index = heads[1:], 0
    numeric = _write_cells(rows, is_finding=bool(heads) and heads[-1] == "finding")
    if heads is not None:
        table.thead.replace_with(_make_head(soup, heads, n_index, numeric))
    for tag in [table, *table.find_all(True)]:
        keep = ("rowspan", "colspan", "scope", "href", "class" if tag.name in ("td", "th") else "")
        tag.attrs = {
            name: value
            for name, value in tag.attrs.items()
            if name in keep and (name != "class" or value in (["num"], ["long"], ["name"]))
        }
    table["class"] = "table data"
    return f'<div class="pst-scrollable-table-container" tabindex="0">{table}</div>'


def _write_cells(rows: list[Tag], *, is_finding: bool) -> set[int]:
    """Write the cells of the body; return the columns that are numbers."""
    for row in rows if is_finding else []:
        row.th.string, row.td.string = name_finding(_text(row.th), _text(row.td))
    for cell in (cell for row in rows for cell in row.find_all("th")):
        text = write_text(_text(cell))
        cell.string = text
        cell["class"] = ["long"] if len(text) > _LONG else ["name"] if len(text) > _NAME else []
        cell["scope"] = "rowgroup" if int(cell.get("rowspan", 1)) > 1 else "row"
    grid = [row.find_all("td") for row in rows]
    numeric = set()
    for j in range(max(map(len, grid), default=0)):
        cells = [row[j] for row in grid if j < len(row)]
        texts = [_text(cell) for cell in cells]
        written = write_column(texts)
        if is_number := is_numeric(texts):
            numeric.add(j)
        for cell, text in zip(cells, written, strict=True):
            if cell.a is None:  # an address leads there
                cell.string = text
            cell["class"] = ["num"] if is_number else []
    return numeric


def _make_head(soup: BeautifulSoup, heads: list[str], n_index: int, numeric: set[int]) -> Tag:
    """Make the one row of heads; a column without a name has no head."""
    row = soup.new_tag("tr")
    for i, text in enumerate(heads):
        cell = soup.new_tag("th" if text else "td")
        cell.string = text
        if text:
            cell["scope"] = "col"
        cell["class"] = ["num"] if i - n_index in numeric else []
        row.append(cell)
    head = soup.new_tag("thead")
    head.append(row)
    return head


def stack_table(fragment: str) -> str:
    """Let a table of texts, or a short one too wide for a phone, be read row by row there.

    Each cell says what its column is, but for names of rows; those that rows share
    are repeated.
    """
    soup = BeautifulSoup(fragment, "html.parser")
    heads = [_text(cell) for cell in soup.select("thead tr > *")]
    rows = [(row, row.find_all(("th", "td"))) for row in soup.select("tbody tr")]
    grid: list[list[Tag]] = []
    for _, cells in rows:  # names that rows share stand at the left of the first of them
        shared = grid[-1][: len(heads) - len(cells)] if grid else []
        grid.append([*shared, *cells])
    if len(heads) < 3 or {len(cells) for cells in grid} != {len(heads)}:
        return fragment
    if all(_NUMBER.fullmatch(_text(cells[0]).replace(",", "")) for cells in grid):
        soup.table["class"] = [*soup.table["class"], "counted"]  # no names, so no room for them
    lengths = [len(_text(cell)) for cells in grid for cell in cells]
    is_prose = sum(lengths) >= _PROSE * len(lengths) * (1 if len(heads) > 3 else 2)
    is_wide = len(rows) <= _MOST_CARDS and measure_table(heads, grid) > _PHONE
    if not (is_prose or is_wide):
        return str(soup) if "counted" in soup.table["class"] else fragment
    soup.table["class"] = [*soup.table["class"], "stack", *([] if is_prose else ["pairs"])]
    for (row, cells), whole in zip(rows, grid, strict=True):
        for i, cell in enumerate(whole[: len(heads) - len(cells)]):
            again = soup.new_tag("td", attrs={"class": "again"})
            again.string = _text(cell)
            row.insert(i, again)
        for i, (cell, head) in enumerate(zip(row.find_all(("th", "td")), heads, strict=True)):
            if head and _text(cell) and (i or _NUMBER.fullmatch(_text(cell).replace(",", ""))):
                cell["data-head"] = head
    return str(soup)


def measure_table(heads: list[str], grid: list[list[Tag]]) -> float:
    """Estimate how wide a table is on a phone, where its texts are broken between words, px.

    Examples
    --------
    >>> measure_table(["time (s)", "requests"], [])
    117.6
    """
    size = (
        14.0 if len(heads) < 5 else 12.0 if len(heads) == 5 else 10.5
    )  # as the style sheet has it
    columns = [[head] for head in heads]
    for cells in grid:
        for column, cell in zip(columns, cells, strict=True):
            column.append(_text(cell))
    words = [[len(word) for text in column for word in _BREAK.split(text)] for column in columns]
    widths = [0.6 * max(found) for found in words]
    if grid and grid[0][0].name == "td":
        widths[0] = min(widths[0], 9.0)  # links and code, which may break anywhere
    return round(size * (sum(widths) + len(heads) * (0.4 if len(heads) > 5 else 0.6)), 1)


def tell_text(match: re.Match[str]) -> str:
    """Write a text that a cell returned as a paragraph."""
    try:
        text = str(ast.literal_eval(html.unescape(match[1])))
    except (SyntaxError, ValueError):
        return match[0]
    text = re.sub(r"\bn_workers (\d+)", r"\1 workers", text)
    return f'<p class="told">{write_alike(html.escape(text))}</p>' if text else ""


_NAMED = (
    # controls of the theme that only have a picture
    (r'<dialog id="pst-search-dialog">', '<dialog id="pst-search-dialog" aria-label="Search">'),
    (r'<dialog id="pst-(primary|secondary)-sidebar-modal">',
     r'<dialog id="pst-\1-sidebar-modal" aria-label="\1 navigation">'),
    (r'(<a class="[^"]*reference internal"[^>]*>)([^<]*)(</a><details[^>]*>)<summary>',
     r'\1\2\3<summary aria-label="Pages below \2">'),
    (r'<button class="sidebar-toggle (primary|secondary)-toggle([^>]*?)title="([^"]*)"',
     r'<button class="sidebar-toggle \1-toggle\2title="\3" aria-label="\3"'),
    # a corner of a table that heads nothing
    (r'<th class="head[^"]*">\s*(?:<p>\s*</p>)?\s*</th>', "<td></td>"),
    # a name that says something else than what is read; the text is name enough
    ('<summary aria-label="Toggle hidden content">', "<summary>"),
    (r'(<button class="btn search-button-field[^>]*?) aria-label="Search"', r"\1"),
    # the theme takes no choice of a reader for a wrong one
    (r'localStorage\.getItem\("mode"\) \|\| ""', 'localStorage.getItem("mode") || "auto"'),
    # a figure opens by itself, where it can be made larger
    (r'(<figure[^>]*>\s*)(<img alt="[^"]*" src="([^"]*\.svg)"[^>]*/>)',
     r'\1<a class="zoom" href="\3">\2</a>'),
    # a place for the advertisements of a host that this book is not at
    (r'<div id="ethical-ad-placement"[^>]*>\s*</div>', ""),
)  # fmt: skip


def tidy_page(text: str) -> str:
    """Tidy the outputs and the controls of one page."""
    text = _TABLE.sub(lambda match: tidy_table(match[0]), text)
    text = re.sub(
        r'<table class="table\b.*?</table>',
        lambda match: stack_table(write_alike(match[0])),
        text,
        flags=re.DOTALL,
    )
    text = re.sub(r"<style scoped>[^<]*</style>", "", text)
    text = _TEXT.sub(tell_text, text)
    text = re.sub(
        r'(?<=<span class="pasted-text">)[^<]*',
        lambda match: _PRICED.sub(lambda key: spell(key[0]), write_alike(match[0])),
        text,
    )
    for old, new in _NAMED:
        text = re.sub(old, new, text)
    return text


def tidy_figure(svg: str) -> str:
    """Write names and numbers of a figure as tables have them, and places to a hundredth of a point."""
    svg = slim_figure(svg)

    def tell(match: re.Match[str]) -> str:
        return ">" + " ".join(map(write_text, match[1].split(" "))) + "<"

    named = r">((?:price )?[a-z][a-z0-9]*(?:_[a-z0-9]+)+|-?[\d.]+e[-+]\d+)<"
    told, n_told = re.subn(named, tell, svg)
    if not n_told:
        return svg
    width = float(re.findall(r'viewBox="0 0 ([\d.]+) ', svg)[0]) + _ROOM
    told = re.sub(r'viewBox="0 0 [\d.]+ ', f'viewBox="-{_ROOM} 0 {width:g} ', told, count=1)
    return re.sub(r'\bwidth="[\d.]+pt"', f'width="{width:g}pt"', told, count=1)


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Tidy the pages of a build that went well."""
    if exception is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            if "_static" not in path.parts:
                path.write_text(tidy_page(path.read_text("utf-8")), encoding="utf-8")
        for path in Path(app.outdir, "_images").glob("*.svg"):
            path.write_text(tidy_figure(path.read_text("utf-8")), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Run when pages are written, before style sheets are cut to what they use."""
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
