"""Programs as agents of real hosts, which are killed, suspended and stopped while the programs run."""

import re
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.integration.conftest import LEASE
from tests.support.a2a_http import Refused
from tests.support.host_process import REPOSITORY
from tests.support.processes import alive, of_task, started, write_tree
from tests.support.waiting import until

README = (REPOSITORY / "README.md").read_text("utf-8")

AGENT = """\
#!/bin/bash -eu
read -r word rest
case "$word" in
  tree) echo half > half.txt; exec {python} {tree} "$rest" {marks} ;;
  env) env ;;
  home) cat "$HOME/said" 2>/dev/null || true; echo "$rest" >> "$HOME/said" ;;
  *) echo "$word" >> notes.md; cat notes.md; ls ;;
esac
"""


@pytest.fixture(params=["gcs", "file"])
def place(request, make_place):
    return make_place(request.param)


@dataclass
class Agent:
    """An agent that notes words, or with `tree <mode>` runs `tests.support.processes.TREE`.

    Attributes:
        spec: What `--agent` is given.
        marks: Where the processes of a tree leave their numbers.
    """

    spec: str
    marks: Path


@pytest.fixture
def agent(tmp_path):
    path, marks = tmp_path / "agent.sh", tmp_path / "marks"
    marks.mkdir()
    path.write_text(AGENT.format(python=sys.executable, tree=write_tree(tmp_path), marks=marks))
    path.chmod(0o755)
    return Agent(f"command:{shlex.quote(str(path))}", marks)


async def at_work(client, context, agent, mode):
    """A task whose tree of processes is at work."""
    task = (await client.send(f"tree {mode}", context=context, at_once=True)).id
    pids = await until(lambda: started(agent.marks), what="the processes of the agent")
    await until(lambda: len(of_task(task)) == len(pids) + 1, what="these and their supervisor alone")
    return task, pids


async def accepted(client, context, text):
    """The answer to a message, or None while it says to send again: a context is busy, a host has just woken up."""
    try:
        return await client.send(text, context=context)
    except Refused as refused:
        if refused.data.get("reason") not in {"CONTEXT_BUSY", "STORE_UNAVAILABLE"}:
            raise
        return None


async def test_kill_9_of_the_host_ends_the_program_and_all_that_it_started(place, hosts, connect, fresh, agent):
    """Also what forked and called setsid and ignores TERM; a fresh host goes on from the last completed workspace."""
    host = hosts(place, agent=agent.spec, lease_seconds=LEASE)
    client = connect(host)
    assert (await client.send("one", context=fresh)).artifacts == {"output": "one\nnotes.md\n"}
    task, _ = await at_work(client, fresh, agent, "deaf")
    host.kill()
    await until(lambda: not of_task(task), what="the end of the old run")
    b = connect(hosts(place, agent=agent.spec, lease_seconds=LEASE))
    after = await until(lambda: accepted(b, fresh, "two"), what="the end of the lease")
    assert (after.state, after.artifacts) == ("completed", {"output": "one\ntwo\nnotes.md\n"})
    assert (await b.get(task)).state == "failed"


async def test_the_program_of_a_suspended_host_has_ended_before_another_host_takes_over(
    place, hosts, connect, fresh, agent
):
    """Nobody told its supervisor to: the host fell silent. Awake again, the host works on."""
    host, other = hosts(place, count=2, agent=agent.spec, lease_seconds=LEASE)
    a, b = connect(host), connect(other)
    task, pids = await at_work(a, fresh, agent, "deaf")
    host.suspend()
    after = await until(lambda: accepted(b, fresh, "one"), what="the end of the lease")
    assert not any(map(alive, pids))
    assert after.artifacts == {"output": "one\nnotes.md\n"}
    host.resume()
    await until(lambda: not of_task(task), what="the end of the supervisor")
    done = await until(lambda: accepted(a, f"{fresh}-2", "two"), what="work on the host that woke up")
    assert done.state == "completed"
    assert (await a.get(task)).state == "failed"


async def test_cancel_ends_the_program(place, hosts, connect, fresh, agent):
    """TERM is enough here; the context is free at once."""
    client = connect(hosts(place, agent=agent.spec))
    task, _ = await at_work(client, fresh, agent, "polite")
    assert (await client.cancel(task)).state == "canceled"
    await until(lambda: not of_task(task), what="the end of the program")
    assert {path.name for path in agent.marks.glob("*-heard")} == {"main-heard", "child-heard", "daemon-heard"}
    assert (await client.send("one", context=fresh)).artifacts == {"output": "one\nnotes.md\n"}


