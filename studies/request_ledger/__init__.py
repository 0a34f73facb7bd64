"""What each client asks of the store for one operation, version by version."""

from helpers.parameters import Study

STUDY = Study(
    name="request-ledger",
    headline="requests-of-today",
    by_name=("versions",),
    least_blocks=2,
)
