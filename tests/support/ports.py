"""Ports for programs that are told one, and that have to find it free each time they start."""

from __future__ import annotations

import random
import socket

FIRST, LAST = 20_000, 32_000
"""Below what the kernel gives to connections and to whoever asks for port 0 (32768 and up on Linux, 49152 elsewhere):
a port of those may be anybody's by the time it is used."""


def free_port():
    """A port of 127.0.0.1 on which nothing listens, and that nothing is given by chance."""
    while True:
        port = random.randint(FIRST, LAST)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
