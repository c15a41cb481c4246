"""What one request, one owner and one slow reader may cost: bodies, parts, ids, running tasks, memory, origins."""

import asyncio
import contextlib
import json
import socket
import uuid
from pathlib import Path

import httpx
import pytest

from a2a_gcs.objectstore.memory import MemoryStore
from tests.support.a2a_grpc import GRPC_10
from tests.support.a2a_http import BINDINGS, Refused
from tests.support.host_thread import serve_in_thread
from tests.support.turns import running
from tests.support.untouched import untouched
from tests.support.waiting import until

LIMIT = 100_000
MOST, MOST_PER_OWNER = 3, 2


@pytest.fixture(scope="module")
def bounded(tmp_path_factory):
    """A host with narrow limits."""
    directory = tmp_path_factory.mktemp("bounded")
    with serve_in_thread(
        MemoryStore(), max_request_bytes=LIMIT, max_parts=3, max_running_tasks=2, work_dir=directory, grpc_port=0
    ) as host:
        yield host


async def refusal(call):
    with pytest.raises(Refused) as refused:
        await call
    return refused.value


def said(parts=1, **fields):
    message = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": "hello"}] * parts, **fields}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}


def too_large(response):
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["details"][0]["reason"]) == (413, 413, "REQUEST_TOO_LARGE")
    assert str(LIMIT) in error["message"]
    return True


# ---------------------------------------------------------------------- bodies


@pytest.mark.parametrize("path", ["/", "/message:send", "/v1/message:send", "/message:stream", "/nowhere"])
async def test_a_body_over_the_limit_is_413_before_it_is_read(bounded, path):
    """By its Content-Length alone: the answer is there though not one byte of the body was sent."""
    host, port = bounded.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, port)
    with contextlib.closing(writer):
        writer.write(f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {LIMIT + 1}\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert head.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("path", ["/", "/message:send", "/v1/message:send", "/message:stream"])
async def test_a_chunked_body_over_the_limit_is_413_while_it_comes(bounded, connect, path):
    """Without Content-Length: the answer comes though the body has no end, and nothing is stored."""
    async with untouched(bounded.place):
        answered = asyncio.Event()

        async def endless():
            while not answered.is_set():
                yield b"x" * 10_000
                await asyncio.sleep(0)

        host, port = bounded.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, port)
        with contextlib.closing(writer):
            writer.write(f"POST {path} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            answer = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
            answer.add_done_callback(lambda _: answered.set())
            async for chunk in endless():
                writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                await writer.drain()
            assert (await answer).startswith(b"HTTP/1.1 413 ")


async def test_the_413_says_what_is_allowed(bounded, connect, fresh):
    """In the form of the REST binding's errors; a body of just the limit is read."""
    http = connect(bounded).http
    body = json.dumps(said(contextId=fresh)).encode()
    assert too_large(await http.post("/", content=body + b" " * (LIMIT + 1 - len(body))))
    response = await http.post("/", content=body + b" " * (LIMIT - len(body)))
    assert response.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_33_mib_of_parts_are_413(gcs_host, connect, fresh):
    """With the limit that is set by default: over what Cloud Run lets through it would have been the platform's."""
    response = await connect(gcs_host).http.post("/", json=said(contextId=fresh, metadata={"x": "x" * 33 * 1024**2}))
    assert (response.status_code, response.json()["error"]["details"][0]["metadata"]) == (
        413,
        {"maxRequestBytes": str(30 * 1024**2)},
    )


# ---------------------------------------------------------------------- what a request holds


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ({"parts": [{"text": "x"}] * 4}, "message.parts"),
        ({"parts": [{"text": "x"}, {}]}, "message.parts[1]"),
        ({"parts": [{"video": "a content of another release"}]}, "message.parts[0]"),
        ({"messageId": "x" * 241}, "messageId"),
        ({"contextId": "x" * 241}, "contextId"),
        ({"taskId": "x" * 241}, "taskId"),
        ({"referenceTaskIds": ["x"] * 101}, "referenceTaskIds"),
        ({"referenceTaskIds": ["x" * 241]}, "referenceTaskIds"),
        ({"extensions": ["x"] * 101}, "extensions"),
    ],
)
async def test_a_message_over_the_bounds_is_invalid(bounded, connect, message, names):
    """-32602 naming the field, and nothing is stored."""
    body = said()
    body["params"]["message"] |= message
    async with untouched(bounded.place):
        error = (await connect(bounded).http.post("/", json=body)).json()["error"]
        assert error["code"] == -32602
        assert names in error["message"]


