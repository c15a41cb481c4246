"""Who does less than was asked for is not compared: what came back is read."""

import copy
import dataclasses

import pytest

from tests.benchmark.chunks import chunk_of, output_of
from tests.benchmark.load import Dialect03, Dialect10, Stream
from tests.benchmark.work import Work

WORK = Work(3, 64)


def task(state):
    parts = [{"text": chunk_of(number, 64)} for number in range(3)]
    return {"id": "t", "artifacts": [{"artifactId": "output", "parts": parts}], "status": {"state": state}}


def test_the_whole_output_of_a_task_that_has_ended_will_do():
    """In either dialect."""
    WORK.check(Dialect10, task("TASK_STATE_COMPLETED"))
    WORK.check(Dialect03, task("completed"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda found: found["artifacts"][0]["parts"].pop(),
        lambda found: found["artifacts"][0]["parts"].reverse(),
        lambda found: found["artifacts"][0]["parts"][1].update(text=chunk_of(0, 64)),
        lambda found: found["artifacts"][0].update(parts=[{"text": output_of(3, 64)}]),
        lambda found: found["artifacts"].append({"parts": []}),
        lambda found: found["status"].update(state="TASK_STATE_WORKING"),
    ],
    ids=["a chunk less", "another order", "a chunk twice", "in one piece", "one more artifact", "still at work"],
)
def test_a_task_that_lacks_something_is_refused(spoil):
    """Each chunk, the order, and the end count."""
    found = copy.deepcopy(task("TASK_STATE_COMPLETED"))
    spoil(found)
    with pytest.raises((AssertionError, ValueError)):
        WORK.check(Dialect10, found)


class Streaming:
    """A client whose server streams this."""

    url = "http://127.0.0.1/"

    def __init__(self, stream):
        self._stream = stream

    async def stream(self, text):
        assert text == "3 64"
        return self._stream


WHOLE = Stream(1.0, [0.1, 0.2, 0.3], 192, 900, "completed", "t")


async def test_a_whole_stream_will_do():
    """Each chunk, all bytes, and the end."""
    assert await WORK.stream(Streaming(WHOLE)) is WHOLE


@pytest.mark.parametrize("lacking", [{"arrivals": [0.1, 0.2]}, {"bytes": 128}, {"state": "working"}])
async def test_a_stream_that_lacks_something_is_refused(lacking):
    """A server that drops events for a slow client is fast, and no use."""
    with pytest.raises(AssertionError):
        await WORK.stream(Streaming(dataclasses.replace(WHOLE, **lacking)))


def test_chunks_differ_and_have_the_size_that_was_asked_for():
    """Nothing is saved by keeping equal ones once."""
    assert {len(chunk_of(number, 64)) for number in range(20)} == {64}
    assert len({chunk_of(number, 64) for number in range(20)}) == 20
