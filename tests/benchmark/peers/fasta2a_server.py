"""The work of the benchmark's agent as a worker of fasta2a, served as its documentation shows, on its memory.

`python fasta2a_server.py` says where it listens as `a2a-gcs serve` does. Runs in an environment of its own: nothing
of this project is imported but the text of chunks.
"""

from __future__ import annotations

import contextlib

import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Part
from fasta2a.storage import InMemoryStorage

from tests.benchmark.chunks import chunk_of
from tests.benchmark.listening import listener


class BenchmarkWorker(Worker):
    """Chunks go to the stream as they come, and the whole artifact into the task: its storage appends no chunks."""

    async def run_task(self, params):
        task = await self.storage.load_task(params["id"])
        chunks, size = map(int, task["history"][-1]["parts"][0]["text"].split())
        await self.storage.update_task(task["id"], state="working")
        await self.publish_status(task["id"], task["context_id"], "working")
        parts = []
        for number in range(chunks):
            parts.append(Part(text=chunk_of(number, size)))
            await self.publish_artifact(
                task["id"],
                task["context_id"],
                _artifact(parts[-1:]),
                append=number > 0,
                last_chunk=number == chunks - 1,
            )
        await self.storage.update_task(task["id"], state="completed", new_artifacts=[_artifact(parts)])

    async def cancel_task(self, params):
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history):
        return history

    def build_artifacts(self, result):
        return [result]


def _artifact(parts):
    return Artifact(artifact_id="output", name="output", parts=parts)


def main():
    listening = listener()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    storage, broker = InMemoryStorage(), InMemoryBroker()
    worker = BenchmarkWorker(storage=storage, broker=broker)

    @contextlib.asynccontextmanager
    async def lifespan(app):
        async with app.task_manager, worker.run():
            yield

    app = FastA2A(storage=storage, broker=broker, url=url, name="benchmark", lifespan=lifespan)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    print(f"listening on {url}", flush=True)
    server.run([listening])


if __name__ == "__main__":
    main()
