"""gRPC: both versions on one server, the answers of the other bindings, reflection, health, and the end."""

import asyncio
import signal
import socket

import grpc
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.helpers import new_text_message
from a2a.types import a2a_pb2
from a2a.types.a2a_pb2 import Role, SendMessageRequest, TaskState
from a2a.utils.constants import TransportProtocol
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from a2a_gcs.errors import ConfigError
from a2a_gcs.host.app import create_app
from a2a_gcs.host.settings import Settings
from a2a_gcs.objectstore.memory import MemoryStore
from tests.support.a2a_grpc import GRPC_03, GRPC_10, GRPC_BINDINGS, GrpcClient, details_of
from tests.support.a2a_http import JSONRPC_10, Refused
from tests.support.host_thread import serve_in_thread
from tests.support.turns import running

V10, V03 = "lf.a2a.v1.A2AService", "a2a.v1.A2AService"


@pytest.fixture(params=GRPC_BINDINGS)
def client(shared, connect, request):
    return connect(shared, request.param)


async def refusal(call):
    with pytest.raises(Refused) as refused:
        await call
    return refused.value


async def test_a_task_is_the_same_over_grpc_and_http(client, shared, connect, fresh):
    """Sent over gRPC, read over JSON-RPC, and the other way round: one history in one context."""
    http = connect(shared)
    first = await client.send("write kept.txt hello", context=fresh)
    second = await http.send("read kept.txt", context=fresh)
    assert (first.state, first.text) == ("completed", "wrote 5 bytes to kept.txt")
    for answered in (first, second):
        there, here = await http.get(answered.id), await client.get(answered.id)
        assert (here.id, here.context_id, here.state, here.text) == (there.id, fresh, "completed", answered.text)
        assert (here.artifacts, here.said, here.timestamp) == (there.artifacts, there.said, there.timestamp)


async def test_a_stream_over_grpc_ends_with_the_end(client, fresh):
    """Every chunk once and in order, then completed."""
    events = [event async for event in client.stream("stream 5", context=fresh)]
    assert "".join(e.text for e in events if e.artifact_id == "stream") == "".join(
        f"chunk {n} of 5\n" for n in range(1, 6)
    )
    assert events[-1].state == "completed"
    assert events[0].kind in ("task", "status")


async def test_a_running_task_is_subscribed_to_and_canceled_over_grpc(client, fresh):
    """The first event is the task; after the cancel the stream ends with canceled."""
    task = await running(client, "sleep 60", context=fresh)
    events = client.subscribe(task)
    first = await anext(events)
    assert (first.kind, first.task.id, first.state) == ("task", task, "working")
    canceled = await client.cancel(task)
    assert canceled.state == "canceled"
    assert [event.state async for event in events][-1] == "canceled"


async def test_a_question_is_answered_over_grpc(client, fresh):
    """Input-required, then the answer by task id alone."""
    asked = await client.send("ask one?", context=fresh)
    assert (asked.state, asked.text) == ("input-required", "one?")
    assert (await client.send("because", task=asked.id)).state == "completed"


async def test_tasks_are_listed_over_grpc(shared, connect, fresh):
    """As ListTasks is in 1.0 alone, so it is there."""
    client = connect(shared, GRPC_10)
    task = (await client.send("hello", context=fresh)).id
    listed = await client.list(contextId=fresh)
    assert [found["id"] for found in listed["tasks"]] == [task]


@pytest.mark.parametrize("method", ["get", "cancel", "subscribe"])
async def test_an_unknown_task_is_not_found_over_grpc(client, method):
    """NOT_FOUND with the reason of the other bindings; a stream of it ends so before any event."""
    call = getattr(client, method)("no-such-task")
    refused = await refusal(anext(call) if method == "subscribe" else call)
    assert (refused.code, refused.status) == (-32001, "NOT_FOUND")


