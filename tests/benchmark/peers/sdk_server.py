"""The agent of the benchmarks on a2a-sdk's own request handler and task stores, as its documentation shows.

`python sdk_server.py memory` or `python sdk_server.py <SQLAlchemy URL>` says where it listens as `a2a-gcs serve` does.
Runs in an environment of its own: nothing of this project is imported but the benchmarks' agent.
"""

from __future__ import annotations

import asyncio
import sys

import uvicorn
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from starlette.applications import Starlette

from tests.benchmark.agent import BenchmarkAgent, card
from tests.benchmark.listening import listener


async def store_of(where):
    if where == "memory":
        return InMemoryTaskStore()
    from a2a.server.tasks import DatabaseTaskStore
    from sqlalchemy.ext.asyncio import create_async_engine

    store = DatabaseTaskStore(create_async_engine(where))
    await store.initialize()
    return store


async def serve(store):
    listening = listener()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    described = card(url)
    handler = DefaultRequestHandler(BenchmarkAgent(), store, described)
    routes = [*create_agent_card_routes(described), *create_jsonrpc_routes(handler, "/")]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_config=None, access_log=False))
    serving = asyncio.create_task(server.serve([listening]))
    print(f"listening on {url}", flush=True)
    await serving


async def main(where):
    await serve(await store_of(where))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
