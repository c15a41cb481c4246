"""Last-Event-ID over two hosts: ids, replay, and telling a finished stream from a cut one."""

import contextlib
import json
import uuid

import httpx
import pytest
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.types.a2a_pb2 import AgentCard, Message, Part, Role, SendMessageRequest
from httpx_sse import aconnect_sse

from a2a_gcs.objectstore.memory import MemoryStore
from tests.integration.conftest import SCRIPTED
from tests.support.a2a_http import BINDINGS, A2AClient, _event
from tests.support.host_thread import serve_in_thread


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The scripted agent on two hosts, over one store in memory."""
    store, work = MemoryStore(), tmp_path_factory.mktemp("work")
    with (
        serve_in_thread(store, agent=SCRIPTED, work_dir=work / "a") as a,
        serve_in_thread(store, agent=SCRIPTED, work_dir=work / "b") as b,
    ):
        yield a, b


@contextlib.asynccontextmanager
async def stream(host, binding, what, params, last=None):
    """The events of a stream as httpx-sse reads them: (id, event)."""
    async with A2AClient(host.url, binding) as client:
        request = client._request(what, params)
        headers = {**request.headers, **({"Last-Event-ID": last} if last else {})}
        async with aconnect_sse(
            client.http, request.method, request.url, content=request.content, headers=headers
        ) as source:
            source.response.raise_for_status()

            async def events():
                async for sse in source.aiter_sse():
                    assert sse.event == "message"  # no client has to know of others
                    body = json.loads(sse.data)
                    yield sse.id, _event(body["result"] if client._rpc else body)

            yield events()


def message(client_binding, text, **options):
    return A2AClient("http://127.0.0.1", client_binding)._message(text, message_id=uuid.uuid4().hex, **options)


def of(pairs):
    return [(sse_id, event.kind, event.state, event.text) for sse_id, event in pairs]


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_stream_taken_up_on_the_other_host(pair, fresh, tmp_path, binding):
    """Cut in the middle, taken up elsewhere: the rest has every chunk once, with the ids that any stream has."""
    gate = tmp_path / "gate"
    had = []
    async with stream(pair[0], binding, "stream", message(binding, f"drip {gate} 20", context=fresh)) as events:
        async for one in events:
            had.append(one)
            if len(had) == 8:
                break
    task = had[0][1].task_id
    gate.touch()
    async with stream(pair[1], binding, "subscribe", {"id": task}, last=had[-1][0]) as events:
        rest = [one async for one in events]
    chunks = [event.text for _, event in (*had, *rest) if event.kind == "artifact"]
    assert chunks == [f"[{n}]" for n in range(1, len(chunks) + 1)]
    assert len(chunks) >= 20
    assert rest[-1][1].state == "completed"
    assert [sse_id.endswith(".end") for sse_id, _ in (*had, *rest)] == [False] * (len(had) + len(rest) - 1) + [True]
    for host in pair:  # it has ended: its journal lives for a minute
        async with stream(host, binding, "subscribe", {"id": task}, last=had[0][0]) as events:
            assert of([one async for one in events]) == of([*had[1:], *rest])


async def test_an_id_of_another_task_is_ignored(pair, connect, fresh):
    """What is no id of this task's streams is as good as none: the first event is the task."""
    client = connect(pair[0])
    asked = await client.send("ask why?", context=fresh)
    for last in ("1", "00000000.1.1"):
        async with stream(pair[1], BINDINGS[0], "subscribe", {"id": asked.id}, last=last) as events:
            _, first = await anext(events)
            assert (first.kind, first.state) == ("task", "input-required")
    await client.cancel(asked.id)


async def test_a_cut_stream_is_known_by_its_last_id(hosts, make_place, connect, fresh, tmp_path):
    """kill -9: no id with an end; the next host tells the rest, and how the task ended."""
    place, gate = make_place(), tmp_path / "gate"
    a, b = hosts(place, count=2, agent=SCRIPTED, lease_seconds=3)
    had = []
    with contextlib.suppress(httpx.HTTPError):
        async with stream(a, BINDINGS[0], "stream", message(BINDINGS[0], f"drip {gate} 20", context=fresh)) as events:
            async for one in events:
                had.append(one)
                if len(had) == 30:
                    a.kill()
    assert not had[-1][0].endswith(".end")
    async with stream(b, BINDINGS[0], "subscribe", {"id": had[0][1].task_id}, last=had[9][0]) as events:
        rest = [one async for one in events]
    assert (rest[-1][1].state, rest[-1][0][-4:]) == ("failed", ".end")
    again, before = of(rest[:-1]), of(had[10:])
    assert again
    assert all(one == other for one, other in zip(again, before, strict=False))  # the last moment may be lost


async def test_the_sdks_client_takes_a_stream_with_ids(pair, fresh):
    """a2a-sdk's own transport reads it to the end."""
    async with httpx.AsyncClient(timeout=30, headers={"A2A-Version": "1.0"}) as http:
        transport = JsonRpcTransport(http, AgentCard(), pair[0].url)
        said = Message(message_id="m", context_id=fresh, role=Role.ROLE_USER, parts=[Part(text="stream 3")])
        kinds = [
            one.WhichOneof("payload")
            async for one in transport.send_message_streaming(SendMessageRequest(message=said))
        ]
    assert kinds[0] == "task"
    assert kinds[-1] == "status_update"
    assert kinds.count("artifact_update") >= 3
