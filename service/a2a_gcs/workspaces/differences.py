"""What differs between two archives: which entries, and for text files which lines.

Each archive is read twice, first for a digest of every file, then for the
files that differ, which lie in a temporary directory meanwhile. In memory are
a few words per entry and one pair of files.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from a2a_gcs.workspaces.reading import Entry, TarGz

LONGEST_TEXT = 256 << 10
"""Most bytes of a file whose lines are compared; it takes seconds in the worst case."""

_LOOKED_AT = 8 << 10

Members = Callable[[], TarGz]


@dataclass(frozen=True, slots=True)
class Facts:
    """What counts about an entry; times do not.

    Attributes:
        kind: As in Entry; a hard link is the file that it leads to.
        mode: Permission bits; 0 for symbolic links, which have none.
        size: Bytes of content.
        content: Digest, or the target of a symbolic link.
        source: Path whose member holds the content.
    """

    kind: str
    mode: int
    size: int
    content: bytes | str
    source: str


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs; `before` is None for what was added, `after` for what was removed."""

    path: str
    before: Facts | None
    after: Facts | None

    @property
    def word(self) -> str:
        return "added" if self.before is None else "removed" if self.after is None else "changed"


@dataclass(frozen=True, slots=True)
class Difference:
    """A change, and how it looks.

    Attributes:
        change: The change.
        summary: What it is, in words, for what no lines can show.
        lines: Unified diff; empty if there is none.
    """

    change: Change
    summary: str
    lines: tuple[str, ...] = ()

    @property
    def added(self) -> int:
        return sum(line.startswith("+") for line in self.lines[2:])

    @property
    def removed(self) -> int:
        return sum(line.startswith("-") for line in self.lines[2:])


async def differences(
    before: Members, after: Members, scratch: Path, *, most_texts: int | None = None
) -> AsyncIterator[Difference]:
    """Everything that differs, in the order of the paths.

    Args:
        before: Begins to read the first archive, as often as it is called.
        after: Likewise, the second.
        scratch: An empty directory for the files that differ.
        most_texts: Of how many files the lines are compared at most; None for all.
    """
    changes = compare(await tree(before()), await tree(after()))
    texts = [(change.path, number) for number, change in enumerate(changes) if _may_be_text(change)]
    wanted = dict(texts[:most_texts])
    for side, members in (("before", before), ("after", after)):
        facts = {number: getattr(changes[number], side) for number in wanted.values()}
        await _extract(members(), {number: fact.source for number, fact in facts.items() if fact}, scratch, side)
    for number, change in enumerate(changes):
        # Off the loop: two texts may take seconds, and on a host others wait.
        yield await asyncio.to_thread(_difference, change, number, scratch if change.path in wanted else None)


async def tree(members: TarGz) -> dict[str, Facts]:
    """Every entry of an archive by its path."""
    found: dict[str, Facts] = {}
    async for entry in members:
        if not entry.path:
            continue
        if entry.kind == "hardlink":
            target = found.get(entry.target.strip("/").removeprefix("./"))
            if target is not None:
                found[entry.path] = target
                continue
        found[entry.path] = await _facts(entry, members)
    return found


async def _facts(entry: Entry, members: TarGz) -> Facts:
    if entry.kind != "file":
        mode = 0 if entry.kind == "symlink" else entry.mode
        return Facts(entry.kind, mode, 0, entry.target, entry.path)
    digest = hashlib.blake2b(digest_size=16)
    async for piece in members.content():
        digest.update(piece)
    return Facts(entry.kind, entry.mode, entry.size, digest.digest(), entry.path)


