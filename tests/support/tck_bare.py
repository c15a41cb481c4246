"""The conformance kit's agent on the bare SDK, with all that it offers: what this host is compared with.

`python -m tests.support.tck_bare 1.0|0.3` serves both versions on every binding, from memory, with push
notifications, and says where it listens as `a2a-gcs serve` does.
"""

from __future__ import annotations

import asyncio
import socket
import sys

import grpc
import httpx
import uvicorn
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
)
from a2a.types import a2a_pb2_grpc
from a2a.types.a2a_pb2 import AgentCard, AgentInterface
from starlette.applications import Starlette

from tests.support.tck_agent import TckAgent, TckAgent03


class _Publishing:
    """The SDK wants the task first, where this host publishes it itself."""

    async def execute(self, context, event_queue):
        if context.current_task is None and not context.message.message_id.startswith("tck-message-response"):
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        await super().execute(context, event_queue)


class Bare10(_Publishing, TckAgent):
    pass


class Bare03(_Publishing, TckAgent03):
    pass


def described(url, target):
    card = AgentCard()
    card.CopyFrom(TckAgent.card)
    card.capabilities.push_notifications = True
    for version in ("1.0", "0.3"):
        for binding, address in (("JSONRPC", f"{url}/"), ("HTTP+JSON", url), ("GRPC", target)):
            card.supported_interfaces.append(
                AgentInterface(url=address, protocol_binding=binding, protocol_version=version)
            )
    return card


async def serve(agent):
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    rpc = grpc.aio.server()
    card = described(url, f"127.0.0.1:{rpc.add_insecure_port('127.0.0.1:0')}")
    configs = InMemoryPushNotificationConfigStore()
    sender = BasePushNotificationSender(httpx.AsyncClient(), configs)
    handler = DefaultRequestHandler(agent, InMemoryTaskStore(), card, push_config_store=configs, push_sender=sender)
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), rpc)
    a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(CompatGrpcHandler(handler), rpc)
    await rpc.start()
    routes = [
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True),
        *create_rest_routes(handler, enable_v0_3_compat=True),
    ]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_config=None, access_log=False))
    serving = asyncio.create_task(server.serve([listener]))
    print(f"listening on {url}", flush=True)  # noqa: T201 - as the host does
    await serving
    await rpc.stop(0)


if __name__ == "__main__":
    asyncio.run(serve(Bare03() if sys.argv[1:] == ["0.3"] else Bare10()))
