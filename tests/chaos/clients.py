"""Clients that write down what they asked, what they were told, and when."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid

import httpx

from tests.support.a2a_http import JSONRPC_10, A2AClient, Refused, _answer


class Clients:
    """Calls hosts over A2A and keeps a log of every call, also of those that broke off.

    Attributes:
        calls: One dictionary a call, in the order in which they began: kind, host, what was asked, `sent`, `done`,
            `told` (each with its `at`), and how it ended: `error`, `broken`, or `ended` (a stream that was closed in
            order by the server).
    """

    def __init__(self, world):
        self._world = world
        self._clients = {}
        self.calls = []

    async def close(self):
        for client in self._clients.values():
            await client.http.aclose()

    def _to(self, host):
        if host.url not in self._clients:
            self._clients[host.url] = A2AClient(host.url, JSONRPC_10, timeout=40.0)
        return self._clients[host.url]

    async def send(self, host, text, *, context=None, task=None, message_id=None, at_once=False):
        return await self._one(
            "send", host, text=text, context=context, task=task, message_id=message_id or uuid.uuid4().hex,
            at_once=at_once,
        )  # fmt: skip

    async def get(self, host, task):
        return await self._one("get", host, task=task)

    async def cancel(self, host, task):
        return await self._one("cancel", host, task=task)

    async def list(self, host, context):
        return await self._one("list", host, context=context)

    async def stream(self, host, text, *, context=None, task=None, message_id=None, leave=None):
        """Streams until the end, or leaves once `leave` (a function of the call) says so."""
        message_id = message_id or uuid.uuid4().hex
        call = self._begin("stream", host, text=text, context=context, task=task, message_id=message_id)
        events = self._to(host).stream(text, context=context, task=task, message_id=message_id)
        return await self._follow(call, events, leave)

    async def subscribe(self, host, task, *, leave=None):
        call = self._begin("subscribe", host, task=task)
        return await self._follow(call, self._to(host).subscribe(task), leave)

    def _begin(self, kind, host, **asked):
        call = {
            "kind": kind, "host": host.name, "phase": self._world.phase, "sent": time.time(), "done": None,
            "told": [], "error": None, "broken": None, "ended": False, "left": False, **asked,
        }  # fmt: skip
        self.calls.append(call)
        return call

    async def _one(self, kind, host, **asked):
        call = self._begin(kind, host, **asked)
        client = self._to(host)
        with self._ending(call):
            if kind == "send":
                told = [await client.send(asked["text"], **{k: v for k, v in asked.items() if k != "text"})]
            elif kind == "list":
                listing = await client.list(contextId=asked["context"], pageSize=100)
                told = [_answer(raw) for raw in listing.get("tasks", [])]
            else:
                told = [await getattr(client, kind)(asked["task"])]
            call["told"] = [_told(answer, partial=kind == "list") for answer in told]
            call["ended"] = True
        return call

    async def _follow(self, call, events, leave):
        with self._ending(call):
            async with contextlib.aclosing(events):
                async for event in events:
                    call["told"].append(_told_event(event))
                    if leave is not None and leave(call):
                        call["left"] = True
                        return call
            call["ended"] = True
        return call

    @contextlib.contextmanager
    def _ending(self, call):
        try:
            yield
        except Refused as error:
            call["error"] = {"code": error.code, "data": error.data, "message": str(error)}
        except (httpx.HTTPError, httpx.StreamError, AssertionError, KeyError) as error:
            call["broken"] = f"{type(error).__name__}: {error}"
        except asyncio.CancelledError:
            call["broken"] = "left"
            raise
        finally:
            call["done"] = time.time()


def state_of(call):
    """The state that a call was told last, "" if none."""
    return next((t["state"] for t in reversed(call["told"]) if t.get("state")), "")


def task_of(call):
    """The task that a call was told of."""
    return next((t["task"] for t in call["told"] if t.get("task")), None)


def _told(answer, *, partial=False):
    if answer.state is None:
        return {"at": time.time(), "kind": "message", "context": answer.context_id, "text": answer.text}
    return {
        "at": time.time(), "kind": "task", "task": answer.id, "context": answer.context_id, "state": answer.state,
        "timestamp": answer.timestamp, "artifacts": None if partial else answer.artifacts, "text": answer.text,
    }  # fmt: skip


def _told_event(event):
    if event.kind == "task":
        return _told(event.task)
    if event.kind == "status":
        timestamp = event.raw.get("statusUpdate", {}).get("status", {}).get("timestamp")
        return {
            "at": time.time(), "kind": "status", "task": event.task_id, "state": event.state, "timestamp": timestamp,
            "text": event.text,
        }  # fmt: skip
    if event.kind == "artifact":
        return {
            "at": time.time(), "kind": "artifact", "task": event.task_id, "artifact": event.artifact_id,
            "append": event.append, "text": event.text,
        }  # fmt: skip
    return {"at": time.time(), "kind": "message", "text": event.text}
