"""Which releases changed what an access requests: file objects, trees, coordinates, shards and writes."""

from helpers.parameters import Study, later

STUDY = Study(
    name="request-jumps",
    headline="n-jumps",
    by_name=("file-objects", "groups-and-arrays"),
    least_blocks=2,
    fragments={
        "ledger-data.md": later("studies.request_jumps.news", "write_data"),
        "ledger-news.md": later("studies.request_jumps.news", "write_news"),
        "ledger-table.md": later("studies.request_jumps.news", "write_table"),
    },
    served={"request-ledger/jumps.atom": later("studies.request_jumps.news", "write_feed")},
)
