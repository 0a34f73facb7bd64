"""An object store behind an emulated network, usable alone.

A real S3 server runs on this machine, and a relay before it emulates the network and traces each
request::

    import wire.bed

    with wire.bed.open_store("same-region") as store:
        client = store.botocore()
        client.put_object(Bucket=store.bucket, Key="x", Body=b"hello")
        print([(row.method, row.key, row.end_s - row.start_s) for row in store.requests()])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wire.bed.store import EmulatedStore, open_store

__all__ = ["EmulatedStore", "open_store"]


def __getattr__(name: str) -> Any:
    """Import what needs an S3 client when it is asked for: the relay's process needs none."""
    if name in __all__:
        from wire.bed import store

        return getattr(store, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
