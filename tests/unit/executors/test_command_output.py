"""Bytes that a program writes, on their way to pieces of text, tails and questions."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.executors.command_output import Lines, Notes, Output, Tail, TooMuchOutput


@given(data=st.lists(st.binary(max_size=60) | st.text(max_size=20).map(str.encode)), longest=st.integers(1, 30))
def test_all_pieces_together_are_the_output(data, longest):
    """However it was cut into reads; no piece is too long, and a piece that is cut inside of a line fills its place."""
    lines = Lines(longest)
    pieces = [piece for chunk in data for piece in lines.feed(chunk)]
    rest = lines.rest(final=True)
    assert "".join([*pieces, rest]) == b"".join(data).decode("utf-8", "replace")
    assert all(0 < len(piece) <= longest for piece in pieces)
    assert all(piece.endswith("\n") or len(piece) == longest for piece in pieces[:-1])


def test_several_lines_of_one_read_go_together():
    """The beginning of the next line is held back."""
    lines = Lines()
    assert list(lines.feed(b"one\ntwo\nthr")) == ["one\ntwo\n"]
    assert lines
    assert list(lines.feed(b"ee\n")) == ["three\n"]
    assert not lines


def test_a_character_is_not_cut_in_two():
    """Its bytes may come in different reads; only at the end it counts as broken."""
    lines = Lines()
    assert list(lines.feed("é\n".encode()[:1])) == []
    assert list(lines.feed("é\n".encode()[1:])) == ["é\n"]
    assert list(lines.feed(b"\xc3")) == []
    assert lines.rest(final=True) == "\N{REPLACEMENT CHARACTER}"


@given(parts=st.lists(st.text(max_size=40), max_size=20))
def test_a_tail_is_short(parts):
    """Whatever was written, and shows that something is missing."""
    tail = Tail(20)
    for part in parts:
        tail.add(part)
    assert len(tail.take()) <= 20 + len("...\n")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("one\ntwo\n", "one\ntwo"),
        ("0123456789\nabcdefghij\nklmnop\n", "...\nabcdefghij\nklmnop"),
        ("x" * 30, "..." + "x" * 20),
        ("\x1b[31mred\x1b[0m\r\nplain\x07", "red\nplain"),
        ("\x1b]0;title\x07text", "text"),
        (" \n\n", ""),
    ],
)
def test_a_tail_is_whole_lines_without_what_only_a_terminal_understands(written, shown):
    """Colours and titles go, line ends are newlines, and blank is nothing."""
    tail = Tail(20)
    tail.add(written)
    assert tail.take() == shown


@pytest.mark.parametrize(
    ("written", "question"),
    [
        ("Which colour?", "Which colour?"),
        ("working\n\nWhich colour?\nRed or blue?\n", "Which colour?\nRed or blue?"),
        ("working\n \t \nWhich?\n\n\n", "Which?"),
        ("\n\n", ""),
    ],
)
def test_the_last_paragraph(written, question):
    """Comes after the last line that is empty or blank."""
    tail = Tail()
    tail.add(written)
    assert tail.last_paragraph() == question


class Sink:
    def __init__(self):
        self.sent = asyncio.Queue()

    async def __call__(self, text):
        await self.sent.put(text)

    def all(self):
        return [self.sent.get_nowait() for _ in range(self.sent.qsize())]


@pytest.fixture
async def reader():
    return asyncio.StreamReader()


async def test_a_line_is_sent_while_the_program_goes_on(reader):
    """And the beginning of one too, when nothing follows it: a prompt has no end of line."""
    sink = Sink()
    run = asyncio.create_task(Output(sink, 100).run(reader))
    reader.feed_data(b"first\n")
    assert await sink.sent.get() == "first\n"
    reader.feed_data(b"name? ")
    assert await sink.sent.get() == "name? "
    reader.feed_data(b"\xc3\xa9nd")
    reader.feed_eof()
    await run
    assert sink.all() == ["énd"]


async def test_lines_that_come_fast_share_an_event(reader):
    """A thousand lines in one read are no thousand events."""
    sink = Sink()
    for n in range(1000):
        reader.feed_data(b"%d\n" % n)
    reader.feed_eof()
    await Output(sink, 10_000).run(reader)
    assert sink.all() == ["".join(f"{n}\n" for n in range(1000))]


async def test_output_beyond_the_limit_is_an_error(reader):
    """Counted in bytes."""
    reader.feed_data("é".encode() * 6)
    with pytest.raises(TooMuchOutput, match="more than the 10 bytes"):
        await Output(Sink(), 10).run(reader)


async def test_notes_are_coalesced(reader):
    """What comes at once is one message, and the end of a flood stands for it."""
    sink = Sink()
    notes = Notes(sink)
    run = asyncio.create_task(notes.run(reader))
    for line in (b"one\n", b"two\n"):
        reader.feed_data(line)
        for _ in range(20):  # it has read the line by now, and waits for more
            await asyncio.sleep(0)
    assert await sink.sent.get() == "one\ntwo"
    reader.feed_data(b"x\n" * 100_000 + b"last")
    reader.feed_eof()
    await run
    (flood,) = sink.all()
    assert flood.startswith("...\nx\n")
    assert flood.endswith("x\nlast")
    assert notes.tail.take() == flood