async def test_a_program_that_runs_too_long_is_ended(hosts, make_place, connect, fresh, agent):
    """With max_run_seconds: the task fails, and nothing of it runs on."""
    client = connect(hosts(make_place("file"), agent=agent.spec, max_run_seconds=5, command_grace_seconds=0.2))
    answer = await client.send("tree deaf", context=fresh)
    assert answer.state == "failed"
    assert "max_run_seconds" in answer.text
    assert not any(map(alive, started(agent.marks)))
    assert not of_task(answer.id)


async def test_a_host_that_is_stopped_parks_the_task_and_another_goes_on(place, hosts, connect, fresh, agent):
    """SIGTERM: the program ends within the drain, and its files are there for the answer, in the second turn."""
    host, other = hosts(place, count=2, agent=agent.spec)
    task, pids = await at_work(connect(host), fresh, agent, "deaf")
    assert host.terminate() == 0
    assert not any(map(alive, pids))
    b = connect(other)
    assert (await b.get(task)).state == "input-required"
    done = await b.send("go", task=task)
    assert (done.state, done.artifacts) == ("completed", {"output-2": "go\nhalf.txt\nnotes.md\n"})


async def test_no_credential_of_the_host_reaches_the_program(make_place, hosts, connect, fresh, agent):
    """Neither its settings, nor Google's, nor the emulator's address; what a setting names does."""
    secrets = {
        "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere/key.json",
        "CLOUDSDK_AUTH_ACCESS_TOKEN": "token",
        "MODEL_API_KEY": "for the agent",
    }
    place = make_place("gcs")
    place = replace(place, env={**place.env, **secrets})
    client = connect(hosts(place, agent=agent.spec, command_env="MODEL_*"))
    shown = (await client.send("env", context=fresh)).artifacts["output"]
    names = {line.partition("=")[0] for line in shown.splitlines()}
    assert names <= {
        *("PATH", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR", "HOME", "PWD", "MODEL_API_KEY"),
        *("A2A_TASK_ID", "A2A_CONTEXT_ID", "A2A_TURN", "A2A_WORKSPACE", "A2A_MESSAGE_FILE", "A2A_INBOX", "A2A_OUTBOX"),
        *(name for name in names if name.startswith("LC_")),
        *("SHLVL", "_", "OLDPWD"),  # the shell's own
    }
    assert "MODEL_API_KEY=for the agent" in shown.splitlines()


async def test_home_in_the_workspace_is_there_on_another_host(place, hosts, connect, fresh, agent):
    """An agent that keeps its session below HOME resumes it, though no host remembers anything."""
    host, other = hosts(place, count=2, agent=agent.spec, command_home="workspace")
    assert (await connect(host).send("home one", context=fresh)).artifacts == {}
    host.kill()
    assert (await connect(other).send("home two", context=fresh)).artifacts == {"output": "one\n"}


async def test_the_script_of_the_readme_does_what_it_says(make_place, hosts, connect, fresh, tmp_path):
    """As printed: it asks for a name, keeps it in the workspace for the next task, and hands out its notes."""
    (script,) = re.findall(r"^```bash\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert len(script.splitlines()) == 10
    path = tmp_path / "notes.sh"
    path.write_text(script)
    path.chmod(0o755)
    client = connect(hosts(make_place("gcs"), agent=f"command:{path}"))
    asked = await client.send("hello", context=fresh)
    assert (asked.state, asked.text) == ("input-required", "Hello. What is your name?")
    answered = await client.send("Ada", task=asked.id)
    assert (answered.state, answered.artifacts["output-2"]) == ("completed", "Ada has 1 notes\n")
    second = await client.send("buy milk", context=fresh)
    assert (second.state, second.artifacts["output"]) == ("completed", "Ada has 2 notes\n")
    (file,) = (artifact for artifact in second.raw["artifacts"] if artifact["name"] == "notes.md")
    assert file["parts"] == [{"raw": "QWRhCmJ1eSBtaWxrCg==", "filename": "notes.md", "mediaType": "text/markdown"}]
