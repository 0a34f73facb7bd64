"""Which releases changed what an access requests: file objects, trees, coordinates, shards and writes."""

from helpers.parameters import Study

STUDY = Study(
    name="request-jumps",
    headline="n-jumps",
    by_name=("file-objects", "groups-and-arrays"),
    least_blocks=2,
)
