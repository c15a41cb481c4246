"""`a2a-gcs workspace` in processes of its own, over a bucket that a host has filled."""

import os
import subprocess

import pytest

from tests.support.host_process import COMMAND, environment


@pytest.fixture
def workspace(gcs_host):
    """Runs a command against the bucket of the shared host, which is found by the emulator's variable alone."""

    def workspace(*arguments, **options):
        env = environment(**gcs_host.place.env, A2A_GCS_STORE=gcs_host.place.uri)
        options = {"capture_output": True, "text": True} | options
        return subprocess.run([COMMAND, "workspace", *arguments], env=env, check=True, timeout=60, **options)

    return workspace


async def test_what_tasks_left_is_read_from_the_bucket(gcs_host, connect, fresh, workspace, tmp_path):
    """ls, cat, diff and pull tell of both tasks what they left, and standard error stays silent in between."""
    client = connect(gcs_host)
    first = await client.send("write notes/a.txt hello", context=fresh)
    second = await client.send("write notes/a.txt bye", context=fresh)
    shown = workspace("ls", second.id)
    assert [line.split()[-1] for line in shown.stdout.splitlines()] == ["journal.md", "notes", "notes/a.txt"]
    assert shown.stderr == ""
    assert [workspace("cat", task.id, "notes/a.txt").stdout for task in (first, second)] == ["hello", "bye"]
    changed = workspace("diff", second.id, "--stat").stdout.splitlines()
    assert changed == ["changed   journal.md  +1 -0", "changed   notes/a.txt  +1 -1", *changed[2:]]
    workspace("pull", second.id, str(tmp_path / "to"))
    assert (tmp_path / "to/journal.md").read_text().splitlines()[1] == "2. write notes/a.txt bye"


async def test_a_bar_is_drawn_on_a_terminal_alone(gcs_host, connect, fresh, workspace, tmp_path):
    """On standard error, and gone when the transfer is done; a file or pipe gets none of it."""
    task = (await connect(gcs_host).send("write a hello", context=fresh)).id
    screen, terminal = os.openpty()
    with os.fdopen(screen, "rb", buffering=0) as seen:
        with os.fdopen(terminal, "wb"):
            workspace("pull", task, str(tmp_path / "to"), capture_output=False, stdout=subprocess.PIPE, stderr=terminal)
        drawn = seen.read(1 << 16)
    assert b"pulling" in drawn
    assert drawn.decode().rstrip().endswith(f"entries in {tmp_path / 'to'}")
    assert workspace("pull", task, str(tmp_path / "again")).stderr == f"2 entries in {tmp_path / 'again'}\n"
