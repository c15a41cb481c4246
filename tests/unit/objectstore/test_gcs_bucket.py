"""What is said of a bucket that cannot be used: one line, what was wrong and what to do, the cause in the debug log."""

import http.server
import socket
import threading

import pytest
from google.auth.exceptions import DefaultCredentialsError, RefreshError
from structlog.testing import capture_logs

from a2a_gcs.errors import Unavailable
from a2a_gcs.objectstore.gcs_bucket import diagnose
from a2a_gcs.objectstore.gcs_reach import why_unreachable

ERROR = Unavailable("hosts/h.json", OSError("boom"))


@pytest.fixture
def closed(monkeypatch):
    """A port where nothing listens, as the emulator's."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    return url


def test_nothing_listens(closed):
    """The address, the system's word for it, the question to ask; urllib3's text is in the debug log alone."""
    with capture_logs() as logs:
        said = diagnose("gs://b/prefix", ERROR)
    assert said == (
        f"bucket b cannot be reached: {closed} cannot be reached (Connection refused); "
        "is the emulator that STORAGE_EMULATOR_HOST names running?"
    )
    assert [(log["event"], log["log_level"], "Max retries" in log["error"]) for log in logs] == [
        ("bucket.unreachable", "debug", True)
    ]


def test_a_name_that_nobody_knows(monkeypatch):
    """RFC 2606: no such host."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://nobody.invalid:1")
    assert "http://nobody.invalid:1 has a name that cannot be resolved; " in diagnose("gs://b", ERROR)


def test_a_server_in_trouble(monkeypatch):
    """A 500 is told by its number, not by its body."""

    class Troubled(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(500, "oh <b>dear</b>")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Troubled) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        said = diagnose("gs://b", ERROR)
        server.shutdown()
    assert f"{url} answers 500; " in said
    assert "dear" not in said


@pytest.mark.parametrize(
    ("error", "todo"),
    [
        (DefaultCredentialsError("a long text with a link"), "gcloud auth application-default login"),
        (RefreshError("invalid_grant", {"error": "x"}), "renew them"),
        (TimeoutError(), "https://storage.googleapis.com does not answer within 5 s; check network"),
    ],
)
def test_each_fault_says_what_to_do(monkeypatch, error, todo):
    """Without the library's own words."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    said = why_unreachable(error, within=5)
    assert todo in said
    assert not any(word in said for word in ("long text", "invalid_grant", "\n"))
