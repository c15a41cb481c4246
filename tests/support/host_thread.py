"""A host in a thread of this process, over a store object: real HTTP, and a bucket that lives in memory."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass

import uvicorn

from a2a_gcs.host.app import create_app
from a2a_gcs.host.settings import Settings
from tests.support.places import Place

START_SECONDS = 20.0


@dataclass
class HostThread:
    url: str
    place: Place
    grpc_target: str | None = None


@contextlib.contextmanager
def serve_in_thread(store, **settings):
    """Runs `create_app(settings, store=store)` under uvicorn until the end of the `with`."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = create_app(Settings(port=port, **settings), store=store)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="host under test")
    thread.start()
    try:
        for _ in range(int(START_SECONDS / 0.05)):
            if server.started or not thread.is_alive():
                break
            thread.join(0.05)
        assert server.started, "the host did not start"
        grpc_port = getattr(app.state, "grpc_port", None)
        target = None if grpc_port is None else f"127.0.0.1:{grpc_port}"
        yield HostThread(f"http://127.0.0.1:{port}", Place("memory", opened=store), target)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
