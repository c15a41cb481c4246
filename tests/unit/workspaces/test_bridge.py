"""Chunks between a thread and a coroutine: in order, bounded, and ended from either side."""

import asyncio
import threading

import pytest

from a2a_gcs.workspaces.bridge import Inflow, Outflow, Stopped, in_thread, outlast

MANY = 200
SOON = 0.3  # how long something that must not happen is given to happen


async def numbers():
    for number in range(MANY):
        yield b"%03d" % number


async def test_a_thread_is_not_more_than_a_few_chunks_ahead():
    """With nobody taking chunks, the writing thread waits; with somebody, all arrive in order."""
    outflow, written = Outflow(), []

    def write():
        for number in range(MANY):
            outflow.write(b"%03d" % number)
            written.append(number)

    worker = in_thread(write)
    done, _ = await asyncio.wait({worker}, timeout=SOON)

    assert not done
    assert len(written) < 10
    assert [chunk async for chunk in outflow.chunks(worker)] == [chunk async for chunk in numbers()]


async def test_a_feed_is_not_more_than_a_few_chunks_ahead():
    """With nobody reading, the feeding coroutine waits; with somebody, all bytes arrive in order."""
    inflow, go = Inflow(), threading.Event()

    def read():
        go.wait(10)
        return inflow.read()

    worker = in_thread(read)
    feeding = asyncio.create_task(inflow.feed(numbers(), worker))
    done, _ = await asyncio.wait({feeding}, timeout=SOON)

    assert not done
    assert inflow.fed < 30
    go.set()
    await feeding
    assert await worker == b"".join([chunk async for chunk in numbers()])
    assert inflow.taken == inflow.fed == 3 * MANY


async def test_a_feed_ends_when_its_reader_does():
    """A reader that gives up does not leave the feeding coroutine waiting for space."""
    inflow = Inflow()
    worker = in_thread(lambda: inflow.read(1))

    await inflow.feed(numbers(), worker)

    assert await worker == b"0"
    assert inflow.fed < 3 * MANY


@pytest.mark.parametrize("make", [Outflow, Inflow])
async def test_stop_ends_a_thread_that_waits(make):
    """A thread that waits for the other side raises Stopped at once."""
    flow = make()

    def work():
        while True:
            flow.write(b"x") if make is Outflow else flow.read(1)

    worker = in_thread(work)
    flow.stop()

    with pytest.raises(Stopped):
        await worker


async def test_what_the_thread_raised_comes_out_of_its_chunks():
    """A failing writer fails the reading side after its last chunk, so nobody takes its chunks for all of them."""
    outflow = Outflow()

    def write():
        outflow.write(b"first")
        raise OSError("disk")

    chunks = outflow.chunks(in_thread(write))
    seen = [await anext(chunks)]
    with pytest.raises(OSError, match="disk"):
        [_ async for _ in chunks]

    assert seen == [b"first"]


async def test_cancellation_waits_for_the_thread_and_is_passed_on():
    """A cancelled caller gets its cancellation, but not before the thread has ended."""
    go, worker = threading.Event(), None

    async def wait():
        nonlocal worker
        worker = in_thread(lambda: go.wait(10))
        await outlast(worker)

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting}, timeout=SOON)
    assert not waiting.done()

    go.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert worker.result() is True
