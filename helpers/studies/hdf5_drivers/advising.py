"""The advisor held against measurement, on files that it was not developed on."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import obstore
import pandas as pd

from helpers.advisor import Advised, advise
from helpers.forecasts import TUNED, UNTUNED, ClientCosts, Settings, read_file
from helpers.paths import ROOT
from helpers.storage.data import SampleArray
from helpers.storage.hdf5 import gridded
from helpers.storage.network import FirstByte, Profile
from helpers.storage.repairs import apply_repair
from helpers.storage.wires import Wire
from helpers.studies.hdf5_drivers.findings import mean_first_byte_s
from helpers.study import network_of

_SHAPE = (3, 1, 240, 320)
_N_READS = 5  # of a repaired file, of which the median counts
_BAR = 0.20


@dataclass(frozen=True, slots=True)
class Advisable:
    """A stored file, and what the advisor says of it.

    Parameters
    ----------
    key : str
        Name in the store.
    variables : tuple of str
        What is read.
    advised : Advised
        What is foretold.
    """

    key: str
    variables: tuple[str, ...]
    advised: Advised


def make_gridded(folder: Path, seed: int) -> dict[str, Path]:
    """Write a gridded netCDF-4 file of real fields by each tool that is there.

    Parameters
    ----------
    folder : Path
        Where.
    seed : int
        Of the variability that is added.

    Returns
    -------
    dict of str to Path
        By the tool.
    """
    source = ROOT / "data" / "ocean-temperature.nc"
    return gridded.write_all(SampleArray(source, "temperature", _SHAPE, seed), folder)


def tabulate_advice(advised: Advised) -> pd.DataFrame:
    """Tabulate what the advisor says of a file, best first."""
    present = advised.present
    lines = {"as it is, no cache": (present, 1.0)} | {
        one.label: (one.forecast, one.gain) for one in advised.advice
    }
    table = {
        label: {
            "open (s)": found.open.seconds,
            "read (s)": found.read.seconds,
            "requests to open": found.open.n_requests,
            "requests": found.n_requests,
            "MB": found.nbytes / 1e6,
            "gain": gain,
        }
        for label, (found, gain) in lines.items()
    }
    return pd.DataFrame(table).T.round(2).rename_axis("what is done")


def compare_advice(
    paths: Mapping[str, Path], wire: Wire, profile: Profile, costs: ClientCosts
) -> pd.DataFrame:
    """Advise on files, do the best repair, and measure both over the network.

    A time is from the first request to the end of the last one, in the relay's trace; of
    repaired files, which make few requests, the median of several reads. Each first byte
    takes the mean of the profile's, because a median of few requests errs by their scatter:
    what is tested is the forecast.

    Parameters
    ----------
    paths : mapping of str to Path
        Files, by the tool that made them.
    wire : Wire
        The network.
    profile : Profile
        What is imposed, but for the scatter of first bytes.
    costs : ClientCosts
        What client and server take for a request.

    Returns
    -------
    DataFrame
        A row a file: foretold and measured gain, their error, and requests to open.
    """
    lines, steady = {}, take_scatter_out(profile)
    only_requests = ClientCosts(request_s=costs.request_s)
    for tool, path in paths.items():
        found = _advise_on(path, steady, only_requests)
        label, repair = found.advised.best_repair()
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / f"repaired-{path.name}"
            apply_repair(str(path), repair, out)
            for each in (path, out):
                obstore.put(wire.near.obstore(), each.name, each)
        wire.impose(steady)
        before_s, _ = _measure(found, path.name, UNTUNED, wire)
        after_s, n_requests = _measure(found, out.name, TUNED, wire)
        gain = next(one.gain for one in found.advised.advice if one.label == label)
        lines[tool] = (label, gain, before_s / after_s, gain * after_s / before_s - 1, n_requests)
    columns = ["best repair", "gain foretold", "gain measured", "error", "requests"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=columns).rename_axis("made by")


def take_scatter_out(profile: Profile) -> Profile:
    """Give every first byte of a profile the same delay: the mean of them."""
    mean_s = mean_first_byte_s(network_of(profile))
    steady = FirstByte(mean_s, mean_s) if mean_s else None
    return replace(profile, name=f"{profile.name}, first bytes steady", first_byte_s=steady)


def _advise_on(path: Path, profile: Profile, costs: ClientCosts) -> Advisable:
    names = gridded.VARIABLES
    return Advisable(path.name, names, advise(str(path), profile, variables=names, costs=costs))


def _measure(found: Advisable, key: str, settings: Settings, wire: Wire) -> tuple[float, int]:
    """Read as a forecast has it; return seconds and requests."""
    is_repaired = settings is TUNED
    best = found.advised.best_repair()[1].page_nbytes
    is_paged = (best if is_repaired else found.advised.report.page_nbytes) > 0
    times_s, counts = [], []
    for _ in range(_N_READS if is_repaired else 1):
        wire.take_trace()
        read_file(wire.far / key, settings, found.variables, is_paged=is_paged)
        trace = wire.take_trace()
        times_s.append(max(each.end_s for each in trace) - min(each.start_s for each in trace))
        counts.append(len(trace))
    return float(np.median(times_s)), int(np.median(counts))


def find_advice(table: pd.DataFrame) -> dict[str, str]:
    """Put the errors of predicted gains into words."""
    worst = float(table["error"].abs().max())
    return {
        "n-advised": str(len(table)),
        "advisor-hoped": f"at most {100 * _BAR:.0f} %",
        "advisor-worst-error": f"{100 * worst:.0f} %",
        "advisor-bar": "met" if worst <= _BAR else "missed",
        "advisor-most-requests": str(int(table["requests"].max())),
    }
