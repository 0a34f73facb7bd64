"""Tests of the published book as a site: its pages and links, and every page in a browser."""

from __future__ import annotations

import functools
import html
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

from helpers.benchmark.record import COLUMNS
from helpers.findings import Finding, read_findings
from helpers.paths import ROOT
from runner import build, pages
from tests.browser import Resources, Tab, assert_reads_offline, open_browser, read_pages
from tests.stores import Ranges, serve
from wire.bed.networks import profile_names

WIDTHS = (390, 1280)  # frames that scroll get their tab stop when a page is loaded, so narrow first
HEIGHTS = {1280: 800, 390: 844}
# axe-core as its authors publish it, under the MPL 2.0, so that no test needs the web.
AXE = ROOT / "tests" / "vendor" / "axe-core" / "axe.min.js"
REFERENCE = ROOT / "results" / "reference"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book as published: built from the committed results alone, here or by who names it."""
    root = tmp_path_factory.mktemp("site") / "a {project} #1 %41 $x"
    root.mkdir()
    if built := os.environ.get("ARRAYS_TEST_BOOK"):
        for name in ("html", "stage"):
            shutil.copytree(ROOT / built / name, root / "_build" / name)
        return root / "_build" / "html"
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(ROOT / name, root / name)
    for name in ("pages", "_static", "_ext", "results/reference", "results/published"):
        shutil.copytree(ROOT / name, root / name)
    return build.build("laptop", root=root).parent


@pytest.fixture(scope="module")
def read(site: Path) -> dict[str, Resources]:
    """What its pages load and where they link to, read once for all tests."""
    return read_pages(site)


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serve the site."""
    with serve(functools.partial(Ranges, directory=str(site))) as served:
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
    listed = {*pages.list_cases()}
    names = {f"notebooks/{path.parent.name}/{path.stem}" for path in REFERENCE.glob("*/*.ipynb")}
    return sorted(f"{name}.html" for name in names & listed)


# The sources.


def test_pages_and_cases_are_listed() -> None:
    """Every text page of `_toc.yml` exists and every one is in it; its cases have parameters."""
    listed = [name for name in pages.toc_files() if not name.startswith("notebooks/")]
    there = {path.stem for path in ROOT.glob("pages/*.md")}
    assert there == {*listed}
    files = {f"notebooks/{path.parent.name}/{path.stem}" for path in (ROOT / "parameters" / "laptop").glob("*/*.yaml")}  # fmt: skip
    assert {*pages.list_cases()} <= files
    assert (
        "explorer" in listed
    )  # under which a case is listed whose notebook has no page of its own


UNITS = (
    r"(?:[kMGT]?B(?:/s)?|[GM]b(?:/s|ps)|m?s|%|times|seconds|minutes|hours|GET/s|requests|workers)"
)
TYPED = re.compile(rf"(?<![\w-])\d[\d.,]*\s?{UNITS}(?![\w/])")
# What may hold a digit that nobody measured: roles, code, links, intervals, and numbers of list items.
NOT_TYPED = re.compile(r"\{[\w:]+\}`[^`]*`|`[^`]*`|\[[^\]]*\]\([^)]*\)|^\d+\. |95 %", re.MULTILINE)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)  # fmt: skip
def test_findings_type_no_measurement(path: Path) -> None:
    """Numbers with a unit among the findings of a notebook come from its record."""
    cells = nbformat.read(path, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    found = [part for part in re.split(r"(?m)^(?=## )", text) if re.match(r"## .*[Ff]ind", part)]
    assert found, "it has no section of findings"
    assert TYPED.findall(NOT_TYPED.sub("", "\n".join(found))) == []


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*/*.ipynb")), ids=lambda path: f"{path.parent.name}/{path.stem}")  # fmt: skip
def test_pictures_are_described(path: Path) -> None:
    """Every picture is a figure with a name, a caption and alt text."""
    names = []
    for cell in nbformat.read(path, as_version=4).cells:
        described = cell.metadata.get("mystnb", {})
        kinds = {kind for output in cell.get("outputs", []) for kind in output.get("data", {})}
        if "figure" in described or any(kind.startswith("image/") for kind in kinds):
            names.append(described["figure"]["name"])
            assert re.fullmatch(r"fig-[a-z0-9-]+", names[-1])
            assert len(described["figure"]["caption"]) > 20 < len(described["image"]["alt"])
    assert len(names) == len(set(names))


QUOTED = re.compile(r"\{(num|claim)\}`([^`:|]+)::([^`|\\]+)")


def test_executed_notebooks_print_no_warnings() -> None:
    """What libraries say on standard error is no part of a page: render the case again."""
    printed = [
        f"{path.parent.name}/{path.stem}: {''.join(output['text'])[:80]}"
        for path in sorted(REFERENCE.glob("*/*.ipynb"))
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        for output in cell.get("outputs", [])
        if output["output_type"] == "stream"
    ]
    assert printed == []


