"""What studies share: where storage, measurement and models meet.

Notebooks say what is asked and show what was found; the steps between, the
same in every study, are here: contenders from reads, predictions from
calibrations, tables from records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib_inline.backend_inline import set_matplotlib_formats

from helpers.measurement import calibration, figures, provenance, statistics
from helpers.measurement.measure import Contender
from helpers.models import calibrations, requests
from helpers.parameters import GLOSSARY
from helpers.paths import ROOT
from helpers.storage.formats import Reader
from helpers.storage.network import Profile
from helpers.storage.stores import StoredArray
from helpers.storage.wires import Wire

PACKAGES = (
    "dask",
    "distributed",
    "fsspec",
    "h5netcdf",
    "h5py",
    "numcodecs",
    "numpy",
    "obstore",
    "s3fs",
    "virtualizarr",
    "xarray",
    "zarr",
    "zarrs",
)
"""Packages whose versions decide what is measured."""

# Parameters that say how long to go on, or where rows and workers are, not what is measured.
_NOT_MEASURED = ("n_blocks", "time_budget_s", "target_width", "record", "cluster_address")


class Way(Protocol):
    """A way to read, in the steps that a measurement needs."""

    @property
    def stored(self) -> StoredArray:
        """What is read."""

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""

    def prepare(self) -> None:
        """Empty caches and the trace."""

    def open(self) -> Any:
        """Open what is to be read."""

    def check(self, result: Any, /) -> str:
        """Compare what was read with what was written."""

    def collect(self) -> Mapping[str, float]:
        """Count what passed over the wire."""


def collect(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Collect a notebook's parameters by their names."""
    return {name: namespace[name] for name in GLOSSARY if name in namespace}


def case_of(record: str) -> str:
    """Return the case that a record's file is named after."""
    return record.removesuffix(".csv")


def describe_origin(settings: Mapping[str, Any]) -> provenance.Provenance:
    """Describe this machine, the versions and the parameters of a study."""
    measured = {name: value for name, value in settings.items() if name not in _NOT_MEASURED}
    return provenance.describe(measured, PACKAGES)


def describe_array(stored: StoredArray) -> pd.DataFrame:
    """Tabulate the layouts of an array: bytes in the store and ratio of compression."""
    layouts = {
        layout: {"stored (MB)": nbytes / 1e6, "array / stored": stored.nbytes / nbytes}
        for layout, nbytes in stored.stored_nbytes.items()
        if layout != "references"  # they hold no values
    }
    table = pd.DataFrame(layouts).T.rename_axis("layout")
    table.insert(0, "array (MB)", stored.nbytes / 1e6)
    return table.assign(chunks=stored.n_chunks).round(2)


def contend(
    name: str,
    way: Way,
    n_workers: int,
    *,
    read: Callable[[Any], Any],
    settings: Mapping[str, Any],
    **more: Any,
) -> Contender:
    """Make a contender of a way to read and a number of workers.

    Contenders with as many workers run next to each other, so that a cluster
    is scaled once for all of them.
    """
    layout = way.settings()["layout"]
    layout = "netcdf" if layout == "references" else layout
    return Contender(
        name=name,
        point={"n_workers": n_workers},
        group=str(n_workers),
        settings={**way.settings(), **settings},
        open=way.open,
        read=read,
        check=way.check,
        prepare=way.prepare,
        collect=way.collect,
        array_nbytes=way.stored.nbytes,
        stored_nbytes=way.stored.stored_nbytes[layout],
        **more,
    )


def calibrate_network(wire: Wire, profile: Profile) -> pd.DataFrame:
    """Measure what a profile imposes, beside what it asks; empty where nothing is imposed."""
    asked = calibration.Asked(
        profile.first_byte_s.median_s if profile.first_byte_s else None,
        profile.stream_mb_per_s,
        profile.aggregate_mb_per_s,
        None,  # readers here stay far below the ceiling on requests
    )
    columns = ["quantity", "n_connections", "asked", "measured", "error"]
    if asked == calibration.Asked(None, None, None, None):
        return pd.DataFrame(columns=columns)
    found = calibration.calibrate(wire.probe_url(), asked)
    lines = [(c.quantity, c.n_connections, c.asked, c.measured, c.error) for c in found]
    return pd.DataFrame(lines, columns=columns)


def read_clients(
    calibrated: pd.DataFrame, readers: Mapping[str, Reader], *, n_chunks: int
) -> dict[str, requests.Client]:
    """Learn from a calibration how each contender reads, the ceiling included."""
    rows = calibrated[calibrated["phase"] == "calibration"]
    threads = int((rows["concurrency"] / rows["n_workers"]).iloc[0])

    def read_one(name: str, part: pd.DataFrame) -> requests.Client:
        reader = readers.get(name)
        return calibrations.read_client(
            part.to_dict("records"),  # type: ignore[arg-type]
            n_chunks=n_chunks,
            n_cores=n_cores(),
            connections_per_worker=1 if reader and reader.is_serial else threads,
            is_overlapped=reader is None or reader.is_batched,
        )

    return {
        str(name): read_one(str(name), part) for name, part in rows.groupby("contender", sort=False)
    }


