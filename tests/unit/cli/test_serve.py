"""`serve`: settings, address, readiness and the way it ends. The application is a stand-in that obeys its store URI."""

import json
import signal
import socket
import typing
import urllib.request

import pytest

from a2a_gcs.cli import serve as command
from a2a_gcs.host.settings import Settings

HOST = """
import contextlib, sys, types
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from a2a_gcs.errors import ConfigError, NotFound

def create_app(settings):
    @contextlib.asynccontextmanager
    async def lifespan(app):
        if settings.store == "gs://absent":
            raise NotFound("bucket absent")
        if settings.store == "broken":
            raise ZeroDivisionError("a bug")
        yield
        if settings.store == "broken-end":
            raise NotFound("heartbeat")
        print("closed", file=sys.stderr)

    if settings.store == "nonsense":
        raise ConfigError("store 'nonsense' is not understood")
    async def show(request):
        return JSONResponse(settings.model_dump(mode="json"))
    return Starlette(routes=[Route("/", show)], lifespan=lifespan)

module = types.ModuleType("a2a_gcs.host.app")
module.create_app = create_app
sys.modules["a2a_gcs.host.app"] = module
"""


@pytest.fixture
def serve(start):
    return lambda *arguments, **environment: start("serve", *arguments, prelude=HOST, **environment)


@pytest.fixture
def settings_of_serve(run, monkeypatch):
    """The settings that a command line and an environment amount to."""

    def settings(*arguments, **environment):
        got = []
        monkeypatch.setattr("a2a_gcs.cli.hosting.host_until_stopped", got.append)
        result = run("serve", *arguments, **environment)
        assert result.exit_code == 0, result.stderr
        return got[0]

    return settings


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_on_stdout_when_ready_and_a_clean_end(serve, number):
    """Port 0 is replaced in the line and in the settings; both signals close everything and end with status 0."""
    host = serve("--port", "0")
    line = host.line()
    assert line.startswith("listening on http://127.0.0.1:")
    with urllib.request.urlopen(line.removeprefix("listening on "), timeout=10) as answer:
        assert json.load(answer)["port"] == int(line.rpartition(":")[2])
    host.signal(number)
    status, out, err = host.end()
    assert (status, out) == (0, "")
    assert "closed\n" in err


def test_a_failed_start_is_one_line_without_a_traceback(serve):
    """Nothing is printed on stdout, the reason is on stderr, and the status is not 0."""
    status, out, err = serve("--port", "0", "--store", "gs://absent").end()
    assert (status, out) == (1, "")
    assert err.splitlines()[-1] == "error: 'bucket absent' not found"
    assert "Traceback" not in err


def test_a_bug_in_the_start_keeps_its_traceback_in_the_log(serve):
    """What nobody raised on purpose is logged in full, and still ends with a line that says what it was."""
    status, out, err = serve("--port", "0", "--store", "broken").end()
    assert (status, out) == (1, "")
    assert err.splitlines()[-1] == "error: the host failed: ZeroDivisionError: a bug"
    assert any("Traceback" in json.loads(line).get("exception", "") for line in err.splitlines()[:-1])


def test_a_failed_stop_is_not_status_0(serve):
    """A host that could not close in order says so after SIGTERM."""
    host = serve("--port", "0", "--store", "broken-end")
    host.line()
    host.signal(signal.SIGTERM)
    status, _, err = host.end()
    assert (status, err.splitlines()[-1]) == (1, "error: 'heartbeat' not found")


def test_a_configuration_that_cannot_be_used_is_status_2(serve):
    """Also when only the application notices."""
    status, out, err = serve("--port", "0", "--store", "nonsense").end()
    assert (status, out) == (2, "")
    assert err.splitlines()[-1] == "error: store 'nonsense' is not understood"


