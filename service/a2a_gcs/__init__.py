"""A FastAPI host for A2A agents whose only database is a Google Cloud Storage bucket.

`import a2a_gcs` loads none of what it names: each name comes when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from a2a_gcs.errors import A2AGcsError, ConfigError, StoreError
    from a2a_gcs.executors.parts import read_part
    from a2a_gcs.executors.workspace import NoWorkspace, workspace
    from a2a_gcs.host.app import create_app
    from a2a_gcs.host.library import Host
    from a2a_gcs.host.settings import Settings
    from a2a_gcs.objectstore import ObjectStore, open_store

__all__ = [
    "A2AGcsError",
    "ConfigError",
    "Host",
    "NoWorkspace",
    "ObjectStore",
    "Settings",
    "StoreError",
    "create_app",
    "open_store",
    "read_part",
    "workspace",
]

_LAZY = {
    "A2AGcsError": "errors",
    "ConfigError": "errors",
    "Host": "host.library",
    "NoWorkspace": "executors.workspace",
    "ObjectStore": "objectstore",
    "Settings": "host.settings",
    "StoreError": "errors",
    "create_app": "host.app",
    "open_store": "objectstore",
    "read_part": "executors.parts",
    "workspace": "executors.workspace",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
