"""The bucket as the rest of the package sees it: a port, its adapters and its decorators.

Only the port is imported at once. The others come when they are first named:
a GCS client takes half a second to import, which a local store need not pay.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from a2a_gcs.objectstore.port import (
    IF_ABSENT,
    MAX_PAGE,
    OVERWRITE,
    WRITE_ID,
    Blob,
    IfAbsent,
    IfVersion,
    Mode,
    ObjectInfo,
    ObjectStore,
    Overwrite,
    Page,
    Source,
)

if TYPE_CHECKING:
    from a2a_gcs.objectstore.gcs import GCSStore
    from a2a_gcs.objectstore.instrument import InstrumentedStore, StoreStats
    from a2a_gcs.objectstore.local import LocalStore
    from a2a_gcs.objectstore.location import open_existing, open_store
    from a2a_gcs.objectstore.memory import MemoryStore
    from a2a_gcs.objectstore.prefix import PrefixStore
    from a2a_gcs.objectstore.retry import RetryingStore

__all__ = [
    "IF_ABSENT",
    "MAX_PAGE",
    "OVERWRITE",
    "WRITE_ID",
    "Blob",
    "GCSStore",
    "IfAbsent",
    "IfVersion",
    "InstrumentedStore",
    "LocalStore",
    "MemoryStore",
    "Mode",
    "ObjectInfo",
    "ObjectStore",
    "Overwrite",
    "Page",
    "PrefixStore",
    "RetryingStore",
    "Source",
    "StoreStats",
    "open_existing",
    "open_store",
]

_LAZY = {
    "GCSStore": "gcs",
    "InstrumentedStore": "instrument",
    "LocalStore": "local",
    "MemoryStore": "memory",
    "PrefixStore": "prefix",
    "RetryingStore": "retry",
    "StoreStats": "instrument",
    "open_existing": "location",
    "open_store": "location",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
