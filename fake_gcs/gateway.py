"""Answers calls: the table of operations, and errors worded as real GCS words them."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
from multidict import CIMultiDict

from fake_gcs.api import JSON_TYPE, RATE_LIMITED, ApiError, Call, Reply, from_rule, not_implemented
from fake_gcs.blobs import BackendFailed
from fake_gcs.handlers import batch, buckets, control, downloads, listing, objects, resumable, uploads
from fake_gcs.routing import CONTROL, Route, route
from fake_gcs.rules.fields import parse as parse_fields
from fake_gcs.rules.fields import pick
from fake_gcs.rules.preconditions import ConditionNotMet, NotModified
from fake_gcs.rules.problems import Invalid
from fake_gcs.state import State

Handler = Callable[[State, Call], Awaitable[Reply]]

log = logging.getLogger(__name__)

HANDLERS: dict[str, Handler] = {
    "buckets.delete": buckets.delete,
    "buckets.get": buckets.get,
    "buckets.getIamPolicy": buckets.get_policy,
    "buckets.getStorageLayout": buckets.storage_layout,
    "buckets.insert": buckets.insert,
    "buckets.list": buckets.list_buckets,
    "buckets.patch": buckets.change,
    "buckets.setIamPolicy": buckets.set_policy,
    "buckets.testIamPermissions": buckets.test_permissions,
    "buckets.update": buckets.change,
    "objects.cancelUpload": resumable.cancel,
    "objects.compose": objects.compose,
    "objects.copy": objects.copy,
    "objects.delete": objects.delete,
    "objects.get": objects.get,
    "objects.insert": uploads.insert,
    "objects.list": listing.list_objects,
    "objects.media": downloads.media,
    "objects.move": objects.move,
    "objects.patch": objects.change,
    "objects.resume": resumable.resume,
    "objects.rewrite": objects.copy,
    "objects.startUpload": resumable.start,
    "objects.update": objects.change,
    "projects.serviceAccount": buckets.service_account,
}


class Gateway:
    """Answers calls without knowing how they came in."""

    def __init__(self, state: State) -> None:
        self.state = state

    def understand(self, method: str, target: str, headers: Mapping[str, str], base_url: str) -> tuple[Route, Call]:
        """Turns a request's head into a call.

        Raises:
            ApiError: 400, the target is not UTF-8.
        """
        try:
            found = route(method, target, headers.get("X-HTTP-Method-Override", ""))
        except UnicodeDecodeError:
            raise ApiError(400, "invalid", "The request target is not UTF-8.") from None
        call = Call(
            operation=found.operation,
            bucket=found.bucket,
            name=found.name,
            target=found.target,
            params=found.params,
            headers=headers,
            base_url=base_url,
            xml=found.xml,
        )
        return found, call

    async def prepare(self, call: Call) -> None:
        """Learns the key of a call whose name is in its body or its session; faults and meter go by it."""
        call.key = call.target[1] or call.name
        try:
            if call.operation == "objects.insert":
                call.head = await uploads.read_head(call)
                call.key = call.head.name
            elif call.operation == "objects.startUpload":
                call.key = uploads.name_of(call, await call.json())
            elif call.operation in {"objects.resume", "objects.cancelUpload"}:
                call.key = self.state.sessions.get(call.params["upload_id"]).name
        except (ApiError, Invalid) as problem:
            call.problem = problem

    async def answer(self, call: Call, method: str = "", path: str = "") -> Reply:
        """Answers a call; what goes wrong becomes an error reply. method and path matter to the control API."""
        try:
            if call.problem is not None:
                raise call.problem
            selection = None
            if "fields" in call.params and self.state.rules["fields"]:
                selection = parse_fields(call.params["fields"])
            reply = await self._handle(call, method, path)
            if selection is not None and reply.document is not None:
                reply.document = pick(reply.document, selection)
        except (ApiError, Invalid, ConditionNotMet, NotModified) as problem:
            reply = from_rule(problem).reply(call, real=self.state.rules["error_bodies"])
        except (BackendFailed, aiohttp.ClientConnectionError) as error:
            log.exception("fake-gcs-server failed")
            reply = ApiError(500, "backendError", f"Backend Error: {error}").reply(call)
        if reply.document is not None:
            reply.body = json.dumps(reply.document, ensure_ascii=False).encode(errors="surrogatepass")
            reply.headers.setdefault("Content-Type", JSON_TYPE)
        return reply

    def note(self, call: Call, status: int, started: float, sent: int) -> None:
        """Takes an answered call into the meter."""
        self.state.meter.note(
            {
                "operation": call.operation,
                "bucket": call.bucket,
                "key": call.key,
                "status": status,
                "started": started,
                "ended": time.monotonic(),
                "bytes_in": call.received,
                "bytes_out": sent,
            }
        )

    async def _handle(self, call: Call, method: str, path: str) -> Reply:
        if call.operation == CONTROL:
            return await control.run(self.state, call, method, path)
        if call.operation == "batch":
            return await batch.run(call, self._answer_part(call.base_url))
        handler = HANDLERS.get(call.operation)
        if handler is not None:
            return await handler(self.state, call)
        if call.operation:
            raise not_implemented(call.operation)
        raise ApiError(404, "notFound", "Not Found")

    def _answer_part(self, base_url: str) -> batch.Answer:
        async def answer(method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
            started = time.monotonic()
            target = target.removeprefix(base_url)
            _, call = self.understand(method, target, CIMultiDict(headers), base_url)
            call.body = batch.as_body(body)
            await self.prepare(call)
            reply = _status_fault(self.state, call) or await self.answer(call)
            self.note(call, reply.status, started, len(reply.body))
            return reply

        return answer


def _status_fault(state: State, call: Call) -> Reply | None:
    """Serves, inside a batch, the faults that are an answer; the others make no sense there."""
    scripted = state.faults.decide(call.operation, call.bucket, call.key)
    if scripted is None or scripted.fault.action != "status":
        return None
    scripted.served += 1
    return fault_reply(call, scripted.fault.status)


def fault_reply(call: Call, status: int) -> Reply:
    """Answers the error that real GCS gives with a status."""
    reason, message = _FAULT_REASONS.get(status, ("backendError", "Backend Error"))
    domain = "usageLimits" if status == 429 else "global"  # noqa: PLR2004
    return ApiError(status, reason, message.format(call=call), domain=domain).reply(call)


_FAULT_REASONS: dict[int, tuple[str, Any]] = {
    401: ("authError", "Invalid Credentials"),
    403: ("forbidden", "Forbidden"),
    404: ("notFound", "No such object: {call.bucket}/{call.key}"),
    408: ("uploadBrokenConnection", "Request Timeout"),
    409: ("conflict", "Conflict"),
    412: ("conditionNotMet", "At least one of the pre-conditions you specified did not hold."),
    429: (
        "rateLimitExceeded",
        RATE_LIMITED.format(key="{call.bucket}/{call.key}"),
    ),
    500: ("backendError", "Backend Error"),
    503: ("backendError", "Service Unavailable"),
}
