"""The load generator: A2A over JSON-RPC and SSE, in closed and open loop, the same for every server.

It runs in the process that measures, on one event loop, with one connection for each request under way. A dialect
says how a server's version of A2A names things.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
from dataclasses import dataclass, field

import aiohttp

REQUEST_SECONDS = 300.0


class Dialect10:
    """A2A 1.0 over JSON-RPC."""

    send, stream, get, cancel, subscribe = (
        "SendMessage",
        "SendStreamingMessage",
        "GetTask",
        "CancelTask",
        "SubscribeToTask",
    )
    headers = {"A2A-Version": "1.0"}  # noqa: RUF012 - constant

    @staticmethod
    def message(text, number, **ids):
        """The parameters of a send; `ids` are contextId and taskId."""
        return {"message": {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": text}], **ids}}

    @staticmethod
    def task(result):
        return result["task"]

    @staticmethod
    def state(task):
        return task["status"]["state"].removeprefix("TASK_STATE_").lower()

    @staticmethod
    def text_of(event):
        """The text that an event of a stream carries, if it is a chunk of an artifact; else None."""
        update = event.get("artifactUpdate")
        return "".join(part.get("text", "") for part in update["artifact"]["parts"]) if update else None


class Dialect03:
    """A2A 0.3 over JSON-RPC."""

    send, stream, get, cancel, subscribe = (
        "message/send",
        "message/stream",
        "tasks/get",
        "tasks/cancel",
        "tasks/resubscribe",
    )
    headers = {}  # noqa: RUF012 - constant

    @staticmethod
    def message(text, number, **ids):
        part = {"kind": "text", "text": text}
        message = {"kind": "message", "messageId": f"m-{number}", "role": "user", "parts": [part], **ids}
        return {"message": message, "configuration": {"blocking": True}}

    @staticmethod
    def task(result):
        return result

    @staticmethod
    def state(task):
        return task["status"]["state"]

    @staticmethod
    def text_of(event):
        if event.get("kind") != "artifact-update":
            return None
        return "".join(part.get("text", "") for part in event["artifact"]["parts"])


class Refused(Exception):
    """A server answered with an error, or not with what was asked for."""


@dataclass
class Run:
    """What a run of tasks took.

    Attributes:
        seconds: From the first request to the last answer.
        latencies: Of each task: from when it was due to its answer, in seconds.
        ends: When each was answered, in seconds after the first request, in this order.
        errors: What failed, in words; such tasks count neither as done nor in the latencies.
    """

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def rate(self):
        return len(self.latencies) / self.seconds


@dataclass
class Stream:
    """What one stream brought.

    Attributes:
        seconds: From the request to the end of the stream.
        arrivals: When each chunk came, in seconds after the request; those of one read came at once.
        bytes: Text in all chunks.
        sent: Bytes of the stream, as the server sent them.
        state: The last state.
        task_id: Of which task.
    """

    seconds: float
    arrivals: list[float]
    bytes: int
    sent: int
    state: str
    task_id: str

    @property
    def gaps(self):
        """Seconds from each chunk to the next. Chunks of one read share the time since the read before.

        Nothing is known of how far apart those of the first read were, unless there is no other: then it is their share
        of the whole time.
        """
        reads = [(at, len(list(some))) for at, some in itertools.groupby(self.arrivals)]
        if len(reads) == 1:
            ((at, count),) = reads
            return [at / count] * (count - 1)
        pairs = itertools.pairwise(reads)
        return [(at - before) / count for (before, _), (at, count) in pairs for _ in range(count)]

    @property
    def longest_pause(self):
        """Seconds without any chunk, between the first and the last of them."""
        return max((after - before for before, after in itertools.pairwise(self.arrivals)), default=0.0)


class Client:
    """One A2A server, as clients see it; to be used as an async context manager."""

    def __init__(self, url, dialect=Dialect10):
        self.url = url
        self.dialect = dialect
        self._numbers = itertools.count(1)
        self._unique = random.SystemRandom().getrandbits(48)

    async def __aenter__(self):
        self._http = aiohttp.ClientSession(
            # Servers close what is idle for 5 s: a send that meets that moment would fail, through no fault of theirs.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0),
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_):
        await self._http.close()

    def _body(self, method, params):
        return {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}

    def _message(self, text, ids):
        return self.dialect.message(text, f"{self._unique:x}-{next(self._numbers)}", **ids)

    async def call(self, method, params):
        """The `result` of a call; Refused if there is none."""
        async with self._http.post(self.url, json=self._body(method, params), headers=self.dialect.headers) as answer:
            body = await answer.json(content_type=None)
        if "result" not in body:
            raise Refused(f"{method}: {answer.status} {json.dumps(body)[:300]}")
        return body["result"]

    async def send(self, text, **ids):
        """A blocking send: the task it was answered with. A server that answers early is asked until it ends."""
        task = self.dialect.task(await self.call(self.dialect.send, self._message(text, ids)))
        while self.dialect.state(task) in ("submitted", "working"):
            await asyncio.sleep(0.002)
            task = await self.get(task["id"])
        return task

    async def begin(self, text, **ids):
        """A streaming send (A2A 1.0) that is left once the agent says that it works: the task, which goes on."""
        task = None
        async with contextlib.aclosing(self.events(text, **ids)) as events:
            async for event in events:
                task = event.get("task", task)
                if "statusUpdate" in event:
                    return task
        raise Refused("the stream ended before the agent worked")

    async def get(self, task_id):
        return await self.call(self.dialect.get, {"id": task_id})

    async def events(self, text, **ids):
        """A streaming send: every event, as it comes."""
        body = self._body(self.dialect.stream, self._message(text, ids))
        async for event in self._events(body):
            yield event

    async def subscribe(self, task_id):
        async for event in self._events(self._body(self.dialect.subscribe, {"id": task_id})):
            yield event

    async def _events(self, body):
        async for _, events in self._reads(body):
            for event in events:
                yield event

    async def _reads(self, body):
        """The bytes of each read, and the events that it completed."""
        async with self._http.post(self.url, json=body, headers=self.dialect.headers) as answer:
            if answer.content_type != "text/event-stream":
                raise Refused(f"{body['method']}: {answer.status} {(await answer.text())[:300]}")
            rest = b""
            async for block in answer.content.iter_any():
                *lines, rest = (rest + block).split(b"\n")
                yield len(block), [_result(body["method"], line[5:]) for line in lines if line.startswith(b"data:")]

    async def stream(self, text, **ids):
        """A streaming send, to its end, as a Stream."""
        body = self._body(self.dialect.stream, self._message(text, ids))
        stream, began = Stream(0.0, [], 0, 0, "", ""), time.perf_counter()
        async for sent, events in self._reads(body):
            now = time.perf_counter() - began
            stream.sent += sent
            for event in events:
                self._take(event, stream, now)
        stream.seconds = time.perf_counter() - began
        return stream

    def _take(self, event, stream, now):
        chunk = self.dialect.text_of(event)
        if chunk is not None:
            stream.arrivals.append(now)
            stream.bytes += len(chunk)
            return
        told = event.get("statusUpdate") or event.get("task") or event
        if "status" in told:
            stream.state = self.dialect.state(told)
            stream.task_id = told.get("taskId") or told.get("id") or stream.task_id


def _result(method, data):
    """The result in the data of an SSE event: A2A servers put each into one line."""
    event = json.loads(data)
    if "result" not in event:
        raise Refused(f"{method}: {data[:300]!r}")
    return event["result"]


async def closed_loop(operation, *, concurrency, count=None, seconds=None):
    """`count` operations, or those that begin within `seconds`; so many under way, the next one when one has ended.

    `operation` is called with the number of the task, from 0.
    """
    numbers, run = itertools.count() if count is None else iter(range(count)), Run()
    began = time.perf_counter()

    async def worker():
        for number in numbers:
            now = time.perf_counter()
            if seconds is not None and now - began >= seconds:
                break
            await _timed(operation, number, now, run, began)

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    run.seconds = time.perf_counter() - began
    return run


async def open_loop(operation, *, rate, seconds, seed):
    """Operations at random times, `rate` a second on average, whether or not earlier ones have ended.

    A latency counts from when the task was due, so a server that stalls is not let off.
    """
    run, began = Run(), time.perf_counter()

    async def one(number, due):
        await asyncio.sleep(began + due - time.perf_counter())
        await _timed(operation, number, began + due, run, began)

    await asyncio.gather(*(one(number, due) for number, due in enumerate(dues_of(rate, seconds, seed))))
    run.seconds = time.perf_counter() - began
    return run


def dues_of(rate, seconds, seed):
    """When the tasks of an open loop are due, in seconds after its beginning; the same for the same seed."""
    draws, due, dues = random.Random(seed), 0.0, []
    while (due := due + draws.expovariate(rate)) < seconds:
        dues.append(due)
    return dues


async def _timed(operation, number, due, run, began):
    try:
        await operation(number)
    except (Refused, aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
        run.errors.append(f"{type(error).__name__}: {error}")
    else:
        now = time.perf_counter()
        run.latencies.append(now - due)
        run.ends.append(now - began)


@contextlib.asynccontextmanager
async def clients_of(servers):
    """One Client for each server, in their order."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Client(server.url, server.dialect)) for server in servers]
