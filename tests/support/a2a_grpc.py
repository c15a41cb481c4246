"""The client of `a2a_http` over gRPC: the same calls, answers, events and refusals.

Messages are protobuf on the wire, and the JSON of REST in `raw`.
"""

from __future__ import annotations

import contextlib
import uuid

import grpc
from a2a.compat.v0_3 import a2a_v0_3_pb2, a2a_v0_3_pb2_grpc
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from google.rpc import error_details_pb2, status_pb2

from tests.support.a2a_http import _CODES, Refused, _answer, _event

GRPC_10, GRPC_03 = GRPC_BINDINGS = ("grpc-1.0", "grpc-0.3")


class GrpcClient:
    """Speaks one version to one server.

    Args:
        target: `host:port`.
        binding: One of `GRPC_BINDINGS`.
        metadata: Sent with every call, beside the version.
        tenant: Named in every request of 1.0.
    """

    def __init__(self, target, binding=GRPC_10, *, timeout=90.0, metadata=(), options=(), tenant=""):
        self.binding = binding
        self._new = binding == GRPC_10
        self._pb = a2a_pb2 if self._new else a2a_v0_3_pb2
        self._timeout = timeout
        self._tenant = tenant
        self._metadata = [("a2a-version", "1.0" if self._new else "0.3"), *metadata]
        limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.aio.insecure_channel(target, options=[*limits, *options])
        services = a2a_pb2_grpc if self._new else a2a_v0_3_pb2_grpc
        self.stub = services.A2AServiceStub(self.channel)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.aclose()

    async def aclose(self):
        await self.channel.close()

    async def send(self, text, **options):
        result = await self.call("SendMessage", self._message(text, **options))
        return _answer(result.get("task") or result.get("message") or result.get("msg"))

    async def get(self, task_id):
        return _answer(await self.call("GetTask", self._named("GetTaskRequest", task_id)))

    async def cancel(self, task_id):
        return _answer(await self.call("CancelTask", self._named("CancelTaskRequest", task_id)))

    async def list(self, **params):
        return await self.call("ListTasks", ParseDict(params, self._pb.ListTasksRequest()))

    def stream(self, text, **options):
        return self._events(self.stub.SendStreamingMessage, self._message(text, **options))

    def subscribe(self, task_id):
        if self._new:
            return self._events(self.stub.SubscribeToTask, self._named("SubscribeToTaskRequest", task_id))
        return self._events(self.stub.TaskSubscription, self._named("TaskSubscriptionRequest", task_id))

    async def call(self, method, request):
        """One RPC by name; its answer as JSON."""
        try:
            answer = await getattr(self.stub, method)(
                self._below_tenant(request), metadata=self._metadata, timeout=self._timeout
            )
        except grpc.aio.AioRpcError as e:
            raise _refused(e) from e
        return MessageToDict(answer)

    def _below_tenant(self, request):
        if self._tenant:
            request.tenant = self._tenant
        return request

    def _named(self, kind, task_id):
        if self._new:
            return getattr(self._pb, kind)(id=task_id)
        return getattr(self._pb, kind)(name=f"tasks/{task_id}")

    def _message(self, text, *, context=None, task=None, message_id=None, at_once=False):
        message = {"messageId": message_id or uuid.uuid4().hex, "role": "ROLE_USER"}
        message |= {name: value for name, value in (("contextId", context), ("taskId", task)) if value is not None}
        if self._new:
            message["parts"] = [{"text": text}]
            params = {"message": message, "configuration": {"returnImmediately": at_once}}
        else:
            message["content"] = [{"text": text}]
            params = {"request": message, "configuration": {"blocking": not at_once}}
        return ParseDict(params, self._pb.SendMessageRequest())

    async def _events(self, method, request):
        call = method(self._below_tenant(request), metadata=self._metadata, timeout=self._timeout)
        try:
            with contextlib.closing(_Cancelling(call)):
                async for response in call:
                    yield _event(MessageToDict(response))
        except grpc.aio.AioRpcError as e:
            raise _refused(e) from e


class _Cancelling:
    def __init__(self, call):
        self._call = call

    def close(self):
        self._call.cancel()


def details_of(error):
    """The google.rpc.Status that came in an error's trailers."""
    status = status_pb2.Status()
    trailers = dict(error.trailing_metadata() or ())
    status.ParseFromString(trailers.get("grpc-status-details-bin", b""))
    return status


def _refused(error):
    info = error_details_pb2.ErrorInfo()
    for detail in details_of(error).details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
    return Refused(
        _CODES.get(info.reason, 0), error.details(), dict(info.metadata), status=error.code().name, sse=False
    )
