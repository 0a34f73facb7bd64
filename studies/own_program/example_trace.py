"""The trace of an example, as its page shows it: `python -m studies.own_program.example_trace` makes it anew."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import zarr
from zarr.storage import ObjectStore

import wire.bed
from helpers.paths import ROOT
from wire.trace import findings, launch, page, render, stored
from wire.trace.report import Report
from wire.trace.rows import Run

PROGRAM = Path(__file__).with_name("example.py")
RECORD = ROOT / "results" / "traced" / "example"
NETWORK = "same-region"
_WORDS = ["python", PROGRAM.name]


def record() -> None:
    """Run the program over an emulated network, and store its requests and what is known of the run."""
    values = np.random.default_rng(0).random((24, 160, 160), np.float32)
    with wire.bed.open_store(NETWORK) as store:
        direct = store.direct
        cube = zarr.open_group(ObjectStore((direct / "cube.zarr").obstore()), mode="w")
        cube.create_array("t2m", shape=values.shape, chunks=(1, 80, 80), dtype="f4")[:] = values
        for number in range(12):
            direct.fsspec().pipe_file(f"{direct.path}/files/f{number:02}.nc", bytes(1_000_000))
        command = [sys.executable, PROGRAM.name, store.location.url]
        run = launch.run(command, environment=store.environment)
    if run.exit_code:
        raise RuntimeError(f"{PROGRAM.name} ended with {run.exit_code}")
    clean, _ = stored.redact_run(run, _WORDS)
    stored.write_trace(RECORD, clean, _WORDS)
    (RECORD / "trace.har").unlink()


def read_example() -> tuple[Run, Report, Sequence[str]]:
    """Read the stored trace, and analyse it."""
    run, words = stored.read_trace(RECORD)
    return run, findings.report(run), words


def write_program() -> str:
    """Write the program as it is, for the page."""
    text = PROGRAM.read_text(encoding="utf-8")
    return f"```{{code-block}} python\n:linenos:\n\n{text}```\n"


def write_screen() -> str:
    """Write what `wire trace` prints of the trace, for the page."""
    _, report, words = read_example()
    lines = "\n".join(render.render(report, words))
    return f"```text\n$ wire trace {' '.join(words)}\n{lines}\n```\n"


def write_waterfall() -> str:
    """Write the waterfall of the trace, for the page: without scripts it is a table."""
    run, report, _ = read_example()
    element = page.write_waterfall(run, report)
    return f"```{{raw}} html\n{element}\n<script>{page.read_script()}</script>\n```\n"


if __name__ == "__main__":
    record()
