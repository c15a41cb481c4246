"""One send of a client, when it was answered, and which requests to the bucket were made for it.

Requests are told apart by the ids in their keys, so that any number of sends go on side by side, and what hosts do by
themselves (heartbeats, sweeps) is left out.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from fake_gcs.meter import billing_class, is_billed, summary
from tests.support.cost import Cost, Meter

SHORT = "write 256"
"""A short task that changes its workspace."""


@dataclass
class Send:
    """What a client saw; moments are of CLOCK_MONOTONIC, as the emulator's are.

    Attributes:
        task: The id of the task.
        context: That of its context.
        sent: When the message was sent.
        first: When the first event came: of a blocking send, the answer.
        answered: When the answer was complete.
    """

    task: str
    context: str
    sent: float
    first: float
    answered: float

    @property
    def seconds(self):
        return self.answered - self.sent

    @property
    def seconds_to_first(self):
        return self.first - self.sent


async def blocking(client, text, **ids):
    sent = time.monotonic()
    task = await client.send(text, **ids)
    answered = time.monotonic()
    assert client.dialect.state(task) == "completed", task
    return Send(task["id"], task["contextId"], sent, answered, answered)


async def streaming(client, text, **ids):
    sent, first, task, last = time.monotonic(), None, None, None
    async for last in client.events(text, **ids):
        if first is None:
            first, task = time.monotonic(), last["task"]
    assert client.dialect.state(last["statusUpdate"]) == "completed", last
    return Send(task["id"], task["contextId"], sent, first, time.monotonic())


def billed(cost, name):
    """How many requests of a class are billed: one that is refused for its precondition is free."""
    classes = [
        billing_class(r["operation"]) if is_billed(r["operation"], r["status"]) else "free" for r in cost.requests
    ]
    return classes.count(name)


class Bucket:
    """The requests to one bucket of an emulator, by the send they were made for."""

    def __init__(self, emulator, name):
        self._meter = Meter(emulator, name)
        self._requests = []

    async def settle(self):
        """Waits until nothing more comes, which includes what is written behind an answer."""
        self._requests += (await asyncio.to_thread(self._meter.rest)).requests

    def of(self, send):
        """(to the first event, to the answer, in all), each a Cost. The send is the last one of its context."""
        own = [
            one
            for one in self._requests
            if one["started"] >= send.sent and (send.task in one["key"] or send.context in one["key"])
        ]
        until = (send.first, send.answered, float("inf"))
        return tuple(Cost([one for one in own if one["ended"] <= moment]) for moment in until)

    def round_trips_to_first(self, send):
        """Of requests to the first event, without the workspace: that is restored while the event is on its way."""
        first = self.of(send)[0]
        return Cost([one for one in first.requests if not one["key"].endswith("/workspace.tar.gz")]).round_trips

    def dollars(self, send):
        """What the requests of a send are billed, all of them, in US dollars."""
        return summary(self.of(send)[2].requests)["dollars"]