def n_cores() -> int:
    """Count the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def network_of(profile: Profile) -> requests.Network:
    """Turn a profile into what the request model takes."""

    def rate(mb_per_s: float | None) -> float:
        return np.inf if mb_per_s is None else 1e6 * mb_per_s

    first = profile.first_byte_s
    return requests.Network(
        first.median_s if first else 0.0,
        first.p95_s if first else 0.0,
        rate(profile.stream_mb_per_s),
        rate(profile.aggregate_mb_per_s),
        np.inf if profile.requests_per_s is None else profile.requests_per_s,
    )


def predict(
    clients: Mapping[str, requests.Client],
    profile: Profile,
    n_workers: Sequence[int],
    stored: StoredArray,
) -> pd.DataFrame:
    """Predict the read of each contender at each number of workers, and what binds it."""
    lines = []
    for name, client in clients.items():
        for n in n_workers:
            found = requests.predict(
                network_of(profile),
                client,
                n_chunks=stored.n_chunks,
                n_workers=n,
                n_cores=n_cores(),
            )
            lines.append((name, n, found.seconds, stored.nbytes / found.seconds / 1e6, found.limit))
    names = ["contender", "n_workers", "read_s", "throughput_mb_per_s", "limit"]
    return pd.DataFrame(lines, columns=names)


def compare_predictions(rows: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Put predicted beside measured times: `relative_error` is predicted over measured, less 1."""
    found = statistics.summarise(rows, ["contender", "n_workers"])
    table = expected.merge(found, on=["contender", "n_workers"])
    return table.assign(relative_error=table["read_s"] / table["median"] - 1)


def draw_network(axes: Sequence[Axes], checked: pd.DataFrame) -> None:
    """Draw asked against measured, a panel a quantity."""
    names = {
        "first_byte_s": "time to first byte",
        "stream_mb_per_s": "one stream",
        "aggregate_mb_per_s": "all together",
    }
    for ax, (quantity, label) in zip(axes, names.items(), strict=True):
        part = checked[checked["quantity"] == quantity]
        if part.empty:
            ax.set_axis_off()
            continue
        figures.draw_calibration(
            ax,
            list(part["asked"]),
            list(part["measured"]),
            x=list(part["n_connections"]),
            xlabel=f"connections\n{label}",
        )
        if ax is not axes[0]:
            ax.set_ylabel("")


def draw_scaling(ax: Axes, rows: pd.DataFrame, expected: pd.DataFrame) -> str:
    """Draw throughput of array bytes against workers; return the footnote on fairness."""
    by = ["contender", "n_workers"]
    shown = rows[(rows["phase"] == "measured") & (rows["control_of"] == "")]
    readers = shown[~shown["is_ceiling"]]
    ceiling = statistics.summarise(shown[shown["is_ceiling"]], by, value="throughput_mb_per_s")
    figures.draw_scaling(
        ax,
        statistics.summarise(readers, by, value="throughput_mb_per_s"),
        points=readers,
        predictions=expected[expected["contender"] != "raw"],
        ceiling=ceiling,
    )
    ax.set(xlabel="workers", ylabel="throughput (MB/s)")
    return figures.comparison(readers)


def tabulate(rows: pd.DataFrame, *, n_workers: int) -> pd.DataFrame:
    """Tabulate medians at one number of workers, the fastest first."""
    part = _at(rows, n_workers)
    columns = {
        "array MB/s": "throughput_mb_per_s",
        "stored MB/s": "stored_throughput_mb_per_s",
        "wire MB/s": "wire_throughput_mb_per_s",
        "share of ceiling": "share_of_ceiling",
        "opening (s)": "open_s",
        "reading (s)": "read_s",
    }
    medians = part.groupby("contender")[list(columns.values())].median()
    table = medians.set_axis(list(columns), axis=1).sort_values("reading (s)")
    table.insert(
        1,
        "array MB/s a thread",
        table["array MB/s"] / part.groupby("contender")["concurrency"].first(),
    )
    return table.map(lambda value: float(f"{value:.3g}"))


def tabulate_requests(rows: pd.DataFrame, *, n_chunks: int, n_workers: int) -> pd.DataFrame:
    """Tabulate what the trace says of each contender at one number of workers."""
    part = _at(rows, n_workers)
    trace = trace_of(part)
    if "mean_in_flight" not in trace:
        return pd.DataFrame(columns=["not traced"])
    table = pd.DataFrame(
        {
            "contender": part["contender"],
            "requests a chunk": part["n_requests"] / n_chunks,
            "wire / stored": part["wire_nbytes"] / part["stored_nbytes"],
            "requests to open": trace["n_open_requests"],
            "in flight, mean": trace["mean_in_flight"],
            "in flight, most": trace["max_in_flight"],
            "threads": part["concurrency"],
            "failed": trace["n_failed_requests"],
        }
    )
    return table.groupby("contender").median().round(2)


def count_rows(rows: pd.DataFrame, *, stopped_by: str) -> pd.DataFrame:
    """Count the rows of a record by phase, and say what ended the measurement."""
    table = rows.groupby("phase").agg(blocks=("block", "nunique"), rows=("block", "size"))
    return table.assign(
        ended_by=["" if phase != "measured" else stopped_by for phase in table.index]
    )


def _at(rows: pd.DataFrame, n_workers: int) -> pd.DataFrame:
    return rows[(rows["phase"] == "measured") & (rows["n_workers"] == n_workers)]


def trace_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Spread the numbers of the trace into columns."""
    return pd.json_normalize(list(rows["trace"].map(_parse))).set_index(rows.index)


def _parse(text: str) -> dict[str, Any]:
    return dict(json.loads(text))


def read_published(name: str) -> pd.DataFrame:
    """Read a table of measurements that others published."""
    return pd.read_csv(ROOT / "results" / "published" / f"{name}.csv")


def set_style() -> None:
    """Set the look of figures and tables: one for the book."""
    plt.style.use(figures.STYLE)
    set_matplotlib_formats("svg")  # type: ignore[no-untyped-call]
    pd.set_option("display.max_colwidth", None)
