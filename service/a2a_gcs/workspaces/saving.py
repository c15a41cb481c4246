"""One try to turn a directory into an archive; its methods block, and are called in threads."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from a2a_gcs.workspaces.archive import TarGzWriter
from a2a_gcs.workspaces.beneath import Beneath, open_root
from a2a_gcs.workspaces.bridge import Outflow
from a2a_gcs.workspaces.cutting import cut
from a2a_gcs.workspaces.ignore import Ignore
from a2a_gcs.workspaces.limits import Limits, Meter
from a2a_gcs.workspaces.manifest import Baseline, Part, Span, Stamp, reusable
from a2a_gcs.workspaces.notes import Notes
from a2a_gcs.workspaces.pack import Changed, Packer
from a2a_gcs.workspaces.part_writer import PartWriter
from a2a_gcs.workspaces.scanner import READABLE, Entry, Tree, scan


@dataclass(frozen=True, slots=True)
class Packed:
    """What went into the archive.

    Attributes:
        stamps, recent, units: As in `Baseline`.
        whole: As in `Baseline`.
        notes: For people.
        name: SHA-256 of an archive that is one piece, else empty.
        parts: Of one that is composed.
    """

    stamps: Mapping[bytes, Stamp]
    recent: Mapping[bytes, bytes]
    whole: bool
    notes: Sequence[str]
    name: str = ""
    parts: Sequence[Part] = ()
    units: Mapping[Span, tuple[Part, ...]] = field(default_factory=dict)


class Reading:
    """A workspace that is being read: `look` first, then pack what was seen, and `close` at last."""

    def __init__(self, directory: Path, limits: Limits, ignore: GitIgnoreSpec) -> None:
        """Opens the directory. Raises WorkspaceError if it is gone."""
        self._directory = directory
        self._limits = limits
        self._ignore = ignore
        self._notes = Notes()
        self._root = open_root(directory)
        self._beneath = Beneath(self._root, force=READABLE)
        self._tree = Tree((), 0, whole=False)

    @property
    def notes(self) -> Sequence[str]:
        return self._notes.lines()

    @property
    def changed_modes(self) -> bool:
        """Whether `close` has to put modes back, which takes its time."""
        return bool(self._beneath.widened)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing, as many agents leave it: reading that takes less than a thread to do it in."""
        with os.scandir(self._root) as entries:
            return next(entries, None) is None

    def look(self, check: Callable[[], None]) -> Tree:
        """Walks the directory. Raises WorkspaceError, or what `check` raises."""
        ignore = Ignore.of(self._root, self._ignore, self._notes)
        self._tree = scan(self._beneath, ignore, Meter(self._limits), self._notes, check)
        return self._tree

    def whole(self, write: Callable[[bytes], None], check: Callable[[], None]) -> Packed:
        """Packs everything into one piece.

        Raises:
            Changed: Try again.
            WorkspaceError: It cannot be saved.
            Stopped: Nobody wants it any more.
        """
        digest = hashlib.sha256()

        def sink(chunk: bytes) -> None:
            digest.update(chunk)
            write(chunk)

        meter = Meter(self._limits)
        writer = TarGzWriter(sink, meter)
        packer = Packer(self._beneath, writer, meter, check)
        packer.run(self._tree.entries)
        writer.finish()
        self._expect_unmoved(packer.vanished, check)
        whole = self._tree.whole and not packer.vanished
        return Packed(packer.stamps, packer.recent, whole, self.notes, name=digest.hexdigest())

    def at_once(self, check: Callable[[], None]) -> tuple[Packed, bytes]:
        """Packs everything into one piece in memory: for what is small. Raises as `whole`."""
        archive = bytearray()
        packed = self.whole(archive.extend, check)
        return packed, bytes(archive)

    def parts(self, base: Baseline | None, size: int, outflow: Outflow[tuple[Part, bytes]]) -> Packed:
        """Packs what `base` has not into parts of about `size` bytes, which are written. Raises as `whole`."""
        entries, meter = self._tree.entries, Meter(self._limits)
        plan = cut([(entry.path, entry.content) for entry in entries], size)
        runs = [[entry.path for entry in entries[unit.first : unit.stop]] for unit in plan]
        stamps = self._tree.stamps()
        places: dict[Span, slice] = {}
        with PartWriter(size, lambda part, data: outflow.write((part, data)), meter) as writer:
            packer = Packer(self._beneath, writer, meter, outflow.check)
            for unit, run, parts in zip(plan, runs, reusable(base, size, runs, stamps), strict=True):
                begin = writer.count
                if parts is not None:
                    writer.keep(parts)
                else:
                    packer.run(entries[unit.first : unit.stop])
                    writer.cut()
                places[Span(run[0], run[-1], len(run))] = slice(begin, writer.count)
            writer.finish()
        self._expect_unmoved(packer.vanished, outflow.check)
        for entry in packer.vanished:
            del stamps[entry.path]
        return Packed(
            stamps | packer.stamps,
            packer.recent,
            self._tree.whole and not packer.vanished,
            self.notes,
            parts=writer.parts,
            units={} if packer.vanished else {span: tuple(writer.parts[at]) for span, at in places.items()},
        )

    def close(self) -> None:
        """Puts back the modes of directories that had to be opened."""
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, self._root)
            stack.callback(self._beneath.close)
            self._beneath.put_back()

    def _expect_unmoved(self, vanished: Sequence[Entry], check: Callable[[], None]) -> None:
        """Makes sure that nothing slipped away in between. Raises Changed."""
        if vanished:
            ignore = Ignore.of(self._root, self._ignore, Notes())
            now = scan(self._beneath, ignore, Meter(self._limits), Notes(), check)
            _expect_removed(vanished, now.entries, self._notes)
        _expect_same(self._root, self._directory)


def _expect_removed(vanished: Sequence[Entry], now: Sequence[Entry], notes: Notes) -> None:
    """A file that was deleted is rightly not in the archive; one that was renamed would be lost."""
    present = {entry.inode for entry in now}
    for entry in vanished:
        if entry.inode in present:
            raise Changed(entry.path, "it was renamed")
        notes.add(entry.path, "left out, it was removed while the workspace was saved")


def _expect_same(root: int, directory: Path) -> None:
    try:
        same = os.path.samestat(os.fstat(root), os.lstat(directory))
    except FileNotFoundError:
        same = False
    if not same:
        raise Changed(b".", "the workspace directory itself was removed or replaced")
