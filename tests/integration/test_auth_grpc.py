"""Authentication of RPCs: every method of every service refuses those who prove nothing, but for health."""

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from a2a_gcs.objectstore.memory import MemoryStore
from tests.support.a2a_grpc import GRPC_BINDINGS, GrpcClient
from tests.support.auth_hosts import TOKEN, TOKENS, WHOAMI
from tests.support.host_thread import serve_in_thread

SERVICES = [service for module in (a2a_pb2, a2a_v0_3_pb2) for service in module.DESCRIPTOR.services_by_name.values()]
METHODS = [(f"/{service.full_name}/{method.name}", method) for service in SERVICES for method in service.methods]
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    with serve_in_thread(MemoryStore(), agent=WHOAMI, work_dir=work, grpc_port=0, **TOKENS) as host:
        yield host


async def code(channel, path, metadata, *, streams=False):
    """The status with which a call of a path ends."""
    try:
        if streams:
            async for _ in channel.unary_stream(path)(b"", metadata=metadata, timeout=20):
                pass
        else:
            await channel.unary_unary(path)(b"", metadata=metadata, timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize(("path", "method"), METHODS, ids=[path for path, _ in METHODS])
async def test_every_method_wants_a_token(host, path, method):
    """None, a wrong one and two of them are UNAUTHENTICATED, streams too; with one the call gets further."""
    async with grpc.aio.insecure_channel(host.grpc_target) as channel:
        good = ("authorization", f"Bearer {TOKEN}")
        for metadata in ([], [("authorization", "Bearer wrong")], [good, good]):
            ended = await code(channel, path, metadata, streams=method.server_streaming)
            assert ended is grpc.StatusCode.UNAUTHENTICATED
        ended = await code(channel, path, [good, ("a2a-version", "1.0")], streams=method.server_streaming)
        assert ended is not grpc.StatusCode.UNAUTHENTICATED


async def test_reflection_wants_a_token_and_health_does_not(host):
    """As /docs and /health over HTTP."""
    async with grpc.aio.insecure_channel(host.grpc_target) as channel:
        health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        assert await code(channel, REFLECTION, [], streams=True) is grpc.StatusCode.UNAUTHENTICATED
        good = [("authorization", f"Bearer {TOKEN}")]
        assert await code(channel, REFLECTION, good, streams=True) is grpc.StatusCode.OK


@pytest.mark.parametrize("binding", GRPC_BINDINGS)
async def test_the_agent_is_told_who_calls_over_grpc(host, binding):
    """The owner that the token names."""
    async with GrpcClient(host.grpc_target, binding, metadata=[("authorization", f"Bearer {TOKEN}")]) as client:
        assert (await client.send("hello")).text == "alice:True"
