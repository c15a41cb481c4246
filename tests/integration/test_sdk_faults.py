"""The faults of a2a-sdk 1.3.0 that the host works around, each through HTTP; see `a2a_gcs.host.sdk_faults`.

The tests named `..._alone_...` show that the SDK still has the fault: when one
of them fails, its work-around can go.
"""

import json

import httpx
import pytest
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    Message,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from a2a_gcs.executors.demo import DemoAgent
from a2a_gcs.host.sdk_faults import rest_routes
from a2a_gcs.objectstore.memory import MemoryStore
from tests.support.a2a_grpc import GRPC_10, GRPC_BINDINGS, GrpcClient
from tests.support.a2a_http import BINDINGS, JSONRPC_10, REST_10, A2AClient, Refused
from tests.support.host_thread import serve_in_thread
from tests.support.untouched import untouched

EXTENSION = "https://extensions.example/receipts/v1"
V10 = {"A2A-Version": "1.0"}


class Demanding(DemoAgent):
    card = AgentCard(
        name="demanding",
        capabilities=AgentCapabilities(extensions=[AgentExtension(uri=EXTENSION, required=True)]),
    )


@pytest.fixture
def http(memory_host, connect):
    """A2A 0.3, as no version is named."""
    return connect(memory_host, "rest-0.3").http


@pytest.fixture
async def sdk():
    """The SDK's routes as they come."""
    handler = DefaultRequestHandler(DemoAgent(), InMemoryTaskStore(), AgentCard(name="bare"))
    routes = create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True)
    app = Starlette(routes=[*routes, *create_rest_routes(handler, enable_v0_3_compat=True)])
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://sdk") as client:
        yield client


def rpc(method, params, request_id=1):
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


async def code(http, body, **options):
    content = body if isinstance(body, bytes | str) else json.dumps(body)
    response = await http.post("/", content=content, **options)
    assert response.status_code == 200
    return response.json()["error"]["code"]


# ---------------------------------------------------------------------- JSON-RPC 0.3

WRONG_PARAMS = [
    ("message/send", {}),
    ("message/stream", {"message": {"role": "user"}}),
    ("message/send", []),
    ("tasks/get", {"id": 7}),
    ("tasks/get", {"id": "x", "historyLength": "many"}),
    ("tasks/cancel", None),
]


@pytest.mark.parametrize(("method", "params"), WRONG_PARAMS)
async def test_wrong_params_of_0_3_are_invalid_params(http, method, params):
    """-32602, naming what is wrong."""
    response = await http.post("/", json=rpc(method, params))
    error = response.json()["error"]
    assert (error["code"], error["message"].startswith("params")) == (-32602, True)


async def test_the_sdk_alone_answers_wrong_params_of_0_3_with_32600(sdk):
    """Else `_Adapter03.handle_request` can go."""
    assert await code(sdk, rpc("tasks/get", {"id": 7})) == -32600


async def test_a_wrong_envelope_of_0_3_stays_an_invalid_request(http):
    """-32600 for what is no JSON-RPC request."""
    assert await code(http, {"jsonrpc": "2.0", "method": "tasks/get", "id": 1.5, "params": {"id": "x"}}) == -32600
    assert await code(http, {"jsonrpc": "1.0", "method": "tasks/get", "id": 1, "params": {"id": "x"}}) == -32600


@pytest.mark.parametrize("method", ["tasks/get", "tasks/resubscribe"])
async def test_a_version_that_0_3_does_not_know_is_no_internal_error(http, method):
    """A method of 0.3 under another version: -32600 with the reason, also of a stream."""
    assert await code(http, rpc(method, {"id": "x"}), headers=V10) == -32600


async def test_the_sdk_alone_makes_an_internal_error_of_that_version(sdk):
    """Else `_Adapter03._generate_error_response` can go."""
    assert await code(sdk, rpc("tasks/get", {"id": "x"}), headers=V10) == -32603


# ---------------------------------------------------------------------- push configurations


@pytest.fixture(scope="module")
def silent_host(tmp_path_factory):
    """A host whose operator wants no push."""
    with serve_in_thread(MemoryStore(), work_dir=tmp_path_factory.mktemp("silent"), push_notifications=False) as host:
        yield host


@pytest.fixture
def silent(silent_host, connect):
    """A2A 0.3, as no version is named."""
    return connect(silent_host, "rest-0.3").http


