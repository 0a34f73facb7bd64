"""Tests of the book's own extensions of Sphinx: tables, style sheets, descriptions."""

# ruff: noqa: RUF001 - shapes are written with a sign of multiplication

from __future__ import annotations

import importlib.util
import io
import json
import re
import sys
from types import ModuleType
from typing import Any

import matplotlib as mpl
import matplotlib.style
import pandas as pd
import pytest
from matplotlib.figure import Figure

from helpers.book.cases import list_glued
from helpers.paths import ROOT
from helpers.plotting.palette import STYLE


def load(name: str) -> ModuleType:
    """Load an extension by its name."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "_ext" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for what their fields are
    spec.loader.exec_module(module)
    return module


tidy, slim, metadata = (load(name) for name in ("tidy", "slim", "metadata"))
where, phone = (load(name) for name in ("where", "phone"))


def rows_of(fragment: str) -> list[list[str]]:
    """Read a table's rows as texts."""
    soup = tidy.BeautifulSoup(fragment, "html.parser")
    return [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in soup.find_all("tr")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4.09e+03", "4090"),
        ("8.71e-05", "0.0000871"),
        ("67108864.000000", "67,108,864"),
        ("67.0", "67"),
        ("0.11700", "0.117"),  # no more decimals than say something
        ("1.049", "1.05"),
        ("10.2", "10.2"),  # nor more than there were
        ("-0.000", "0"),
        ("-0.0512", "-0.0512"),
        ("5.47e+09", "5,470,000,000"),
        ("2026", "2026"),
    ],
)
def test_numbers(text: str, expected: str) -> None:
    """Three digits, no exponent, thousands apart where there are many."""
    assert tidy.write_number(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'disk'", "disk"),
        ("n_blocks", "number of blocks"),
        ("the price of invocation_gb_s counts", "the price of invocation (GB s) counts"),
        ("stream_mb_per_s", "stream (MB/s)"),
        ("zarr-s3fs", "zarr-s3fs"),
        ("block_size=8388608 rdcc_nbytes=4194304", "block_size=8 MiB rdcc_nbytes=4 MiB"),
        ("(1, 10, 320, 400)", "1 × 10 × 320 × 400"),
        ("True", "yes"),
        ("None", "–"),
    ],
)
def test_words(text: str, expected: str) -> None:
    """A cell says in words what Python spells."""
    assert tidy.write_text(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<td>3586 x 15 x 19</td>", "<td>3586 × 15 × 19</td>"),
        ("8.5 [4.5, 10] %, 4.5%", "8.5 (4.5 to 10) %, 4.5 %"),
        ("a (0.87 [0.86, 0.89] of its time)", "a (0.87, 0.86 to 0.89, of its time)"),
        ("law: 40000, then 6425.87", "law: 40,000, then 6425.87"),
        # lists, names, versions and code are none
        ("10356, 40, 81; [1, 10]; ab-12345; 2026.11.12345", "10356, 40, 81; [1, 10]; ab-12345; 2026.11.12345"),
        ('<code class="x">20000 x 3</code> <a href="1%20">n</a>', '<code class="x">20000 x 3</code> <a href="1%20">n</a>'),
    ],
)  # fmt: skip
def test_numbers_and_intervals_have_one_style(text: str, expected: str) -> None:
    """Thousands apart from ten thousand on, intervals from end to end, a space before a percent."""
    assert tidy.write_alike(text) == expected


def test_a_column_of_numbers_says_once_what_is_missing() -> None:
    """What is blank, a dash or no number is one sign, and an end that is not there no word for text."""
    column = pd.DataFrame({"high": ["1e3", "", "-", "NaN", "inf"]})
    written = tidy.tidy_table(column.to_html(index=False))
    assert rows_of(written)[1:] == [["1000"], ["–"], ["–"], ["–"], ["without end"]]
    assert written.count('class="num"') == 6


def test_tables_have_one_row_of_heads() -> None:
    """Names of index and columns stand side by side, that of all columns with each of them."""
    frame = pd.DataFrame([[67.0, 128.0], [183.0, 320.25]], index=["a-b", "c"], columns=[2, 4])
    frame = frame.rename_axis(index="contender", columns="n_workers")
    assert rows_of(tidy.tidy_table(frame.to_html())) == [
        ["contender", "2 workers", "4 workers"],
        ["a-b", "67", "128"],
        ["c", "183", "320"],
    ]


def test_counting_columns_are_left_out() -> None:
    """A column that counts rows goes; one that names them stays, with or without a head."""
    frame = pd.DataFrame({"n_connections": [1, 4], "error": [0.02, -0.0]})
    assert rows_of(tidy.tidy_table(frame.to_html())) == [
        ["connections", "error"], ["1", "0.02"], ["4", "0"],
    ]  # fmt: skip
    named = pd.Series({"best-reads": "'`disk`'", "n-blocks": "5"}, name="finding").to_frame()
    told = [["", "finding"], ["fastest readers", "disk"], ["measured", "5 blocks"]]
    assert rows_of(tidy.tidy_table(named.to_html())) == told


