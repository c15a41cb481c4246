"""One try to turn a directory into an archive; runs in a thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from a2a_gcs.workspaces.archive import TarGzWriter
from a2a_gcs.workspaces.beneath import Beneath, open_root
from a2a_gcs.workspaces.bridge import Outflow
from a2a_gcs.workspaces.ignore import Ignore
from a2a_gcs.workspaces.limits import Limits, Meter
from a2a_gcs.workspaces.notes import Notes
from a2a_gcs.workspaces.pack import Changed, Packer
from a2a_gcs.workspaces.scanner import Entry, scan

_READABLE = 0o500


@dataclass(frozen=True, slots=True)
class Packed:
    """What went into the archive."""

    entries: int
    notes: Sequence[str]


def pack(directory: Path, limits: Limits, ignore: GitIgnoreSpec, outflow: Outflow) -> Packed:
    """Scans, packs, and makes sure that nothing slipped away in between.

    Raises:
        Changed: Try again.
        WorkspaceError: It cannot be saved.
        Stopped: Nobody wants it any more.
    """
    root = open_root(directory)
    try:
        with Beneath(root, force=_READABLE) as beneath:
            try:
                notes = Notes()
                packed = _pack(beneath, outflow, limits, Ignore.of(root, ignore, notes), notes)
            finally:
                beneath.put_back()
        _expect_same(root, directory)
    finally:
        os.close(root)
    return packed


def _pack(beneath: Beneath, outflow: Outflow, limits: Limits, ignore: Ignore, notes: Notes) -> Packed:
    meter = Meter(limits)
    entries = scan(beneath, ignore, Meter(limits), notes, outflow.check)
    packer = Packer(beneath, TarGzWriter(outflow.write, meter), meter, outflow.check)
    packer.run(entries)
    if packer.vanished:
        now = scan(beneath, ignore, Meter(limits), Notes(), outflow.check)
        _expect_removed(packer.vanished, now, notes)
    return Packed(meter.entries, notes.lines())


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
