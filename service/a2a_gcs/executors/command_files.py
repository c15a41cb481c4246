"""The files of one turn of a command agent, beside its workspace: what came with the message, and what it hands out."""

from __future__ import annotations

import contextlib
import mimetypes
import os
import re
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from a2a.helpers import get_message_text
from a2a.types.a2a_pb2 import Message, Part
from google.protobuf.json_format import MessageToJson

from a2a_gcs.errors import A2AGcsError
from a2a_gcs.layout import TaskRef
from a2a_gcs.workspaces.workdir import WorkDirs

MAX_HANDED_OUT = 100
"""Most files of one turn that become artifacts."""

_LONGEST_NAME = 150  # bytes; a file system takes 255
_LONGEST_SUFFIX = 20
_SEPARATORS = re.compile(r"[/\\]+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]+")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OutboxRefused(A2AGcsError):
    """What lies in the outbox cannot become artifacts; the text is what the caller reads."""


@dataclass(frozen=True, slots=True)
class TurnFiles:
    """One directory per turn, removed after it.

    Attributes:
        directory: Everything below is of this turn alone.
    """

    directory: Path

    @property
    def message(self) -> Path:
        """The message as ProtoJSON."""
        return self.directory / "message.json"

    @property
    def stdin(self) -> Path:
        """The text of the message, ended by a newline."""
        return self.directory / "stdin.txt"

    @property
    def inbox(self) -> Path:
        """The files of the message."""
        return self.directory / "inbox"

    @property
    def outbox(self) -> Path:
        """Files that become artifacts."""
        return self.directory / "outbox"

    @property
    def home(self) -> Path:
        return self.directory / "home"

    def fill(self, message: Message) -> None:
        """Writes what the program will read. Blocks."""
        for directory in (self.inbox, self.outbox, self.home):
            directory.mkdir(mode=0o700)
        self.message.write_text(MessageToJson(message, ensure_ascii=False), "utf-8")
        text = get_message_text(message)
        self.stdin.write_text(text if text.endswith("\n") or not text else f"{text}\n", "utf-8", newline="")
        for name, part in _named_files(message):
            (self.inbox / name).write_bytes(part.raw)


@contextlib.asynccontextmanager
async def turn_files(workdirs: WorkDirs, ref: TaskRef, message: Message) -> AsyncIterator[TurnFiles]:
    """The files of one turn, on the disk of the workspaces. Raises WorkspaceError and OSError."""
    files = TurnFiles(workdirs.create(ref.context_id, f"{ref.task_id}\0files"))
    try:
        files.fill(message)
        yield files
    finally:
        await workdirs.discard(files.directory)


def _named_files(message: Message) -> Iterator[tuple[str, Part]]:
    """The file parts that carry their bytes, by names that are safe and differ, also where case does not count."""
    taken: set[str] = set()
    for number, part in enumerate(message.parts, 1):
        if part.WhichOneof("content") != "raw":
            continue
        name = safe_name(part.filename) or f"file-{number}{mimetypes.guess_extension(part.media_type) or ''}"
        stem, suffix = _split(name)
        again = 1
        while name.casefold() in taken:
            again += 1
            name = f"{stem}-{again}{suffix}"
        taken.add(name.casefold())
        yield name, part


def safe_name(given: str) -> str:
    """The last part of a file name as a client gave it, fit for every directory; empty if nothing is left."""
    name = _SEPARATORS.sub("/", given).rstrip("/").rpartition("/")[2]
    name = _CONTROLS.sub("_", name).strip(" ").lstrip(".-")
    stem, suffix = _split(name)
    room = _LONGEST_NAME - len(suffix.encode())
    return stem.encode()[:room].decode("utf-8", "ignore") + suffix


def _split(name: str) -> tuple[str, str]:
    """Stem and suffix; what is too long for a suffix is none."""
    stem, dot, suffix = name.rpartition(".")
    return (stem, dot + suffix) if stem and len(suffix.encode()) <= _LONGEST_SUFFIX else (name, "")


def handed_out(outbox: Path, limit: int) -> Iterator[Part]:
    """The files in the outbox and below it, in the order of their names. Blocks.

    Args:
        outbox: The directory.
        limit: Most bytes in all.

    Raises:
        OutboxRefused: They are too many or too large, or one is no regular file.
    """
    for number, path in enumerate(_paths(outbox), 1):
        name = os.fsencode(path.relative_to(outbox)).decode("utf-8", "backslashreplace")
        if number > MAX_HANDED_OUT:
            raise OutboxRefused(f"put more than {MAX_HANDED_OUT} files into its outbox; an archive would be one")
        body = _content(path, name, limit)
        limit -= len(body)
        yield Part(raw=body, filename=name, media_type=_media_type(name))


def _paths(outbox: Path) -> list[Path]:
    if outbox.is_symlink() or not outbox.is_dir():
        return []  # the program removed it
    return sorted(
        Path(directory) / name
        for directory, directories, files in os.walk(outbox)
        for name in (*files, *(name for name in directories if (Path(directory) / name).is_symlink()))
    )


def _content(path: Path, name: str, limit: int) -> bytes:
    try:
        with open(os.open(path, _READ), "rb") as file:  # noqa: PTH123 - a descriptor
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OutboxRefused(f"put {name!r} into its outbox, which is no file")
            body = file.read(limit + 1)
    except OSError as error:
        raise OutboxRefused(f"put {name!r} into its outbox, which cannot be read: {error.strerror}") from error
    if len(body) > limit:
        raise OutboxRefused(f"put more bytes into its outbox than the host allows (command_max_output), with {name!r}")
    return body


def _media_type(name: str) -> str:
    kind, encoding = mimetypes.guess_type(name)
    if encoding:
        return {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}.get(
            encoding, "application/octet-stream"
        )
    return kind or "application/octet-stream"
