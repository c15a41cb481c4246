"""Where a peer listens. Needs nothing but Python."""

from __future__ import annotations

import socket


def listener():
    """A free port of loopback, from which all leaves at once: as where uvicorn is given an address and no socket."""
    found = socket.create_server(("127.0.0.1", 0))
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found
