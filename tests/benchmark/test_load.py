"""The load generator, against a small server, and alone."""

import asyncio
import contextlib
import itertools
import json
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.benchmark.load import Client, Dialect03, Refused, Run, Stream, closed_loop, dues_of, open_loop


@contextlib.asynccontextmanager
async def serving(answer, dialect=None):
    """A client of a server that answers each call by this function of the request and its body."""

    async def handle(request):
        return await answer(request, await request.json())

    app = web.Application()
    app.router.add_post("/", handle)
    async with TestServer(app) as server, Client(str(server.make_url("/")), *([dialect] if dialect else [])) as client:
        yield client


def events(*results, end="\r\n"):
    """As servers of A2A write them, with the fields of SSE that nobody asked for."""
    told = "".join(
        f"id: {n}{end}data: {json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': result}, ensure_ascii=False)}{end}{end}"
        for n, result in enumerate(results)
    )
    return f": comment{end}{end}{told}".encode()


def artifact(text):
    return {"artifactUpdate": {"artifact": {"parts": [{"text": text}]}}}


def status(state):
    return {"statusUpdate": {"taskId": "t", "status": {"state": state}}}


STREAM = (
    {"task": {"id": "t", "status": {"state": "TASK_STATE_SUBMITTED"}}},
    artifact("one"),
    artifact("zwölf ≥ 12"),
    status("TASK_STATE_COMPLETED"),
)


def in_pieces(body, size):
    """A stream whose body comes in pieces of so many bytes, each by itself."""

    async def answer(request, _):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for at in range(0, len(body), size):
            await response.write(body[at : at + size])
            await asyncio.sleep(0)
        return response

    return answer


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
async def test_events_are_whole_wherever_the_network_cuts_them(size, end):
    """In the middle of a line, of a character, or of an end of line."""
    async with serving(in_pieces(events(*STREAM, end=end), size)) as client:
        assert [event async for event in client.events("5 64")] == list(STREAM)


async def test_a_stream_is_measured_by_its_chunks():
    """Their number and their text count, in the order of their arrival; the state is the last one."""
    body = events(*STREAM)
    async with serving(in_pieces(body, 5)) as client:
        stream = await client.stream("5 64")
    assert len(stream.arrivals) == 2
    assert 0 <= stream.arrivals[0] <= stream.arrivals[1] <= stream.seconds
    assert (stream.bytes, stream.sent) == (len("one") + len("zwölf ≥ 12"), len(body))
    assert (stream.task_id, stream.state) == ("t", "completed")


def test_chunks_that_come_in_one_read_share_the_time_since_the_read_before():
    """They came while the client was busy, and none of them without any time; a pause is between two reads."""
    stream = Stream(9.0, [1.0, 1.0, 2.0, 5.0, 5.0, 5.0], 0, 0, "completed", "t")
    assert stream.gaps == [1, 1, 1, 1]
    assert stream.longest_pause == 3
    assert Stream(9.0, [1.0], 0, 0, "completed", "t").longest_pause == 0


async def test_a_stream_of_the_earlier_protocol_is_measured_alike():
    """Names differ, numbers do not."""
    body = events(
        {"kind": "task", "id": "t", "status": {"state": "submitted"}},
        {"kind": "artifact-update", "artifact": {"parts": [{"kind": "text", "text": "one"}]}},
        {"kind": "status-update", "taskId": "t", "status": {"state": "completed"}},
    )
    async with serving(in_pieces(body, 3), Dialect03) as client:
        stream = await client.stream("5 64")
    assert (len(stream.arrivals), stream.bytes, stream.task_id, stream.state) == (1, 3, "t", "completed")


def say(body, status=200):
    async def answer(request, call):
        return web.json_response({"jsonrpc": "2.0", "id": call["id"], **body}, status=status)

    return answer


ERROR = {"error": {"code": -32004, "message": "busy"}}


async def test_an_error_is_refused_in_a_call_and_in_a_stream():
    """Whether it comes as an answer or as an event."""
    async with serving(say(ERROR)) as client:
        with pytest.raises(Refused, match=r"SendMessage: 200 .*busy"):
            await client.send("5 64")
        with pytest.raises(Refused, match=r"SendStreamingMessage: 200 .*busy"):
            await client.stream("5 64")
    body = events(STREAM[0]) + b"data: " + json.dumps({"jsonrpc": "2.0", "id": 1, **ERROR}).encode() + b"\n\n"
    async with serving(in_pieces(body, 100)) as client:
        with pytest.raises(Refused, match="busy"):
            await client.stream("5 64")


