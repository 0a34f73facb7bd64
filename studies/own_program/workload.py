"""A program as it is run: alone, traced, and traced with a setting; and what was seen of it, drawn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from zarr.errors import ZarrUserWarning
from zarr.storage import ObjectStore

from helpers.arrays.fields import SampleArray
from helpers.benchmark.contender import CheckError, Steps
from helpers.paths import ROOT
from helpers.plotting import palette
from wire.bed.testbed import Testbed
from wire.trace import findings, launch
from wire.trace.analysis import kind_of
from wire.trace.cli import read_setting
from wire.trace.rows import Run

STORED = "STORED"
_MOST_KEPT = 400  # requests of a run whose times a row keeps, to be drawn
_COLUMNS = ["start_s", "first_byte_s", "end_s"]
_TIME = {
    "start": palette.GRID, "connections": palette.VIOLET, "first bytes": palette.RUST,
    "bodies": palette.BLUE, "client": palette.RED, "processor": palette.GREEN, "idle": palette.RULE,
}  # fmt: skip


def write_array(
    testbed: Testbed, shape: Sequence[int], chunk_shape: Sequence[int], seed: int
) -> str:
    """Store a dataset that xarray opens, and return its address."""
    n_time, n_y, n_x = shape
    source = ROOT / "data" / "ocean-temperature.nc"
    sample = SampleArray(source, "temperature", (n_time, 1, n_y, n_x), seed)
    values = sample.block((0, 0, 0, 0), sample.shape)[:, 0]
    dims = ("time", "y", "x")
    coordinates = {name: np.arange(n) for name, n in zip(dims, shape, strict=True)}
    dataset = xr.Dataset({"temperature": (dims, values)}, coordinates)
    place = testbed.near / "own-program"
    with warnings.catch_warnings():
        # consolidated metadata are no part of Zarr 3
        warnings.simplefilter("ignore", ZarrUserWarning)
        encoding = {"temperature": {"chunks": tuple(chunk_shape)}}
        store = ObjectStore(place.obstore())
        dataset.to_zarr(store, mode="w", zarr_format=3, encoding=encoding)
    return place.url


@dataclass(slots=True)
class Program(Steps):
    """A program that is run in a process of its own, traced or not."""

    command: Sequence[str]
    testbed: Testbed
    stored: str  # address of the dataset that stands for `STORED`
    nbytes_read: int
    is_traced: bool = False
    setting: str = ""
    printed: set[str] = field(default_factory=set)  # digests of what all of them printed
    run_: Run | None = None
    digest: str = ""

    def settings(self) -> dict[str, Any]:
        """Return what a comparison has to hold equal, or declare."""
        return {"cache_state": "cold: a process of its own", "setting": self.setting or "as it is"}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the stored array."""
        return self.nbytes_read, self.nbytes_read

    def prepare(self) -> None:
        """Start the trace of the store."""
        self.testbed.take_trace()

    def open(self) -> Program:
        """Open nothing: the program does."""
        return self

    def go(self) -> int:
        """Run the program to its end, and return its exit code."""
        words = [sys.executable if word == "python" else word for word in self.command]
        words = [self.stored if word == STORED else word for word in words]
        words = [os.fspath(ROOT / word) if (ROOT / word).is_file() else word for word in words]
        location = self.testbed.far
        credentials = {
            "AWS_ENDPOINT_URL": location.endpoint_url, "AWS_ACCESS_KEY_ID": location.access_key,
            "AWS_SECRET_ACCESS_KEY": location.secret_key, "AWS_SESSION_TOKEN": location.session_token,
            "AWS_REGION": location.region,
        } if STORED in self.command else {}  # fmt: skip
        variables = {name: str(value) for name, value in credentials.items() if value}
        variables |= read_setting(self.setting)
        if not self.is_traced:
            env = {**os.environ, **variables}
            ended = subprocess.run(words, env=env, stdout=subprocess.PIPE, check=False)
            self.digest = sha256(ended.stdout).hexdigest()
            return ended.returncode
        self.run_ = launch.run(words, environment=variables, is_silent=True)
        self.digest = self.run_.output_digest or ""
        return self.run_.exit_code or 0

    def collect(self) -> Mapping[str, Any]:
        """Count the requests; of a traced run keep when each was made, and what is said of it."""
        requests = self.testbed.take_trace()
        counted = {"n_requests": len(requests), "wire_nbytes": sum(row.nbytes for row in requests)}
        if self.run_ is None:
            return counted
        report = findings.report(self.run_)
        rows = sorted(self.run_.rows, key=lambda row: row.start_s)[:_MOST_KEPT]
        begin_s = self.run_.begin_s
        times = [
            moment - begin_s
            for row in rows
            for moment in (row.start_s, row.first_byte_s or row.end_s, row.end_s)
        ]
        return {
            "n_requests": report.n_requests, "wire_nbytes": report.moved_nbytes,
            "requests": [round(value, 4) for value in times],
            "kinds": ",".join(map(kind_of, rows)), "report": json.dumps(asdict(report)),
        }  # fmt: skip

    def check(self, code: int) -> str:
        """Refuse a program that failed, or that printed something else than another of its runs."""
        self.printed.add(self.digest)
        if code or len(self.printed) > 1:
            raise CheckError(f"exit code {code}, {len(self.printed)} outputs")
        return "output equal by sha256"


