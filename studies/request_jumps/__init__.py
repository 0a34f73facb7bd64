"""Which releases changed what an access requests: file objects, trees, coordinates, shards and writes."""

from helpers.parameters import Study, lazy_import

STUDY = Study(
    name="request-jumps",
    headline="n-jumps",
    by_name=("earthaccess", "file-objects", "groups-and-arrays"),
    least_blocks=2,
    fragments={
        "ledger-data.md": lazy_import("studies.request_jumps.news", "write_data"),
        "ledger-news.md": lazy_import("studies.request_jumps.news", "write_news"),
        "ledger-headlines.md": lazy_import("studies.request_jumps.news", "write_headlines"),
        "ledger-table.md": lazy_import("studies.request_jumps.news", "write_table"),
    },
    served={"request-ledger/jumps.atom": lazy_import("studies.request_jumps.news", "write_feed")},
)
