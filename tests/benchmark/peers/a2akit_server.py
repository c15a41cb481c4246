"""The work of the benchmark's agent as a worker of a2akit, served as its documentation shows.

`python a2akit_server.py memory` or `python a2akit_server.py postgresql+asyncpg://...` says where it listens as
`a2a-gcs serve` does. Runs in an environment of its own: nothing of this project is imported but the text of chunks.
"""

from __future__ import annotations

import sys

import uvicorn
from a2akit import A2AServer, AgentCardConfig, CapabilitiesConfig, Worker

from tests.benchmark.chunks import chunk_of
from tests.benchmark.listening import listener


class BenchmarkWorker(Worker):
    async def handle(self, ctx):
        chunks, size = map(int, ctx.user_text.split())
        for number in range(chunks):
            await ctx.emit_text_artifact(
                chunk_of(number, size), artifact_id="output", append=number > 0, last_chunk=number == chunks - 1
            )
        await ctx.complete()


def main(where):
    listening = listener()
    card = AgentCardConfig(
        name="benchmark",
        description="Answers in as many chunks as it is asked for.",
        version="1",
        capabilities=CapabilitiesConfig(streaming=True),
    )
    app = A2AServer(worker=BenchmarkWorker(), agent_card=card, storage=where).as_fastapi_app()
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    print(f"listening on http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
    server.run([listening])


if __name__ == "__main__":
    main(sys.argv[1])
