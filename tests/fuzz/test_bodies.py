"""Hypothesis on JSON-RPC bodies, ids, paths and headers: never a 500, never a hang, never a stray object."""

import copy
import json
from urllib.parse import quote

import pytest
from a2a.types import a2a_pb2
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.a2a_grpc import GrpcClient

PROFILE = settings.get_profile("fuzz")

METHODS = [
    *("SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"),
    *("CreateTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig", "GetExtendedAgentCard"),
    *("message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe"),
    *("tasks/pushNotificationConfig/set", "tasks/pushNotificationConfig/delete"),
    "agent/getAuthenticatedExtendedCard",
]
FORMS = {
    "1.0": {
        "message": {
            "messageId": "m",
            "contextId": "c",
            "role": "ROLE_USER",
            "parts": [{"text": "hi", "metadata": {"a": 1}}, {"data": {"b": [True]}}, {"raw": "eA=="}],
            "metadata": {"k": {"deep": None}},
            "extensions": ["urn:x"],
            "referenceTaskIds": ["r"],
        },
        "configuration": {"returnImmediately": True, "historyLength": 1, "acceptedOutputModes": ["text/plain"]},
        "metadata": {"k": 1},
        "id": "x",
    },
    "0.3": {
        "message": {
            "kind": "message",
            "messageId": "m",
            "contextId": "c",
            "role": "user",
            "parts": [
                {"kind": "text", "text": "hi"},
                {"kind": "data", "data": {"b": 1}},
                {"kind": "file", "file": {"bytes": "eA==", "mimeType": "text/plain", "name": "n"}},
            ],
            "metadata": {"k": {"deep": None}},
        },
        "configuration": {"blocking": False, "historyLength": 1, "acceptedOutputModes": ["text/plain"]},
        "metadata": {"k": 1},
        "id": "x",
    },
}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=30),
    st.sampled_from(["", "\ud800", "\x00", "../..", ".", "x" * 300, "ROLE_AGENT", "2026-01-01T00:00:00Z"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)
versions = st.sampled_from(["1.0", "0.3", "1.0.1", "2.0", "", "x", None])
tokens = st.text(st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f"), max_size=40)


def paths(value, at=()):
    yield at
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from paths(inner, (*at, step))


@st.composite
def nearly_right(draw):
    """A message of either version, with up to two of its values replaced or left out."""
    params = copy.deepcopy(FORMS[draw(st.sampled_from(list(FORMS)))])
    for _ in range(draw(st.integers(0, 2))):
        *above, last = draw(st.sampled_from([path for path in paths(params) if path]))
        inside = params
        for step in above:
            inside = inside[step]
        if draw(st.booleans()):
            inside[last] = draw(values)
        else:
            del inside[last]
    return params


def header(version):
    return {} if version is None else {"A2A-Version": version}


@PROFILE
@given(body=st.binary(max_size=200), version=versions)
def test_bytes(fuzzed, body, version):
    """Any bytes at all, at the endpoints of all bindings."""
    for path in ("/", "/message:send", "/v1/message:send"):
        fuzzed.send("POST", path, content=body, headers=header(version))


@PROFILE
@given(body=values, version=versions)
def test_json(fuzzed, body, version):
    """Any JSON, with what JSON has not: NaN and lone surrogates."""
    for path in ("/", "/message:stream", "/v1/message:stream"):
        fuzzed.send("POST", path, content=json.dumps(body), headers=header(version))


@PROFILE
@given(
    method=st.one_of(st.sampled_from(METHODS), st.text(max_size=20)),
    request_id=scalars,
    params=st.one_of(values, nearly_right()),
    version=versions,
    more=st.dictionaries(st.sampled_from(["jsonrpc", "method", "extra"]), values, max_size=1),
)
def test_envelopes(fuzzed, method, request_id, params, version, more):  # noqa: PLR0917 - hypothesis names them
    """Requests of JSON-RPC whose envelope is right, or nearly, around any params."""
    body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params} | more
    fuzzed.send("POST", "/", content=json.dumps(body), headers=header(version))


@PROFILE
@given(params=nearly_right(), stream=st.booleans(), version=versions)
def test_messages(fuzzed, params, stream, version):
    """Messages that are right, or nearly, over JSON-RPC and REST of both versions."""
    for method in ("SendStreamingMessage", "message/stream") if stream else ("SendMessage", "message/send"):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        fuzzed.send("POST", "/", content=json.dumps(body), headers=header(version))
    for root in ("", "/v1"):
        path = f"{root}/message:{'stream' if stream else 'send'}"
        fuzzed.send("POST", path, content=json.dumps(params), headers=header(version))


@PROFILE
@given(
    task=st.one_of(st.text(max_size=40), st.sampled_from(["..", "x" * 300, "\x00", "a/b", "é", ".", "context.json"])),
    query=st.dictionaries(
        st.sampled_from(["historyLength", "pageSize", "pageToken", "contextId", "status", "includeArtifacts", "x"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        max_size=3,
    ),
    version=versions,
)
def test_paths_and_queries(fuzzed, task, query, version):
    """Any id in a path, any value in a query."""
    assume(not any("\ud800" <= c <= "\udfff" for c in task))
    name = quote(task, safe="")
    for root in ("", "/v1"):
        for method, path in (
            ("GET", f"/tasks/{name}"),
            ("POST", f"/tasks/{name}:cancel"),
            ("GET", f"/tasks/{name}:subscribe"),
            ("GET", "/tasks"),
            ("DELETE", f"/tasks/{name}/pushNotificationConfigs/{name}"),
            ("POST", f"/tasks/{name}/pushNotificationConfigs"),
        ):
            fuzzed.send(method, f"{root}{path}", params=query, headers=header(version))


@PROFILE
@given(version=tokens, extensions=tokens, kind=tokens, match=tokens)
def test_headers(fuzzed, version, extensions, kind, match):
    """Any value of the headers that are looked at."""
    headers = {
        "A2A-Version": version.encode("latin-1"),
        "A2A-Extensions": extensions.encode("latin-1"),
        "X-A2A-Extensions": extensions.encode("latin-1"),
        "Content-Type": kind.encode("latin-1"),
        "If-None-Match": match.encode("latin-1"),
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "x"}})
    fuzzed.send("POST", "/", content=body, headers=headers)
    fuzzed.send("GET", "/tasks/x", headers=headers)
    fuzzed.send("GET", "/.well-known/agent-card.json", headers=headers)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "path", ["/", "/message:send", "/tasks", "/tasks/x", "/health", "/.well-known/agent-card.json"]
)
def test_methods(fuzzed, path, method):
    """Any method at any route."""
    fuzzed.send(method, path, headers={"A2A-Version": "1.0"})


@PROFILE
@given(task=st.text(st.characters(exclude_categories=["Cs"]), max_size=40), number=st.floats(), parts=st.integers(0, 3))
async def test_grpc_messages(host, task, number, parts):
    """Protobuf that JSON cannot say: NaN, parts without content; never INTERNAL or UNKNOWN."""
    message = a2a_pb2.Message(message_id=task, task_id=task, role=1)
    message.metadata.fields[task].number_value = number
    message.parts.extend(a2a_pb2.Part() for _ in range(parts))
    async with GrpcClient(host.grpc_target) as client:
        metadata = [("a2a-version", "1.0")]
        for call in (
            client.stub.SendMessage(a2a_pb2.SendMessageRequest(message=message), metadata=metadata, timeout=20),
            client.stub.GetTask(a2a_pb2.GetTaskRequest(id=task, history_length=parts), metadata=metadata, timeout=20),
        ):
            code = (await call.code()).name
            assert code in ("OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"), await call.details()
