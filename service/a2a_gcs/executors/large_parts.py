"""What of an agent's output, and of messages to it, leaves task.json (decision 0006).

Small content stays where it is. Content over the limit goes beside the task, and
so does every further chunk of an artifact that has outgrown it: gathered into
objects of some size, or of a second, so that neither their number nor the memory
grows with the agent's pace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from a2a.types.a2a_pb2 import Artifact, Message, Part, TaskArtifactUpdateEvent

from a2a_gcs.layout import TaskRef
from a2a_gcs.task_json import without
from a2a_gcs.tasks.files import TaskFiles, part_bytes

GATHER_SECONDS = 1.0
"""Longest that a chunk of an artifact that has outgrown task.json waits for the next ones."""

_TEXT_TIMES = 32
"""How much more text than other content an artifact may hold: text is read as it comes, a link has to be followed."""

_GATHER_TIMES = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """What stays in task.json, in bytes.

    Attributes:
        inline: Largest part, and most that an artifact or a message holds in raw parts.
    """

    inline: int = 256 * 1024

    @property
    def text(self) -> int:
        """Most that an artifact holds in text parts; the text of messages stays."""
        return self.inline * _TEXT_TIMES

    @property
    def gathered(self) -> int:
        """Size at which gathered chunks become an object."""
        return self.inline * _GATHER_TIMES


class _Held:
    """What one artifact or message holds in task.json."""

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self._bytes = {"raw": 0, "text": 0}
        for part in parts:
            self._count(part)

    def leaves(self, part: Part, limits: Limits, *, texts: bool) -> bool:
        """Whether a part is too much; one that stays is counted."""
        kind = part.WhichOneof("content")
        if kind == "raw":
            most = limits.inline
        elif kind == "text" and texts:
            most = limits.text
        else:
            return False
        size = part.ByteSize()
        if size > limits.inline or self._bytes[kind] + size > most:
            return True
        self._count(part)
        return False

    def _count(self, part: Part) -> None:
        kind = part.WhichOneof("content")
        if kind in self._bytes:
            self._bytes[kind] += part.ByteSize()


def entering(files: TaskFiles, limits: Limits) -> Callable[[TaskRef, Message], Awaitable[Message]]:
    """What makes of a message to a task what its history gets. It raises StoreError."""

    async def entered(ref: TaskRef, message: Message) -> Message:
        return await LargeParts(files, ref, limits).message(message)

    return entered


class LargeParts:
    """The large parts of one task's turn.

    Args:
        files: Where they go.
        ref: The task.
        limits: What stays.
        artifacts: The artifacts that the task has already.

    Attributes:
        told: Updates whose content is stored, in order; whoever passes one on takes it away.
    """

    def __init__(self, files: TaskFiles, ref: TaskRef, limits: Limits, artifacts: Iterable[Artifact] = ()) -> None:
        self._files = files
        self._ref = ref
        self._limits = limits
        self._held = defaultdict(_Held, {a.artifact_id: _Held(a.parts) for a in artifacts})
        self.told: list[TaskArtifactUpdateEvent] = []
        self._gathered: TaskArtifactUpdateEvent | None = None
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def waiting(self) -> bool:
        """Chunks have been gathered that nobody has been told of."""
        return self._gathered is not None

    async def message(self, message: Message) -> Message:
        """A message as it is kept. Raises StoreError."""
        held = _Held()
        leaving = [held.leaves(part, self._limits, texts=False) for part in message.parts]
        if not any(leaving):
            return message
        kept = without(message, "parts")
        kept.parts.extend(await self._kept(message.parts, leaving))
        return kept

    async def artifact(self, event: TaskArtifactUpdateEvent) -> None:
        """Takes an agent's artifact update, which is changed: it is `told` at once, or waits for further chunks.

        Raises:
            StoreError: A content could not be stored. A chunk that waits with others is kept; else the event is not.
        """
        artifact = event.artifact
        if not event.append:
            self._held[artifact.artifact_id] = _Held()
        held = self._held[artifact.artifact_id]
        leaving = [held.leaves(part, self._limits, texts=True) for part in artifact.parts]
        if leaving == [True] and artifact.parts[0].ByteSize() <= self._limits.inline:
            await self._gather(event)
            return
        await self.flush()
        if any(leaving):
            event = without(event, "artifact")
            event.artifact.CopyFrom(without(artifact, "parts"))
            event.artifact.parts.extend(await self._kept(artifact.parts, leaving))
        self.told.append(event)

    async def flush(self) -> None:
        """Stores what was gathered, and tells of it. Raises StoreError; it is kept then."""
        if self._gathered is None:
            return
        content = b"".join(self._pieces)
        gathered, part = self._gathered, Part()
        part.CopyFrom(gathered.artifact.parts[0])
        if part.HasField("text"):
            part.text = content.decode()
        else:
            part.raw = content
        gathered.artifact.parts[0].CopyFrom(await self._files.moved(self._ref, part))
        self._gathered, self._pieces, self._size = None, [], 0
        self.told.append(gathered)

    async def _gather(self, event: TaskArtifactUpdateEvent) -> None:
        if not self._goes_on(event):
            await self.flush()
        if self._gathered is None:
            self._gathered = event
        else:
            self._gathered.last_chunk = event.last_chunk
            self._gathered.artifact.metadata.MergeFrom(event.artifact.metadata)
        piece = part_bytes(event.artifact.parts[0])
        self._pieces.append(piece)
        self._size += len(piece)
        if event.last_chunk or self._size >= self._limits.gathered:
            await self.flush()

    def _goes_on(self, event: TaskArtifactUpdateEvent) -> bool:
        """The event is a further chunk of what is being gathered."""
        if self._gathered is None:
            return True
        before, part = self._gathered.artifact, event.artifact.parts[0]
        first = before.parts[0]
        return (
            event.append
            and event.artifact.artifact_id == before.artifact_id
            and event.metadata == self._gathered.metadata
            and (part.WhichOneof("content"), part.filename, part.media_type, part.metadata)
            == (first.WhichOneof("content"), first.filename, first.media_type, first.metadata)
        )

    async def _kept(self, parts: Iterable[Part], leaving: Iterable[bool]) -> list[Part]:
        return [
            await self._files.moved(self._ref, part) if leaves else part
            for part, leaves in zip(parts, leaving, strict=True)
        ]
