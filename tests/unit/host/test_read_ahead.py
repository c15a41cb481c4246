"""Reading ahead: nothing is held up, little is kept, and what the stream raises is heard."""

import asyncio

import pytest
from a2a.types.a2a_pb2 import Artifact, Part, TaskArtifactUpdateEvent

from a2a_gcs.host.read_ahead import ReadAhead
from a2a_gcs.tasks.stream import Told


def chunk(number, size=10):
    return TaskArtifactUpdateEvent(task_id=str(number), artifact=Artifact(parts=[Part(text="x" * size)]))


class Stream:
    """Counts what was taken, and knows whether it was closed."""

    def __init__(self, count, error=None):
        self.count, self.error, self.taken, self.closed = count, error, 0, asyncio.Event()

    async def events(self):
        try:
            for number in range(self.count):
                self.taken += 1
                yield Told(chunk(number))
                await asyncio.sleep(0)
            if self.error:
                raise self.error
        finally:
            self.closed.set()


async def test_a_reader_gets_everything_in_order():
    """Also what was read ahead of it."""
    stream = Stream(50)
    async with ReadAhead(stream.events()) as ahead:
        await stream.closed.wait()
        got = [int(told.event.task_id) async for told in ahead.events()]
    assert got == list(range(50))


async def test_a_reader_that_stalls_loses_what_waits_and_the_stream_is_closed_at_once():
    """The stream's other end is let go though the reader has not come back."""
    stream = Stream(1000)
    async with ReadAhead(stream.events(), limit=200) as ahead:
        events = ahead.events()
        assert (await anext(events)).event.task_id == "0"
        await asyncio.wait_for(stream.closed.wait(), 10)
        assert stream.taken < 50
        assert [event async for event in events] == []


async def test_one_large_event_is_no_loss():
    """However large: it is all that waits."""

    async def one():
        yield Told(chunk(0, size=1000))

    async with ReadAhead(one(), limit=10) as ahead:
        assert len([event async for event in ahead.events()]) == 1


async def test_what_the_stream_raises_comes_after_its_events():
    """Once, and to the reader."""
    stream = Stream(3, ZeroDivisionError("a bug"))
    async with ReadAhead(stream.events()) as ahead:
        events = ahead.events()
        assert [(await anext(events)).event.task_id for _ in range(3)] == ["0", "1", "2"]
        with pytest.raises(ZeroDivisionError):
            await anext(events)


async def test_a_reader_that_goes_away_ends_the_reading():
    """Before the stream has ended by itself."""
    stream = Stream(10**9)
    async with ReadAhead(stream.events(), limit=10**9) as ahead:
        await anext(ahead.events())
    assert stream.closed.is_set()
