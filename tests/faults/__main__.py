"""Write how reads from a store that fails end: ``python -m tests.faults``, or ``make faults``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from helpers.netem.proxy import open_proxy
from helpers.objectstore.testbed import Testbed, open_server
from helpers.paths import ROOT
from tests.faults import reading
from tests.stores import make_location, make_stored

TABLE = ROOT / "results" / "reference" / "faults.csv"


def main() -> None:
    """Read through every reader, and write the table that the page on method shows."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open_server(Path(folder) / "store") as server,
        open_proxy(server.endpoint_url, profile=reading.SOUND) as proxy,
    ):
        near = make_location(server, "faults")
        testbed = Testbed(near, near.through(proxy.endpoint_url), proxy)
        table = reading.tabulate(testbed, make_stored(near), say)
    table.to_csv(TABLE, index=False, lineterminator="\n")
    say(str(TABLE.relative_to(ROOT)))


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