PUSH = {"id": "t", "pushNotificationConfigId": "p"}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tasks/pushNotificationConfig/delete", PUSH),
        ("tasks/pushNotificationConfig/get", PUSH),
        ("tasks/pushNotificationConfig/list", {"id": "t"}),
        ("tasks/pushNotificationConfig/set", {"taskId": "t", "pushNotificationConfig": {"url": "https://x.example"}}),
    ],
)
async def test_push_is_not_supported_over_json_rpc_0_3(silent, method, params):
    """-32003, as the card says."""
    assert await code(silent, rpc(method, params)) == -32003


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("DeleteTaskPushNotificationConfig", {"taskId": "t", "id": "p"}),
        ("GetTaskPushNotificationConfig", {"taskId": "t", "id": "p"}),
        ("ListTaskPushNotificationConfigs", {"taskId": "t"}),
        ("CreateTaskPushNotificationConfig", {"taskId": "t", "url": "https://x.example"}),
    ],
)
async def test_push_is_not_supported_over_json_rpc_1_0(silent, method, params):
    """-32003, as the card says."""
    assert await code(silent, rpc(method, params), headers=V10) == -32003


@pytest.mark.parametrize("root", ["", "/v1"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/tasks/t/pushNotificationConfigs/p"),
        ("GET", "/tasks/t/pushNotificationConfigs/p"),
        ("GET", "/tasks/t/pushNotificationConfigs"),
        ("POST", "/tasks/t/pushNotificationConfigs"),
    ],
)
async def test_push_is_not_supported_over_rest(silent, root, method, path):
    """Also where 0.3 of the SDK has no route at all: deleting."""
    body = {"url": "https://x.example"}
    if root:
        name = "tasks/t/pushNotificationConfigs/p"
        body = {"parent": "tasks/t", "configId": "p", "config": {"name": name, "pushNotificationConfig": body}}
    headers = V10 if not root else {}
    response = await silent.request(method, f"{root}{path}", json=body if method == "POST" else None, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["reason"] == "PUSH_NOTIFICATION_NOT_SUPPORTED"


async def kept(http, task_id, query):
    """How much of a task's history a query leaves."""
    return len((await http.get(f"/v1/tasks/{task_id}{query}")).json()["history"])


async def test_a_history_length_of_0_3_by_either_of_its_names(memory_host, connect, http):
    """`historyLength` and `history_length` both cut the history."""
    client = connect(memory_host)
    task = (await client.send("ask what?")).id
    await client.send("this", task=task)
    assert await kept(http, task, "") > 1
    for query in (
        "?historyLength=1",
        "?history_length=1",
        "?x=1&history_length=1",
        "?historyLength=1&history_length=2",
    ):
        assert await kept(http, task, query) == 1, query


async def test_the_sdk_alone_knows_one_of_the_names():
    """Else `_take_field_names` can go."""
    store = InMemoryTaskStore()
    task = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.TASK_STATE_COMPLETED))
    task.history.extend(Message(message_id=f"m{n}", role=Role.ROLE_USER) for n in range(2))
    await store.save(task, ServerCallContext())
    routes = create_rest_routes(DefaultRequestHandler(DemoAgent(), store, AgentCard()), enable_v0_3_compat=True)
    transport = httpx.ASGITransport(Starlette(routes=routes))
    async with httpx.AsyncClient(transport=transport, base_url="http://sdk") as client:
        assert [await kept(client, "t", f"?{name}=1") for name in ("historyLength", "history_length")] == [1, 2]


async def test_the_sdk_alone_has_no_such_route(sdk):
    """It takes the path for a tenant's; else `_delete_push_config_03` can go."""
    response = await sdk.delete("/v1/tasks/t/pushNotificationConfigs/p")
    assert response.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"


class Deleting(DefaultRequestHandler):
    """Has push configurations, and deletes any."""

    async def on_delete_task_push_notification_config(self, params, context):
        return None