def test_numbers_among_the_findings_have_units() -> None:
    """Of every page of the reference."""
    paths = (ROOT / "results" / "reference").glob("*/*.ipynb")
    for path in paths:
        for key, told in list_glued(json.loads(path.read_text("utf-8"))).items():
            is_bare = tidy._BARE.fullmatch(told) and "version" not in key
            assert not is_bare or tidy.name_finding(key, told)[1] != told, f"{path}: {key}"


def test_groups_of_rows_stay_groups() -> None:
    """An index of two levels keeps its spans, and its columns their places."""
    index = pd.MultiIndex.from_tuples([("hdf5", "x"), ("hdf5", "y")], names=["medium", "layout"])
    frame = pd.DataFrame({"kB": [4090.0, 2.67], "told": ["a_b", "c"]}, index=index)
    written = tidy.tidy_table(frame.to_html())
    assert rows_of(written) == [
        ["medium", "layout", "kB", "told"], ["hdf5", "x", "4090", "a b"], ["y", "2.67", "c"],
    ]  # fmt: skip
    assert 'rowspan="2"' in written and 'scope="rowgroup"' in written and 'tabindex="0"' in written


def test_styled_tables_are_written_alike() -> None:
    """A table that pandas styled loses its marks and its exponents."""
    frame = pd.DataFrame({"kB": [4090.0, 1030.0]}, index=["x", "y"]).style.format("{:.3g}")
    page = f"<article>{frame.to_html()}</article>"
    written = tidy.tidy_page(page)
    assert rows_of(written) == [["", "kB"], ["x", "4090"], ["y", "1030"]]
    assert "<style" not in written and "T_" not in written


def test_a_table_without_rows_is_not_shown() -> None:
    """Heads over nothing tell nothing."""
    assert tidy.tidy_table(pd.DataFrame({"a": []}).to_html()) == ""


def test_short_wide_tables_are_cards_on_a_phone() -> None:
    """Numbers wider than a phone stand below each other, with heads, and names that rows share."""
    heads = [f"{word} throughput (MB/s)" for word in ("first", "second", "third", "fourth")]
    index = pd.MultiIndex.from_product([["whole"], ["a", "b"]], names=["task", "driver"])
    wide = pd.DataFrame([[1.5] * 4] * 2, index=index, columns=heads)
    stacked = tidy.stack_table(tidy.tidy_table(wide.to_html()))
    assert 'class="table data stack pairs"' in stacked and f'data-head="{heads[0]}"' in stacked
    assert stacked.count('<td class="again">whole</td>') == 1
    for plain in (
        wide.iloc[:, :1],
        pd.concat([wide] * 7),
    ):  # fits; many rows are compared in columns
        assert "stack" not in tidy.stack_table(tidy.tidy_table(plain.to_html()))


def test_texts_are_sentences() -> None:
    """What a cell returns as a text is a paragraph, without quotes; nothing if it is empty."""
    start = '<div class="output text_plain highlight-myst-ansi notranslate"><div class="highlight"><pre><span></span>'
    end = "\n</pre></div>\n</div>"
    assert tidy.tidy_page(f"{start}'It isn&lt;t.'{end}") == '<p class="told">It isn&lt;t.</p>'
    assert tidy.tidy_page(f"{start}''{end}") == ""
    assert tidy.tidy_page(f"{start}16{end}") == f"{start}16{end}"


CSS = """@charset "utf-8"; /* a; comment */ .used, .gone > p { color: red }
.gone:before { content: "}" } #place .used:not(.gone) { a: url("data:image/svg+xml;x{}") }
@media (max-width: 3rem) { .gone { b: c } } @media print { .used { d: e } .gone { f: g } }
@font-face { src: url(x.woff2) } html[data-a=".gone"] p { h: i } .dropdown-menu-end { j: k }"""


def test_style_sheets_keep_what_is_used() -> None:
    """Rules whose classes or ids occur nowhere go, those that scripts put together stay."""
    kept = slim.purge(CSS, {"used", "place"})
    for part in (
        '@charset "utf-8";', ".used{ color: red }", "#place .used:not(.gone)", "@media print",
        "d: e", "@font-face", "h: i", ".dropdown-menu-end", 'url("data:image/svg+xml;x{}")',
    ):  # fmt: skip
        assert part in kept
    for part in ("content", "max-width", "f: g", "b: c", "comment", ".gone >"):
        assert part not in kept


def test_names_are_those_of_pages_and_scripts() -> None:
    """Classes and ids of elements count, and every word of a script; words of the text do not."""
    page = '<p class="one two" id="three">four</p><script>f("five")</script>'
    assert slim.list_names([page], ["g('six-seven')"]) == {"one", "two", "three", "f", "five", "g", "six-seven"}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Short enough.", "Short enough."),
        ("One sentence that says what is asked here. " + "More " * 50, "One sentence that says what is asked here."),
        ("word " * 60, "word " * 39 + "word …"),
    ],
)  # fmt: skip
def test_descriptions_end_well(text: str, expected: str) -> None:
    """A description ends with a sentence, or with a whole word."""
    assert metadata.shorten(text.strip()) == expected


