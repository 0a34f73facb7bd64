"""Which formats notice that a byte of theirs has changed, and what noticing costs."""

from helpers.parameters import Study

STUDY = Study(name="flipped-bytes", headline="silent-zarr", by_name=("checksums",))
