"""What messages and artifacts are made of, as blocks that a page can show; pure.

A page is bounded whatever a task holds: each text is cut, and all together are. What is cut is a download away.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from a2a.types.a2a_pb2 import Artifact, Message, Part, Role, Task
from google.protobuf.json_format import MessageToDict

from a2a_gcs.layout import file_reference, parse_file_reference
from a2a_gcs.tasks.files import SIZE

MAX_BLOCK_CHARS = 64_000
MAX_PAGE_CHARS = 400_000
MAX_DATA_BYTES = 1 << 20
MAX_MESSAGES = 100
MAX_ARTIFACTS = 50
MAX_BLOCKS = 100
"""Most blocks of one message or artifact."""

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Types that are shown as images; SVG is a document with scripts."""

Kind = Literal["text", "json", "image", "file", "link"]


@dataclass(frozen=True, slots=True)
class Block:
    """One thing to show.

    Attributes:
        kind: How.
        text: Of text and JSON, perhaps cut; of a link its address.
        cut: Characters that are not shown.
        name: File name, if it has one.
        media_type: As the part says; nothing is decided by it but the choice of `kind`.
        size: Bytes of a file.
        where: Names the part within its task (`part_at`).
        href: Of a link that may be followed.
    """

    kind: Kind
    text: str = ""
    cut: int = 0
    name: str = ""
    media_type: str = ""
    size: int = 0
    where: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the conversation."""

    by: Literal["user", "agent"]
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Made:
    """An artifact."""

    id: str
    name: str
    description: str
    blocks: Sequence[Block]


@dataclass(slots=True)
class Allowance:
    """Characters that a page may still show."""

    left: int = MAX_PAGE_CHARS

    def cut(self, text: str) -> tuple[str, int]:
        """What of a text is shown, and how many characters are not."""
        shown = text[: min(MAX_BLOCK_CHARS, self.left)]
        self.left -= len(shown)
        return shown, len(text) - len(shown)


def conversation(task: Task, allowance: Allowance) -> tuple[list[Said], int]:
    """The last messages of a task, with that of its status, and how many there are before them."""
    history = list(enumerate(task.history))
    said = [_said(message, f"h{n}", allowance) for n, message in history[-MAX_MESSAGES:]]
    if task.status.HasField("message"):
        said.append(_said(task.status.message, "s", allowance))
    return said, max(0, len(history) - MAX_MESSAGES)


def artifacts(task: Task, allowance: Allowance) -> tuple[list[Made], int]:
    """The first artifacts of a task, and how many there are besides."""
    made = [
        Made(one.artifact_id, one.name, one.description, _blocks(one.parts, f"a{n}", allowance))
        for n, one in enumerate(task.artifacts[:MAX_ARTIFACTS])
    ]
    return made, max(0, len(task.artifacts) - MAX_ARTIFACTS)


def part_at(task: Task, where: str) -> Part | None:
    """The part that `Block.where` names; None if there is none."""
    holder, dot, number = where.partition(".")
    if not dot or not _is_index(number):
        return None
    parts = _parts(task, holder)
    return parts[int(number)] if int(number) < len(parts) else None


def _parts(task: Task, holder: str) -> Sequence[Part]:
    kind, number = holder[:1], holder[1:]
    if kind == "s" and not number:
        return task.status.message.parts
    holders: Sequence[Message | Artifact] = {"h": task.history, "a": task.artifacts}.get(kind, ())  # type: ignore[assignment]
    return holders[int(number)].parts if _is_index(number) and int(number) < len(holders) else ()


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10  # noqa: PLR2004 - no list is as long


def _said(message: Message, where: str, allowance: Allowance) -> Said:
    by: Literal["user", "agent"] = "user" if message.role == Role.ROLE_USER else "agent"
    return Said(by, _blocks(message.parts, where, allowance))


def _blocks(parts: Sequence[Part], where: str, allowance: Allowance) -> list[Block]:
    blocks: list[Block] = []
    for block in _joined(parts, where, allowance):
        if len(blocks) == MAX_BLOCKS:
            break
        blocks.append(block)
    return blocks


def _joined(parts: Sequence[Part], where: str, allowance: Allowance) -> Iterator[Block]:
    """Texts that follow each other are one: chunks of a stream."""
    texts: list[str] = []
    for number, part in enumerate(parts):
        if part.WhichOneof("content") == "text" and not part.filename:
            texts.append(part.text)
            continue
        if texts:
            yield _text("".join(texts), allowance)
            texts = []
        yield _block(part, f"{where}.{number}", allowance)
    if texts:
        yield _text("".join(texts), allowance)


def _text(text: str, allowance: Allowance, *, name: str = "", media_type: str = "", where: str = "") -> Block:
    shown, cut = allowance.cut(text)
    return Block("text", shown, cut, name=name, media_type=media_type, where=where)


def _block(part: Part, where: str, allowance: Allowance) -> Block:
    match part.WhichOneof("content"):
        case "text":
            return _text(part.text, allowance, name=part.filename, media_type=part.media_type, where=where)
        case "data" if part.data.ByteSize() > MAX_DATA_BYTES:
            large = part.data.ByteSize()
            return Block("file", name=part.filename, media_type="application/json", size=large, where=where)
        case "data":
            text, cut = allowance.cut(_pretty(part))
            return Block("json", text, cut, name=part.filename, media_type=part.media_type, where=where)
        case "url" if (found := beside(part)) is not None:
            kind: Kind = "image" if part.media_type in IMAGES else "file"
            where, size = f"files/{found[0]}", found[1]
            return Block(kind, name=part.filename, media_type=part.media_type, size=size, where=where)
        case "url":
            followed = part.url if _scheme(part.url) in {"http", "https"} else ""
            return Block("link", part.url[:2000], name=part.filename, media_type=part.media_type, href=followed)
        case _:
            kind = "image" if part.media_type in IMAGES else "file"
            return Block(kind, name=part.filename, media_type=part.media_type, size=len(part.raw), where=where)


def beside(part: Part) -> tuple[str, int] | None:
    """Name and size of a content that a host keeps beside the task; None for any other part.

    Its URL leads to the API, whose credentials a browser has not got (decision 0006).
    """
    if SIZE not in part.metadata:
        return None
    name, size = part.url.rpartition("/")[2], part.metadata[SIZE]
    if not isinstance(size, float) or not 0 <= size < math.inf or parse_file_reference(file_reference(name)) is None:
        return None
    return name, int(size)


def _pretty(part: Part) -> str:
    return json.dumps(_whole(MessageToDict(part.data)), indent=2, ensure_ascii=False)


def _whole(value: Any) -> Any:
    """Numbers as people wrote them: all of protobuf's are floating."""
    match value:
        case dict():
            return {name: _whole(inner) for name, inner in value.items()}
        case list():
            return [_whole(inner) for inner in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _scheme(url: str) -> str:
    """The scheme of an address; empty for what is none."""
    try:
        return urlsplit(url).scheme.lower()
    except ValueError:
        return ""


def text_of(message: Message | Artifact, most: int) -> str:
    """The texts of a message or artifact, joined, at most so many characters of their end."""
    text = "".join(part.text for part in message.parts if part.WhichOneof("content") == "text")
    return text[-most:]


def body_of(part: Part) -> tuple[bytes, str]:
    """A part as bytes, and what it is."""
    match part.WhichOneof("content"):
        case "text":
            return part.text.encode(), "text/plain"
        case "data":
            return _pretty(part).encode(), "application/json"
        case _:
            return part.raw, part.media_type
