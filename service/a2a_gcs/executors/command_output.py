"""What a program writes, as A2A shows it: standard output as an artifact, standard error as working messages."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Awaitable, Callable, Iterator

from a2a_gcs.errors import A2AGcsError

READ_BYTES = 256 << 10
CHUNK_CHARACTERS = 32 << 10
"""Longest piece of output in one event."""
TAIL_CHARACTERS = 4 << 10
"""Longest question, tail of a failed program, and working message."""

PARTIAL_SECONDS = 0.3
"""How long the beginning of a line waits for the rest of it."""
PACE_SECONDS = 0.05
SLOWEST_PACE_SECONDS = 0.5
NOTES_SECONDS = 1.0
SLOWEST_NOTES_SECONDS = 10.0

_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f]")

Emit = Callable[[str], Awaitable[None]]


class TooMuchOutput(A2AGcsError):
    """The program wrote more than the host allows; the text is what the caller reads."""


class Lines:
    """Bytes to text, in pieces that end with a line where that is possible.

    All pieces together are the bytes decoded as UTF-8, with U+FFFD for what is none.
    """

    def __init__(self, longest: int = CHUNK_CHARACTERS) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._longest = longest
        self._held = ""

    def __bool__(self) -> bool:
        """The beginning of a line is held back."""
        return bool(self._held)

    def feed(self, data: bytes) -> Iterator[str]:
        """Whole lines, and of a line that is longer than a piece what fills pieces."""
        self._held += self._decoder.decode(data)
        end = self._held.rfind("\n") + 1
        end += (len(self._held) - end) // self._longest * self._longest
        whole, self._held = self._held[:end], self._held[end:]
        while whole:
            cut = whole.rfind("\n", 0, self._longest) + 1 if len(whole) > self._longest else len(whole)
            piece, whole = whole[: cut or self._longest], whole[cut or self._longest :]
            yield piece

    def rest(self, *, final: bool = False) -> str:
        """What is held back; with `final`, also what an unfinished character comes to."""
        held, self._held = self._held + (self._decoder.decode(b"", final=True) if final else ""), ""
        return held


class Tail:
    """The last characters of a text, without what only a terminal understands."""

    def __init__(self, longest: int = TAIL_CHARACTERS) -> None:
        self._longest = longest
        self._text = ""
        self._cut = False

    def add(self, text: str) -> None:
        text = self._text + text
        self._cut |= len(text) > 2 * self._longest
        self._text = text[-2 * self._longest :]

    def take(self) -> str:
        """The text; it begins with a whole line, or with `...` if that would leave nothing."""
        plain = _TERMINAL.sub("", self._text.replace("\r\n", "\n")).strip("\n")
        cut, text = self._cut or len(plain) > self._longest, plain[-self._longest :]
        if cut:
            _, _, lines = text.partition("\n")
            text = f"...\n{lines}" if lines else f"...{text}"
        return text if text.strip() else ""

    def last_paragraph(self) -> str:
        """What comes after the last empty line."""
        return re.split(r"\n[ \t]*\n", self.take().strip())[-1].strip()

    def clear(self) -> None:
        self._text, self._cut = "", False


class Output:
    """Standard output: emitted line by line, several at once where they come fast.

    Args:
        emit: Sends one piece; the program waits while it does.
        limit: Most bytes.

    Attributes:
        tail: Its end.
    """

    def __init__(self, emit: Emit, limit: int) -> None:
        self.tail = Tail()
        self._emit = emit
        self._limit = limit
        self._size = 0
        self._pieces = 0

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Reads to the end. Raises TooMuchOutput, and what `emit` raises."""
        lines = Lines()
        while True:
            try:
                data = await asyncio.wait_for(reader.read(READ_BYTES), PARTIAL_SECONDS if lines else None)
            except TimeoutError:
                await self._send(lines.rest())
                continue
            if not data:
                break
            self._count(len(data))
            for piece in lines.feed(data):
                await self._send(piece)
            await asyncio.sleep(self._pace)  # what comes meanwhile goes together
        await self._send(lines.rest(final=True))

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise TooMuchOutput(f"wrote more than the {self._limit:,} bytes that the host allows (command_max_output)")

    @property
    def _pace(self) -> float:
        """Grows with the number of events: an artifact of a hundred thousand parts serves nobody."""
        return min(SLOWEST_PACE_SECONDS, PACE_SECONDS * (1 + self._pieces / 1000))

    async def _send(self, text: str) -> None:
        if text:
            self._pieces += 1
            self.tail.add(text)
            await self._emit(text)


class Notes:
    """Standard error: what it said lately, every second at first and every ten in a long run.

    Attributes:
        tail: Its end.
    """

    def __init__(self, emit: Emit) -> None:
        self.tail = Tail()
        self._emit = emit
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Reads to the end. Raises what `emit` raises."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        fresh, due, last = Tail(), float("inf"), 0.0
        while True:
            try:
                wait = None if due == float("inf") else max(0.0, due - self._clock())
                data = await asyncio.wait_for(reader.read(READ_BYTES), wait)
            except TimeoutError:
                last, due = self._clock(), float("inf")
                await self._send(fresh)
                continue
            text = decoder.decode(data, final=not data)
            self.tail.add(text)
            fresh.add(text)
            if not data:
                break
            due = min(due, max(self._clock() + PARTIAL_SECONDS, last + self._spacing))
        await self._send(fresh)

    @property
    def _spacing(self) -> float:
        return min(SLOWEST_NOTES_SECONDS, max(NOTES_SECONDS, (self._clock() - self._began) / 60))

    async def _send(self, fresh: Tail) -> None:
        text = fresh.take()
        fresh.clear()
        if text:
            await self._emit(text)
