"""Workspaces for a page, read from archives as they stream by."""

import gzip
import io
import tarfile

import pytest

from a2a_gcs.console import files
from a2a_gcs.layout import TaskRef, workspace_key
from a2a_gcs.objectstore import MemoryStore
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.records import Pin
from a2a_gcs.workspaces.finding import Archive


async def archive(store, task_id, members):
    """A stored workspace; a member's content is bytes, or a tuple of type and target."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                info.type, info.linkname = content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    ref = TaskRef("c", task_id)
    info = await store.put(workspace_key(ref), body.getvalue(), OVERWRITE)
    return Archive(ref, Pin(info.version, info.crc32c), info.size, pinned=True)


@pytest.fixture
def store():
    return MemoryStore()


async def test_one_directory_at_a_time(store):
    """A directory shows what lies in it, with the sum of what lies below, also where it has no member of its own."""
    found = await archive(store, "t", {"a/b/c.txt": b"123", "a/d.txt": b"12", "z": b"1", "ab": b""})
    top = await files.directory(store, found, "")
    assert [(i.name, i.kind, i.size, i.files) for i in top.items] == [
        ("a", "directory", 5, 2),
        ("ab", "file", 0, 1),
        ("z", "file", 1, 1),
    ]
    assert (top.files, top.size) == (4, 6)
    below = await files.directory(store, found, "a")
    assert [i.path for i in below.items] == ["a/b", "a/d.txt"]
    assert not (await files.directory(store, found, "nothing")).found


async def test_a_large_tree_is_read_in_part(store, monkeypatch):
    monkeypatch.setattr(files, "MAX_ENTRIES", 3)
    found = await files.directory(store, await archive(store, "t", {str(n): b"" for n in range(5)}), "")
    assert (len(found.items), found.cut) == (3, True)


async def test_a_bomb_is_not_unpacked(store, monkeypatch):
    """What would unpack to more than a page may cost is left, and the page says so."""
    monkeypatch.setattr(files, "MAX_UNPACKED", 3 << 20)
    found = await archive(store, "t", {"a": b"x", "bomb": bytes(50 << 20), "z": b""})
    listing = await files.directory(store, found, "")
    assert ([i.name for i in listing.items], listing.cut) == (["a", "bomb"], True)
    assert (await files.changes(store, None, found)).too_large


async def test_previews(store):
    """Text is cut at a whole character; images are known by what they begin with, not by their names."""
    long = "é" * files.MAX_PREVIEW
    found = await archive(
        store,
        "t",
        {
            "long": b"x" + long.encode(),
            "x.png": b"<html>",
            "y": b"\x89PNG\r\n\x1a\n...",
            "z": b"\0",
            "bad": b"\xff" * 10,
            "hard": (tarfile.LNKTYPE, "x.png"),
            "soft": (tarfile.SYMTYPE, "/etc/passwd"),
            "loop": (tarfile.LNKTYPE, "loop"),
        },
    )
    seen = {
        name: await files.preview(store, found, name) for name in ("long", "x.png", "y", "z", "bad", "hard", "soft")
    }
    assert {name: one.kind for name, one in seen.items()} == {
        "long": "text",
        "x.png": "text",
        "y": "image",
        "z": "binary",
        "bad": "binary",
        "hard": "text",
        "soft": "link",
    }
    assert seen["hard"].text == "<html>"
    assert seen["long"].text == "x" + "é" * (files.MAX_PREVIEW // 2 - 1)
    assert seen["long"].cut == len(long.encode()) + 1 - files.MAX_PREVIEW
    assert await files.preview(store, found, "nothing") is None
    assert await files.preview(store, found, "loop") is None


async def test_changes_are_bounded(store, monkeypatch):
    """All are counted; lines are shown until there have been enough of them."""
    monkeypatch.setattr(files, "MAX_LINES", 12)
    monkeypatch.setattr(files, "MAX_CHANGES", 4)
    before = await archive(store, "a", {f"f{n}": b"old\n" for n in range(6)})
    after = await archive(store, "b", {f"f{n}": b"new\n" for n in range(6)})
    found = await files.changes(store, before, after)
    assert (found.total, found.added, found.removed) == (6, 6, 6)
    assert [bool(one.lines) for one in found.shown] == [True, True, False, False]
    assert (await files.changes(store, after, after)).total == 0


async def test_archives_too_large_to_compare_are_not_read(store, monkeypatch):
    monkeypatch.setattr(files, "MAX_COMPARED", 10)
    found = await archive(store, "t", {"a": b"x"})
    await store.put(found.key, gzip.compress(b"something else"), OVERWRITE)  # to read it would raise NotFound
    assert (await files.changes(store, None, found)).too_large
