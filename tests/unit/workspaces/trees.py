"""Makes and compares directory trees, and makes archives that no honest program makes."""
# Names that are no UTF-8 need bytes.
# ruff: noqa: PTH101, PTH115, PTH118, PTH123, PTH208

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from a2a_gcs.objectstore.memory import MemoryStore
from a2a_gcs.objectstore.port import IF_ABSENT
from a2a_gcs.records import Pin
from a2a_gcs.workspaces.snapshots import Restored, Snapshots

KEY = "contexts/c/t/workspace.tar.gz"
PERMISSIONS = 0o777

T = TypeVar("T")


def describe(root: Path) -> dict[bytes, tuple[object, ...]]:
    """Everything that a snapshot must bring back, by path: two trees are equal if these are."""
    found: dict[bytes, tuple[object, ...]] = {}
    first: dict[tuple[int, int], bytes] = {}

    def look(directory: bytes) -> None:
        for path in sorted(os.path.join(directory, name) for name in os.listdir(directory)):
            status, name = os.lstat(path), os.path.relpath(path, os.fsencode(root))
            what: object = None
            if stat.S_ISLNK(status.st_mode):
                what = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                same = first.setdefault((status.st_dev, status.st_ino), name)
                what = opened(path, status, read) if same == name else ("hard link to", same)
            elif stat.S_ISDIR(status.st_mode):
                opened(path, status, look)
            found[name] = (stat.S_IFMT(status.st_mode), status.st_mode & PERMISSIONS, status.st_mtime_ns, what)

    look(os.fsencode(root))
    return found


def read(path: bytes) -> bytes:
    with open(path, "rb") as f:
        return f.read()


def opened(path: bytes, status: os.stat_result, function: Callable[[bytes], T]) -> T:
    """Looks into a file or directory for which the tests' user may have taken the right from itself."""
    if os.geteuid() == 0:
        return function(path)
    os.chmod(path, 0o700)
    try:
        return function(path)
    finally:
        os.chmod(path, stat.S_IMODE(status.st_mode))


async def round_trip(source: Path, target: Path, store: MemoryStore | None = None, **settings: object) -> Restored:
    snapshots = Snapshots(store or MemoryStore(), **settings)
    saved = await snapshots.save(source, KEY, replaces=0)
    return await snapshots.restore(KEY, saved.pin, target)


def tar(*members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    """A whole tar of these members, in this order, whatever they are."""
    out = bytearray()
    for entry in members:
        info, content = entry if isinstance(entry, tuple) else (entry, b"")
        if content:
            info.size = len(content)
        out += info.tobuf(form, "utf-8", "surrogateescape") + content + bytes(-len(content) % 512)
    return bytes(out + bytes(1024))


def member(name: str, kind: bytes = tarfile.REGTYPE, **attributes: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in attributes.items():
        setattr(info, key, value)
    return info


def file(name: str, content: bytes = b"x", **attributes: object) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, **attributes), content


async def stored(store: MemoryStore, archive: bytes, *, packed: bool = False) -> Pin:
    """Puts a tar, or with `packed` some bytes that claim to be a tar.gz, where a snapshot belongs."""
    info = await store.put(KEY, archive if packed else gzip.compress(archive, 1, mtime=0), IF_ABSENT)
    return Pin(info.version, info.crc32c)


def names(packed: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        return archive.getnames()