def compare(before: Mapping[str, Facts], after: Mapping[str, Facts]) -> list[Change]:
    """What differs, sorted by path. A directory that came or went with something in it is not named besides that."""
    changes = [
        Change(path, before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if _counts(before.get(path)) != _counts(after.get(path))
    ]
    parents = {(change.word, parent) for change in changes for parent in _parents(change.path)}
    return [c for c in changes if not (_is_directory(c) and (c.word, c.path) in parents and c.word != "changed")]


def _counts(facts: Facts | None) -> tuple[object, ...] | None:
    return (facts.kind, facts.mode, facts.size, facts.content) if facts else None


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _is_directory(change: Change) -> bool:
    return all(facts is None or facts.kind == "directory" for facts in (change.before, change.after))


def _may_be_text(change: Change) -> bool:
    sides = [facts for facts in (change.before, change.after) if facts is not None]
    same = len(sides) == 2 and sides[0].content == sides[1].content  # noqa: PLR2004 - both
    return not same and all(facts.kind == "file" and facts.size <= LONGEST_TEXT for facts in sides)


async def _extract(members: TarGz, wanted: Mapping[int, str], scratch: Path, side: str) -> None:
    numbers: dict[str, list[int]] = {}
    for number, path in wanted.items():
        numbers.setdefault(path, []).append(number)
    async for entry in members:
        if not numbers:
            return
        if entry.path not in numbers:
            continue
        first, *others = (scratch / f"{number}-{side}" for number in numbers.pop(entry.path))
        with first.open("wb") as file:
            async with aclosing(members.content()) as pieces:
                async for piece in pieces:
                    file.write(piece)
        for other in others:
            other.hardlink_to(first)


def _difference(change: Change, number: int, scratch: Path | None) -> Difference:
    lines: tuple[str, ...] = ()
    texts = [_text(scratch, number, side) for side in ("before", "after")] if scratch else [None]
    binary = any(text is None for text in texts)
    if not binary:
        old, new = (shown(change.path) if facts else None for facts in (change.before, change.after))
        lines = tuple(_unified(str(texts[0]), str(texts[1]), old, new))
    return Difference(change, _summary(change, binary=binary), lines)


def _text(scratch: Path, number: int, side: str) -> str | None:
    """The text of a file, empty if it is not there; None if it is no text."""
    path = scratch / f"{number}-{side}"
    data = path.read_bytes() if path.exists() else b""
    if b"\0" in data[:_LOOKED_AT]:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _unified(before: str, after: str, old: str | None, new: str | None) -> Iterable[str]:
    """As `patch -p1` takes it."""
    lines = difflib.unified_diff(
        _lines(before),
        _lines(after),
        _side("a", old),
        _side("b", new),
    )
    for line in lines:
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _side(letter: str, name: str | None) -> str:
    """A name in a header; patch takes one with a space only if a tab ends it."""
    if name is None:
        return "/dev/null"
    return f"{letter}/{name}\t" if " " in name else f"{letter}/{name}"


def _lines(text: str) -> list[str]:
    """Ends of lines are newlines alone, as for diff and patch."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _summary(change: Change, *, binary: bool) -> str:
    before, after = change.before, change.after
    if before is None or after is None:
        facts = before or after
        assert facts is not None
        return f"{facts.kind} -> {shown(str(facts.content))}" if facts.kind == "symlink" else _size(facts, binary)
    if before.kind != after.kind:
        return f"{before.kind} became {after.kind}"
    parts = [f"mode {before.mode:o} -> {after.mode:o}"] if before.mode != after.mode else []
    if before.kind == "symlink":
        parts.append(f"link {shown(str(before.content))} -> {shown(str(after.content))}")
    elif before.content != after.content and binary:
        parts.append(f"{before.size:,} -> {after.size:,} bytes")
    return ", ".join(parts)


def _size(facts: Facts, binary: bool) -> str:  # noqa: FBT001 - one caller
    return facts.kind if facts.kind != "file" else f"{facts.size:,} bytes" if binary else ""


def shown(name: str) -> str:
    """A name or line for people: what is not printable is escaped, so that it does nothing to their terminal."""
    return "".join(
        c if c.isprintable() or c == "\t" else c.encode("unicode_escape", "surrogatepass").decode() for c in name
    )
