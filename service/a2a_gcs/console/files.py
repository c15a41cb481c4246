"""Workspaces for a page: one directory of a tree, the beginning of a file, and what a task changed.

Archives are read as they stream by. What a page asks of one is bounded, in entries, bytes unpacked and bytes shown.
"""

from __future__ import annotations

import contextlib
import gzip
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from a2a_gcs.objectstore.closing import closing
from a2a_gcs.objectstore.port import ObjectStore
from a2a_gcs.workspaces.differences import Difference, differences
from a2a_gcs.workspaces.errors import WorkspaceTooLarge
from a2a_gcs.workspaces.finding import Archive
from a2a_gcs.workspaces.reading import Entry, TarGz, members

MAX_ENTRIES = 20_000
MAX_UNPACKED = 2 << 30
MAX_PREVIEW = 256 << 10
MAX_COMPARED = 256 << 20
"""Most bytes of two archives, packed, that are compared for a page."""
MAX_TEXTS = 50
MAX_LINES = 4_000
MAX_CHANGES = 500
_MOST_LINKS = 8

_MAGIC = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


@dataclass(slots=True)
class Item:
    """A line of a directory: a file, a link, or a directory with the sum of what is below it."""

    name: str
    path: str
    kind: str
    size: int = 0
    files: int = 0
    target: str = ""


@dataclass(frozen=True, slots=True)
class Directory:
    """One directory of a workspace.

    Attributes:
        path: Below the workspace; empty for itself.
        items: Directories first, then by name.
        files: Files of the whole workspace, as far as it was read.
        size: Their bytes.
        cut: There is more, which was not read.
        found: It is there, or something in it.
    """

    path: str
    items: Sequence[Item]
    files: int
    size: int
    cut: bool
    found: bool


async def directory(store: ObjectStore, archive: Archive, path: str) -> Directory:
    """What a directory holds. Raises WorkspaceError and StoreError."""
    listing = _Listing(path)
    async with members(store, archive, most=MAX_UNPACKED) as tar:
        try:
            async for entry in tar:
                if listing.seen == MAX_ENTRIES:
                    listing.cut = True
                    break
                listing.add(entry)
        except WorkspaceTooLarge:
            listing.cut = True
    items = sorted(listing.items.values(), key=lambda item: (item.kind != "directory", item.name))
    return Directory(path, items, listing.files, listing.size, listing.cut, listing.found)


@dataclass(slots=True)
class _Listing:
    path: str
    items: dict[str, Item] = field(default_factory=dict)
    seen: int = 0
    files: int = 0
    size: int = 0
    cut: bool = False
    found: bool = False

    def add(self, entry: Entry) -> None:
        self.seen += 1
        if entry.kind in {"file", "hardlink"}:
            self.files += 1
            self.size += entry.size
        self.found = self.found or entry.path == self.path
        top = f"{self.path}/" if self.path else ""
        if not entry.path or not entry.path.startswith(top):
            return
        name, slash, _ = entry.path[len(top) :].partition("/")
        if not name:
            return
        self.found = True
        kind = "directory" if slash else entry.kind
        item = self.items.setdefault(name, Item(name, top + name, kind, target=entry.target))
        if entry.kind != "directory":
            item.size += entry.size
            item.files += 1


@dataclass(frozen=True, slots=True)
class Preview:
    """The beginning of a file.

    Attributes:
        entry: The file.
        kind: How it can be shown.
        text: Of a text.
        cut: Bytes that are not shown.
    """

    entry: Entry
    kind: Literal["text", "image", "binary", "link"]
    text: str = ""
    cut: int = 0


