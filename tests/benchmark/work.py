"""What a server is asked for, and whether all of it came back: who does less is not compared."""

from __future__ import annotations

from dataclasses import dataclass

from tests.benchmark.chunks import output_of


@dataclass(frozen=True)
class Work:
    """A task with one artifact.

    Attributes:
        chunks: How many the agent puts out.
        size: Bytes of each.
    """

    chunks: int
    size: int

    @property
    def text(self):
        """The message that asks for it."""
        return f"{self.chunks} {self.size}"

    @property
    def bytes(self):
        return self.chunks * self.size

    async def send(self, client, **ids):
        """A blocking send: the task, which has every chunk and is completed."""
        task = await client.send(self.text, **ids)
        self.check(client.dialect, task)
        return task

    async def stream(self, client, **ids):
        """A streaming send: the Stream, which brought every chunk and the end."""
        stream = await client.stream(self.text, **ids)
        found = (len(stream.arrivals), stream.bytes, stream.state)
        assert found == (self.chunks, self.bytes, "completed"), (client.url, found)
        return stream

    def check(self, dialect, task):
        """That a task which a server has answered with holds the output of this work, chunk by chunk, and is over."""
        (artifact,) = task["artifacts"]
        texts = [part["text"] for part in artifact["parts"]]
        assert len(texts) == self.chunks, len(texts)
        assert "".join(texts) == output_of(self.chunks, self.size), texts[:3]
        assert dialect.state(task) == "completed", task["status"]


async def verified(client):
    """Does one small task of each kind, and reads afterwards that the server holds all of it."""
    work = Work(5, 64)
    task = await work.send(client)
    work.check(client.dialect, await client.get(task["id"]))
    stream = await work.stream(client)
    work.check(client.dialect, await client.get(stream.task_id))