@pytest.mark.parametrize("length", [-1, 100_001, 2**31 - 1])
async def test_a_senseless_history_length_is_invalid(bounded, connect, length):
    """In all three requests that have one."""
    http = connect(bounded).http
    send = said()
    send["params"]["configuration"] = {"historyLength": length}
    get = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x", "historyLength": length}}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"historyLength": length}}
    for body in (send, get, listing):
        error = (await http.post("/", json=body)).json()["error"]
        assert (error["code"], "historyLength" in error["message"]) == (-32602, True)


# ---------------------------------------------------------------------- running tasks


@pytest.mark.parametrize("binding", [*BINDINGS, GRPC_10])
async def test_a_full_host_says_when_to_come_again(bounded, connect, fresh, binding):
    """The third of two tasks: -32004 HOST_BUSY with retryAfterSeconds, nothing claimed; once one ends there is room."""
    client = connect(bounded, binding)
    tasks = [await running(connect(bounded), "sleep 60", context=f"{fresh}-{n}") for n in range(2)]
    async with untouched(bounded.place, running=tasks):
        refused = await refusal(client.send("hello", context=fresh))
        assert (refused.code, refused.data["reason"]) == (-32004, "HOST_BUSY")
        assert int(refused.data["retryAfterSeconds"]) > 0
    await client.cancel(tasks[0])
    assert (await client.send("hello", context=fresh)).state == "completed"
    await client.cancel(tasks[1])


async def test_of_many_at_once_no_more_than_allowed_run(bounded, connect, fresh):
    """Ten messages at the same instant, two places: two tasks, eight refusals, and no place is lost."""
    clients = connect(bounded)
    sent = await asyncio.gather(
        *(clients.send("sleep 60", context=f"{fresh}-{n}", at_once=True) for n in range(10)), return_exceptions=True
    )
    tasks = [answer for answer in sent if not isinstance(answer, Exception)]
    assert len(tasks) == 2
    assert {e.data["reason"] for e in sent if isinstance(e, Refused)} == {"HOST_BUSY"}
    for task in tasks:
        await clients.cancel(task.id)
    again = await asyncio.gather(*(clients.send("hello", context=f"{fresh}-again-{n}") for n in range(2)))
    assert [answer.state for answer in again] == ["completed"] * 2


@pytest.mark.parametrize("text", ["ask why?", "fail", "hello"])
async def test_a_place_is_given_back_however_a_turn_ends(bounded, connect, fresh, text):
    """Three turns one after the other, parked, failed or completed, on a host with two places; a refusal takes none."""
    client = connect(bounded)
    for n in range(3):
        task = await client.send(text, context=f"{fresh}-{n}")
        assert task.state in ("input-required", "failed", "completed")
        assert (await refusal(client.send("x", task="no-such-task"))).code == -32001


async def test_an_owner_without_a_place_holds_up_nobody_else(tmp_path, connect, fresh):
    """Without authentication everybody is one owner; the limit is its own, and says so."""
    with serve_in_thread(
        MemoryStore(), max_running_tasks=MOST, max_running_tasks_per_owner=MOST_PER_OWNER, work_dir=tmp_path
    ) as host:
        client = connect(host)
        for n in range(MOST_PER_OWNER):
            await running(client, "sleep 60", context=f"{fresh}-{n}")
        refused = await refusal(client.send("hello", context=fresh))
    assert (refused.code, refused.data["reason"]) == (-32004, "OWNER_BUSY")


@pytest.mark.parametrize("binding", [*BINDINGS, GRPC_10])
async def test_a_full_host_answers_a_repeated_message_with_its_outcome(bounded, connect, fresh, binding):
    """The same id and content: the task that it started, ended or running. Other content takes a place: HOST_BUSY."""
    client = connect(bounded, binding)
    ended = await client.send("hello", context=f"{fresh}-ended", message_id="m")
    tasks = [await client.send("sleep 60", context=f"{fresh}-{n}", message_id="m", at_once=True) for n in range(2)]
    async with untouched(bounded.place, running=[task.id for task in tasks]):
        again = await client.send("hello", context=f"{fresh}-ended", message_id="m")
        assert (again.id, again.state) == (ended.id, "completed")
        events = client.stream("sleep 60", context=f"{fresh}-0", message_id="m")
        first = await anext(events)
        await events.aclose()
        assert (first.task.id, first.state) == (tasks[0].id, "working")
        other = await refusal(client.send("hello, you", context=f"{fresh}-ended", message_id="m"))
        assert (other.code, other.data["reason"]) == (-32004, "HOST_BUSY")
    for task in tasks:
        await client.cancel(task.id)


