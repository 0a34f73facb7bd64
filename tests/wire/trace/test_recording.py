"""A block of a program that runs already is traced: in a script, a notebook, a test and Dask's workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.stores import allow_everybody, client_environment, make_location
from wire.bed.locations import Location
from wire.bed.networks import FirstByte, Profile
from wire.bed.proxy import open_proxy
from wire.bed.testbed import Server
from wire.trace import jupyter, stored

N_OBJECTS = 6
FAR = Profile("far", FirstByte(0.1, 0.12), aggregate_mb_per_s=400)
"""A network on which a request lasts for ten looks at the lines of a program, on a busy machine for some."""


@pytest.fixture(scope="module")
def store(server: Server) -> Location:
    location = make_location(server, "recorded")
    client = location.botocore()
    for n in range(N_OBJECTS):
        client.put_object(Bucket=location.bucket, Key=f"r/{n}", Body=b"x" * 1000)
    allow_everybody(location)
    return location


@pytest.fixture(scope="module")
def far_store(server: Server, store: Location) -> Iterator[Location]:
    """Offer the same objects over a network."""
    with open_proxy(server.endpoint_url, profile=FAR) as proxy:
        yield store.through(proxy.endpoint_url)


def run_python(
    text: str, store: Location, *words: str, **more: Any
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **client_environment(store)}
    command = [sys.executable, "-W", "ignore", *(words or ("-c", text))]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False, **more
    )


SCRIPT = """
import json, os, s3fs, wire
from obstore.store import S3Store
before = s3fs.S3FileSystem()
before.cat("recorded/r/0")
with wire.trace() as first:
    fs = s3fs.S3FileSystem()
    for n in range(3):
        fs.cat_file(f"recorded/r/{n}", start=0, end=10)
fs.cat_file("recorded/r/5", start=0, end=10)
with wire.trace() as second:
    fs.cat_file("recorded/r/4", start=0, end=10)
    S3Store("recorded", client_options={"allow_http": True}).get("r/1").bytes()
    before.cat_file("recorded/r/2", start=0, end=10)
for block in (first, second):
    print(json.dumps([block.n_requests, block.nbytes, [site.line for site in block.sites], block.not_seen]))
print(os.environ.get("HTTP_PROXY"))
"""


def test_blocks_of_a_script_are_traced(far_store: Location, tmp_path: Path) -> None:
    """Each block has its own requests alone, on their lines; what was opened before is named, and variables go back."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    completed = run_python("", far_store, str(script))
    assert completed.returncode == 0, completed.stderr
    *lines, proxy = completed.stdout.splitlines()
    first, second = map(json.loads, lines)
    assert first[:3] == [3, 30, [9, 9, 9]]
    assert second[:3] == [2, 1010, [12, 13]]
    assert second[3] == [str(far_store.endpoint_url).removeprefix("http://")]
    assert proxy == "None"


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Look for kernels in a folder of the test's own."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return tmp_path


EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
path, kernel_name = sys.argv[1:]
notebook = nbformat.read(path, as_version=4)
NotebookClient(notebook, kernel_name=kernel_name, timeout=60).execute()
nbformat.write(notebook, path)
"""


def run_cells(cells: list[str], folder: Path, kernel_name: str, store: Location) -> list[Any]:
    """Run cells in a kernel, and return the outputs of each."""
    path = folder / "notebook.ipynb"
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=code), path)
    completed = run_python("", store, "-c", EXECUTE, str(path), kernel_name, cwd=folder)
    assert completed.returncode == 0, completed.stderr
    return [cell.outputs for cell in nbformat.read(path, as_version=4).cells]


READ = "%%wire {name}\nfor n in range({n}):\n    fs.cat_file(f'recorded/r/{{n}}', start=0, end=10)"
COUNT = "print({name}.n_requests, [(s.file, s.line) for s in {name}.sites], {name}.not_seen)"


def find_text(outputs: list[dict[str, Any]]) -> str:
    return "".join(
        output.get("text", "") for output in outputs if output["output_type"] == "stream"
    )


@pytest.mark.slow
def test_a_cell_shows_what_it_asked_for(kernels: Path, store: Location) -> None:
    """Requests per cell are exact, each with the cell's number and its line."""
    cells = [
        "%load_ext wire",
        "import s3fs\nfs = s3fs.S3FileSystem()",
        READ.format(name="a", n=3),
        "fs.cat_file('recorded/r/5', start=0, end=10)",
        READ.format(name="b", n=5),
        COUNT.format(name="a"),
        COUNT.format(name="b"),
    ]
    outputs = run_cells(cells, kernels, "python3", store)
    assert find_text(outputs[5]) == f"3 {[('In [3]', 2)] * 3} []\n"
    assert find_text(outputs[6]) == f"5 {[('In [5]', 2)] * 5} []\n"
    shown = next(output["data"]["text/html"] for output in outputs[2] if "data" in output)
    assert "In [3], line 2" in shown and "fs.cat_file" in shown


@pytest.mark.slow
def test_a_kernel_is_traced_from_its_start(kernels: Path, store: Location) -> None:
    """`wire trace install-kernel` writes a kernel in which nothing is opened before the gateway."""
    folder = jupyter.install_kernel()
    specification = json.loads((folder / "kernel.json").read_text())
    assert specification["display_name"] == "Python 3 (wire)"
    cells = [
        "import s3fs\nfs = s3fs.S3FileSystem()",
        READ.format(name="a", n=2),
        COUNT.format(name="a"),
    ]
    outputs = run_cells(cells, kernels, jupyter.KERNEL_NAME, store)
    assert find_text(outputs[2]) == f"2 {[('In [2]', 2)] * 2} []\n"


CLUSTER = """
import json, s3fs, wire
from distributed import Client, LocalCluster
def read(n):
    return len(s3fs.S3FileSystem().cat_file(f"recorded/r/{n}", start=0, end=10))
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            client.register_plugin(wire.trace.DaskPlugin())
            client.gather(client.map(read, range(6)))
            tasks = wire.trace.DaskPlugin.gather(client)
            print(json.dumps([[task.name, task.n_requests, task.nbytes, task.line] for task in tasks]))
"""


@pytest.mark.slow
def test_requests_of_each_task_of_a_cluster(store: Location, tmp_path: Path) -> None:
    """Workers in processes of their own count the requests of each task."""
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    completed = run_python("", store, str(script), cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    tasks = json.loads(completed.stdout.splitlines()[-1])
    assert tasks == [["read", 1, 10, "cluster.py:5"]] * 6


SUITE = """
import s3fs

def test_within_its_budget(wire_requests):
    fs = s3fs.S3FileSystem()
    with wire_requests() as block:
        fs.cat_file("recorded/r/1", start=0, end=10)
    assert (block.n_requests, block.nbytes, block.n_waits) == (1, 10, 1)
    assert not block.not_seen

def test_above_its_budget(wire_requests):
    fs = s3fs.S3FileSystem()
    with wire_requests() as block:
        for n in range(3):
            fs.cat_file(f"recorded/r/{n}", start=0, end=10)
    assert block.n_requests <= 2, str(block)
"""


def test_a_test_holds_reads_to_a_budget(store: Location, tmp_path: Path) -> None:
    """The fixture counts a block's requests, bytes and waits; a budget that is exceeded shows the report."""
    (tmp_path / "test_budget.py").write_text(SUITE)
    words = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "wire.trace.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "test_budget.py",
    )
    completed = run_python("", store, *words, cwd=tmp_path)
    assert "1 failed, 1 passed" in completed.stdout, completed.stdout + completed.stderr
    assert "3 requests to" in completed.stdout


