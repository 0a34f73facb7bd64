"""Caches of opened datasets: one interface, five contenders."""

from helpers.storage.caches.contenders import CACHES, Cache, open_cache
from helpers.storage.caches.counts import Counts
from helpers.storage.caches.entries import TamperedError
from helpers.storage.caches.origins import Origin
from helpers.storage.caches.valkey import open_valkey

__all__ = ["CACHES", "Cache", "Counts", "Origin", "TamperedError", "open_cache", "open_valkey"]
