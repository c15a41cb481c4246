"""What the commands log: one JSON object a line, people's format on a terminal, never what is said."""

import io
import json
import logging

import httpx
import pytest
import structlog
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types.a2a_pb2 import AgentCard
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from starlette.applications import Starlette

from a2a_gcs.executors.demo import DemoAgent
from a2a_gcs.host.logging import CHATTY, QUIET, cloud_project, configure_logging


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def restored():
    """Puts the process's logging back."""
    root = logging.getLogger()
    before = root.handlers, root.level
    yield
    root.handlers, level = before
    root.setLevel(level)
    for name in (*CHATTY, *QUIET):
        logging.getLogger(name).setLevel(logging.NOTSET)
    structlog.reset_defaults()


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_both_kinds_of_loggers_write_json_with_a_severity():
    """structlog's fields and the standard library's arguments end in the same shape."""
    out = io.StringIO()
    configure_logging("info", out)
    structlog.stdlib.get_logger("a2a_gcs.x").warning("task.settled", task_id="t1")
    logging.getLogger("other").error("%d left", 3)
    first, second = lines(out)
    assert first.items() >= {"severity": "WARNING", "message": "task.settled", "task_id": "t1"}.items()
    assert second.items() >= {"severity": "ERROR", "message": "3 left", "logger": "other"}.items()


def test_an_exception_is_one_line_with_its_traceback():
    """A log collector reads lines: a traceback must not become twenty of them."""
    out = io.StringIO()
    configure_logging("info", out)
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        structlog.stdlib.get_logger("x").exception("failed")
    (line,) = lines(out)
    assert "Traceback" in line["exception"]


def test_the_level_holds_for_both():
    """Nothing below it is written; a second configuration reaches loggers of the first."""
    out = io.StringIO()
    logger = structlog.stdlib.get_logger("x")
    configure_logging("error", out)
    logger.warning("no")
    logging.getLogger("y").warning("no")
    configure_logging("warning", out)
    logger.warning("yes")
    assert [line["message"] for line in lines(out)] == ["yes"]


def test_a_terminal_gets_lines_for_people():
    """No JSON where somebody reads along."""
    out = Terminal()
    configure_logging("info", out)
    structlog.stdlib.get_logger("x").info("host.started", store="memory")
    assert "host.started" in out.getvalue()
    assert not out.getvalue().startswith("{")


@pytest.mark.parametrize(
    ("version", "method", "message"),
    [
        ("1.0", "SendMessage", {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "secret"}]}),
        ("1.0", "SendMessage", {"role": "ROLE_USER", "parts": "secret"}),
        ("0.3", "message/send", {"role": "secret", "parts": [{"kind": "text", "text": "secret"}]}),
    ],
)
async def test_what_is_said_is_not_logged(version, method, message):
    """Neither at debug, nor when the SDK cannot parse a request and quotes it."""
    out = io.StringIO()
    configure_logging("debug", out)
    handler = DefaultRequestHandler(DemoAgent(), InMemoryTaskStore(), AgentCard(name="demo"))
    app = Starlette(routes=create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True))
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client:
        answer = await client.post("/", json=body, headers={"A2A-Version": version})
    assert answer.status_code == 200
    logging.getLogger("x").debug("reached")
    assert "reached" in out.getvalue()
    assert "secret" not in out.getvalue()


def test_the_project_is_told_by_the_environment(monkeypatch):
    """Outside of Cloud Run nobody is asked."""
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "named")
    assert cloud_project() == "named"
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT")
    monkeypatch.delenv("K_SERVICE", raising=False)
    monkeypatch.setattr("google.auth.default", None)
    assert cloud_project() is None


def test_on_cloud_run_the_credentials_tell_the_project(monkeypatch, tmp_path):
    """And where there are none, the host starts all the same."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    file = tmp_path / "key.json"
    account = {"type": "service_account", "project_id": "of-the-account", "private_key": pem}
    account |= {"client_email": "a@b.example", "token_uri": "https://localhost/"}
    file.write_text(json.dumps(account))
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    monkeypatch.setenv("K_SERVICE", "service")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    assert cloud_project() == "of-the-account"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nowhere"))
    assert cloud_project() is None