def test_a_port_in_use_is_named_with_the_way_out(serve):
    """Binding comes first: nothing starts on a port that somebody else has."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = serve("--port", str(port)).end()
    assert (status, out) == (1, "")
    reason = f"error: port {port} is in use by another program; stop it, or choose another port with --port"
    assert err.splitlines()[-1] == reason


@pytest.mark.parametrize(
    ("arguments", "environment", "port"),
    [
        ([], {}, 8080),
        ([], {"PORT": "9000"}, 9000),
        ([], {"PORT": "9000", "A2A_GCS_PORT": "9001"}, 9001),
        (["--port", "9002"], {"PORT": "9000", "A2A_GCS_PORT": "9001"}, 9002),
    ],
)
def test_the_port_comes_from_the_option_the_setting_cloud_run_or_the_default(
    settings_of_serve, arguments, environment, port
):
    """In this order."""
    assert settings_of_serve(*arguments, **environment).port == port


def test_every_option_reaches_its_setting_and_wins_over_the_environment(settings_of_serve, tmp_path):
    """One option a setting, of the same name."""
    given = {
        "store": "file:/x",
        "agent": "a.b:c",
        "host": "0.0.0.0",
        "port": 1,
        "work_dir": str(tmp_path),
        "public_url": "https://agent.example/",
        "answers": "message",
        "resume_from": "terminal",
        "lease_seconds": 5,
        "log_level": "debug",
    }
    options = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    settings = settings_of_serve(*options, "--allow-unauthenticated", A2A_GCS_STORE="memory", A2A_GCS_ANSWERS="task")
    shown = settings.model_dump(mode="json")
    assert {name: shown[name] for name in given} == given
    assert shown["allow_unauthenticated"] is True


def test_settings_without_an_option_come_from_the_environment(settings_of_serve):
    """Also those that are rarely set, and flags."""
    settings = settings_of_serve(
        A2A_GCS_MAX_WORKSPACE_FILES="7", A2A_GCS_ALLOW_UNAUTHENTICATED="true", A2A_GCS_HOST="0.0.0.0"
    )
    assert (settings.max_workspace_files, settings.allow_unauthenticated, settings.host) == (7, True, "0.0.0.0")


def test_help_shows_the_settings_own_defaults():
    """The literals that keep `--help` fast are those of Settings."""
    hints = typing.get_type_hints(command.serve, include_extras=True)
    options = {name: hint.__metadata__[0] for name, hint in hints.items() if name not in {"return", "config"}}
    for name, option in options.items():
        default = Settings.model_fields[name].default
        assert str(option.show_default) == str(default) or default is None
        assert f"A2A_GCS_{name.upper()}" in option.envvar


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "host 0.0.0.0 is reachable from outside and there is no authentication"),
        (["--lease-seconds", "1"], "--lease-seconds or A2A_GCS_LEASE_SECONDS: Input should be greater than or equal"),
        (["--answers", "both"], "--answers or A2A_GCS_ANSWERS: Input should be 'task' or 'message', not 'both'"),
        (["--port", "70000"], "--port or A2A_GCS_PORT: Input should be less than or equal to 65535, not 70000"),
    ],
)
def test_a_wrong_setting_is_status_2_and_named_as_it_is_set(run, arguments, says):
    """No traceback: the option, the variable, and what is accepted."""
    result = run("serve", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {says}")


def test_the_commands_are_known_without_importing_what_they_run(start):
    """`--help` needs neither the SDK nor a web server nor a storage client."""
    prelude = (
        "import atexit, sys\n"
        "heavy = {'a2a', 'fastapi', 'uvicorn', 'gcsfs', 'pydantic', 'structlog', 'httpx'}\n"
        "atexit.register(lambda: print('heavy:', sorted(heavy & set(sys.modules))))"
    )
    status, out, _ = start("--help", prelude=prelude).end()
    assert status == 0
    assert all(name in out for name in ("serve", "dev", "send", "cancel", "workspace"))
    assert out.splitlines()[-1] == "heavy: []"


@pytest.mark.parametrize("words", [["migrate"], ["gc"], ["doctor"], ["bucket", "apply"]])
def test_help_is_folded_by_the_terminal_alone(run, words):
    """Each paragraph is one line where there is room for it, however its docstring is written."""
    text = run(*words, "--help", COLUMNS="2000", TERMINAL_WIDTH="2000").stdout.split("╭")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    assert len(lines) == 3  # usage, and two paragraphs
    assert all(line.endswith(".") for line in lines[1:])