def test_where_tells_array_network_and_day() -> None:
    """A finding says what was read, over which network, and when; of what nobody measured, nothing."""
    folder = ROOT / "results" / "reference"
    assert where.tell_where("cluster-scaling/in-region", folder).startswith("160 MB, in region, 20")
    assert where.tell_where("chunk-shape/local-disk", folder).startswith("22 MB, no network, 20")
    assert where.tell_network("in-region") == "30 ms to the first byte, 200 MB/s"
    assert where.tell_where("cluster-scaling/nowhere", folder) == ""


def ends_apart(root: Any) -> bool:
    """Tell whether no number below axes reaches under the next axes at their right."""
    boxes = phone._read_boxes(root)
    texts = [one for one in phone._read_texts(root) if one.is_tick and one.anchor == "middle"]
    shown = [one for one in texts if one.tag.get("display") != "none"]
    lefts = {round(box[0]) for box in boxes}
    return not any(one.x < left - 1 and one.ends[1] > left for one in shown for left in lefts)


def test_figures_are_drawn_for_a_phone() -> None:
    """Axes give way: letters and marks keep their size, values and names stay, keys stand below."""
    case = "results/reference/hdf5-drivers/in-region.ipynb"
    cells = json.loads((ROOT / case).read_text(encoding="utf-8"))["cells"]
    data = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    drawn = ["".join(each["image/svg+xml"]) for each in data if "image/svg+xml" in each]
    assert len(drawn) > 2
    for svg in drawn:
        narrow = phone.narrow(svg)
        left, top, width, height = map(float, re.findall(r'viewBox="([^"]*)"', narrow)[0].split())
        assert (left, top, width) == (0, 0, phone.WIDTH)
        sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", narrow)]
        assert min(sizes) >= 10
        said = [re.findall(r"<text[^>]*>([^<]+)</text>", text) for text in (svg, narrow)]
        told = [" ".join(re.findall(r"<tspan[^>]*>([^<]+)", narrow))]
        assert {*said[0]} <= {*said[1], *told}
        assert ends_apart(phone.ET.fromstring(narrow))
        keys = [one for one in svg.split('id="legend_')[1:] if "<text" in one]
        axes = re.findall(r'<rect[^>]* y="([\d.]+)"[^>]* height="([\d.]+)"', narrow)
        assert bool(keys) == (height > max(float(y) + float(high) for y, high in axes) + 60)
    assert phone.narrow("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 9 9'/>") == ""


def test_figures_say_words() -> None:
    """Names of the code and exponents are spelt in a figure too, which gets room for them."""
    svg = '<svg width="100pt" viewBox="0 0 100 50"><text>price nat_hour</text><text>3.33e-05</text><path d="M 1.2345 0.5"/></svg>'
    told = tidy.tidy_figure(svg)
    assert ">price NAT hour<" in told and ">0.0000333<" in told and 'viewBox="-50 0 150 50"' in told
    assert tidy.tidy_figure(told) == told and 'd="M 1.23 0.5"' in told


def test_lines_of_names_do_not_cross() -> None:
    """Names change places, each keeps its point, and a figure without a crossing stays as it is."""
    drawn = io.StringIO()
    with mpl.rc_context():
        mpl.style.use(STYLE)
        figure = Figure()
        ax = figure.subplots()
        for name, at, height in (("a", 1, 0.9), ("b", 2, 0.5), ("c", 3, 0.1)):
            ax.plot([at], [at], "o")
            how: dict[str, Any] = {"textcoords": "axes fraction", "arrowprops": {"arrowstyle": "-"}}
            ax.annotate(name, (at, at), xytext=(1.04, height), va="center", **how)
        figure.savefig(drawn, format="svg")
    svg = drawn.getvalue()

    def read(text: str) -> list[Any]:
        root = phone.ET.fromstring(text[text.index("<svg") :])
        axes = next(one for one in root.iter() if one.get("id") == "axes_1")
        return list(phone._read_leaders(axes, phone._read_boxes(root)[0][2]))

    before, after = read(svg), read(phone.uncross_figure(svg))
    assert any(a.crosses(b) for a in before for b in before)
    assert not any(a.crosses(b) for a in after for b in after)
    points = [
        {one.text.text: tuple(map(round, one.point)) for one in each} for each in (before, after)
    ]
    assert points[0] == points[1] and {round(one.y) for one in before} == {
        round(one.y) for one in after
    }
    assert not any(a.crosses(b) for each in [read(phone.narrow(svg))] for a in each for b in each)
    told = phone.uncross_figure(svg)
    assert phone.uncross_figure(told) == told
