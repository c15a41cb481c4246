"""What the checks look at: the bucket's own settings, its objects, and what a probe met; each looked at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from a2a_gcs.doctor.checks import NotChecked
from a2a_gcs.doctor.inventory import Inventory, TooMuch, take_inventory
from a2a_gcs.doctor.probe import Probe, probe
from a2a_gcs.doctor.surroundings import Surroundings
from a2a_gcs.objectstore.gcs_control import BucketControl, BucketMissing, BucketState, ControlError, NotAllowed
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.root_shapes import Hosting

T = TypeVar("T")


@dataclass
class Patient:
    """One store, as a host with certain settings would use it.

    Attributes:
        uri: The store as it was named.
        store: Its objects, at its prefix.
        control: The bucket's settings; None for a store that is no bucket.
        hosting: What decides on the roots of the hosts.
        surroundings: Where the service runs, and whose it is.
    """

    uri: str
    store: ObjectStore
    control: BucketControl | None
    hosting: Hosting
    surroundings: Surroundings
    _seen: dict[str, Any] = field(default_factory=dict)

    async def state(self) -> BucketState:
        """The bucket's settings. Raises NotChecked where they cannot be read."""
        await self.reached()
        try:
            return await self._once("state", lambda: asyncio.to_thread(self.bucket.state))
        except ControlError as e:
            raise NotChecked(str(e)) from e

    @property
    def bucket(self) -> BucketControl:
        """Raises NotChecked where the store is no bucket."""
        if self.control is None:
            raise NotChecked(f"{self.uri} is no bucket")
        return self.control

    async def control_error(self) -> ControlError | None:
        """Why the bucket's settings cannot be read, if so."""
        if self.control is None:
            return None
        try:
            await self._once("state", lambda: asyncio.to_thread(self.bucket.state))
        except ControlError as e:
            return e
        return None

    async def probe(self) -> Probe:
        """What a probe object met. Raises NotChecked where there is no bucket to put one in."""
        await self.reached()
        return await self._once("probe", lambda: probe(self.store))

    async def inventory(self) -> Inventory:
        """All that is stored. Raises NotChecked where it cannot be listed, or is too much."""
        await self.reached()
        try:
            return await self._once("inventory", lambda: take_inventory(self.store))
        except TooMuch as e:
            raise NotChecked(str(e)) from e

    async def reached(self) -> None:
        """Raises NotChecked if another check says that nothing can be done with the bucket at all."""
        error = await self.control_error()
        if error is not None and not isinstance(error, NotAllowed):
            why = "there is no such bucket" if isinstance(error, BucketMissing) else "the bucket cannot be reached"
            raise NotChecked(why)

    async def _once(self, what: str, look: Callable[[], Awaitable[T]]) -> T:
        """The outcome of the first look, good or bad, for every check that needs it."""
        if what not in self._seen:
            self._seen[what] = asyncio.ensure_future(look())
        outcome: T = await self._seen[what]
        return outcome
