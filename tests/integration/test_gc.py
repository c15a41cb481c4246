"""`a2a-gcs gc` beside a host that serves: what is old goes, and the contexts go on."""

import json
import subprocess

import pytest

from tests.support.a2a_http import A2AClient, Refused
from tests.support.host_process import COMMAND, environment
from tests.support.turns import running


def gc(place, *arguments):
    """The counts of a run, and what it says on stderr."""
    done = subprocess.run(
        [COMMAND, "gc", "--store", place.uri, "--json", *arguments],
        env=environment(**place.env),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


async def test_old_tasks_go_while_a_host_serves(hosts, make_place):
    """A removed one is not found any more; what waits, what runs and the workspaces stay; a context can be deleted."""
    place = make_place("gcs")
    async with A2AClient(hosts(place).url) as client:
        old = await client.send("write notes.txt first", context="c")
        await client.send("write notes.txt second", context="c")
        waiting = await client.send("ask what?", context="w")
        busy = await running(client, "sleep 600", context="r")

        tasks = ("--longest-run-hours", "0", "--retain-tasks-days", "0")
        status, counts, told = gc(place, *tasks)
        assert (status, counts["tasks"], counts["objects"], counts["contexts"]) == (0, 1, 3, 0)
        assert "soft delete" in told
        with pytest.raises(Refused) as gone:
            await client.get(old.id)
        assert gone.value.code == -32001
        assert (await client.send("read notes.txt", context="c")).artifacts["read"].strip() == "second"

        assert gc(place, *tasks, "--retain-contexts-days", "0")[1]["contexts"] == 1
        assert (await client.get(busy)).state == "working"
        assert (await client.send("answer", task=waiting.id)).state == "completed"
        assert (await client.send("read notes.txt", context="c")).state == "failed"

        status, _, told = gc(place, "--delete-context", "r", "--yes")
        assert status == 1
        assert f"a2a-gcs cancel {busy}" in told
        await client.cancel(busy)
        assert gc(place, "--delete-context", "w", "--yes")[1]["contexts"] == 1
        assert not await place.keys("contexts/w/")
