"""What each client asks of the store for one operation, version by version."""

from helpers.book.studies import Study

STUDY = Study(name="request-ledger", headline="requests-of-today", by_name=("in-region",))
