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
        return {"message": {"kind": "message", "messageId": f"m-{number}", "role": "user", "parts": [part], **ids}}

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
        errors: What failed, in words; such tasks count neither as done nor in the latencies.
    """

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def rate(self):
        return len(self.latencies) / self.seconds


@dataclass
class Stream:
    """What one stream brought.

    Attributes:
        seconds: From the request to the end of the stream.
        arrivals: When each chunk came, in seconds after the request.
        bytes: Text in all chunks.
        state: The last state.
    """

    seconds: float
    arrivals: list[float]
    bytes: int
    state: str

    @property
    def gaps(self):
        return [after - before for before, after in itertools.pairwise(self.arrivals)]


class Client:
    """One A2A server, as clients see it; to be used as an async context manager."""

    def __init__(self, url, dialect=Dialect10):
        self.url = url
        self.dialect = dialect
        self._numbers = itertools.count(1)
        self._unique = random.SystemRandom().getrandbits(48)

    async def __aenter__(self):
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
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
        async with self._http.post(self.url, json=body, headers=self.dialect.headers) as answer:
            if answer.content_type != "text/event-stream":
                raise Refused(f"{body['method']}: {answer.status} {(await answer.text())[:300]}")
            async for data in _data_of(answer.content):
                event = json.loads(data)
                if "result" not in event:
                    raise Refused(f"{body['method']}: {data[:300]!r}")
                yield event["result"]

    async def stream(self, text, **ids):
        """A streaming send, to its end, as a Stream."""
        began, arrivals, size, state = time.perf_counter(), [], 0, ""
        async for event in self.events(text, **ids):
            chunk = self.dialect.text_of(event)
            if chunk is not None:
                arrivals.append(time.perf_counter() - began)
                size += len(chunk)
            else:
                told = event.get("statusUpdate") or event.get("task") or event
                state = self.dialect.state(told) if "status" in told else state
        return Stream(time.perf_counter() - began, arrivals, size, state)


async def _data_of(content):
    """The data of each SSE event: a2a servers put each into one line."""
    rest = b""
    async for block in content.iter_any():
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:]


async def closed_loop(operation, *, count, concurrency):
    """`count` operations, so many under way at any time: the next one begins when one has ended.

    `operation` is called with the number of the task, from 0.
    """
    numbers, run = iter(range(count)), Run()

    async def worker():
        for number in numbers:
            await _timed(operation, number, time.perf_counter(), run)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    run.seconds = time.perf_counter() - began
    return run


async def open_loop(operation, *, rate, seconds, seed):
    """Operations at random times, `rate` a second on average, whether or not earlier ones have ended.

    A latency counts from when the task was due, so a server that stalls is not let off.
    """
    draws, due, dues = random.Random(seed), 0.0, []
    while (due := due + draws.expovariate(rate)) < seconds:
        dues.append(due)
    run, began = Run(), time.perf_counter()

    async def one(number, due):
        await asyncio.sleep(began + due - time.perf_counter())
        await _timed(operation, number, began + due, run)

    await asyncio.gather(*(one(number, due) for number, due in enumerate(dues)))
    run.seconds = time.perf_counter() - began
    return run


async def _timed(operation, number, due, run):
    try:
        await operation(number)
    except (Refused, aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
        run.errors.append(f"{type(error).__name__}: {error}")
    else:
        run.latencies.append(time.perf_counter() - due)


@contextlib.asynccontextmanager
async def clients_of(servers):
    """One Client for each server, in their order."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Client(server.url, server.dialect)) for server in servers]
