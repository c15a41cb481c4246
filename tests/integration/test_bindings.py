"""What is served where: the card, its interfaces, probes, documentation, and what is not a route."""

import uuid

import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.helpers import new_text_message
from a2a.types.a2a_pb2 import AgentCard, Role, SendMessageRequest, TaskState
from google.protobuf.json_format import ParseDict

from fake_gcs.process import FakeGcs
from tests.support.a2a_http import A2AClient
from tests.support.places import Place
from tests.support.untouched import untouched
from tests.support.waiting import until


async def card_of(client):
    response = await client.http.get("/.well-known/agent-card.json")
    assert response.status_code == 200
    return response.json()


async def test_the_card_lists_both_bindings_of_both_versions(shared, connect):
    """JSON-RPC and REST, 1.0 and 0.3, at the origin where the card was read."""
    card = await card_of(connect(shared))
    listed = {(i["protocolBinding"], i["protocolVersion"]) for i in card["supportedInterfaces"]}
    assert listed == {("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3")}
    assert all(i["url"].startswith(shared.url) for i in card["supportedInterfaces"])
    assert card["capabilities"]["streaming"]


async def test_every_interface_of_the_card_works_where_it_says(shared, connect, fresh):
    """A message sent to the URL of each interface, as its version says, completes in one shared history."""
    client = connect(shared)
    for number, interface in enumerate((await card_of(client))["supportedInterfaces"], start=1):
        url, new = interface["url"], interface["protocolVersion"] == "1.0"
        part = {"text": "hello"} if new else {"kind": "text", "text": "hello"}
        message = {"messageId": uuid.uuid4().hex, "contextId": fresh}
        if interface["protocolBinding"] == "JSONRPC":
            message |= {"role": "ROLE_USER" if new else "user", "parts": [part]} | ({} if new else {"kind": "message"})
            method = "SendMessage" if new else "message/send"
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
        else:
            url = f"{url}/message:send" if new else f"{url}/v1/message:send"
            message |= {"role": "ROLE_USER", "parts" if new else "content": [{"text": "hello"}]}
            body = {"message": message}
        response = await client.http.post(url, json=body, headers={"A2A-Version": "1.0" if new else "0.3"})
        plural = "" if number == 1 else "s"
        assert f"journal.md holds {number} message{plural}" in response.text


async def test_json_rpc_without_a_version_header_is_0_3(gcs_host, fresh):
    """An A2A 0.3 client, which sends no header, is served at the same endpoint."""
    async with A2AClient(gcs_host.url, "jsonrpc-0.3") as client:
        assert "A2A-Version" not in client.http.headers
        answer = await client.send("hello", context=fresh)
    assert (answer.raw["kind"], answer.raw["status"]["state"]) == ("task", "completed")


@pytest.mark.parametrize(("binding", "version"), [(b, v) for b in ("JSONRPC", "HTTP+JSON") for v in ("1.0", "0.3")])
async def test_the_sdks_own_client_reaches_every_interface_of_the_card(gcs_host, connect, fresh, binding, version):
    """Each by the card alone, as if it were the only one."""
    http = connect(gcs_host).http
    card = ParseDict((await http.get("/.well-known/agent-card.json")).json(), AgentCard(), ignore_unknown_fields=True)
    chosen = [i for i in card.supported_interfaces if (i.protocol_binding, i.protocol_version) == (binding, version)]
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(chosen)
    client = ClientFactory(ClientConfig(supported_protocol_bindings=[binding])).create(card)
    message = new_text_message("hello", context_id=fresh, role=Role.ROLE_USER)
    events = [event async for event in client.send_message(SendMessageRequest(message=message))]
    await client.close()
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED


@pytest.mark.parametrize(("path", "text"), [("/health", "ok"), ("/ready", "ready")])
async def test_probes_answer(shared, connect, path, text):
    """/health: the process is up; /ready: the bucket answers."""
    response = await connect(shared).http.get(path)
    assert (response.status_code, response.json()["status"]) == (200, text)


async def test_the_routes_are_documented(shared, connect):
    """/openapi.json names the A2A routes, and /docs shows it."""
    http = connect(shared).http
    paths = (await http.get("/openapi.json")).json()["paths"]
    assert {"/", "/message:send", "/tasks", "/tasks/{id}", "/health", "/ready"} <= paths.keys()
    page = await http.get("/docs")
    assert page.status_code == 200
    assert "/openapi.json" in page.text


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/tasks"), ("GET", "/tasks/{id}/metadata"), ("DELETE", "/tasks/{id}")],
)
async def test_what_a2a_does_not_have_is_not_a_route(shared, connect, fresh, method, path):
    """Tasks are made by messages alone, and not removed; there are no routes of other servers'."""
    client = connect(shared)
    task = await client.send("hello", context=fresh)
    async with untouched(shared.place):
        response = await client.http.request(method, path.format(id=task.id), json={"id": "x", "contextId": fresh})
        assert response.status_code in (404, 405)


async def not_ready(http):
    """The answer of /ready, once it is 503: a good one counts for some seconds."""
    response = await http.get("/ready")
    return response if response.status_code == 503 else None


async def test_ready_turns_503_when_the_bucket_is_out_of_reach(hosts, tmp_path, connect):
    """A host whose bucket stops answering is alive but not ready."""
    with FakeGcs.start(data=tmp_path / "data", buckets=["b-ready"]) as emulator:
        host = hosts(Place("gs://b-ready", {"STORAGE_EMULATOR_HOST": emulator.url}))
        http = connect(host).http
        assert (await http.get("/ready")).status_code == 200
        emulator.stop()
        response = await until(lambda: not_ready(http), what="/ready without a bucket")
        assert response.json()["status"] == "not ready"
        assert (await http.get("/health")).status_code == 200