async def test_what_was_refused_counts_as_an_error_and_not_as_done():
    """A server cannot be fast by refusing."""
    calls = itertools.count()

    async def answer(request, call):
        if next(calls) % 2:
            return web.Response(status=503, text="busy", content_type="text/plain")
        return await say({"result": {"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}}}})(request, call)

    async with serving(answer) as client:
        run = await closed_loop(lambda _: client.send("5 64"), count=8, concurrency=2)
    assert (len(run.latencies), len(run.errors)) == (4, 4)
    assert run.rate == pytest.approx(4 / run.seconds)


async def test_a_task_that_is_answered_early_is_asked_for_until_it_ends():
    """So that all servers are measured to the same end."""
    states = iter(["SUBMITTED", "WORKING", "WORKING", "COMPLETED"])
    methods = []

    async def answer(request, call):
        methods.append(call["method"])
        task = {"id": "t", "status": {"state": f"TASK_STATE_{next(states)}"}}
        return await say({"result": {"task": task} if call["method"] == "SendMessage" else task})(request, call)

    async with serving(answer) as client:
        assert (await client.send("5 64"))["status"]["state"] == "TASK_STATE_COMPLETED"
    assert methods == ["SendMessage", *3 * ["GetTask"]]


async def test_messages_of_clients_have_ids_of_their_own():
    """An id that was seen before would be taken for a repeat."""
    ids = []

    async def answer(request, call):
        ids.append(call["params"]["message"]["messageId"])
        return await say({"result": {"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}}}})(request, call)

    for _ in range(2):
        async with serving(answer) as client:
            await closed_loop(lambda _, c=client: c.send("5 64"), count=3, concurrency=3)
    assert len(set(ids)) == 6


async def test_a_closed_loop_keeps_so_many_under_way():
    """Neither fewer, or they would wait for each other for ever, nor more; each number once."""
    together, running, most, numbers = asyncio.Barrier(4), 0, 0, []

    async def operation(number):
        nonlocal running, most
        numbers.append(number)
        running += 1
        most = max(most, running)
        await together.wait()
        running -= 1

    async with asyncio.timeout(30):
        run = await closed_loop(operation, count=20, concurrency=4)
    assert most == 4
    assert sorted(numbers) == list(range(20))
    assert len(run.latencies) == 20
    assert run.ends == sorted(run.ends)
    assert run.ends[-1] <= run.seconds


async def test_a_closed_loop_of_some_seconds_begins_nothing_after_them():
    """The one that is under way then is ended, and counts."""
    begun = []

    async def operation(number):
        begun.append(number)
        await asyncio.sleep(0)
        if number == 5:
            time.sleep(0.2)  # noqa: ASYNC251 - until all of the time is over

    run = await closed_loop(operation, concurrency=1, seconds=0.2)
    assert begun[-1] <= 5
    assert len(run.latencies) == len(begun)
    assert (await closed_loop(operation, concurrency=3, seconds=0)).ends == []


async def test_a_latency_of_an_open_loop_counts_from_when_its_task_was_due():
    """The first task stalls everything until after the last is due: what waited for it has waited since it was due."""
    seconds = 0.2
    dues = dues_of(100, seconds, seed=1)

    async def operation(number):
        if number == 0:
            time.sleep(2 * seconds)  # noqa: ASYNC251 - what a server does that blocks

    run = await open_loop(operation, rate=100, seconds=seconds, seed=1)
    assert len(run.latencies) == len(dues) > 5
    for due, latency in zip(dues, run.latencies, strict=True):
        assert latency >= dues[0] + 2 * seconds - due - 0.01


async def test_an_open_loop_does_not_wait_for_answers():
    """No task ends before the last one has begun."""
    count, begun, all_begun = len(dues_of(200, 0.1, seed=3)), 0, asyncio.Event()

    async def operation(_):
        nonlocal begun
        begun += 1
        if begun == count:
            all_begun.set()
        await all_begun.wait()

    async with asyncio.timeout(30):
        run = await open_loop(operation, rate=200, seconds=0.1, seed=3)
    assert len(run.latencies) == count


def test_an_open_loop_comes_by_a_fixed_seed():
    """At the rate that was asked for, and never later than its end."""
    dues = dues_of(50, 100, seed=7)
    assert dues == dues_of(50, 100, seed=7) != dues_of(50, 100, seed=8)
    assert dues == sorted(dues)
    assert 0 < dues[0] < dues[-1] < 100
    assert len(dues) == pytest.approx(5000, rel=0.1)


def test_the_rate_is_what_was_done_by_the_time():
    """Errors are not in it."""
    assert Run(2.0, [0.1] * 10, errors=["refused"]).rate == 5
