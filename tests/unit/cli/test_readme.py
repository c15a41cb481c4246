"""The README says what is true: its commands run as written, its agent works, its tables are complete."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import typer

from a2a_gcs.cli.main import app
from a2a_gcs.executors import demo
from a2a_gcs.host.app import create_app
from a2a_gcs.host.settings import Settings
from tests.support.ports import free_port

README = (Path(__file__).parents[3] / "README.md").read_text("utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def cells(header):
    """The rows of the table with this header."""
    table = README.split(f"| {header} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip(" `") for cell in row.strip("| ").split("|")] for row in table]


def test_the_commands_run_as_written(start, tmp_path):
    """Two messages, the keys of the bucket, and the archive; only the ports differ, so that tests can run in parallel.

    Between any two commands the whole of `dev` is killed and started again.
    """
    ports = {"8080": str(free_port()), "4443": str(free_port())}
    output = []
    for block in blocks("sh"):
        dev = start("dev", "--port", ports["8080"], "--emulator-port", ports["4443"])
        assert dev.line().startswith("listening on ")
        script = re.sub("8080|4443", lambda port: ports[port[0]], block)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        run = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env={"PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert run.returncode == 0, run.stderr
        output.append(run.stdout)
        dev.signal(signal.SIGKILL)
        dev.end()
    first, second, keys, journal = output
    assert '"state": "TASK_STATE_COMPLETED"' in first
    assert '"state": "TASK_STATE_COMPLETED"' in second
    assert r"1. hello\n2. read journal.md\n" in second
    assert journal == "1. hello\n2. read journal.md\n"
    patterns = [re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<task>", key) for key in keys.splitlines()]
    assert sorted(key for key in patterns if not key.startswith("hosts/")) == [
        *2 * ["contexts/readme/<task>/task.json"],
        *2 * ["contexts/readme/<task>/workspace.tar.gz"],
        "contexts/readme/context.json",
        *2 * ["tasks/<task>/contextId.txt"],
    ]


async def test_the_example_agent_counts_over_tasks(tmp_path, monkeypatch):
    """It is found as `my_agent:Counter`, and its workspace comes back in the second task."""
    (tmp_path / "my_agent.py").write_text(blocks("python")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    app = create_app(Settings(agent="my_agent:Counter"))

    async def say(client, number):
        message = {"messageId": f"m{number}", "contextId": "c", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        body = {"jsonrpc": "2.0", "id": number, "method": "SendMessage", "params": {"message": message}}
        answer = await client.post("/", json=body, headers={"A2A-Version": "1.0"})
        return answer.json()["result"]["task"]["status"]["message"]["parts"][0]["text"]

    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client,
    ):
        assert await say(client, 1) == "message 1 of this context"
        assert await say(client, 2) == "message 2 of this context"


def test_every_word_of_the_demo_agent_is_in_the_table():
    """In the same order, with the same usage."""
    assert [row[0] for row in cells("message | what it does")] == [word.usage for word in demo.WORDS.values()]


def test_every_setting_is_in_the_table_with_its_default():
    """A new setting has to be documented."""
    rows = {row[0]: row[2] for row in cells("variable | option | default | meaning")}
    assert set(rows) == {f"A2A_GCS_{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        if field.default is not None and not isinstance(field.default, tuple):
            assert rows[f"A2A_GCS_{name.upper()}"] == str(field.default)


def test_every_rule_of_retention_is_in_its_table():
    """With the option and the variable that set it, and its default."""
    command = typer.main.get_command(app).commands["gc"]
    rules = [one for one in command.params if one.envvar and one.envvar != "A2A_GCS_STORE"]
    assert [row[:3] for row in cells("variable | option | default | keeps")] == [
        [one.envvar, one.opts[0], one.show_default if isinstance(one.show_default, str) else str(one.default)]
        for one in rules
    ]


@pytest.mark.parametrize(
    "command",
    [
        "serve",
        "dev",
        "send",
        "cancel",
        "contexts",
        "tasks",
        "show",
        "workspace",
        "config show",
        "migrate",
        "gc",
    ],
)
def test_every_command_is_shown(command):
    """Somewhere among the command lines."""
    assert f"a2a-gcs {command}" in "".join(blocks("shell"))
