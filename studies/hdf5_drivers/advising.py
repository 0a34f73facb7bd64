"""The advisor held against measurement, on a gridded file as several tools write it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import netCDF4
import numpy as np
import obstore
import pandas as pd

from advisors.hdf5.advice import Advised, advise
from advisors.hdf5.prediction import TUNED, UNTUNED, Settings, read_file
from advisors.hdf5.repack import apply_repack
from advisors.hdf5.scoring import read_scores
from helpers.arrays.fields import SampleArray
from helpers.models.transfer import ClientCosts
from helpers.netem.profiles import Profile, take_scatter_out
from helpers.objectstore.testbed import Testbed
from helpers.paths import ROOT
from studies.hdf5_drivers.file_layouts import run_tool

VARIABLES = ("ocean/temperature", "ice/temperature")
"""Two of the four variables of a gridded file."""

_GROUPS = ("ocean", "ice")
_NAMES = ("temperature", "anomaly")
_SMALL_PAGE_NBYTES = 65_536  # as small as some producers leave them
_SHAPE = (3, 1, 240, 320)
_N_READS = 5  # of a repacked file, of which the median counts
_TARGET = 0.20


def write_with_netcdf4(sample: SampleArray, path: Path) -> Path:
    """Write the top level of a real field, twice enlarged, as netCDF4-python does."""
    stop = (sample.shape[0], 1, *sample.shape[2:])
    top = sample.block((0, 0, 0, 0), stop)[:, 0]
    with netCDF4.Dataset(path, "w") as made:
        made.title = "a gridded file of real fields"
        for name, length in zip(("time", "y", "x"), (None, *top.shape[1:]), strict=True):
            made.createDimension(name, length)
        for group in _GROUPS:
            for number, name in enumerate(_NAMES):
                chunk = (1, -(-top.shape[1] // 4), -(-top.shape[2] // 4))
                new = made.createGroup(group).createVariable(
                    name, "f4", ("time", "y", "x"), zlib=True, chunksizes=chunk
                )
                new.units, new.long_name = "degC", f"{name} of {group}"
                new[:] = top + np.float32(number)
    return path


def write_with_ncgen(source: Path, path: Path) -> Path:
    """Write a file again from its text: ncdump's output through ncgen."""
    text = path.with_suffix(".cdl")
    text.write_text(run_tool(["ncdump", "-s", str(source)]))
    run_tool(["ncgen", "-4", "-o", str(path), str(text)])
    text.unlink()
    return path


def write_with_h5repack(source: Path, path: Path) -> Path:
    """Write a file again in pages of 64 KiB, by h5repack."""
    run_tool(["h5repack", "-S", "PAGE", "-G", str(_SMALL_PAGE_NBYTES), str(source), str(path)])
    return path


_REWRITERS: Mapping[str, tuple[tuple[str, ...], Callable[[Path, Path], Path]]] = {
    "ncgen": (("ncdump", "ncgen"), write_with_ncgen),
    "h5repack": (("h5repack",), write_with_h5repack),
}


def make_gridded(folder: Path, seed: int) -> dict[str, Path]:
    """Write a gridded netCDF-4 file of real fields by each tool that is on PATH.

    The seed is of the variability that is added.
    """
    source = ROOT / "data" / "ocean-temperature.nc"
    sample = SampleArray(source, "temperature", _SHAPE, seed)
    first = write_with_netcdf4(sample, folder / "gridded-netcdf4.nc")
    made = {"netCDF4-python": first}
    for name, (programs, write) in _REWRITERS.items():
        if all(map(shutil.which, programs)):
            made[name] = write(first, folder / f"gridded-{name}.nc")
    return made


def tabulate_advice(advised: Advised) -> pd.DataFrame:
    """Tabulate what the advisor says of a file, best first."""
    present = advised.present
    lines = {"as it is, no cache": (present, 1.0)} | {
        one.label: (one.prediction, one.gain) for one in advised.advice
    }
    table = {
        label: {
            "open (s)": found.open_s,
            "read (s)": found.read_s,
            "requests to open": found.open.n_requests,
            "requests": found.n_requests,
            "MB": found.nbytes / 1e6,
            "gain": gain,
        }
        for label, (found, gain) in lines.items()
    }
    return pd.DataFrame(table).T.round(2).rename_axis("what is done")


def compare_advice(
    paths: Mapping[str, Path], testbed: Testbed, profile: Profile, costs: ClientCosts
) -> pd.DataFrame:
    """Advise on files, do the best repack, and measure both over the network; a row a file.

    A time is from the first request to the end of the last one, in the proxy's trace; of
    repacked files, which make few requests, the median of several reads. Each first byte
    takes the mean of the profile's, because a median of few requests errs by their scatter:
    what is tested is the prediction.
    """
    lines, steady = {}, take_scatter_out(profile)
    only_requests = ClientCosts(request_s=costs.request_s)
    for tool, path in paths.items():
        advised = advise(str(path), steady, variables=VARIABLES, costs=only_requests)
        label, repack = advised.best_repack()
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / f"repacked-{path.name}"
            apply_repack(str(path), repack, out)
            for each in (path, out):
                obstore.put(testbed.near.obstore(), each.name, each)
        testbed.emulate(steady)
        before_s, _ = _measure(testbed, path.name, UNTUNED, advised.report.page_nbytes)
        after_s, n_requests = _measure(testbed, out.name, TUNED, repack.page_nbytes)
        gain = next(one.gain for one in advised.advice if one.label == label)
        lines[tool] = (label, gain, before_s / after_s, gain * after_s / before_s - 1, n_requests)
    columns = ["best repack", "gain predicted", "gain measured", "error", "requests"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=columns).rename_axis("made by")


def _measure(testbed: Testbed, key: str, settings: Settings, page_nbytes: int) -> tuple[float, int]:
    """Read as the prediction has it; return seconds and requests."""
    times_s, counts = [], []
    for _ in range(_N_READS if settings is TUNED else 1):
        testbed.take_trace()
        read_file(testbed.far / key, settings, VARIABLES, page_nbytes=page_nbytes)
        trace = testbed.take_trace()
        times_s.append(max(each.end_s for each in trace) - min(each.start_s for each in trace))
        counts.append(len(trace))
    return float(np.median(times_s)), int(np.median(counts))


def find_advice(table: pd.DataFrame) -> dict[str, str]:
    """Put the errors of predicted gains into words, beside the largest by the wall clock."""
    worst = float(table["error"].abs().max())
    return {
        "n-advised": str(len(table)),
        "advisor-hoped": f"at most {100 * _TARGET:.0f} %",
        "advisor-worst-error": f"{100 * worst:.0f} %",
        "advisor-target": "met" if worst <= _TARGET else "missed",
        "advisor-most-requests": str(int(table["requests"].max())),
        "score-worst-error": f"{max(read_scores()[1]):.0f} %",
    }
