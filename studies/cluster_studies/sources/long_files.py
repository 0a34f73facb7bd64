"""Many netCDF files of many steps, a stored chunk each, as archives of CMIP6 have them: opened in six ways.

With ``chunks={}`` each stored chunk is a task of Dask; otherwise a file is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import dask
import pandas as pd

from studies.cluster_studies import tables, virtual_files
from studies.cluster_studies.sources import SOURCES, ClusterSource
from studies.cluster_studies.virtual_files import WHOLE_FILES

_open = tables.open_files
_WAYS: Mapping[str, tuple[str, str, Any]] = {
    "long-objects": ("open_mfdataset", "long-files", partial(_open, method="objects")),
    "long-tasks": ("parallel=True alone", "long-files", partial(_open, method="tasks")),
    "long-stored-chunks": (
        "the recipe, chunks={}",
        "long-files",
        partial(_open, method="recipe"),
    ),
    "long-recipe": (
        "the recipe, a file a task",
        "long-files",
        partial(_open, method="recipe", chunks=WHOLE_FILES),
    ),
    "long-parquet": ("virtual, kerchunk Parquet", "virtual-files", virtual_files.open_parquet),
    "long-icechunk": ("virtual, Icechunk", "virtual-files", virtual_files.open_icechunk),
}
SOURCES.register(
    *(
        ClusterSource(name, label, (), layout, open_files, is_of_today=True)
        for name, (label, layout, open_files) in _WAYS.items()
    )
)


def count_tasks(workload: Any) -> pd.DataFrame:
    """Count the tasks of Dask that a read by each source becomes, opened without the network."""
    stored = workload.array
    counts = {}
    for name in workload.settings["contenders"]:
        source = SOURCES[name]
        # in this process: the cluster of a case has no workers before it measures
        with dask.config.set(scheduler="synchronous"):
            opened = source.open(stored.location / "tables" / source.layout, stored)
        counts[name] = len(opened.__dask_graph__())
    return pd.DataFrame({"n_tasks": counts}).rename_axis("contender")
