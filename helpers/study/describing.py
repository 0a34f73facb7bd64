"""What a study measures, where and with what: parameters, versions, arrays, published tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pandas as pd

from helpers.measurement import provenance
from helpers.parameters import GLOSSARY
from helpers.paths import ROOT
from helpers.storage.stores import StoredArray

# Parameters that say how long to go on, or where rows and workers are, not what is measured.
_NOT_MEASURED = ("n_blocks", "time_budget_s", "target_width", "record", "cluster_address")


def collect(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Collect a notebook's parameters by their names."""
    return {name: namespace[name] for name in GLOSSARY if name in namespace}


def case_of(record: str) -> str:
    """Return the case that a record's file is named after."""
    return record.removesuffix(".csv")


def describe_origin(settings: Mapping[str, Any]) -> provenance.Provenance:
    """Describe this machine, what is imported by now, and the parameters of a study."""
    measured = {name: value for name, value in settings.items() if name not in _NOT_MEASURED}
    return provenance.describe(measured)


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


def n_cores() -> int:
    """Count the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_published(name: str) -> pd.DataFrame:
    """Read a table of measurements that others published."""
    return pd.read_csv(ROOT / "results" / "published" / f"{name}.csv")