async def test_deleting_a_push_configuration_answers_with_a_result():
    """0.3 JSON-RPC: `result` is there and null; the SDK alone leaves it out. REST: 200 and an empty object."""
    from a2a_gcs.host.sdk_faults import jsonrpc_routes

    handler = Deleting(DemoAgent(), InMemoryTaskStore(), AgentCard(name="push"))
    request = rpc("tasks/pushNotificationConfig/delete", PUSH)
    answers = []
    for routes in (
        [*jsonrpc_routes(handler, "/"), *rest_routes(handler)],
        create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True),
    ):
        transport = httpx.ASGITransport(Starlette(routes=routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
            answers.append((await client.post("/", json=request)).json())
            if len(answers) == 1:
                deleted = await client.delete("/v1/tasks/t/pushNotificationConfigs/p")
    assert answers[0] == {"jsonrpc": "2.0", "id": 1, "result": None}
    assert "result" not in answers[1]
    assert (deleted.status_code, deleted.json()) == (200, {})


async def test_a_message_that_asks_for_push_is_refused(silent, silent_host, fresh):
    """-32003 before anything is claimed, instead of a task whose news nobody hears; and the card says so."""
    card = (await silent.get("/.well-known/agent-card.json")).json()
    assert card["capabilities"].get("pushNotifications", False) is False
    message = {"messageId": "m", "contextId": fresh, "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    configuration = {"taskPushNotificationConfig": {"url": "https://x.example"}}
    body = rpc("SendMessage", {"message": message, "configuration": configuration})
    async with untouched(silent_host.place):
        assert await code(silent, body, headers=V10) == -32003


# ---------------------------------------------------------------------- streams that fail at once


async def test_resubscribing_to_an_unknown_task_is_404_over_rest_0_3(http):
    """A plain error; the SDK alone answers 200 and breaks off."""
    for method in ("GET", "POST"):
        response = await http.request(method, "/v1/tasks/no-such-task:subscribe")
        assert (response.status_code, response.headers["content-type"]) == (404, "application/json")
        assert response.json()["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"


async def test_the_sdk_alone_answers_it_with_200(sdk):
    """Else `_started` can go for REST."""
    response = await sdk.post("/v1/tasks/no-such-task:subscribe")
    assert (response.status_code, response.text) == (200, "")


# ---------------------------------------------------------------------- required extensions


@pytest.fixture(scope="module")
def demanding(tmp_path_factory):
    """A host whose agent's card requires an extension."""
    directory = tmp_path_factory.mktemp("demanding")
    agent = f"{__name__}:Demanding" if __name__.startswith("tests.") else "tests.integration.test_sdk_faults:Demanding"
    with serve_in_thread(MemoryStore(), agent=agent, work_dir=directory, grpc_port=0) as host:
        yield host


async def refusal(call):
    with pytest.raises(Refused) as refused:
        await call
    return refused.value


@pytest.mark.parametrize("binding", [*BINDINGS, *GRPC_BINDINGS])
async def test_a_required_extension_has_to_be_named(demanding, connect, fresh, binding):
    """-32008 on 1.0; 0.3 has no such error and says -32600. Streams and reads too; nothing is stored."""
    client = connect(demanding, binding)
    expected = -32008 if binding.endswith("1.0") else -32600
    calls = (client.send("hello", context=fresh), anext(client.stream("hello", context=fresh)), client.get("x"))
    async with untouched(demanding.place):
        for call in calls:
            refused = await refusal(call)
            assert refused.code == expected
            assert EXTENSION in refused.message


async def test_who_names_the_required_extension_is_served(demanding, fresh):
    """Over HTTP and gRPC, beside others; and the card is there for everybody."""
    async with A2AClient(demanding.url, JSONRPC_10) as client:
        assert (await client.http.get("/.well-known/agent-card.json")).status_code == 200
        client.http.headers["A2A-Extensions"] = f"https://other.example, {EXTENSION}"
        assert (await client.send("hello", context=fresh)).state == "completed"
    async with GrpcClient(demanding.grpc_target, GRPC_10, metadata=[("a2a-extensions", EXTENSION)]) as client:
        assert (await client.send("hello", context=fresh)).state == "completed"


# ---------------------------------------------------------------------- bodies that cannot be understood

UNREADABLE = {
    "no UTF-8": b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "\xff"}}',
    "nested too deeply": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a lone surrogate": rb'{"jsonrpc": "2.0", "id": "\ud800", "method": "GetTask", "params": {"id": "x"}}',
    "NaN": b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": NaN}}',
    "a number too large": b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": 1e999}}',
    "cut off": b'{"jsonrpc": "2.0", ',
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_body_that_is_no_json_is_a_parse_error(http, body):
    """-32700 over JSON-RPC, 400 over REST of both versions, never an internal error."""
    assert await code(http, body, headers=V10) == -32700
    for path, headers in (("/message:send", V10), ("/v1/message:send", {}), ("/v1/message:stream", {})):
        response = await http.post(path, content=body, headers=headers)
        assert (response.status_code, response.json()["error"]["details"][0]["reason"]) == (400, "INVALID_REQUEST")


async def test_the_sdk_alone_makes_internal_errors_of_them(sdk):
    """Else `strict_json` can go."""
    assert await code(sdk, UNREADABLE["no UTF-8"], headers=V10) == -32603
    assert (await sdk.post("/message:send", content=UNREADABLE["no UTF-8"], headers=V10)).status_code == 500


async def test_what_cannot_be_converted_is_the_clients_fault(http):
    """A query of 0.3 REST that is no number: 400; the SDK alone says 500."""
    response = await http.get("/v1/tasks/x", params={"historyLength": "many"})
    assert (response.status_code, response.json()["error"]["details"][0]["reason"]) == (400, "INVALID_PARAMS")


async def test_the_sdk_alone_answers_it_with_500(sdk):
    """Else `_blamed` can go, if fuzzing agrees."""
    assert (await sdk.get("/v1/tasks/x", params={"historyLength": "many"})).status_code == 500


# ---------------------------------------------------------------------- filters

STATES = ("completed", "TASK_STATE_DONE", "task_state_completed")


@pytest.mark.parametrize("status", STATES)
@pytest.mark.parametrize("binding", [JSONRPC_10, REST_10])
async def test_a_filter_by_a_state_that_is_none_lists_nothing(memory_host, connect, fresh, binding, status):
    """-32602, as all tasks would be taken for those of the state; a state's name and number are taken."""
    client = connect(memory_host, binding)
    await client.send("hello", context=fresh)
    with pytest.raises(Refused) as refused:
        await client.list(status=status)
    assert (refused.value.code, status in str(refused.value)) == (-32602, True)
    for known, found in (("TASK_STATE_COMPLETED", 1), ("3", 1), ("TASK_STATE_FAILED", 0)):
        assert len((await client.list(status=known, contextId=fresh))["tasks"]) == found


async def test_the_sdk_alone_lists_everything_by_such_a_filter(sdk):
    """Else `_known_state` can go."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"status": "completed"}}
    assert "result" in (await sdk.post("/", json=body, headers=V10)).json()
    assert (await sdk.get("/tasks", params={"status": "completed"}, headers=V10)).status_code == 200


@pytest.mark.parametrize("value", ["maybe", "", "1", "yes"])
async def test_a_boolean_of_a_query_is_true_or_false(memory_host, connect, fresh, value):
    """Anything else is 400: counted as false it would leave out what was asked for. In capitals it is as good."""
    client = connect(memory_host, REST_10)
    await client.send("hello", context=fresh)
    with pytest.raises(Refused) as refused:
        await client.list(contextId=fresh, includeArtifacts=value)
    assert (refused.value.code, "includeArtifacts" in str(refused.value)) == (-32602, True)
    for known, has in (("true", True), ("True", True), ("false", False)):
        (task,) = (await client.list(contextId=fresh, includeArtifacts=known))["tasks"]
        assert ("artifacts" in task) is has


@pytest.mark.parametrize("name", ["pageSize", "historyLength", "statusTimestampAfter", "pageToken"])
async def test_what_else_a_query_names_has_to_be_what_it_is(memory_host, connect, name):
    """A number, a time, a token: 400 for a word, in the list and where one task is read."""
    client = connect(memory_host, REST_10)
    with pytest.raises(Refused) as refused:
        await client.list(**{name: "maybe"})
    assert refused.value.status == 400
    if name == "historyLength":
        response = await client.http.get("/tasks/x", params={name: "maybe"})
        assert response.status_code == 400


async def test_the_sdk_alone_takes_any_boolean_for_false(sdk):
    """Else `_known_booleans` can go."""
    assert (await sdk.get("/tasks", params={"includeArtifacts": "maybe"}, headers=V10)).status_code == 200


# ---------------------------------------------------------------------- tenants


OURS = ["/health", "/ready", "/docs", "/openapi.json", "/console/tasks", "/metrics/tasks", "/.well-known/tasks"]


async def test_a_tenant_cannot_shadow_our_own_routes():
    """`/{tenant}/tasks` is REST's, but not below a name of ours, whichever was registered first."""
    handler = DefaultRequestHandler(DemoAgent(), InMemoryTaskStore(), AgentCard(name="tenants"))
    routes = rest_routes(handler, tenants=True)

    async def ours(request):
        return PlainTextResponse("ours")

    app = Starlette(routes=[*routes, *(Route(path, ours) for path in OURS)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host", headers=V10) as client:
        answers = [(await client.get(path)).text for path in OURS]
        tenant = await client.get("/acme/tasks/no-such-task")
        reserved = await client.get("/console/tasks/no-such-task")
        old = await client.get("/acme/v1/tasks/x")
    assert answers == ["ours"] * len(OURS)
    assert tenant.json()["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"
    assert (reserved.status_code, reserved.text) == (404, "Not Found")
    assert old.status_code == 404


async def test_json_rpc_10_stays_as_the_sdk_has_it(http, memory_host, fresh):
    """The wrapper changes nothing of what was right: an unknown method, a batch, an unknown task, a stream's error."""
    assert await code(http, rpc("Nonsense", {}), headers=V10) == -32601
    assert await code(http, [rpc("GetTask", {"id": "x"})], headers=V10) == -32600
    assert await code(http, rpc("GetTask", {"id": "x"}), headers=V10) == -32001
    assert await code(http, rpc("SubscribeToTask", {"id": "x"}), headers=V10) == -32001
    async with A2AClient(memory_host.url, REST_10) as client:
        assert (await refusal(client.get("x"))).status == 404
