"""Every notebook runs on its defaults, and its record is whole."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from helpers.benchmark import record
from helpers.findings import N_BLOCKS, NOISE, read_findings
from helpers.paths import ROOT
from runner import run
from runner.cases import find_parameters, find_study
from wire.files import cache_folder

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
assert NOTEBOOKS


def study_of(path: Path) -> str:
    """Name the study of a notebook, which may be of one of its cases alone."""
    return path.stem.partition(".")[0]


def find_long(cells: list[str]) -> list[str]:
    """Find the cells of more than twenty lines, imports not counted."""
    bodies = [[line for line in cell.splitlines() if not re.match(r"(from|import) |$", line)] for cell in cells]  # fmt: skip
    return [cell for cell, lines in zip(cells, bodies, strict=True) if len(lines) > 20]


def find_splatted(cells: list[str]) -> list[str]:
    """Find calls whose keywords a reader cannot see."""
    calls = [node for cell in cells for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.Call)]  # fmt: skip
    return [ast.unparse(call) for call in calls if any(one.arg is None for one in call.keywords)]


def find_untimed(cells: list[str]) -> list[str]:
    """Say so where no cell of at most eight lines has the read that is passed to the loop."""
    trees = [ast.parse(cell) for cell in cells]
    passed = {
        ast.unparse(given)
        for tree in trees
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for given in [*call.args, *(one.value for one in call.keywords)]
    }
    for cell, tree in zip(cells, trees, strict=True):
        for node in ast.walk(tree) if len(cell.splitlines()) <= 8 else ():
            is_read = isinstance(node, ast.keyword) and isinstance(node.value, ast.Lambda)
            if is_read and node.arg == "read":
                return []
            is_passed = isinstance(node, ast.FunctionDef) and node.name in passed
            if is_passed and len(ast.unparse(node).splitlines()) <= 5:
                return []
    return ["no timed call"]


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def executed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a notebook on its defaults in a folder of its own."""
    folder = tmp_path_factory.mktemp(request.param.stem)
    # stores are its own, but what npm installs is installed once for all
    programs = cache_folder().absolute() / "ledger"
    programs.mkdir(parents=True, exist_ok=True)
    (folder / "cache").mkdir(mode=0o700)
    (folder / "cache" / programs.name).symlink_to(programs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARRAYS_CACHE", str(folder / "cache"))
        # a busy machine takes longer, not fewer blocks
        run.execute_notebook(request.param, folder / request.param.name, {"time_budget_s": 3600.0})
    return folder / request.param.name


def test_defaults_make_a_whole_record(executed: Path) -> None:
    """Every contender has as many rows as blocks, each verified, each traced.

    Those of cluster scaling, which read whole arrays over the wire, read no less than is stored.
    """
    defaults = find_parameters(study_of(executed))().model_dump()
    rows = record.read_records([executed.parent / defaults["record"]])
    measured = rows[rows["phase"] == "measured"]
    counts = measured.groupby(["contender", "point"]).size()
    assert set(counts) == {defaults["n_blocks"]}
    assert measured["contender"].nunique() >= 3
    assert (
        measured["check"]
        .str.contains("xxh3|crc32|sha256|sums of bits|opened or counted|value equal")
        .all()
    )
    assert (measured["read_s"] > 0).all()
    if executed.stem == "cluster-scaling":
        assert set(defaults["contenders"]) < set(rows["contender"])
        assert (rows["n_requests"] > 0).all()
        assert (rows["wire_nbytes"] >= 0.9 * rows["stored_nbytes"]).all()


MEASURED = {
    "caching-costs": {"titiler-core", "titiler-xarray", "redis", "locust", "uvicorn"},
    "caching-costs.four-caches": {"titiler-xarray", "redis", "locust"},
    "caching-costs.published-size": {"titiler-xarray", "redis", "locust"},
    "chunk-shape": {"netCDF4", "dask", "HDF5 of netCDF4", "zarr"},
    "chunk-shape.balanced": {"dask"},
    "cluster-scaling": {"zarrs", "obstore", "s3fs", "distributed", "virtualizarr", "h5netcdf"},
    "cluster-studies.stores-of-2020": {"s3fs", "distributed", "netCDF4", "h5netcdf"},
    "cluster-studies.formats-of-2022": {"s3fs", "distributed", "tiledb", "pyarrow"},
    "cluster-studies.formats-at-size": {"s3fs", "distributed", "pyarrow"},
    "cluster-studies.many-files": {"s3fs", "distributed", "h5netcdf"},
    "hdf5-drivers": {"virtualizarr", "h5netcdf", "obstore", "s3fs", "zarr"},
    "hdf5-drivers.two-drivers": {"s3fs"},
}


def test_versions_that_decide_are_in_the_record(executed: Path) -> None:
    """What measures is named with its version, in whatever process it does."""
    defaults = find_parameters(study_of(executed))().model_dump()
    rows = record.read_records([executed.parent / defaults["record"]])
    named = {name for text in rows["versions"].unique() for name in json.loads(text)}
    assert MEASURED.get(executed.stem, set()) | {"python", "numpy", "h5py", "HDF5 of h5py"} <= named


def test_no_output_shows_a_path_or_a_warning(executed: Path) -> None:
    """What a reader sees is values, tables and figures."""
    cells = nbformat.read(executed, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    shown = [output["text"] for output in outputs if output["output_type"] == "stream"]
    assert not shown


def test_every_figure_is_shown_once(executed: Path) -> None:
    """A cell that draws shows one drawing, which scales, or none where its condition does not hold."""
    cells = nbformat.read(executed, as_version=4).cells
    drawing = [cell for cell in cells if "figure" in cell.metadata.get("mystnb", {})]
    assert drawing
    for cell in drawing:
        shown = [output for output in cell.outputs if output["output_type"] == "display_data"]
        n_drawn = sum("image/svg+xml" in output["data"] for output in shown)
        assert n_drawn == 1 or (not n_drawn and cell.source.startswith("if ")), cell.source


def test_findings_are_written(executed: Path) -> None:
    """The key of the headline is there, with noise and blocks."""
    study = find_study(study_of(executed))
    found = read_findings(executed.parent / find_parameters(study.name)().record)
    headline = study.headlines.get(executed.stem.partition(".")[2], study.headline)
    assert {headline, NOISE, N_BLOCKS} <= {*found}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_sources_hold_no_outputs(path: Path) -> None:
    """Outputs live in results, so that sources can be read as a change."""
    for cell in nbformat.read(path, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("find", [find_long, find_splatted, find_untimed])
def test_what_a_sceptic_must_see_is_in_cells(
    path: Path, find: Callable[[list[str]], list[str]]
) -> None:
    """Cells of at most twenty lines, keywords written out, and the timed call."""
    cells = nbformat.read(path, as_version=4).cells
    code = [
        cell.source
        for cell in cells
        if cell.cell_type == "code" and "parameters" not in cell.metadata.get("tags", [])
    ]
    assert not find(code)


N_LINES = {
    "caching-costs": 15,
    "caching-costs.four-caches": 13,
    "chunk-shape": 12,
    "chunk-shape.balanced": 9,
    "cluster-scaling": 14,
    "flipped-bytes": 13,
    "harness": 15,
    "other-networks": 14,
    "own-program": 14,
    "formats": 14,
    "requests-in-flight": 12,
    "cluster-studies.formats-of-2022": 9,
    "cluster-studies.many-files": 10,
    "cluster-studies.stores-of-2020": 9,
    "hdf5-drivers": 14,
    "hdf5-drivers.two-drivers": 14,
    "request-ledger": 8,
}
"""Of set-up before what a notebook asks is being measured: none grows, and a new one has at most 15."""
SUBJECTS = {"array", "calibrate", "measure", "network"}
"""Of a session: what is read, a calibration, the measurement, and the network of the case."""


def count_setup_lines(code: list[str]) -> int:
    """Count lines of imports, and of what uses the product's testbed or opens something, until rows are measured.

    What is compared and how it is read, arrays and contenders, is the subject of a notebook. A
    function counts where it is more than the timed call: where it uses the session.
    """
    n_lines, plumbing = 0, {"Session"}
    for cell in code:
        if re.search(r"session\.measure\(|^rows = loop\.|^measured = loop\.", cell, re.M):
            return n_lines
        for node in ast.parse(cell).body:
            is_import = isinstance(node, ast.Import | ast.ImportFrom)
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "wire":
                plumbing |= {alias.asname or alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom) and node.module == "helpers.benchmark":
                plumbing |= {"loop", "provenance"} & {alias.name for alias in node.names}
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            used = {
                part.attr
                for part in ast.walk(node)
                if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "session"
            }
            is_timed_call = isinstance(node, ast.FunctionDef) and not used
            opens = bool(names & (plumbing | {"ExitStack", "stack", "Record"}) or used - SUBJECTS)
            if is_import or (opens and not is_timed_call):
                n_lines += (node.end_lineno or 0) - node.lineno + 1
    raise AssertionError("no cell measures")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_few_lines_stand_before_the_measurement(path: Path) -> None:
    """A reader comes to the question after at most fifteen lines of imports and plumbing."""
    cells = nbformat.read(path, as_version=4).cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    n_lines = count_setup_lines(code[1:])
    assert n_lines <= N_LINES.get(path.stem, 15)
