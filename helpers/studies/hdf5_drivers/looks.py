"""Reads that are made once, for their traces."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.storage.drivers import Driver, Session
from helpers.storage.hdf5.files import StoredFile
from helpers.storage.network import Request
from helpers.storage.wires import Wire
from helpers.studies.hdf5_drivers.contenders import FileRead


def look_once(way: FileRead) -> list[Request]:
    """Read once, untimed and verified, to look at the trace.

    Parameters
    ----------
    way : FileRead
        Driver, layout and task.

    Returns
    -------
    list of Request
        Those of the opening and of the read.
    """
    way.prepare()
    way.open()
    answer = way.read(None)
    way.collect()
    way.check(answer)
    return way.trace


def look_at(
    drivers: Sequence[Driver],
    layouts: Sequence[str],
    stored: StoredFile,
    wire: Wire,
    session: Session,
) -> dict[str, dict[str, list[Request]]]:
    """Read the variables once by each driver on each layout, for their traces by both names."""
    return {
        layout: {
            driver.name: look_once(FileRead(stored, layout, "variables", driver, wire, session))
            for driver in drivers
        }
        for layout in layouts
    }
