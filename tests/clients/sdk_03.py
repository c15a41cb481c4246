"""What a2a-sdk 0.3.26's client makes of a host: python sdk_03.py URL JSONRPC|HTTP+JSON|GRPC CONTEXT WEBHOOK.

That client has no listing. Over gRPC the address is in the card, or is given as the fifth argument.
"""

import asyncio
import json
import sys
import uuid

import grpc.aio
from a2a.client import ClientConfig, ClientFactory, minimal_agent_card
from a2a.types import (
    FilePart,
    FileWithBytes,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    Task,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)


def message(text, context, *, task=None, file=None):
    parts = [Part(root=TextPart(text=text))]
    if file:
        parts.append(Part(root=FilePart(file=FileWithBytes(bytes=file, name="large.bin"))))
    return Message(message_id=uuid.uuid4().hex, role=Role.user, context_id=context, task_id=task, parts=parts)


def text_of(parts):
    return "".join(part.root.text for part in parts if part.root.kind == "text")


async def ask(client, *args, **options):
    """The last task of a send."""
    last = [event async for event in client.send_message(message(*args, **options))][-1]
    return last[0]


async def facts(client, streaming, polling, context, webhook):
    sent = await ask(client, "hello", context)
    yield "send", {"state": sent.status.state.value, "files": text_of(sent.artifacts[0].parts)}

    events = [event async for event in streaming.send_message(message("stream 3", context))]
    first, last = events[0], events[-1][0]
    chunks = [text_of(a.parts) for a in last.artifacts if a.artifact_id == "stream"]
    yield (
        "stream",
        {
            "first": "task" if isinstance(first[0], Task) and first[1] is None else "update",
            "chunks": "".join(chunks),
            "state": last.status.state.value,
        },
    )

    asked = await ask(client, "ask blue or green?", context)
    pushed = PushNotificationConfig(url=webhook, token=context)
    told = await client.set_task_callback(TaskPushNotificationConfig(task_id=asked.id, push_notification_config=pushed))
    yield "push", {"url": told.push_notification_config.url}
    answered = await ask(client, "blue", context, task=asked.id)
    yield (
        "continue",
        {
            "asked": [asked.status.state.value, text_of(asked.status.message.parts)],
            "same": answered.id == asked.id,
            "state": answered.status.state.value,
        },
    )

    running = await ask(polling, "sleep 60", context)
    canceled = await client.cancel_task(TaskIdParams(id=running.id))
    yield "cancel", {"before": running.status.state.value, "after": canceled.status.state.value}

    large = await ask(client, "large", context, file="AAAA" * 100_000)
    read = await client.get_task(TaskQueryParams(id=large.id))
    part = next(part.root for part in read.history[0].parts if part.root.kind == "file")
    yield "large", {"url": getattr(part.file, "uri", ""), "size": int((part.metadata or {}).get("a2a-gcs/size", -1))}


async def main(url, binding, context, webhook, grpc_target=""):
    clients = []
    for streaming, polling in ((False, False), (True, False), (False, True)):
        config = ClientConfig(
            streaming=streaming,
            polling=polling,
            supported_transports=[binding],
            use_client_preference=True,
            grpc_channel_factory=grpc.aio.insecure_channel,
        )
        agent = minimal_agent_card(grpc_target, [binding]) if grpc_target else url
        if grpc_target:
            agent.capabilities.streaming = True
        clients.append(await ClientFactory.connect(agent, config))
    found = {name: fact async for name, fact in facts(*clients, context, webhook)}
    for client in clients:
        await client.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
