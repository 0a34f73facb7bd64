"""Replay: what drivers with caches do, foretold from the trace of one without any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from helpers.forecasts import ClientCosts, fit_costs
from helpers.measurement.figures import find_look, number_axis
from helpers.measurement.looks import RULE
from helpers.models import caches
from helpers.models.fluid import Network
from helpers.models.replay import Replay, order_reads, replay
from helpers.storage.drivers import Driver
from helpers.studies.hdf5_drivers.findings import measured
from helpers.studies.hdf5_drivers.recordings import CALIBRATED, RECORDED, Recorded, caches_of
from helpers.study import trace_of

_BAR_TIME, _BAR_REQUESTS = 15, 2  # percent


def fit_all(calibration: pd.DataFrame) -> dict[str, ClientCosts]:
    """Fit what each client takes beside the network, on rows of a network that imposes nothing.

    Parameters
    ----------
    calibration : DataFrame
        Rows of the phase ``calibration``, of untuned drivers on two or more layouts.

    Returns
    -------
    dict of str to ClientCosts
        By client; where the calibration has one number of requests, all is start.
    """
    rows = calibration[calibration["phase"] == "calibration"]
    rows = rows.assign(
        total_s=rows["open_s"] + rows["read_s"], n_all=trace_of(rows)["all_requests"]
    )
    costs = {}
    for family, name in CALIBRATED.items():
        part = rows[rows["contender"] == name].groupby("layout")[["n_all", "total_s"]].median()
        if part["n_all"].nunique() > 1:
            costs[family] = fit_costs([(int(n), float(s)) for n, s in part.to_numpy()])
        elif len(part):
            costs[family] = ClientCosts(start_s=float(part["total_s"].median()))
    return costs


def foretell(
    driver: Driver, recorded: Recorded, network: Network, costs: Mapping[str, ClientCosts]
) -> Replay | None:
    """Foretell opening and reading the variables by a driver.

    Parameters
    ----------
    driver : Driver
        With its settings.
    recorded : Recorded
        What the library asks for.
    network : Network
        What is imposed.
    costs : mapping of str to ClientCosts
        Of each client, as calibrated.

    Returns
    -------
    Replay or None
        Time, requests and bytes; None for a driver whose caches are not simulated.
    """
    between, family = caches_of(driver, recorded), driver.registered_name.partition("-")[0]
    if between is None or family not in costs:
        return None
    reading = recorded.reading
    for cache in between:
        reading = caches.read_through(cache, reading, file_nbytes=recorded.file_nbytes)
    lengths = (caches.Read(0, 0),) * recorded.n_without_bytes
    steps = order_reads(caches.Reading((*lengths, *reading.reads)))
    return replay(
        steps, network, request_s=costs[family].request_s, rest_s=costs[family].start_s, n_draws=25
    )


def compare_foretold(
    rows: pd.DataFrame,
    drivers: Sequence[Driver],
    recorded: Mapping[str, Recorded],
    network: Network,
    costs: Mapping[str, ClientCosts],
) -> pd.DataFrame:
    """Put foretold time, requests and bytes beside the measured ones.

    Parameters
    ----------
    rows : DataFrame
        The record.
    drivers : sequence of Driver
        All that were measured; the recorded one is left out, because it is no forecast.
    recorded : mapping of str to Recorded
        By layout.
    network : Network
        What was imposed.
    costs : mapping of str to ClientCosts
        Of each client.

    Returns
    -------
    DataFrame
        A row a driver and layout; errors are foretold over measured, less 1.
    """
    part = measured(rows, "variables")
    trace = trace_of(part)
    part = part.assign(s=part["total_s"], requests=trace["all_requests"])
    part = part.assign(MB=trace["all_nbytes"] / 1e6)
    medians = part.groupby(["contender", "layout"], sort=False)[["s", "requests", "MB"]].median()
    by_name, lines = {driver.name: driver for driver in drivers}, {}
    for key, line in medians.iterrows():
        name, layout = map(str, cast(tuple[Any, Any], key))
        if name == RECORDED or layout not in recorded:
            continue
        found = foretell(by_name[name], recorded[layout], network, costs)
        if found:
            told = (found.seconds, found.n_requests, found.nbytes / 1e6)
            lines[name, layout] = [*told, *line, *(np.array(told) / line.to_numpy() - 1)]
    names = ("s", "requests", "MB")
    columns = [f"{name} {kind}" for kind in ("foretold", "measured", "error") for name in names]
    table = pd.DataFrame.from_dict(lines, orient="index", columns=columns)
    table.index = pd.MultiIndex.from_tuples(lines, names=["driver", "layout"])
    return table


def draw_foretold(ax: Axes, table: pd.DataFrame) -> None:
    """Draw foretold against measured times; the line is where they are equal."""
    for name, part in table.groupby(level="driver", sort=False):
        look = find_look(str(name), "driver")
        ax.plot(
            part["s measured"],
            part["s foretold"],
            look.marker,
            color=look.color,
            markerfacecolor=look.face,
            label=str(name),
        )
    ends = [table[["s measured", "s foretold"]].min().min() / 1.3]
    ends += [table[["s measured", "s foretold"]].max().max() * 1.3]
    ax.plot(ends, ends, color=RULE, linewidth=0.8)
    ax.set(xscale="log", yscale="log", xlabel="measured (s)", ylabel="foretold (s)")
    number_axis(ax.xaxis)
    number_axis(ax.yaxis)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)


def what_if(
    drivers: Sequence[Driver],
    recorded: Mapping[str, Recorded],
    networks: Mapping[str, Network],
    costs: Mapping[str, ClientCosts],
) -> pd.DataFrame:
    """Foretell the same reads over other networks (s).

    Parameters
    ----------
    drivers : sequence of Driver
        What is foretold.
    recorded : mapping of str to Recorded
        By layout.
    networks : mapping of str to Network
        By the name of the profile.
    costs : mapping of str to ClientCosts
        Of each client.

    Returns
    -------
    DataFrame
        A row a driver and layout, a column a network.
    """
    lines = {}
    for driver in drivers:
        for layout, each in recorded.items():
            told = [foretell(driver, each, network, costs) for network in networks.values()]
            if all(told):
                lines[driver.name, layout] = [float(f"{one.seconds:.3g}") for one in told if one]
    table = pd.DataFrame.from_dict(lines, orient="index", columns=list(networks))
    table.index = pd.MultiIndex.from_tuples(lines, names=["driver", "layout"])
    return table


def find_errors(table: pd.DataFrame) -> dict[str, str]:
    """Put the errors of the forecasts into words, by the key under which pages quote them."""
    fixed = table[[not str(name).startswith("fsspec-background") for name, _ in table.index]]
    time = 100 * table["s error"].abs().median()
    requests, nbytes = (100 * fixed[f"{name} error"].abs().median() for name in ("requests", "MB"))

    def judge(value: float, bar: float) -> str:
        return "met" if value <= bar else "missed"

    return {
        "replay-hoped-time": f"at most {_BAR_TIME} %",
        "replay-hoped-requests": f"at most {_BAR_REQUESTS} %",
        "n-foretold": str(len(table)),
        "replay-error-time": f"{time:.1f} %",
        "replay-error-requests": f"{requests:.1f} %",
        "replay-error-bytes": f"{nbytes:.1f} %",
        "replay-bar-time": judge(time, _BAR_TIME),
        "replay-bar-requests": judge(max(requests, nbytes), _BAR_REQUESTS),
    }