def report_of(rows: pd.DataFrame, contender: str) -> dict[str, Any]:
    """Read what was said of the last run of a contender."""
    return dict(json.loads(_last(rows, contender)["report"]))


def _last(rows: pd.DataFrame, contender: str) -> dict[str, Any]:
    return dict(json.loads(rows.loc[rows["contender"] == contender, "trace"].iloc[-1]))


def tabulate_findings(report: Mapping[str, Any]) -> pd.DataFrame:
    """List the causes that were found, the first to mend first."""
    lines = [
        (finding["title"], finding["count"], finding["evidence"], finding["line"], finding["gain"])
        for finding in report["findings"]
    ]
    return pd.DataFrame(
        lines, columns=["cause", "requests", "evidence", "change", "gain"]
    ).set_index("cause")


def draw_requests(ax: Axes, rows: pd.DataFrame, contender: str) -> None:
    """Draw each request from top to bottom: pale while it waits, full while it receives."""
    trace = _last(rows, contender)
    table = pd.DataFrame(np.reshape(trace["requests"], (-1, len(_COLUMNS))), columns=_COLUMNS)
    is_look = np.array([kind in ("HEAD", "probe", "listing") for kind in trace["kinds"].split(",")])
    for chosen, colour in ((is_look, palette.RUST), (~is_look, palette.BLUE)):
        part = table[chosen]
        wait_s = part["first_byte_s"] - part["start_s"]
        body_s = part["end_s"] - part["first_byte_s"]
        ax.barh(part.index, wait_s, left=part["start_s"], color=colour, alpha=0.4, height=0.9)
        ax.barh(part.index, body_s, left=part["first_byte_s"], color=colour, height=0.9)
    ax.set_ylim(len(table), -1)


def draw_time(ax: Axes, reports: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw what each second went to, a bar a run, each part with its name where it is wide enough."""
    longest_s = max(report["wall_s"] for report in reports.values())
    for place, report in enumerate(reports.values()):
        left = 0.0
        for phase, seconds in report["time_s"].items():
            ax.barh(place, seconds, left=left, color=_TIME[phase], height=0.6)
            if seconds > 0.12 * longest_s:
                middle = left + seconds / 2
                ax.text(middle, place - 0.42, phase, ha="center", va="center", size="small")
            left += seconds
    ax.set_yticks(range(len(reports)), [*reports])
    ax.set_ylim(len(reports) - 0.5, -0.6)
