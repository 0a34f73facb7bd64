"""Each request is on the line of the program that waits for it, and an uncertain line is said to be so."""

from __future__ import annotations

from pathlib import Path

from wire.trace.lines import locate, read_samples
from wire.trace.rows import TracedRequest

RECORDS = """\
begin 7 1 "/home/user"
site 1 {"file":"/home/user/a.py","line":3,"function":"read","call":"requests.api.get","is_standard":0}
site 2 {"file":"/home/user/a.py","line":9,"function":"<module>","call":"concurrent.futures._base.wait","is_standard":1}
site 3 {"file":"/home/user/a.py","line":5,"function":"other","call":"zarr.core.sync.sync","is_standard":0}
at 100.0000 11 2
at 100.0000 12 1
at 100.5000 12 3
at 101.0000 12 -
at 101.0000 11 1
at 101.0000 13 3
asks 102.0000 1 GET "/b/key?secret=1"
at 103.00"""


def make_row(start_s: float, end_s: float, key: str = "/b/a", pid: int = 7) -> TracedRequest:
    return TracedRequest(start_s, end_s, end_s, method="GET", key=key, pid=pid)


def test_requests_are_joined_by_process_and_time(tmp_path: Path) -> None:
    """A thread that waits for others is not the one that asks; two that ask make a line uncertain."""
    (tmp_path / "7").write_text(RECORDS)
    samples = read_samples(tmp_path)
    rows = [
        make_row(100.1, 100.2),
        make_row(100.6, 100.7),
        make_row(101.1, 101.2),
        make_row(102.01, 102.1, "/b/key"),
        make_row(100.1, 100.2, pid=8),
        make_row(90.0, 90.1),
    ]
    places = [(site.line, site.is_certain) if site else None for site in locate(rows, samples)]
    assert places[0] == (3, True)
    assert places[1] == (5, True)
    assert places[2] in [(3, False), (5, False)]
    assert places[3] == (3, True)
    assert places[4] is places[5] is None
