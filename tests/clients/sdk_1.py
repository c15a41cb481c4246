"""What a2a-sdk's client of A2A 1.0 makes of a host: python sdk_1.py URL JSONRPC|HTTP+JSON|GRPC CONTEXT WEBHOOK."""

import asyncio
import json
import sys
import uuid

import grpc.aio
from a2a.client import ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskPushNotificationConfig,
    TaskState,
)


def request(text, context, *, task="", file=None, at_once=False):
    message = Message(message_id=uuid.uuid4().hex, role=Role.ROLE_USER, context_id=context, task_id=task)
    message.parts.append(Part(text=text))
    if file:
        message.parts.append(Part(raw=file, filename="large.bin"))
    return SendMessageRequest(message=message, configuration=SendMessageConfiguration(return_immediately=at_once))


def state(status):
    return TaskState.Name(status.state).removeprefix("TASK_STATE_").lower().replace("_", "-")


def text_of(parts):
    return "".join(part.text for part in parts)


async def ask(client, *args, **options):
    """The last task of a send."""
    return [event async for event in client.send_message(request(*args, **options))][-1].task


async def facts(client, streaming, context, webhook):
    sent = await ask(client, "hello", context)
    yield "send", {"state": state(sent.status), "files": text_of(sent.artifacts[0].parts)}

    events = [event async for event in streaming.send_message(request("stream 3", context))]
    updates = [event.artifact_update for event in events if event.HasField("artifact_update")]
    chunks = [text_of(u.artifact.parts) for u in updates if u.artifact.artifact_id == "stream"]
    ended = state(events[-1].status_update.status)
    yield "stream", {"first": events[0].WhichOneof("payload"), "chunks": "".join(chunks), "state": ended}

    asked = await ask(client, "ask blue or green?", context)
    question = text_of(asked.status.message.parts)
    pushed = TaskPushNotificationConfig(task_id=asked.id, url=webhook, token=context)
    yield "push", {"url": (await client.create_task_push_notification_config(pushed)).url}
    answered = await ask(client, "blue", context, task=asked.id)
    yield (
        "continue",
        {
            "asked": [state(asked.status), question],
            "same": answered.id == asked.id,
            "state": state(answered.status),
        },
    )

    running = await ask(client, "sleep 60", context, at_once=True)
    canceled = await client.cancel_task(CancelTaskRequest(id=running.id))
    yield "cancel", {"before": state(running.status), "after": state(canceled.status)}

    listed = await client.list_tasks(ListTasksRequest(context_id=context))
    yield "list", {"tasks": [state(task.status) for task in listed.tasks], "total": listed.total_size}

    content = bytes(300_000)
    large = await ask(client, "large", context, file=content)
    read = await client.get_task(GetTaskRequest(id=large.id))
    part = next(part for part in read.history[0].parts if part.filename)
    yield "large", {"url": part.url, "size": int(part.metadata["a2a-gcs/size"])}


async def main(url, binding, context, webhook):
    clients = [
        await ClientFactory(
            ClientConfig(
                streaming=streaming,
                supported_protocol_bindings=[binding],
                grpc_channel_factory=grpc.aio.insecure_channel,
            )
        ).create_from_url(url)
        for streaming in (False, True)
    ]
    found = {name: fact async for name, fact in facts(*clients, context, webhook)}
    for client in clients:
        await client.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
