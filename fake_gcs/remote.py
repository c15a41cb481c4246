"""The control API from Python: faults, statistics, history and rules of a running emulator."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from fake_gcs.errors import FakeGcsError
from fake_gcs.faults import Fault

Json = dict[str, Any]

_TIMEOUT_SECONDS = 30.0


class FaultNotServed(AssertionError):
    """A scripted fault never struck: the test that scripted it proves nothing."""


class ScriptedFault:
    """A fault in force on the emulator."""

    def __init__(self, control: Control, number: int, fault: Fault) -> None:
        self._control = control
        self.number = number
        self.fault = fault

    @property
    def served(self) -> int:
        """How many requests went wrong for it so far."""
        count: int = self._control.call("GET", f"faults/{self.number}")["served"]
        return count

    def remove(self) -> None:
        self._control.call("DELETE", f"faults/{self.number}")


class Control:
    """Asks and steers the emulator at url. Calls block for about a millisecond.

    Attributes:
        url: `http://HOST:PORT`, the value for STORAGE_EMULATOR_HOST.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    # What happened

    def stats(self, bucket: str = "", patterns: Iterable[str] = ()) -> Json:
        """Answers requests by class, operation, status and key pattern, bytes, dollars and round trips.

        Args:
            bucket: One bucket, or "" for all.
            patterns: Globs to group keys by; without any, keys are grouped by their last segment.
        """
        return self.call("GET", "stats", bucket=bucket, pattern=",".join(patterns))

    def requests(self, bucket: str = "", after: int = 0) -> list[Json]:
        """Answers the requests themselves, with a seq above `after`, in the order in which they ended."""
        found: list[Json] = self.call("GET", "requests", bucket=bucket, after=str(after))["requests"]
        return found

    def history(self, bucket: str = "", prefix: str = "", after: int = 0) -> list[Json]:
        """Answers the committed writes with a seq above `after`, in the order in which they took effect."""
        found: list[Json] = self.call("GET", "history", bucket=bucket, prefix=prefix, after=str(after))["writes"]
        return found

    def reset(self) -> None:
        """Forgets statistics, history and faults; rules and settings are those of the start again."""
        self.call("POST", "reset")

    # What is to happen

    def add_fault(self, fault: Fault) -> ScriptedFault:
        return ScriptedFault(self, self.call("POST", "faults", fault.to_json())["id"], fault)

    @contextmanager
    def faults(self, *scripted: Fault) -> Iterator[list[ScriptedFault]]:
        """Puts faults in force for the block; what one hits, the later ones do not see.

        Raises:
            FaultNotServed: at the end of a block that passed, one was never served.
        """
        added = [self.add_fault(fault) for fault in scripted]
        try:
            yield added
            unserved = [one.fault for one in added if not one.served]
        finally:
            for one in added:
                one.remove()
        if unserved:
            raise FaultNotServed(f"never served: {unserved}")

    @contextmanager
    def rules(self, **wanted: bool) -> Iterator[None]:
        """Switches rules by name for the block, as `rules(write_limit=False)`."""
        before = self.call("GET", "rules")
        self.call("PATCH", "rules", wanted)
        try:
            yield
        finally:
            self.call("PATCH", "rules", {name: before[name]["on"] for name in wanted})

    @contextmanager
    def settings(self, **wanted: float | str) -> Iterator[None]:
        """Changes settings for the block: write_limit_burst, write_limit_refill, latency."""
        before = self.call("GET", "settings")
        self.call("PATCH", "settings", wanted)
        try:
            yield
        finally:
            self.call("PATCH", "settings", {name: before[name] for name in wanted})

    def call(self, method: str, path: str, body: Json | None = None, **params: str) -> Json:
        """Asks the control API; `GET` of path "" shows all there is.

        Raises:
            FakeGcsError: it refused, and says why.
        """
        query = urlencode({name: value for name, value in params.items() if value})
        request = urllib.request.Request(  # noqa: S310 - the emulator's own address
            f"{self.url}/_fake_gcs/{path}{'?' * bool(query)}{query}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
                document: Json = json.load(answer)
                return document
        except urllib.error.HTTPError as error:
            with error:
                raise FakeGcsError(f"{method} {path}: {json.load(error)['error']['message']}") from error