async def test_a_refusal_carries_its_data_as_details(shared, connect, fresh):
    """google.rpc.Status in the trailers, whose code and message are those of the call."""
    client = connect(shared, GRPC_10)
    task = await running(client, "sleep 60", context=fresh)
    message = a2a_pb2.Message(message_id="m", context_id=fresh, role=Role.ROLE_USER, parts=[a2a_pb2.Part(text="x")])
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await client.stub.SendMessage(SendMessageRequest(message=message), metadata=[("a2a-version", "1.0")])
    await client.cancel(task)
    status, info = details_of(raised.value), error_details_pb2.ErrorInfo()
    assert (status.code, status.message) == (raised.value.code().value[0], raised.value.details())
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == ("UNSUPPORTED_OPERATION", "a2a-protocol.org")
    assert (info.metadata["reason"], info.metadata["activeTaskId"]) == ("CONTEXT_BUSY", task)


@pytest.mark.parametrize(
    ("binding", "versions"),
    [(GRPC_10, ["0.3", "", "99.0", "nonsense", None]), (GRPC_03, ["1.0", "99.0", "nonsense"])],
)
async def test_the_version_is_checked_over_grpc(gcs_host, connect, binding, versions):
    """Each service takes its own version only; none at all is 0.3, as over HTTP. Streams are refused as well."""
    client = connect(gcs_host, binding)
    new = binding == GRPC_10
    for version in versions:
        metadata = [] if version is None else [("a2a-version", version)]
        pb = a2a_pb2 if new else a2a_v0_3_pb2
        get = pb.GetTaskRequest(id="x") if new else pb.GetTaskRequest(name="tasks/x")
        subscribe = pb.SubscribeToTaskRequest(id="x") if new else pb.TaskSubscriptionRequest(name="tasks/x")
        with pytest.raises(grpc.aio.AioRpcError) as unary:
            await client.stub.GetTask(get, metadata=metadata)
        stream = client.stub.SubscribeToTask if new else client.stub.TaskSubscription
        with pytest.raises(grpc.aio.AioRpcError) as streamed:
            await stream(subscribe, metadata=metadata).read()
        for error in (unary.value, streamed.value):
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION, version
            assert "not supported" in error.details()


async def test_an_0_3_client_need_not_name_its_version(gcs_host, connect):
    """0.3 is older than the metadata."""
    client = connect(gcs_host, GRPC_03)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await client.stub.GetTask(a2a_v0_3_pb2.GetTaskRequest(name="tasks/x"))
    assert raised.value.details() == "TaskNotFoundError: Task not found"


async def test_the_public_card_is_there_for_0_3(gcs_host, connect):
    """GetAgentCard of 0.3 is the card itself, not the extended one."""
    card = await connect(gcs_host, GRPC_03).call("GetAgentCard", a2a_v0_3_pb2.GetAgentCardRequest())
    assert card["name"] == "a2a-gcs demo"


async def test_nonsense_over_grpc_is_the_clients_fault(client):
    """Missing fields, names of another form and numbers that JSON does not have: INVALID_ARGUMENT, never INTERNAL."""
    pb, new = (a2a_pb2, True) if client.binding == GRPC_10 else (a2a_v0_3_pb2, False)
    requests = [("SendMessage", pb.SendMessageRequest())]
    message = pb.Message(message_id="m", role=pb.ROLE_USER)
    message.metadata.fields["x"].number_value = float("nan")
    if new:
        message.parts.add(text="x")
        requests.append(("SendMessage", pb.SendMessageRequest(message=message)))
        requests.append(("GetTask", pb.GetTaskRequest(id="x" * 1000)))
    else:
        message.content.add(text="x")
        requests.append(("SendMessage", pb.SendMessageRequest(request=message)))
        requests.append(("GetTask", pb.GetTaskRequest(name="no-tasks/x")))
        requests.append(("GetTaskPushNotificationConfig", pb.GetTaskPushNotificationConfigRequest(name="x")))
    for method, request in requests:
        refused = await refusal(client.call(method, request))
        assert (refused.status, refused.code) == ("INVALID_ARGUMENT", -32602), (method, request)