@pytest.mark.slow
def test_a_notebook_below_wire_trace_counts_its_own(kernels: Path, store: Location) -> None:
    """In a lab that `wire trace` has started nothing goes past: cells are shown while it runs."""
    path = kernels / "notebook.ipynb"
    cells = [
        "import s3fs\nfs = s3fs.S3FileSystem()",
        "%load_ext wire",
        READ.format(name="a", n=2),
        COUNT.format(name="a"),
    ]
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=code), path)
    wire = "from wire.cli import run; run()"
    inner = [sys.executable, "-c", EXECUTE, str(path), "python3"]
    words = ("-c", wire, "trace", "--out", str(kernels / "trace"), "--", *inner)
    completed = run_python("", store, *words, cwd=kernels)
    assert completed.returncode == 0, completed.stderr
    outputs = nbformat.read(path, as_version=4).cells[3].outputs
    assert find_text(outputs) == f"2 {[('In [3]', 2)] * 2} []\n"
    assert "2 requests" in completed.stderr


INNER = """
import json, multiprocessing, os, subprocess, sys, urllib.request, wire
url = os.environ["AWS_ENDPOINT_URL"] + "/recorded/r/"
CHILD = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()"
def read(n):
    return len(urllib.request.urlopen(url + str(n)).read())
if __name__ == "__main__":
    read(5)
    with wire.trace() as block:
        read(0)
        subprocess.run([sys.executable, "-c", CHILD, url + "1"], check=True)
        subprocess.run(f"'{sys.executable}' -c '{CHILD}' {url}2; true", shell=True, check=True)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.map(read, [3])
    read(5)
    rows = zip(block.requests, block.sites)
    print(json.dumps(sorted([row.key, site and site.line] for row, site in rows)))
"""


def test_a_block_below_wire_trace_agrees_with_it(store: Location, tmp_path: Path) -> None:
    """The block has the requests of its own processes, of those that ended too, on the lines of the trace."""
    script = tmp_path / "inner.py"
    script.write_text(INNER)
    words = (
        "-c",
        "from wire.cli import run; run()",
        "trace",
        "--out",
        "trace",
        "--",
        sys.executable,
    )
    completed = run_python("", store, *words, "inner.py", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    of_block = json.loads(completed.stdout.splitlines()[-1])
    assert of_block == [
        ["/recorded/r/0", 6],
        ["/recorded/r/1", 1],
        ["/recorded/r/2", 1],
        ["/recorded/r/3", 6],
    ]
    run, _ = stored.read_trace(tmp_path / "trace")
    of_trace = [
        [row.key, site and site.line]
        for row, site in zip(run.rows, run.sites, strict=True)
        if not row.key.endswith("5")
    ]
    assert sorted(of_trace) == of_block


@pytest.mark.slow
def test_papermill_counts_each_cell(kernels: Path, store: Location) -> None:
    """A notebook that papermill runs has the requests of each cell, and shows them below it."""
    cells = [
        "n = 1",
        "%load_ext wire\nimport s3fs\nfs = s3fs.S3FileSystem()",
        READ.format(name="a", n="n"),
        READ.format(name="b", n=5),
        COUNT.format(name="a"),
        COUNT.format(name="b"),
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.cells[0].metadata["tags"] = ["parameters"]
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    path, executed_path = kernels / "notebook.ipynb", kernels / "executed.ipynb"
    nbformat.write(notebook, path)
    words = ("-m", "papermill", "--no-progress-bar", str(path), str(executed_path), "-p", "n", "3")
    completed = run_python("", store, *words, cwd=kernels)
    assert completed.returncode == 0, completed.stderr
    executed = nbformat.read(executed_path, as_version=4).cells
    assert [find_text(cell.outputs) for cell in executed[-2:]] == [
        f"3 {[('In [4]', 2)] * 3} []\n",
        f"5 {[('In [5]', 2)] * 5} []\n",
    ]
    for number, cell in ((4, executed[3]), (5, executed[4])):
        shown = next(output["data"]["text/html"] for output in cell.outputs if "data" in output)
        assert f"In [{number}], line 2" in shown
