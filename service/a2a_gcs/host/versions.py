"""Which version of A2A a call speaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from a2a.compat.v0_3.versions import is_legacy_version
from a2a.server.context import ServerCallContext
from a2a.utils.constants import PROTOCOL_VERSION_0_3, VERSION_HEADER


def is_03(context: ServerCallContext) -> bool:
    """Whether a call is one of A2A 0.3, which is also what a call without a version speaks (A2A 1.0, 3.6)."""
    headers = cast("Mapping[str, str]", context.state.get("headers", {}))
    version = headers.get(VERSION_HEADER.lower()) or PROTOCOL_VERSION_0_3
    return is_legacy_version(version)
