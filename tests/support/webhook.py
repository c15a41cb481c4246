"""A receiver of push notifications: a server in a thread that keeps what arrives, and answers as it is told."""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from a2a_gcs.host.push.payload import DELIVERY_ID, TOKEN


@dataclass(frozen=True)
class Notification:
    """What arrived once."""

    path: str
    headers: dict[str, str]
    body: dict

    @property
    def id(self):
        return self.headers[DELIVERY_ID.lower()]

    @property
    def token(self):
        return self.headers.get(TOKEN.lower())

    @property
    def told(self):
        return self.body.get("statusUpdate") or self.body

    @property
    def state(self):
        return self.told["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")

    @property
    def task_id(self):
        return self.told.get("taskId") or self.told["id"]


class Webhook:
    """Attributes:
    received: All that arrived, in order.
    answers: Statuses of the next answers; 200 once it is empty.
    held: While it is set, requests are kept waiting.
    """

    def __init__(self, port=0, ssl=None):
        self.received = []
        self.answers = []
        self.held = threading.Event()
        self._free = threading.Condition()
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = webhook._take(Notification(self.path, headers, body))
                with contextlib.suppress(OSError):  # whoever asked may have given up, or been killed
                    self.send_response(status)
                    if status in {301, 302, 307, 308}:
                        self.send_header("Location", f"{webhook.url}/elsewhere")
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if ssl is not None:
            self._server.socket = ssl.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def _take(self, notification):
        with self._free:
            self.received.append(notification)
            status = self.answers.pop(0) if self.answers else 200
            self._free.wait_for(lambda: not self.held.is_set())
        return status

    def hold(self):
        """From now on requests wait for their answer."""
        self.held.set()

    def release(self):
        with self._free:
            self.held.clear()
            self._free.notify_all()

    def states(self, path=None):
        """The states that arrived, in order, each once however often it was repeated."""
        seen, states = set(), []
        for one in list(self.received):
            if one.id not in seen and path in {None, one.path}:
                seen.add(one.id)
                states.append(one.state)
        return states

    def close(self):
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
