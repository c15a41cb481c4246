"""One grpc.aio server: A2A 1.0, A2A 0.3, reflection and health."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import grpc
import structlog
from a2a.auth.user import User
from a2a.compat.v0_3 import a2a_v0_3_pb2, a2a_v0_3_pb2_grpc
from a2a.types import a2a_pb2, a2a_pb2_grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from a2a_gcs.errors import ConfigError
from a2a_gcs.host.grpc.agents import ServedAgent, by_agent
from a2a_gcs.host.grpc.servicers import CallContexts, Context, Service03, Service10

log = structlog.get_logger(__name__)

GRACE_SECONDS = 0.5
"""How long RPCs may go on after the drain, which has ended their work; on Cloud Run SIGKILL comes after 10 s."""

V10, V03 = (d.services_by_name["A2AService"] for d in (a2a_pb2.DESCRIPTOR, a2a_v0_3_pb2.DESCRIPTOR))
SERVICES = (V10.full_name, V03.full_name)


class GrpcServer:
    """Serves agents. To be used in one event loop, once.

    Args:
        agents: What is served; one with an empty path, or several of which each has its own.
        host: Address to listen on.
        port: 0 picks a free one.
        max_request_bytes: Larger messages are refused with RESOURCE_EXHAUSTED.
        interceptors: See every RPC first, health and reflection too; one that refuses aborts it.
        user: Names the caller of an RPC that the interceptors let in.
    """

    def __init__(
        self,
        agents: Sequence[ServedAgent],
        *,
        host: str,
        port: int,
        max_request_bytes: int,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        user: Callable[[Context], User] | None = None,
    ) -> None:
        self._agents = agents
        self._host = host
        self._port = port
        self._interceptors = interceptors
        self._user = user
        self._options = [
            ("grpc.max_receive_message_length", max_request_bytes),
            ("grpc.max_send_message_length", -1),  # a task may be larger than any one message
            ("grpc.so_reuseport", 0),  # two hosts on one port would share its calls in silence
        ]
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> int:
        """Listens, and returns the port. Raises ConfigError where that cannot be had."""
        server = grpc.aio.server(interceptors=self._interceptors, options=self._options)
        contexts = CallContexts(self._user)
        new = by_agent(V10, {a.path: Service10(a.handler, contexts) for a in self._agents})
        old = by_agent(V03, {a.path: Service03(a.handler, contexts, a.card) for a in self._agents})
        a2a_pb2_grpc.add_A2AServiceServicer_to_server(new, server)  # type: ignore[no-untyped-call]
        a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(old, server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection([*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
        name = f"[{self._host}]" if ":" in self._host else self._host
        try:
            port = int(server.add_insecure_port(f"{name}:{self._port}"))
        except RuntimeError as e:
            raise ConfigError(
                f"gRPC cannot listen on {name}:{self._port}; if the port is in use, choose another with "
                "--grpc-port (with --grpc-only: --port)"
            ) from e
        await server.start()
        for service in ("", *SERVICES):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        self._server = server
        log.info("grpc.listening", host=self._host, port=port)
        return port

    async def refuse(self) -> None:
        """Says NOT_SERVING to whoever asks for the health, from now on."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace: float = GRACE_SECONDS) -> None:
        """Takes no more RPCs, and ends those under way once the grace is over. May be repeated."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace)
