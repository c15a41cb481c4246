"""`a2a-gcs dev`: emulator, bucket and host in one process tree, which may be killed at any time and keeps its data."""

import pytest

from tests.support.host_process import CommandProcess
from tests.support.ports import free_port


@pytest.fixture
def dev(tmp_path):
    options = ["--port", str(free_port()), "--emulator-port", str(free_port()), "--data", str(tmp_path / "data")]
    process = CommandProcess(["dev", *options], log=tmp_path / "dev.log", cwd=tmp_path)
    yield process.start()
    process.kill_group()


@pytest.mark.parametrize("kill", ["kill", "kill_group", "terminate"])
async def test_dev_starts_again_on_the_same_ports_with_its_data(dev, connect, fresh, kill):
    """However it ends, twice in a row: the next start on the same ports serves every task that was answered."""
    url, answered = dev.url, []
    for number in range(2):
        client = connect(dev)
        assert [(await client.get(task.id)).raw for task in answered] == [task.raw for task in answered]
        answered.append(await client.send("hello", context=fresh))
        assert answered[-1].text == f"journal.md holds {number + 1} message{'s' if number else ''}"
        getattr(dev, kill)()
        dev.restart()
        assert dev.url == url
    client = connect(dev)
    assert [(await client.get(task.id)).raw for task in answered] == [task.raw for task in answered]


async def test_a_question_survives_the_kill_of_dev(dev, connect, fresh):
    """Input-required is answered after kill -9 of everything, and blocks new tasks until then."""
    asked = await connect(dev).send("ask why?", context=fresh)
    dev.kill_group()
    client = connect(dev.restart())
    done = await client.send("because", task=asked.id)
    assert (done.state, done.text, done.said) == ("completed", "journal.md holds 2 messages", ["ask why?", "because"])
