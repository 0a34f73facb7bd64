"""A sweep of settings: requests and bytes, which do not vary from run to run."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from helpers.storage.drivers import Driver, Session
from helpers.storage.drivers.registry import MIB
from helpers.storage.drivers.traces import summarise_trace
from helpers.storage.hdf5.files import StoredFile
from helpers.storage.wires import Wire
from helpers.studies.hdf5_drivers.contenders import FileRead, pair_up
from helpers.studies.hdf5_drivers.looks import look_once


def sweep(
    driver: Driver, *, block_mib: Sequence[int], page_buffer_mib: Sequence[int]
) -> list[Driver]:
    """Vary the block of the file object and the page buffer of the library.

    Parameters
    ----------
    driver : Driver
        With both settings.
    block_mib, page_buffer_mib : sequence of int
        Sizes in MiB; every one of the first meets every one of the second.

    Returns
    -------
    list of Driver
        Named by their settings.
    """
    return [
        Driver(
            f"block {block} MiB, page buffer {page} MiB",
            driver.open,
            driver.description,
            {**driver.settings, "block_size": block * MIB, "page_buf_size": page * MIB},
            registered=driver.name,
        )
        for block in block_mib
        for page in page_buffer_mib
    ]


def tabulate_sweep(
    drivers: Sequence[Driver], layout: str, stored: StoredFile, wire: Wire, session: Session
) -> pd.DataFrame:
    """Tabulate requests and bytes of reading the variables, for each setting of a driver.

    Parameters
    ----------
    drivers : sequence of Driver
        Made by `sweep`.
    layout : str
        An arrangement of the file; others are refused where a page does not fit.
    stored : StoredFile
        The file.
    wire : Wire
        The network.
    session : Session
        The interpreter.

    Returns
    -------
    DataFrame
        A row a driver: requests, MB, over-read and depth.
    """
    lines = {}
    for driver, _ in pair_up(drivers, [layout], stored):
        trace = look_once(FileRead(stored, layout, "variables", driver, wire, session))
        told = summarise_trace(trace, needed_nbytes=stored.needed_nbytes(layout))
        lines[driver.name] = {
            "requests": told["all_requests"],
            "MB": told["all_nbytes"] / 1e6,
            "over-read": told["over_read"],
            "depth": told["dependency_depth"],
        }
    return pd.DataFrame(lines).T.round(2).rename_axis("setting")
