"""The address that a command listens on, and what to do when it cannot."""

from __future__ import annotations

import errno
import socket
import time

import typer

from a2a_gcs.cli.errors import CommandFailed

BACKLOG = 2048


def listen(host: str, port: int, *, wait: float = 0, option: str = "--port") -> socket.socket:
    """A listening socket; clients that come before anybody accepts wait in its queue.

    What is written to its connections leaves at once (TCP_NODELAY, which they inherit): asyncio asks for that only
    where it has made the socket itself, and an answer in two writes would wait up to 40 ms for an acknowledgement.

    Args:
        host: Name or address of this machine.
        port: 0 picks a free one.
        wait: Seconds to wait for a port that is in use, as it is for a moment after a kill.
        option: What chooses another port, for the message.

    Raises:
        CommandFailed: The port is in use, or the address is not this machine's.
    """
    deadline = time.monotonic() + wait
    told = False
    while True:
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= deadline:
                raise CommandFailed(_unusable(host, port, option, error)) from error
        else:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listener
        if not told:
            typer.echo(f"port {port} is in use; waiting up to {wait:.0f} s for it", err=True)
            told = True
        time.sleep(0.1)


def _unusable(host: str, port: int, option: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use by another program; stop it, or choose another port with {option}"
    if error.errno == errno.EACCES:
        return f"port {port} is not allowed for this user; choose one above 1023 with {option}"
    return f"cannot listen on {host}:{port}: {error.strerror}"
