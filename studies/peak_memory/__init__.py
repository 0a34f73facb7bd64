"""How much memory a read takes at its peak, beyond what it returns."""

from helpers.parameters import Study

STUDY = Study(
    name="peak-memory",
    headline="file-twice",
    by_name=("in-region",),
)
