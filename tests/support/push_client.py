"""Push configurations over every binding: one API for the clients of `a2a_http` and `a2a_grpc`."""

from __future__ import annotations

import uuid

from google.protobuf.json_format import ParseDict

from tests.support.a2a_grpc import GRPC_BINDINGS
from tests.support.a2a_http import JSONRPC_03, REST_03


def config_of(client, url, *, config_id=None, token=None, credentials=None):
    """A configuration as the client's version of A2A writes it."""
    config = {"url": url} | {name: value for name, value in (("id", config_id), ("token", token)) if value}
    if credentials:
        scheme = {"scheme": "Bearer"} if client.binding.endswith("1.0") else {"schemes": ["Bearer"]}
        config["authentication"] = {**scheme, "credentials": credentials}
    return config


async def send(client, text, config, **options):
    """Sends a message that brings a configuration; the raw answer."""
    params = client._message(text, **options)
    if client.binding in GRPC_BINDINGS:
        name = "task_push_notification_config" if client._new else "push_notification"
        ParseDict(config, getattr(params.configuration, name))
        return await client.call("SendMessage", params)
    name = "taskPushNotificationConfig" if client._new else "pushNotificationConfig"
    params["configuration"]["pushNotification" if client.binding == REST_03 else name] = config
    return await client._call("send", params)


async def register(client, task_id, config):
    """Stores a configuration."""
    if client._new:
        return await _call(client, "Create", {"taskId": task_id, **config})
    if client.binding == JSONRPC_03:
        return await _rpc(client, "set", {"taskId": task_id, "pushNotificationConfig": config})
    name = f"tasks/{task_id}/pushNotificationConfigs/{config.get('id', '')}"
    body = {
        "parent": f"tasks/{task_id}",
        "configId": config.get("id", ""),
        "config": {"name": name, "pushNotificationConfig": config},
    }
    if client.binding == REST_03:
        return await _rest(client, "POST", f"/v1/tasks/{task_id}/pushNotificationConfigs", body)
    return await client.call(
        "CreateTaskPushNotificationConfig", ParseDict(body, client._pb.CreateTaskPushNotificationConfigRequest())
    )


async def get(client, task_id, config_id):
    return await _one(client, "Get", "get", "GET", task_id, config_id)


async def delete(client, task_id, config_id):
    return await _one(client, "Delete", "delete", "DELETE", task_id, config_id)


async def urls(client, task_id):
    """Where the news of a task go, by the configurations that a list holds."""
    if client._new:
        found = (await _call(client, "List", {"taskId": task_id})).get("configs", [])
        return [one["url"] for one in found]
    if client.binding == JSONRPC_03:
        found = await _rpc(client, "list", {"id": task_id})
    elif client.binding == REST_03:
        found = (await _rest(client, "GET", f"/v1/tasks/{task_id}/pushNotificationConfigs")).get("configs", [])
    else:
        request = client._pb.ListTaskPushNotificationConfigRequest(parent=f"tasks/{task_id}")
        found = (await client.call("ListTaskPushNotificationConfig", request)).get("configs", [])
    return [one["pushNotificationConfig"]["url"] for one in found]


def url_of(client, answer):
    """The URL in an answer that holds one configuration."""
    return answer["url"] if client._new else answer["pushNotificationConfig"]["url"]


async def _one(client, what, what_03, method, task_id, config_id):  # noqa: PLR0917 - how each binding calls it
    if client._new:
        return await _call(client, what, {"taskId": task_id, "id": config_id})
    if client.binding == JSONRPC_03:
        return await _rpc(client, what_03, {"id": task_id, "pushNotificationConfigId": config_id})
    name = f"tasks/{task_id}/pushNotificationConfigs/{config_id}"
    if client.binding == REST_03:
        return await _rest(client, method, f"/v1/{name}")
    request = getattr(client._pb, f"{what}TaskPushNotificationConfigRequest")(name=name)
    return await client.call(f"{what}TaskPushNotificationConfig", request)


async def _call(client, what, params):
    """A method of A2A 1.0, over any binding."""
    noun = f"{what}TaskPushNotificationConfig{'s' if what == 'List' else ''}"
    if client.binding in GRPC_BINDINGS:
        kind = "TaskPushNotificationConfig" if what == "Create" else f"{noun}Request"
        return await client.call(noun, ParseDict(params, getattr(client._pb, kind)()))
    if client._rpc:
        return await _post(client, noun, params)
    path = f"/tasks/{params['taskId']}/pushNotificationConfigs"
    if what == "Create":
        return await _rest(client, "POST", path, {k: v for k, v in params.items() if k != "taskId"})
    if what == "List":
        return await _rest(client, "GET", path)
    return await _rest(client, "GET" if what == "Get" else "DELETE", f"{path}/{params['id']}")


async def _rpc(client, what, params):
    return await _post(client, f"tasks/pushNotificationConfig/{what}", params)


async def _post(client, method, params):
    if client._tenant:
        params = {**params, "tenant": client._tenant}
    body = {"jsonrpc": "2.0", "id": uuid.uuid4().hex, "method": method, "params": params}
    response = await client.http.post("/", json=body)
    client._raise(response.json(), response)
    return response.json()["result"]


async def _rest(client, method, path, body=None):
    if client._tenant:
        path = f"/{client._tenant}{path}"
    response = await client.http.request(method, path, json=body)
    answer = response.json() if response.content else {}
    client._raise(answer, response)
    return answer