@pytest.mark.parametrize("state", ["INPUT_REQUIRED", "AUTH_REQUIRED"])
async def test_an_agent_that_asks_and_goes_on_keeps_its_place(tmp_path, connect, fresh, state):
    """It has a place while it runs, whatever state it has said it is in; an answer to a parked task takes one."""
    settings = {"agent": "tests.support.agents:Scripted", "max_running_tasks": 1, "work_dir": tmp_path / "work"}
    with serve_in_thread(MemoryStore(), **settings) as host:
        client, gate = connect(host), tmp_path / "gate"
        parked = await client.send("ask why?", context=f"{fresh}-parked")
        events = client.stream(f"ask_on {state} {gate}", context=fresh)
        async for event in events:
            if event.artifact_id == "on":
                break
        for call in (client.send("hello", context=f"{fresh}-2"), client.send("because", task=parked.id)):
            assert (await refusal(call)).data["reason"] == "HOST_BUSY"
        gate.touch()
        assert [event.state async for event in events][-1] == "completed"
        assert (await client.send("because", task=parked.id)).state == "completed"


# ---------------------------------------------------------------------- slow readers


def stalled(url, method, params):
    """A request whose answer nobody reads, over a connection that buffers next to nothing."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    head = "Host: x\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
    connection.sendall(f"POST / HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return connection


def peak_mib(pid):
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


@pytest.mark.timeout(300)
async def test_readers_that_stall_hold_up_neither_the_task_nor_memory(hosts, make_place, connect, fresh):
    """Sender and subscriber stop reading a stream of 5 MB: it completes, memory stays bounded, and both can come back.

    With what the SDK keeps for each reader it took 4 GB.
    """
    host = hosts(make_place("file"))
    client = connect(host)
    before = peak_mib(host.pid)
    message = said(contextId=fresh)["params"]["message"] | {"parts": [{"text": "stream 5000 1000"}]}
    with stalled(host.url, "SendStreamingMessage", {"message": message}) as sender:
        listed = await until(lambda: tasks_of(client, fresh))
        task = listed[0]["id"]
        with stalled(host.url, "SubscribeToTask", {"id": task}):
            await until(lambda: ended(client, fresh), seconds=240)
            assert peak_mib(host.pid) - before < 256
        sender.settimeout(60)
        late = bytearray()
        while b"TASK_STATE_COMPLETED" not in late:
            late += sender.recv(65536) or pytest.fail("the stream broke off")
    read = await client.get(task)
    assert (read.state, read.text, len(read.artifacts["stream"])) == ("completed", "streamed 5000 chunks", 5_000_000)


async def tasks_of(client, context):
    return (await client.list(contextId=context)).get("tasks")


async def ended(client, context):
    return [t for t in await tasks_of(client, context) if t["status"]["state"] == "TASK_STATE_COMPLETED"]


async def test_a_reader_who_was_dropped_takes_the_task_up_again(hosts, make_place, connect, fresh, tmp_path):
    """A subscriber that stalls in mid-stream and goes away resubscribes: snapshot and rest hold every chunk once."""
    host = hosts(make_place("file"), agent="tests.support.agents:Scripted")
    client, gate = connect(host), tmp_path / "gate"
    task = await running(client, f"drip {gate} 60", context=fresh)
    with stalled(host.url, "SubscribeToTask", {"id": task}):
        pass
    events = client.subscribe(task)
    first = await anext(events)
    gate.touch()
    rest = [event async for event in events]
    text = first.task.artifacts.get("drip", "") + "".join(e.text for e in rest if e.artifact_id == "drip")
    count = int((await client.get(task)).text)
    assert text == "".join(f"[{n}]" for n in range(1, count + 1))
    assert rest[-1].state == "completed"


# ---------------------------------------------------------------------- origins

PREFLIGHT = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}


async def test_no_page_of_another_origin_may_call_by_default(bounded, connect):
    """No CORS header is sent, so browsers keep the answers."""
    http = connect(bounded).http
    responses = [await http.options("/", headers=PREFLIGHT), await http.get("/health", headers=PREFLIGHT)]
    assert not [h for r in responses for h in r.headers if h.startswith("access-control")]


async def test_pages_of_a_named_origin_may_call(tmp_path):
    """With cors_origins: its preflight passes and its answers are readable, 413 too; another origin's are not."""
    settings = {"cors_origins": "https://app.example, https://other.example", "max_request_bytes": 1024}
    with serve_in_thread(MemoryStore(), work_dir=tmp_path, **settings) as host:
        async with httpx.AsyncClient(base_url=host.url, timeout=60) as http:
            preflight = await http.options("/", headers=PREFLIGHT | {"Access-Control-Request-Headers": "A2A-Version"})
            large = await http.post("/", content=b"x" * 2000, headers={"Origin": "https://app.example"})
            foreign = await http.get("/health", headers={"Origin": "https://evil.example"})
    allowed = "access-control-allow-origin"
    assert (preflight.status_code, preflight.headers[allowed]) == (200, "https://app.example")
    assert (large.status_code, large.headers[allowed]) == (413, "https://app.example")
    assert allowed not in foreign.headers