@pytest.mark.parametrize(
    "path", sorted([*ROOT.glob("*.md"), *ROOT.glob("pages/*.md")]), ids=lambda path: path.stem
)
def test_what_a_page_quotes_is_found_and_holds(path: Path) -> None:
    """Numbers that text pages quote are findings of the reference, and their claims hold of it."""
    for role, case, key in QUOTED.findall(path.read_text(encoding="utf-8")):
        if not (REFERENCE / f"{case}.csv").exists():  # it says that nobody measured it yet
            continue
        found = read_findings(REFERENCE / f"{case}.csv")
        assert key.strip() in found, (case, key)
        assert role == "num" or found[key.strip()].value == 1, (case, key)


SENTENCES = [*ROOT.glob("*.md"), *ROOT.glob("pages/*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
ROLE = re.compile(r"\{(num|claim)\}`(?:([^`:|]+)::)?([^`|\\]+)")


def find_unguarded(line: str, findings: Callable[[str], list[dict[str, Finding]]]) -> list[str]:
    """Find the claims of a sentence that judge none of the numbers of their page that it prints."""
    quoted = [(page, key.strip()) for role, page, key in ROLE.findall(line) if role == "num"]
    found = []
    for role, page, key in ROLE.findall(line):
        mine = {one for at, one in quoted if at == page}
        for known in findings(page) if role == "claim" and mine else ():
            judged = {*known.get(key.strip(), Finding()).quantity.split(", ")} - {""}
            found += [f"{page}::{key}: of {judged}, printed {mine}"] * bool(
                judged and not judged & mine
            )
    return found


@pytest.mark.parametrize("path", SENTENCES, ids=lambda path: path.name)
def test_a_claim_guards_a_number_of_its_sentence(path: Path) -> None:
    """A sentence with a claim prints, if it prints findings of that page at all, one that the claim judges."""

    def read(page: str) -> list[dict[str, Finding]]:
        study, _, case = path.stem.partition(".")
        own = (REFERENCE / study).glob(f"{case or '*'}.csv")
        files = [REFERENCE / f"{page}.csv"] if page else own
        return [*map(read_findings, files)]

    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join(
            cell.source
            for cell in nbformat.reads(text, as_version=4).cells
            if cell.cell_type == "markdown"
        )
    assert [one for line in text.splitlines() for one in find_unguarded(line, read)] == []


@pytest.mark.parametrize("path", SENTENCES, ids=lambda path: path.name)
def test_no_cell_of_a_table_ends_within_a_role(path: Path) -> None:
    """In a row of a table a bar within a role is escaped, or the row is cut there."""
    text = path.read_text(encoding="utf-8")
    assert re.findall(r'(?m)^\s*"?\|.*\{num\}`[^`|\\]*\|\w+`', text) == []


# The built files.


def article(text: str) -> str:
    """Return what a page says, without what stands around it."""
    return text.partition("<article")[2].partition("</article>")[0]


def test_reference_builds(site: Path) -> None:
    """The published book builds without a warning, reads offline, and says that it shows the reference."""
    assert_reads_offline(site)
    assert pages.list_cases()
    for name in pages.list_cases():
        told = "Reference record" if f"{name}.html" in case_pages() else "Not measured yet"
        text = (site / f"{name}.html").read_text()
        assert told in text and "Not known to be measured" not in text, name


def test_method_explains_rows_and_profiles(site: Path) -> None:
    """The page on method lists every column of a record and every network profile."""
    text = (site / "method.html").read_text()
    for name in (*COLUMNS, *profile_names()):
        assert f'<span class="pre">{name}</span>' in text, name


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


def test_no_page_writes_exponents_or_names_of_the_code(site: Path) -> None:
    """No text or table of any page has a number such as 7.6e-05 or a name such as read_s; code may."""
    for name in list_pages(site):
        text = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", article((site / name).read_text()), flags=re.S)  # fmt: skip
        assert re.findall(r">([^<]*\b\d(?:\.\d+)?e[-+]?\d\d?\b[^<]*)<", text) == [], name
        assert re.findall(r"np\.\w+\([^)]*\)", text) == [], name
        cells = [re.sub(r"<[^>]*>", "", one).strip() for one in re.findall(r"<t[hd]\b.*?</t[hd]>", text, re.S)]  # fmt: skip
        is_odd = re.compile(r"[a-z]+(_[a-z0-9]+)+|nan|NaN|None|True|False|-?\d+\.0{3,}")
        if name in case_pages():
            assert [one for one in cells if is_odd.fullmatch(one)] == [], name


@pytest.mark.parametrize("name", case_pages())
def test_timed_code_is_seen_and_what_ran_is_offered(
    site: Path, read: dict[str, Resources], name: str
) -> None:
    """A reader sees what was timed, not how it was drawn; pictures have alt text, and what ran is there."""
    text = article((site / name).read_text())
    shown = re.findall(r'<div class="cell [^"]*docutils container">\s*<div class="(\w+)', text)
    assert "cell_input" in shown
    drawn = re.findall(
        r'<div class="cell ([^"]*)docutils container"(?:(?!<div class="cell ).)*?<figure',
        text,
        re.S,
    )
    assert all("tag_hide-input" in tags or "tag_remove" in tags for tags in drawn)
    pictures = read[name].pictures
    figures = [one for one in pictures if "_images" in (one.get("src") or "")]
    assert [one for one in figures if len(one.get("alt") or "") <= 20] == []
    folder, notebook, case = name.removesuffix(".html").split("/")
    executed = site / "_sources" / folder / notebook / f"{notebook}-{case}.ipynb"
    assert f"_sources/{folder}/{notebook}/{executed.name}" in (site / name).read_text()
    ran = pages.read_notebook(REFERENCE / Path(*Path(name).parts[1:]).with_suffix(".ipynb"))
    given = pages.read_notebook(executed)
    assert [cell["source"] for cell in given["cells"]] == [cell["source"] for cell in ran["cells"]]


def test_scripts_of_a_page_are_loaded_there_alone(read: dict[str, Resources]) -> None:
    """The forms of three pages, and the table of records."""
    loads = {name: page.loads for name, page in read.items()}
    for name, found in loads.items():
        assert any("explorer" in one for one in found) == (name == "explorer.html"), name


# In a browser.


# How wide a page is beyond its window, pictures that are not there, and code that scrolls where no keyboard comes.
SOUND = """({
  over: Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth),
  pictures: [...document.images].filter((e) => e.getClientRects().length && !(e.complete && e.naturalWidth)).map((e) => e.src).join(),
  unreached: [...document.querySelectorAll("pre")].filter((e) => e.scrollWidth > e.clientWidth && e.tabIndex < 0).length,
})"""
# `region` is slow, and never more than moderate
BROKEN = "axe.run(document, {resultTypes: ['violations'], rules: {region: {enabled: false}}}).then((r) => r.violations.filter((v) => ['critical', 'serious'].includes(v.impact)).map((v) => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 200), v.nodes[0].failureSummary]))"


def visit(tab: Tab, url: str, axe: str) -> list[Any]:
    """Open a page at both widths, and list what is wrong with it, by the rules of axe-core too."""
    tab.open(url, width=WIDTHS[0], height=HEIGHTS[WIDTHS[0]])
    wrong: list[Any] = []
    for width in WIDTHS:
        tab.resize(width, HEIGHTS[width])
        for _ in range(100):  # charts and frames follow their window some frames later
            found = tab.evaluate(SOUND)
            if url.endswith("/search.html") or not any(found.values()):
                break
            time.sleep(0.05)
        else:
            wrong.append((width, found))
    wrong += tab.faults()  # before a script of ours runs
    tab.evaluate(axe)
    return [*wrong, *tab.evaluate(BROKEN)]


def test_findings_of_a_case_are_a_download(site: Path) -> None:
    """Their keys are for those who write pages."""
    page = (site / "notebooks/formats/in-region.html").read_text()
    assert "<th>What other pages quote</th>" not in page
    (name,) = re.findall(r'href="[^"]*/(formats-in-region\.findings\.csv)"', page)
    (path,) = site.rglob(name)
    assert "one-get-over-obstore," in path.read_text()


def is_wide(path: Path) -> bool:
    """Decide whether a plot, whose width is in points, is wider than a phone."""
    width = re.search(r'<svg [^>]*?width="([\d.]+)pt"', path.read_text(encoding="utf-8"))
    return width is not None and float(width[1]) > 300


def test_plots_wider_than_a_phone_have_a_version_for_it(site: Path) -> None:
    lacking = []
    for name in list_pages(site):
        for figure in re.findall(
            r"<figure.*?</figure>", (site / name).read_text(encoding="utf-8"), re.S
        ):
            image = re.search(r'<img [^>]*src="([^"]*_images/[^"]*\.svg)"', figure)
            source = re.search(r'<source media="\(max-width: 40rem\)" srcset="([^"]*)"', figure)
            if image and not source and is_wide((site / name).parent / image[1]):
                lacking.append(f"{name}: {image[1]}")
            if source:
                assert ((site / name).parent / source[1]).is_file(), name
    assert lacking == []


@pytest.mark.slow
def test_no_page_is_broken(site: Path, address: str, tab: Tab) -> None:
    """No error, no missing file or picture, nothing wider than its window, nothing serious by axe-core."""
    axe = AXE.read_text() + ";0"
    wrong = {name: visit(tab, f"{address}/{name}", axe) for name in list_pages(site)}
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.slow
def test_the_panel_of_the_ledger_answers_for_another_network(address: str, tab: Tab) -> None:
    """Clients are listed with seconds, which grow with the time to the first byte."""
    seconds = (
        "Number(document.querySelector('#your-network-table tbody td:nth-child(7)').textContent)"
    )
    tab.open(f"{address}/your-network.html", width=1280)
    tab.wait_until("document.querySelectorAll('#your-network-table tbody tr').length > 5")
    before = tab.evaluate(seconds)
    tab.evaluate("(() => { const f = document.getElementById('network-form'); f.elements.p50.value = '500'; f.elements.p95.value = '900'; f.dispatchEvent(new Event('input')); })()")  # fmt: skip
    assert tab.evaluate(seconds) > 2 * before > 0
    assert tab.faults() == []


@pytest.mark.slow
def test_the_race_of_the_first_page_plays_and_stops(address: str, tab: Tab) -> None:
    tab.open(f"{address}/index.html", width=1280)
    button, picture = (
        "document.querySelector('.race button')",
        "document.querySelector('.race svg')",
    )
    still = tab.evaluate(f"{picture}.style.clipPath")
    tab.evaluate(f"{button}.click()")
    tab.wait_until(f"{picture}.style.clipPath.startsWith('inset')")
    tab.evaluate(f"{button}.click()")
    assert tab.evaluate(f"{picture}.style.clipPath") == still == ""


@pytest.mark.slow
def test_jumps_are_filtered_and_linked_on_a_phone(address: str, tab: Tab) -> None:
    """The filter leaves rows with all its words, a link leads to its row, and the panel keeps seconds."""
    tab.open(f"{address}/request-ledger.html", width=390)
    tab.wait_until("document.querySelectorAll('#jumps-table tbody tr').length > 5")
    shown = "[...document.querySelectorAll('#jumps-table tbody tr')].filter((row) => !row.hidden)"
    n_all = tab.evaluate(f"{shown}.length")
    tab.evaluate("(() => { const f = document.getElementById('jumps-filter'); f.value = 'GCSFS three'; f.dispatchEvent(new Event('input')); })()")  # fmt: skip
    assert 0 < tab.evaluate(f"{shown}.length") < n_all
    assert tab.evaluate(f"{shown}.every((row) => row.textContent.includes('gcsfs'))")
    links = "[...document.querySelector('article table').querySelectorAll('a')].filter((link) => link.hash && link.pathname === location.pathname)"  # fmt: skip
    assert tab.evaluate(f"{links}.length") > 0
    assert tab.evaluate(f"{links}.every((link) => document.getElementById(link.hash.slice(1)))")
    tab.open(f"{address}/your-network.html", width=390)
    tab.wait_until("document.querySelectorAll('#your-network-table tbody tr').length > 5")
    visible = "[...document.querySelectorAll('#your-network-table thead th')].filter((head) => head.offsetWidth).map((head) => head.textContent)"  # fmt: skip
    assert tab.evaluate(visible) == ["client", "layout", "requests", "seconds"]
    assert tab.faults() == []


@pytest.mark.slow
def test_the_form_of_decide_keeps_its_question_in_the_address(address: str, tab: Tab) -> None:
    """What is entered is answered, and the link opens the same question and the same answer."""
    tab.open(f"{address}/decide.html", width=390)
    tab.wait_until("document.querySelectorAll('#decide-table tr').length > 2")
    start = tab.evaluate("document.getElementById('decide-note').textContent")
    tab.evaluate("(() => { const f = document.getElementById('decide-form'); f.elements.arrays.value = ''; f.elements.access.value = 'map'; f.onchange(new Event('change')); })()")  # fmt: skip
    told, link = (tab.evaluate(one) for one in ("document.getElementById('decide-note').textContent", "location.href"))  # fmt: skip
    assert told.startswith("Write one copy") and told != start
    tab.open(link, width=1280)
    assert tab.evaluate("document.getElementById('decide-note').textContent") == told
    assert "--arrays" not in tab.evaluate("document.getElementById('decide-command').textContent")
    assert tab.faults() == []


@pytest.mark.slow
def test_a_slider_of_the_cube_changes_what_reads_cost(address: str, tab: Tab) -> None:
    """Longer chunks along time mean fewer requests for a time series."""
    tab.open(f"{address}/decide.html", width=1280)
    tab.wait_until("document.querySelectorAll('#chunk-cube tbody tr').length == 2")
    requests = "Number(document.querySelector('#chunk-cube tbody td:nth-child(2)').textContent.replace(/,/g, ''))"
    slide = "(() => {{ const s = document.querySelector('#chunk-cube input'); s.value = {0}; s.dispatchEvent(new Event('input')); }})()"
    tab.evaluate(slide.format(500))
    many = tab.evaluate(requests)
    tab.evaluate(slide.format(1000))
    assert tab.evaluate(requests) < many
    assert tab.evaluate("document.querySelectorAll('#decide-front circle').length") >= 2
    assert tab.faults() == []


@pytest.mark.slow
def test_the_switches_of_recipes_change_the_code(address: str, tab: Tab) -> None:
    """A line for other stores or for public buckets loses its comment sign, and gets it back."""
    tab.open(f"{address}/recipes-zarr.html", width=390)
    tab.wait_until("!document.querySelector('form.switches').hidden")
    code = "document.querySelector('.highlight pre').textContent"
    tick = "document.querySelector('form.switches input[name=public]').click()"
    before = tab.evaluate(code)
    tab.evaluate(tick)
    assert "\n    skip_signature=True" in tab.evaluate(code)
    tab.evaluate(tick)
    assert tab.evaluate(code) == before
    assert tab.faults() == []


# What people type, and the page that answers it.
SEARCHED = {
    "latency": "what-transfers",
    "bandwidth": "what-transfers",
    "throughput": "cluster-scaling",
    "speed-up": "symptoms",
    "CPU": "method",
    "prefetch": "recipes-services",
    "egress": "how-decide-works",
    "kerchunk": "recipes-hdf5",
    "anon": "recipes-zarr",
    "public bucket": "recipes-zarr",
    "requester pays": "recipes-zarr",
    "boto3": "recipes-hdf5",
    "DataTree": "recipes-zarr",
    "429 Too Many Requests": "symptoms-programs",  # a number alone is left out of every search
    "SlowDown": "symptoms-programs",
    "out of memory": "symptoms-programs",
    "memory": "symptoms-programs",
    "open_mfdataset": "recipes-hdf5",
    "Icechunk": "recipes-hdf5",
    "ICESat-2": "hdf5-drivers",
    "GPU": "symptoms-programs",
    "DataLoader": "recipes-services",
    "xbatcher": "symptoms-programs",
    "h5coro": "hdf5-drivers",
    "earthaccess": "hdf5-drivers",
}


@pytest.mark.slow
def test_the_search_finds_the_page_that_answers(address: str, tab: Tab) -> None:
    """Each word that people type leads to its page, among others."""
    missing = {}
    for words, page in SEARCHED.items():
        tab.open(f"{address}/search.html?q={words.replace(' ', '+')}", width=1280)
        results = "[...document.querySelectorAll('#search-results li a')].map((a) => a.pathname)"
        tab.wait_until("/finished|found|did not match/i.test(document.querySelector('#search-results .search-summary')?.textContent ?? '')")  # fmt: skip
        time.sleep(0.3)  # results are listed one after the other
        found = tab.evaluate(results)
        if not any(path.endswith(f"/{page}.html") for path in found):
            missing[words] = found
    assert missing == {}