async def test_health_and_reflection_are_served(shared):
    """The standard health service says SERVING for the host and both services; reflection names them all."""
    async with grpc.aio.insecure_channel(shared.grpc_target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", V10, V03):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=V10),
        ]
        listed, described = [answer async for answer in reflection.ServerReflectionInfo(iter(asked))]
    names = {service.name for service in listed.list_services_response.service}
    assert {V10, V03, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= names
    assert described.file_descriptor_response.file_descriptor_proto


async def test_the_sdks_own_client_dials_what_the_card_lists(tmp_path, fresh):
    """With advertise_grpc the card lists host:port for both versions, and ClientFactory needs no more than the card."""
    with serve_in_thread(MemoryStore(), grpc_port=0, advertise_grpc=True, work_dir=tmp_path) as host:
        config = ClientConfig(
            supported_protocol_bindings=[TransportProtocol.GRPC],
            grpc_channel_factory=grpc.aio.insecure_channel,
        )
        client = await ClientFactory(config).create_from_url(host.url)
        message = new_text_message("hello", context_id=fresh, role=Role.ROLE_USER)
        events = [event async for event in client.send_message(SendMessageRequest(message=message))]
        await client.close()
        async with GrpcClient(host.grpc_target, GRPC_03) as old:
            card = await old.call("GetAgentCard", a2a_v0_3_pb2.GetAgentCardRequest())
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
    assert {"url": host.grpc_target, "transport": "GRPC"} in card["additionalInterfaces"]


async def test_the_card_lists_grpc_only_if_told_to(gcs_host, connect):
    """Some clients reject a card with another origin; the host serves gRPC all the same."""
    card = (await connect(gcs_host).http.get("/.well-known/agent-card.json")).json()
    assert "GRPC" not in {interface["protocolBinding"] for interface in card["supportedInterfaces"]}
    assert gcs_host.grpc_target


async def test_grpc_alone_on_the_port(hosts, make_place, fresh):
    """No HTTP, one line on stdout; SIGTERM parks what runs, tells the stream, and ends with status 0."""
    host = hosts(make_place("file"), grpc_only=True)
    assert host.url.startswith("grpc://127.0.0.1:")
    target = host.url.removeprefix("grpc://")
    assert target == host.grpc_target
    async with GrpcClient(target) as client:
        card = await client.stub.SendMessage(SendMessageRequest(), metadata=[("a2a-version", "1.0")]).code()
        assert card is grpc.StatusCode.INVALID_ARGUMENT
        events = client.stream("sleep 60", context=fresh)
        seen = [await anext(events), await anext(events)]
        host.signal(signal.SIGTERM)
        seen += [event async for event in events]
        assert seen[-1].state == "input-required"
    assert await asyncio.to_thread(host.wait) == 0


async def test_a_drain_tells_grpc_streams_their_last_event(hosts, make_place, connect, fresh):
    """SIGTERM beside HTTP: a gRPC stream hears that its task is parked, and the host ends with status 0."""
    host = hosts(make_place("gcs"), grpc_port=0)
    events = connect(host, GRPC_10).stream("sleep 60", context=fresh)
    seen = [await anext(events), await anext(events)]
    host.signal(signal.SIGTERM)
    seen += [event async for event in events]
    assert seen[-1].state == "input-required"
    assert await asyncio.to_thread(host.wait) == 0


async def test_a_grpc_port_in_use_is_named():
    """The host does not share a port with another one: it does not start, and says which option to change."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        app = create_app(Settings(grpc_port=port), store=MemoryStore())
        with pytest.raises(ConfigError, match=f"gRPC cannot listen on 127.0.0.1:{port}.*--grpc-port"):
            await app.router.lifespan_context(app).__aenter__()


async def test_a_message_over_the_limit_is_refused_by_grpc(tmp_path, fresh):
    """RESOURCE_EXHAUSTED; and the server goes on."""
    with serve_in_thread(MemoryStore(), grpc_port=0, max_request_bytes=4096, work_dir=tmp_path) as host:
        async with GrpcClient(host.grpc_target) as client:
            refused = await refusal(client.send("x" * 5000, context=fresh))
            assert refused.status == "RESOURCE_EXHAUSTED"
            assert (await client.send("hello", context=fresh)).state == "completed"


async def test_errors_are_the_same_over_every_binding(gcs_host, connect):
    """The reason and the message of a refused message do not depend on how it came."""
    refusals = [
        await refusal(connect(gcs_host, binding).send("hello", task="no-such-task"))
        for binding in (JSONRPC_10, "rest-1.0", GRPC_10)
    ]
    assert {(refused.code, refused.message) for refused in refusals} == {(-32001, refusals[0].message)}
