"""Tests of the published book as a site: every page in a browser, its links, words and weight."""

from __future__ import annotations

import functools
import html
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from helpers.benchmark.record import COLUMNS
from helpers.book import build, pages, printing
from helpers.netem.profiles import profile_names
from helpers.paths import ROOT
from tests.browser import Tab, open_browser, serve
from tests.helpers.book.test_build import assert_reads_offline, read_pages

WIDTHS = (390, 1280)  # frames that scroll get their tab stop when a page is loaded, so narrow first
HEIGHTS = {1280: 800, 390: 844}
HEAVIEST = 900_000  # bytes of a page with all that it loads
# axe-core as its authors publish it, under the MPL 2.0, so that no test needs the web.
AXE = ROOT / "tests" / "vendor" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book as published: built from the committed results alone, here or by who names it."""
    root = tmp_path_factory.mktemp("site") / "a project"
    root.mkdir()
    if built := os.environ.get("ARRAYS_TEST_BOOK"):
        for name in ("html", "stage"):
            shutil.copytree(ROOT / built / name, root / "_build" / name)
        return root / "_build" / "html"
    for path in (ROOT / "_config.yml", ROOT / "_toc.yml", ROOT / "references.bib", *ROOT.glob("*.md")):  # fmt: skip
        shutil.copy(path, root / path.name)
    for name in ("_static", "_ext", "results/reference", "results/published"):
        shutil.copytree(ROOT / name, root / name)
    return build.build("laptop", root=root).parent


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serve the site."""
    with serve(site) as served:
        yield served


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A browser."""
    with open_browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def list_pages(site: Path) -> list[str]:
    """List the pages by their addresses."""
    found = [path.relative_to(site).as_posix() for path in site.rglob("*.html")]
    return sorted(name for name in found if not name.startswith("_"))


@functools.cache
def case_pages() -> list[str]:
    """List the pages of cases that have a committed result."""
    reference, listed = ROOT / "results" / "reference", {*pages.list_cases()}
    names = {f"notebooks/{path.parent.name}/{path.stem}" for path in reference.glob("*/*.ipynb")}
    return sorted(f"{name}.html" for name in names & listed)


def article(text: str) -> str:
    """Return what a page says, without what stands around it."""
    return text.partition("<article")[2].partition("</article>")[0]


# The built files.


def test_reference_builds(site: Path) -> None:
    """The published book builds without a warning, reads offline, and says that it shows the reference."""
    assert_reads_offline(site)
    assert pages.list_cases()
    for name in pages.list_cases():
        told = "Reference record" if f"{name}.html" in case_pages() else "Not measured yet"
        assert told in (site / f"{name}.html").read_text(), name


def test_method_explains_rows_and_profiles(site: Path) -> None:
    """The page on method lists every column of a record and every network profile."""
    text = (site / "method.html").read_text()
    for name in (*COLUMNS, *profile_names()):
        assert f'<span class="pre">{name}</span>' in text, name


def test_pictures_have_alt_text(site: Path) -> None:
    """Every figure of the published book has alt text that says more than a word."""
    assert case_pages()
    for name, page in read_pages(site).items():
        figures = [picture for picture in page.pictures if "_images" in (picture.get("src") or "")]
        assert [picture for picture in figures if len(picture.get("alt") or "") <= 20] == [], name
        assert figures or name not in case_pages(), name


def test_every_link_leads_somewhere(site: Path) -> None:
    """Pages, places on them, pictures, scripts and downloads that a page names are there."""
    ids = {
        name: {*re.findall(r'\bid="([^"]+)"', (site / name).read_text())}
        for name in list_pages(site)
    }
    for name in ids:
        text = re.sub(r"<script\b[^>]*>.*?</script>", "", (site / name).read_text(), flags=re.S)
        for given in re.findall(r'\b(?:href|src)="([^"]*)"', text):
            link = urlsplit(html.unescape(given))
            if link.scheme or link.netloc:
                continue
            target = (site / name).parent / unquote(link.path) if link.path else site / name
            assert target.is_file(), (name, given)
            there = target.resolve().relative_to(site.resolve()).as_posix()
            if link.fragment and there in ids and not link.fragment.startswith("="):
                known = link.fragment in ids[there] or "=" in link.fragment
                assert known, (name, given)


@pytest.mark.parametrize("name", case_pages())
def test_a_case_offers_what_ran(site: Path, name: str) -> None:
    """The download of a case is its executed notebook, in the order in which its cells ran."""
    text = (site / name).read_text()
    (link,) = re.findall(r'href="([^"]*)"[^>]*\s+class="[^"]*btn-download-source-button', text)
    given = pages.read_notebook((site / name).parent / link)
    ran = pages.read_notebook(ROOT / "results" / "reference" / Path(*Path(name).parts[1:]).with_suffix(".ipynb"))  # fmt: skip
    assert [cell["source"] for cell in given["cells"]] == [cell["source"] for cell in ran["cells"]]


def test_pages_say_what_they_are_about(site: Path) -> None:
    """Search engines and previews get a description, an address and a picture that is there."""
    told = set()
    for name in set(list_pages(site)) - {"search.html"}:
        text = (site / name).read_text()
        tags = dict(re.findall(r'<meta (?:name|property)="([^"]+)" content="([^"]*)"', text))
        assert 40 < len(tags["description"]) <= 202, name
        assert tags["og:description"] == tags["description"] and tags["og:title"], name
        assert tags["og:url"].endswith(f"/{name}") and tags["og:image"].endswith(
            "/_static/card.png"
        )
        assert f'<link rel="canonical" href="{tags["og:url"]}" />' in text, name
        told.add(tags["description"])
    assert len(told) > len(pages.find_studies())
    assert (site / "_static" / "card.png").read_bytes().startswith(b"\x89PNG")
    index = (site / "index.html").read_text()
    assert '<meta name="citation_title" content="Arrays over the Wire"' in index
    assert "@software{arrays-over-the-wire" in re.sub(r"<[^>]*>", "", index)


@pytest.mark.parametrize("name", case_pages())
def test_tables_are_written_for_readers(site: Path, name: str) -> None:
    """No exponents, no padding with zeros, no counting columns, no names of the code, no quotes."""
    text = article((site / name).read_text())
    tables = re.findall(r"<table\b.*?</table>", text, re.DOTALL)
    assert tables
    for table in tables:
        cells = [html.unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in re.findall(r"<t[hd]\b.*?</t[hd]>", table, re.S)]  # fmt: skip
        for cell in cells:
            assert not re.search(r"\de[-+]\d\d", cell), (name, cell)
            assert not re.search(r"\d \[-?[\d.]+, -?[\d.]+\]|\d%", cell), (name, cell)
            assert not re.fullmatch(r"-?\d+\.0{3,}|'.*'|nan|NaN|None|True|False", cell), (
                name,
                cell,
            )
            assert not re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", cell), (name, cell)
        first = re.findall(r"<tr>\s*<th[^>]*>(\d+)</th>", table)
        assert first[:3] != ["0", "1", "2"], (name, first)
        assert len(re.findall(r"<tr", table.partition("<tbody")[0])) == 1 or "colspan" in table, (
            name
        )
    assert not re.search(r"<pre><span></span>(?:'|&#39;|\")", text), name


def test_no_page_writes_exponents(site: Path) -> None:
    """No text or table of any page has a number such as 7.6e-05; code may."""
    for name in list_pages(site):
        text = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", article((site / name).read_text()), flags=re.S)  # fmt: skip
        found = re.findall(r">([^<]*\b\d(?:\.\d+)?e[-+]?\d\d?\b[^<]*)<", text)
        assert found == [], name


@pytest.mark.parametrize("name", case_pages())
def test_findings_come_first(site: Path, name: str) -> None:
    """Findings stand before how it was measured; code is folded; no heading stands over nothing."""
    text = article((site / name).read_text())
    headings = re.findall(r"<h2>(.*?)<a", text)
    assert "inding" in headings[0] and "How it was measured" in headings, headings
    for cell in re.findall(r'<div class="cell [^"]*docutils container">\s*<(\w+)', text):
        assert cell == "details", name
    parts = re.split(r"<h3>", text.partition("How it was measured</h2>")[0])[1:]
    for part in parts:
        says = re.search(r"<table|<figure|class=\"told\"|output|<li>", part)
        assert says or "cell_input" not in part, (name, part[:80])


def test_no_page_is_heavy(site: Path) -> None:
    """A page and all that it loads stay within the bound; what each weighs is printed."""
    weights = build.weigh(site)
    for name, nbytes in sorted(weights.items(), key=lambda item: -item[1]):
        print(f"{nbytes / 1e3:6.0f} kB  {name}")
    assert set(weights) == set(list_pages(site))
    assert max(weights.values()) <= HEAVIEST
    licence = (site / "_static" / "vendor" / "fontawesome" / "LICENSE.txt").read_text()
    assert "CC BY 4.0" in licence and "SIL OFL" in licence


# In a browser.


SOUND = """(() => {
  const article = document.querySelector("article");
  const shown = (e) => e.getClientRects().length > 0;
  const said = (e) => (e.getAttribute("aria-label") || e.title || e.textContent.trim()
    || [...e.querySelectorAll("img")].map((one) => one.alt).join("") || (e.labels && e.labels[0] && e.labels[0].textContent) || "");
  const scrolls = (e) => e.scrollWidth > e.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(e).overflowX);
  const told = (e) => `${e.tagName} ${e.className} ${e.id}`;
  return {
    over: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    pictures: [...document.images].filter((e) => shown(e) && !(e.complete && e.naturalWidth)).map((e) => e.src),
    unnamed: [...document.querySelectorAll("button, summary, a[href], input, select")].filter((e) => shown(e) && !said(e)).map(told),
    unreached: [...article.querySelectorAll("*")].filter((e) => shown(e) && scrolls(e) && e.tabIndex < 0).map(told),
    unfit: [...article.querySelectorAll("picture img")].filter((e) => shown(e) && e.currentSrc.endsWith("-phone.svg") !== (innerWidth <= 640)).map((e) => e.currentSrc),
    cut: [...article.querySelectorAll("figure img")].filter((e) => shown(e) && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.src),
    lists: [...document.querySelectorAll('[role="list"]')].filter((e) => !e.querySelector('[role="listitem"], li')).map(told),
    heads: [...article.querySelectorAll("th")].filter((e) => !e.textContent.trim()).map(told),
    wide: [...article.querySelectorAll("table")].filter((e) => e.scrollWidth > e.parentElement.clientWidth + 1).length,
  };
})()"""


READ = """(() => {
  const head = document.querySelector("article h2");
  const painted = performance.getEntriesByName("first-contentful-paint")[0];
  const loaded = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  return {top: head ? head.getBoundingClientRect().top + scrollY : 0, painted: painted ? painted.startTime : NaN,
    received: loaded.reduce((sum, one) => sum + one.decodedBodySize, 0)};
})()"""
CUT = "[...document.querySelectorAll('article :is(table, img, pre)')].filter((e) => e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 1).length"
STOPS = "[...document.querySelectorAll('pre')].every((e) => e.scrollWidth <= e.clientWidth || e.tabIndex >= 0)"
# `region` is slow, and never more than moderate
# of these the narrow page may break others than the wide one
NARROW = "resultTypes: ['violations'], runOnly: {type: 'rule', values: ['scrollable-region-focusable', 'button-name', 'link-name', 'label', 'select-name', 'th-has-data-cells', 'td-headers-attr', 'aria-hidden-focus', 'nested-interactive']}"
BROKEN = "axe.run(document, {resultTypes: ['violations'], rules: {region: {enabled: false}}}).then((r) => r.violations.filter((v) => ['critical', 'serious'].includes(v.impact)).map((v) => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 200), v.nodes[0].failureSummary]))"


@dataclass
class Seen:
    """What one visit of a page shows."""

    faults: list[str]
    n_received: int
    painted_ms: float
    sound: dict[int, dict[str, Any]]
    tops: dict[int, float]
    broken: list[Any]
    n_cut: int


@pytest.fixture(scope="module")
def visits(site: Path, address: str, tab: Tab) -> dict[str, Seen]:
    """Open every page once: at both widths, under the rules of axe-core, and on paper."""
    axe = AXE.read_text() + ";0"
    return {name: visit(tab, f"{address}/{name}", axe) for name in list_pages(site)}


def hear(tab: Tab) -> dict[str, Any]:
    """Ask what is wrong until nothing is: charts and frames follow their window some frames later."""
    for _ in range(100):
        found: dict[str, Any] = tab.evaluate(SOUND)
        if found["over"] <= 0 and not any(found[what] for what in {*found} - {"over", "wide"}):
            break
        time.sleep(0.05)
    return found


def wait_for_stops(tab: Tab) -> None:
    """Wait until the theme has let the keyboard reach what scrolls: it does so a while after a resize."""
    for _ in range(100):
        if tab.evaluate(STOPS):
            break
        time.sleep(0.05)


def visit(tab: Tab, url: str, axe: str) -> Seen:
    """Open a page, read it, resize it, and print it."""
    tab.open(url, width=WIDTHS[0], height=HEIGHTS[WIDTHS[0]])
    read = tab.evaluate(READ)
    sound, tops = {}, {}
    for width in WIDTHS:
        tab.resize(width, HEIGHTS[width])
        sound[width] = {} if url.endswith("/search.html") else hear(tab)
        tops[width] = tab.evaluate(READ)["top"]
    faults = tab.faults()  # before a script of ours runs
    tab.evaluate(axe)
    wait_for_stops(tab)
    broken = tab.evaluate(BROKEN)
    if "/notebooks/" not in url:  # these have the same controls, and no forms
        tab.resize(WIDTHS[0], HEIGHTS[WIDTHS[0]])
        wait_for_stops(tab)
        broken += tab.evaluate(BROKEN.replace("resultTypes: ['violations']", NARROW))
    tab.send("Emulation.setEmulatedMedia", media="print")
    tab.resize(740)
    n_cut = tab.evaluate(CUT)
    tab.send("Emulation.setEmulatedMedia", media="")
    return Seen(faults, read["received"], read["painted"], sound, tops, broken, n_cut)


def test_every_page_is_sound(visits: dict[str, Seen]) -> None:
    """No error, no missing file or picture, no page wider than its window, nothing without a name."""
    assert {name: seen.faults for name, seen in visits.items() if seen.faults} == {}
    for width in WIDTHS:
        wide = {name: n for name, seen in visits.items() if (n := seen.sound[width].pop("wide", 0))}
        print(f"tables that scroll at {width} px: {wide}")
        for name, seen in visits.items():
            found = seen.sound[width]
            assert found.pop("over", 0) <= 0, (name, width)
            assert {what: names for what, names in found.items() if names} == {}, (name, width)


def test_axe_finds_nothing_serious(visits: dict[str, Seen]) -> None:
    """No page breaks a rule of axe-core that it calls critical or serious, with all bars in view."""
    assert {name: seen.broken for name, seen in visits.items() if seen.broken} == {}


@pytest.mark.parametrize("width", WIDTHS)
def test_findings_begin_on_the_first_two_screens(visits: dict[str, Seen], width: int) -> None:
    """The first heading of the findings stands within two windows from the top, with room to be read."""
    tops = {name: visits[name].tops[width] for name in case_pages()}
    assert {name: top for name, top in tops.items() if top > 2 * HEIGHTS[width] - 80} == {}


def test_figures_are_legible_on_a_phone(site: Path, tab: Tab, tmp_path: Path) -> None:
    """Letters of every narrow drawing are ten pixels high, and names, values and keys in the frame."""
    drawn = sorted((site / "_images").glob("*-phone.svg"))
    figures = {path.name for path in (site / "_images").glob("*.svg")} - {
        path.name for path in drawn
    }
    assert len(drawn) == len(figures) > len(case_pages())
    texts = [path.read_text() for path in drawn]
    sheet = tmp_path / "sheet.html"
    sheet.write_text(f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{"".join(texts)}')  # fmt: skip
    tab.open(sheet.as_uri(), width=WIDTHS[0])
    found = tab.evaluate("""[...document.querySelectorAll("svg")].map((svg) => {
      const frame = svg.getBoundingClientRect();
      const texts = [...svg.querySelectorAll("text")].filter((e) => e.getClientRects().length && e.textContent.trim());
      const isOut = (e) => ((r) => r.left < frame.left - 2 || r.right > frame.right + 2 || r.bottom > frame.bottom + 2)(e.getBoundingClientRect());
      return {size: Math.min(...texts.map((e) => parseFloat(getComputedStyle(e).fontSize))), out: texts.filter(isOut).map((e) => e.textContent)};
    })""")
    assert len(found) == len(drawn)
    for path, seen in zip(drawn, found, strict=True):
        assert seen["size"] >= 10 and seen["out"] == [], (path.name, seen)


def test_nothing_is_cut_on_paper(visits: dict[str, Seen]) -> None:
    """Printed, a page has its tables whole: none is wider than the sheet, none scrolls."""
    assert {name: seen.n_cut for name, seen in visits.items() if seen.n_cut} == {}


def test_the_first_paint_and_bytes_are_told(visits: dict[str, Seen]) -> None:
    """What a page costs is printed: bytes with all it loads, and when something is first seen.

    What pages share is fetched once and kept, as a reader's browser keeps it.
    """
    for name, seen in visits.items():
        print(
            f"{seen.n_received / 1e3:6.0f} kB, first paint {seen.painted_ms or 0:5.0f} ms  {name}"
        )
        assert 0 < seen.n_received <= HEAVIEST + 300_000  # fonts and a favicon come with it


@pytest.mark.parametrize("width", WIDTHS)
def test_the_first_page_says_it_in_ten_seconds(address: str, tab: Tab, width: int) -> None:
    """Buttons, findings and picture stand in the first window, on a phone in two; a finding is a line."""
    tab.open(f"{address}/index.html", width=width, height=HEIGHTS[width])
    found = tab.evaluate("""(() => {
      const bottom = (e) => e.getBoundingClientRect().bottom + scrollY;
      const all = (query) => [...document.querySelectorAll(query)];
      const lines = (e) => { const r = document.createRange(); r.selectNodeContents(e);
        const tops = [...r.getClientRects()].map((one) => one.top + one.height / 2).sort((a, b) => a - b);
        return 1 + tops.filter((top, i) => i && top - tops[i - 1] > 9).length; };
      return {buttons: all(".buttons a").map(bottom), found: all(".found li").map(bottom), lines: all(".found li").map(lines),
        where: all(".found .where").map((e) => e.textContent), picture: all(".headline img").map(bottom)};
    })()""")
    assert len(found["buttons"]) == 3 and len(found["found"]) == 5 and len(found["picture"]) == 1
    assert max(found["buttons"]) <= HEIGHTS[width]
    n_windows = 1 if width > 600 else 2
    assert max(found["found"] + found["picture"]) <= HEIGHTS[width] * n_windows
    assert width < 600 or found["lines"] == [1] * 5
    assert all(
        re.fullmatch(r"[\d.]+ MB, [a-z ]+, 20\d\d-\d\d-\d\d", text) for text in found["where"]
    )


@pytest.mark.parametrize("word", ["tensorstore", "icechunk", "ERA5"])
def test_search_finds(address: str, tab: Tab, word: str) -> None:
    """A reader who searches for a tool or an archive finds a page."""
    tab.open(f"{address}/search.html?q={word}", width=1280)
    tab.wait_until("document.querySelectorAll('#search-results li a').length > 0")
    assert tab.faults() == []


def test_the_search_field_leads_to_the_search(address: str, tab: Tab) -> None:
    """The button at the side opens a field, and Enter finds pages; no page loads the index for it."""
    tab.open(f"{address}/index.html", width=1280)
    tab.evaluate("document.querySelector('.bd-sidebar-primary .search-button__button').click()")
    tab.evaluate("(() => { const f = document.querySelector('dialog[open] form'); f.q.value = 'ceiling'; f.requestSubmit(); })()")  # fmt: skip
    tab.wait_until("document.querySelectorAll('#search-results li a').length > 0")


def test_icons_are_drawn(address: str, tab: Tab) -> None:
    """The fonts, cut to what is used, draw the icons of the controls, in both themes."""
    tab.open(f"{address}/index.html", width=1280)
    drawn = tab.evaluate("""document.fonts.ready.then(() => ({
      solid: document.fonts.check('900 16px "Font Awesome 6 Free"', "\\uf002"),
      loaded: [...document.fonts].filter((one) => one.status === "loaded").length,
      failed: [...document.fonts].filter((one) => one.status === "error").length,
    }))""")
    assert drawn["solid"] and drawn["loaded"] >= 1 and drawn["failed"] == 0
    tab.evaluate("document.querySelector('.theme-switch-button').click()")
    assert tab.evaluate("[...document.querySelectorAll('.theme-switch-button .theme-switch')].filter((e) => getComputedStyle(e).display !== 'none').length") == 1  # fmt: skip


# Without a mouse.


def test_the_explorer_by_keyboard_alone(site: Path, address: str, tab: Tab) -> None:
    """Choices, points and rows are reached with Tab; what is chosen is kept in the address."""
    tab.open(f"{address}/explorer.html", width=1280)
    tab.wait_until("document.querySelector('#explorer-place tbody tr')")
    assert tab.evaluate("document.querySelectorAll('#explorer-place select').length") == 13
    start = tab.evaluate("document.querySelector('#explorer-place').textContent")
    assert (
        "several marks" not in start
        and "access=" not in start
        and "The same in all rows: " in start
    )
    for name in ("quantity", "rows", "network"):
        tab.press_until(f"document.activeElement.name === '{name}'")
        tab.press("ArrowDown")
        tab.wait_until(f"location.hash.includes('{name}=')")
    told = tab.evaluate("document.querySelector('#explorer-place .told').textContent")
    link = tab.evaluate("location.href")
    tab.press_until("document.activeElement.tagName === 'CANVAS'")
    tab.press("ArrowRight")
    point = tab.evaluate("document.querySelector('#explorer-place .detail').textContent")
    for fact in ("n ", "95 % interval", "machine: ", "commit: "):
        assert fact in point, point
    tab.press_until("document.activeElement.className === 'rows'")
    tab.open(link, width=390)
    tab.wait_until("document.querySelector('#explorer-place tbody tr')")
    assert tab.evaluate("document.querySelector('#explorer-place .told').textContent") == told
    assert tab.faults() == []
    # as the page of a case links to it
    for case in ("hdf5-drivers/in-region", "cluster-scaling/in-region"):
        text = (site / f"notebooks/{case}.html").read_text()
        (link,) = re.findall(rf'href="\.\./\.\./(explorer\.html#source={case}[^"]*)"', text)
        tab.open(f"{address}/{html.unescape(link)}", width=1280)
        tab.wait_until("document.querySelector('#explorer-place tbody tr')")
        assert tab.evaluate("document.querySelector('#explorer-place [name=source]').value") == case
    # all there is, and more of it than one page of rows
    tab.open(f"{address}/explorer.html#quantity=throughput_mb_per_s", width=1280)
    tab.wait_until("document.querySelectorAll('#explorer-place tbody tr').length === 50")
    tab.press_until("document.activeElement.textContent.startsWith('Show more rows')")
    tab.press("Enter")
    tab.wait_until("document.querySelectorAll('#explorer-place tbody tr').length === 100")
    assert (site / "_static" / "explorer" / "all-rows.csv.gz").stat().st_size > 100_000


def test_the_whole_book_prints(site: Path, tab: Tab) -> None:
    """One page holds every article, in its order, with no link or picture that leads nowhere."""
    page = printing.assemble(site)
    tab.send("Emulation.setEmulatedMedia", media="print")
    tab.open(page.as_uri(), width=740)
    found = tab.evaluate("""(() => ({
      articles: document.querySelectorAll("article").length,
      lost: [...document.querySelectorAll('a[href^="#"]')].map((e) => decodeURIComponent(e.hash.slice(1))).filter((id) => !document.getElementById(id) && !id.includes("=")),
      pictures: [...document.images].filter((e) => !(e.complete && e.naturalWidth)).map((e) => e.src),
    }))()""")
    n_cut = tab.evaluate(CUT)
    tab.send("Emulation.setEmulatedMedia", media="")
    assert found == {"articles": len(list_pages(site)) - 1, "lost": [], "pictures": []}  # no search
    assert n_cut == 0 and tab.faults() == []
