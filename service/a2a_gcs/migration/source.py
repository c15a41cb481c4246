"""What a migration reads: a port of a few calls, which the old layout and SQL databases implement."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from a2a.types.a2a_pb2 import Task, TaskState

_CONTEXTS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:a2a-gcs:contexts-of-migrated-tasks")
_OLD_STATES = {name.removeprefix("TASK_STATE_").lower().replace("_", "-"): name for name in TaskState.keys()}  # noqa: SIM118
_OLD_STATES["unknown"] = _OLD_STATES["unspecified"]


@dataclass(frozen=True, slots=True)
class Archive:
    """The workspace.tar.gz of a task in the source.

    Attributes:
        size: Bytes.
        crc32c: Its checksum as in `ObjectInfo.crc32c`; empty where the source does not know it.
    """

    size: int
    crc32c: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A task of the source that can be read.

    Attributes:
        task_id: Its id.
        context_id: Its context's id; minted where the source has none.
        owner: Whose it is, where the source knows owners.
        state: As the source has it; UNSPECIFIED where it says that it does not know.
        millis: When it last changed, in Unix milliseconds: its status timestamp, or what the source has instead.
        minted: The source has no context for it.
        archive: Its workspace, if there is one.
    """

    task_id: str
    context_id: str
    owner: str
    state: int
    millis: int
    minted: bool = False
    archive: Archive | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not moved.

    Attributes:
        what: The task, context or object, as the source or the target names it.
        why: What is wrong with it, and what becomes of it.
    """

    what: str
    why: str


class Source(ABC):
    """Tasks that another server has kept. Everything is only read.

    Attributes:
        name: What it is, for people; without a password.
    """

    name: str

    @abstractmethod
    def entries(self) -> AsyncIterator[Entry | Problem]:
        """Yields each task once, in any order; what cannot be read as a task is a Problem.

        Raises:
            A2AGcsError: The source itself cannot be read.
        """

    @abstractmethod
    async def task(self, entry: Entry) -> tuple[Task, Mapping[str, Any]]:
        """The whole task as A2A 1.0, with `entry`'s ids, and the members that this version has no field for.

        Raises:
            CorruptRecord: It has changed since it was listed.
            A2AGcsError: The source cannot be read.
        """

    def archive(self, entry: Entry) -> AsyncIterator[bytes]:
        """Yields the bytes of the workspace of an entry that has one. Raises A2AGcsError."""
        raise NotImplementedError(entry.task_id)

    @abstractmethod
    async def close(self) -> None:
        """Releases connections."""


def context_of(task_id: str) -> str:
    """The context that is minted for a task without one: always the same, so that a second run finds it."""
    return str(uuid.uuid5(_CONTEXTS, task_id))


def state_of(name: object) -> int:
    """A state by its name in A2A 1.0 or 0.3. Raises ValueError for anything else."""
    if isinstance(name, str):
        known = _OLD_STATES.get(name, name)
        if known in TaskState.keys():  # noqa: SIM118 - an enum wrapper is no mapping
            return TaskState.Value(known)
    raise ValueError(f"its state is {name!r}")
