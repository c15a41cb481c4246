"""A thin A2A client over HTTP: four bindings, one API, and nothing of the SDK.

Answers come as `Answer`, events as `Event`, errors as `Refused` with the code
of JSON-RPC, whatever the binding wrote; `raw` holds what was on the wire.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from dataclasses import dataclass, field
from urllib.parse import quote

import httpx

JSONRPC_10, JSONRPC_03, REST_10, REST_03 = BINDINGS = ("jsonrpc-1.0", "jsonrpc-0.3", "rest-1.0", "rest-0.3")

TERMINAL = {"completed", "failed", "canceled", "rejected"}

_CODES = {
    "TASK_NOT_FOUND": -32001,
    "TASK_NOT_CANCELABLE": -32002,
    "UNSUPPORTED_OPERATION": -32004,
    "PUSH_NOTIFICATION_NOT_SUPPORTED": -32003,
    "EXTENSION_SUPPORT_REQUIRED": -32008,
    "VERSION_NOT_SUPPORTED": -32009,
    "INVALID_REQUEST": -32600,
    "INVALID_PARAMS": -32602,
    "INTERNAL_ERROR": -32603,
}
_RPC = {
    "send": ("SendMessage", "message/send"),
    "stream": ("SendStreamingMessage", "message/stream"),
    "get": ("GetTask", "tasks/get"),
    "cancel": ("CancelTask", "tasks/cancel"),
    "subscribe": ("SubscribeToTask", "tasks/resubscribe"),
    "list": ("ListTasks", "ListTasks"),
}


class Refused(Exception):
    """An error that the server answered with.

    Attributes:
        code: JSON-RPC's code, also over REST.
        data: The flat map that goes with it.
        status: Of HTTP.
        sse: It came inside an event stream.
    """

    def __init__(self, code, message, data, *, status, sse):
        super().__init__(f"{code} {message} {data}")
        self.code, self.message, self.data, self.status, self.sse = code, message, data, status, sse


@dataclass
class Answer:
    """A Task, or a Message (state is None)."""

    raw: dict
    id: str | None
    context_id: str
    state: str | None
    timestamp: str | None
    text: str
    artifacts: dict[str, str] = field(default_factory=dict)
    history: list[tuple[str, str]] = field(default_factory=list)

    @property
    def said(self):
        """What users said, in order."""
        return [text for role, text in self.history if role == "user"]


@dataclass
class Event:
    """One event of a stream: kind is task, status, artifact or message."""

    raw: dict
    kind: str
    state: str | None = None
    task: Answer | None = None
    task_id: str | None = None
    text: str = ""
    artifact_id: str | None = None
    append: bool = False

    @property
    def ended(self):
        return self.state in TERMINAL


class A2AClient:
    """Speaks one binding to one host.

    Args:
        url: The host's origin.
        binding: One of `BINDINGS`.
        tenant: The tenant that every call names (1.0 only).
    """

    def __init__(self, url, binding=JSONRPC_10, *, timeout=45.0, tenant=""):
        self.binding = binding
        self._tenant = tenant
        self._new = binding.endswith("1.0")
        self._rpc = binding.startswith("jsonrpc")
        headers = {"A2A-Version": "1.0"} if self._new else {}
        limits = httpx.Limits(max_connections=200)
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout, limits=limits, trust_env=False)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.aclose()

    async def aclose(self):
        await self.http.aclose()

    # ------------------------------------------------------------------ calls

    async def send(self, text, **options):
        result = await self._call("send", self._message(text, **options))
        return _answer(result.get("task") or result.get("message") or result)

    async def get(self, task_id):
        return _answer(await self._call("get", {"id": task_id}))

    async def cancel(self, task_id):
        return _answer(await self._call("cancel", {"id": task_id}))

    async def list(self, **params):
        return await self._call("list", params)

    def stream(self, text, **options):
        """Sends, and yields events. Use with `async for`, or `contextlib.aclosing` to drop it half-way."""
        return self._stream("stream", self._message(text, **options))

    def subscribe(self, task_id):
        return self._stream("subscribe", {"id": task_id})

    def _message(self, text, *, context=None, task=None, message_id=None, at_once=False):
        part = {"text": text}
        message = {"messageId": message_id or uuid.uuid4().hex}
        if self._new:
            message |= {"role": "ROLE_USER", "parts": [part]}
            configuration = {"returnImmediately": at_once}
        elif self._rpc:
            message |= {"kind": "message", "role": "user", "parts": [{"kind": "text", **part}]}
            configuration = {"blocking": not at_once}
        else:
            message |= {"role": "ROLE_USER", "content": [part]}
            configuration = {"blocking": not at_once}
        message |= {name: value for name, value in (("contextId", context), ("taskId", task)) if value is not None}
        return {"message": message, "configuration": configuration}

    # ------------------------------------------------------------------ the wire

    def _request(self, what, params):
        if self._rpc:
            method = _RPC[what][0 if self._new else 1]
            if self._tenant:
                params = {**params, "tenant": self._tenant}
            body = {"jsonrpc": "2.0", "id": uuid.uuid4().hex, "method": method, "params": params}
            return self.http.build_request("POST", "/", json=body)
        root = "" if self._new else "/v1"
        root += f"/{quote(self._tenant, safe='')}" if self._tenant else ""
        if what in ("send", "stream"):
            return self.http.build_request("POST", f"{root}/message:{what}", json=params)
        if what == "list":
            return self.http.build_request("GET", f"{root}/tasks", params=params)
        path = f"{root}/tasks/{quote(params['id'], safe='')}"
        if what == "get":
            return self.http.build_request("GET", path)
        return self.http.build_request("POST", f"{path}:{what}")

    async def _call(self, what, params):
        response = await self.http.send(self._request(what, params))
        body = _json(response)
        self._raise(body, response)
        return body["result"] if self._rpc else body

    async def _stream(self, what, params):
        async with contextlib.AsyncExitStack() as stack:
            response = await self.http.send(self._request(what, params), stream=True)
            stack.push_async_callback(response.aclose)
            if not response.headers["content-type"].startswith("text/event-stream"):
                await response.aread()
                self._raise(_json(response), response)
                raise AssertionError(f"neither a stream nor an error: {response.text}")
            async for body in _server_sent(response):
                self._raise(body, response)
                yield _event(body["result"] if self._rpc else body)

    def _raise(self, body, response):
        error = body.get("error")
        sse = response.headers["content-type"].startswith("text/event-stream")
        if error is None:
            if response.status_code >= 400:
                raise Refused(0, response.text, {}, status=response.status_code, sse=sse)
            return
        details = error.get("data" if self._rpc else "details") or {}
        data, reason = details, ""
        if isinstance(details, list):
            info = next((d for d in details if d.get("@type", "").endswith("ErrorInfo")), {})
            data, reason = info.get("metadata", {}), info.get("reason", "")
        code = error["code"] if self._rpc else _CODES.get(reason, 0)
        raise Refused(code, error["message"], data, status=response.status_code, sse=sse)


async def _server_sent(response):
    data = []
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            data.append(line[5:].strip())
        elif not line and data:
            yield json.loads("\n".join(data))
            data = []


def _json(response):
    try:
        return response.json()
    except ValueError:
        return {}


# ---------------------------------------------------------------------- one form for all versions


def _state(status):
    state = status.get("state", "").removeprefix("TASK_STATE_").lower().replace("_", "-")
    return "canceled" if state == "cancelled" else state  # as the 0.3 protobuf spells it


def _text(message):
    return "".join(part.get("text", "") for part in message.get("parts") or message.get("content") or [])


def _role(message):
    return message.get("role", "").removeprefix("ROLE_").lower()


def _answer(raw):
    if "status" not in raw:
        return Answer(raw, None, raw.get("contextId", ""), None, None, _text(raw))
    return Answer(
        raw,
        raw["id"],
        raw["contextId"],
        _state(raw["status"]),
        raw["status"].get("timestamp"),
        _text(raw["status"].get("message") or raw["status"].get("update") or {}),
        {artifact["artifactId"]: _text(artifact) for artifact in raw.get("artifacts", [])},
        [(_role(message), _text(message)) for message in raw.get("history", [])],
    )


def _event(raw):
    kind, body = raw.get("kind"), raw
    if kind is None:
        (kind, body), *_ = raw.items()
    kind = {"statusUpdate": "status", "status-update": "status"}.get(kind, kind)
    kind = {"artifactUpdate": "artifact", "artifact-update": "artifact", "msg": "message"}.get(kind, kind)
    if kind == "task":
        task = _answer(body)
        return Event(raw, kind, task.state, task, task.id, task.text)
    if kind == "status":
        status = body["status"]
        said = status.get("message") or status.get("update") or {}
        return Event(raw, kind, _state(status), None, body["taskId"], _text(said))
    if kind == "artifact":
        artifact = body["artifact"]
        return Event(
            raw, kind, None, None, body["taskId"], _text(artifact), artifact["artifactId"], body.get("append", False)
        )
    return Event(raw, kind, text=_text(body))


def whole(events):
    """What a subscriber knows of the artifacts after these events: id to text."""
    known = {}
    for event in events:
        if event.kind == "task":
            known = dict(event.task.artifacts)
        elif event.kind == "artifact":
            known[event.artifact_id] = (known.get(event.artifact_id, "") if event.append else "") + event.text
    return known