async def preview(store: ObjectStore, archive: Archive, path: str) -> Preview | None:
    """The beginning of a file of the workspace; None if it is not there. Raises WorkspaceError and StoreError."""
    async with contextlib.AsyncExitStack() as stack:
        found = await open_file(stack, store, archive, path)
        if found is None:
            return None
        entry, tar = found
        if entry.kind != "file":
            return Preview(entry, "link" if entry.kind == "symlink" else "binary")
        head = b""
        async with contextlib.aclosing(tar.content()) as pieces:
            async for piece in pieces:
                head += piece
                if len(head) >= MAX_PREVIEW:
                    break
    head = head[:MAX_PREVIEW]
    if image_type(head):
        return Preview(entry, "image")
    text = _as_text(head, whole=len(head) == entry.size)
    return Preview(entry, "binary") if text is None else Preview(entry, "text", text, entry.size - len(head))


async def open_file(
    stack: contextlib.AsyncExitStack, store: ObjectStore, archive: Archive, path: str
) -> tuple[Entry, TarGz] | None:
    """A member, and the archive standing at its content, open as long as the stack. Hard links are followed."""
    for _ in range(_MOST_LINKS):
        tar = await stack.enter_async_context(members(store, archive, most=MAX_UNPACKED))
        entry = await _find(tar, path)
        if entry is None or entry.kind != "hardlink":
            return (entry, tar) if entry and entry.kind != "directory" else None
        path = entry.target.strip("/").removeprefix("./")
    return None


async def _find(tar: TarGz, path: str) -> Entry | None:
    async for entry in tar:
        if entry.path == path:
            return entry
    return None


def image_type(head: bytes) -> str:
    """The type of an image that browsers show without running anything, by its first bytes; empty for all else."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")


def _as_text(head: bytes, *, whole: bool) -> str | None:
    if b"\0" in head:
        return None
    for dropped in range(1 if whole else 4):  # the cut may have gone through a character
        try:
            return head[: len(head) - dropped].decode()
        except UnicodeDecodeError:
            continue
    return None


# ---------------------------------------------------------------------- what a task changed


@dataclass(slots=True)
class Changes:
    """What lies between two workspaces, as much of it as a page shows.

    Attributes:
        shown: The first of what differs; without its lines once there have been enough.
        total: How many paths differ.
        added: Lines that were added, in what was compared.
        removed: Lines that were removed.
        too_large: Nothing was compared, as the archives are too large for a page.
    """

    shown: list[Difference] = field(default_factory=list)
    total: int = 0
    added: int = 0
    removed: int = 0
    too_large: bool = False


async def changes(store: ObjectStore, before: Archive | None, after: Archive) -> Changes:
    """What differs between two workspaces; `before` is None for an empty one. Raises WorkspaceError and StoreError."""
    if after.same_as(before):
        return Changes()
    if after.size + (before.size if before else 0) > MAX_COMPARED:
        return Changes(too_large=True)
    found, lines = Changes(), 0
    async with contextlib.AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="a2a-gcs-console-")))
        sides = [_reader(stack, store, one) for one in (before, after)]
        try:
            async for one in differences(sides[0], sides[1], scratch, most_texts=MAX_TEXTS):
                found.total += 1
                found.added += one.added
                found.removed += one.removed
                if found.total <= MAX_CHANGES:
                    lines += len(one.lines)
                    found.shown.append(one if lines <= MAX_LINES else Difference(one.change, one.summary))
        except WorkspaceTooLarge:
            return Changes(too_large=True)
    return found


def _reader(stack: contextlib.AsyncExitStack, store: ObjectStore, archive: Archive | None) -> Callable[[], TarGz]:
    """Begins to read an archive, each time anew."""

    def begin() -> TarGz:
        if archive is None:
            return TarGz(_nothing())
        chunks = store.stream(archive.key, version=archive.pin.generation)
        stack.push_async_callback(_close, chunks)
        return TarGz(chunks, most=MAX_UNPACKED)

    return begin


async def _close(chunks: AsyncIterator[bytes]) -> None:
    async with closing(chunks):
        return


async def _nothing() -> AsyncIterator[bytes]:
    """An archive without members."""
    yield gzip.compress(bytes(1024))
