"""Which formats notice that a byte of theirs has changed, and what noticing costs."""

from helpers.book.studies import Study

STUDY = Study(name="flipped-bytes", headline="silent-zarr", by_name=("checksums",))
