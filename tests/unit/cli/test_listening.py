"""What a command listens on."""

import socket

import pytest

from a2a_gcs.cli.errors import CommandFailed
from a2a_gcs.cli.listening import listen


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_what_is_written_to_a_connection_leaves_at_once(host):
    """An answer goes out in two writes: the second one does not wait for the client to acknowledge the first."""
    with listen(host, 0) as listener, socket.create_connection(listener.getsockname()[:2]):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_in_use_is_told_with_what_chooses_another():
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(CommandFailed, match=f"port {port} is in use.*--metrics-port"):
            listen("127.0.0.1", port, option="--metrics-port")
