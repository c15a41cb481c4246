"""What a task finds in its workspace: what the last completed task of its context left, and nothing else."""

from tests.support.turns import running


async def test_the_next_task_finds_the_files(shared, connect, fresh):
    """Task 1 writes a file, task 2 reads it; two tasks, one context, both listed under it and terminal."""
    client = connect(shared)
    first = await client.send("write notes/a.txt of the first", context=fresh)
    second = await client.send("read notes/a.txt", context=fresh)
    assert second.text == "of the first"
    assert first.id != second.id
    listed = await client.list(contextId=fresh)
    assert {(t["id"], t["contextId"], t["status"]["state"]) for t in listed["tasks"]} == {
        (t.id, fresh, "TASK_STATE_COMPLETED") for t in (first, second)
    }


async def test_deleted_files_stay_deleted(shared, connect, fresh):
    """A file that a task removed is not there in the next, nor in its archive."""
    client = connect(shared)
    await client.send("write a.txt one", context=fresh)
    await client.send("rm a.txt", context=fresh)
    read = await client.send("read a.txt", context=fresh)
    assert (read.state, read.text) == ("failed", "'a.txt' is not a file of the workspace")
    last = await client.send("hello", context=fresh)
    assert list(await shared.place.files(fresh, last.id)) == ["journal.md"]


async def test_a_failed_task_leaves_no_trace(two_hosts, connect, fresh):
    """What a task wrote before it failed is not in the next one, on either host."""
    a, b = (connect(host) for host in two_hosts)
    await a.send("write kept.txt kept", context=fresh)
    assert (await a.send("spoil kept.txt spoiled", context=fresh)).state == "failed"
    for client in (a, b):
        assert (await client.send("read kept.txt", context=fresh)).text == "kept"


async def test_a_canceled_task_leaves_no_trace(shared, connect, fresh):
    """The journal line of a canceled task is not in the next one's journal."""
    client = connect(shared)
    await client.send("hello", context=fresh)
    await client.cancel(await running(client, "sleep 60", context=fresh))
    after = await client.send("read journal.md", context=fresh)
    assert after.text == "1. hello\n2. read journal.md\n"


async def test_two_contexts_are_separate_also_after_a_restart(make_place, hosts, connect, fresh):
    """Each context sees its own files only, in its archive too, and so it is on the next host."""
    place = make_place("gcs")
    host = hosts(place)
    for name in ("a", "b"):
        await connect(host).send(f"write {name}.txt of {name}", context=f"{fresh}-{name}")
    host.kill()
    client = connect(host.restart())
    for name, other in (("a", "b"), ("b", "a")):
        assert (await client.send(f"read {other}.txt", context=f"{fresh}-{name}")).state == "failed"
        own = await client.send(f"read {name}.txt", context=f"{fresh}-{name}")
        assert own.text == f"of {name}"
        assert set(await place.files(f"{fresh}-{name}", own.id)) == {"journal.md", f"{name}.txt"}


async def test_a_task_has_only_its_own_artifacts_and_history(shared, connect, fresh):
    """The second task of a context inherits files, and neither artifacts nor history."""
    client = connect(shared)
    first = await client.send("stream 2", context=fresh)
    second = await client.send("hello", context=fresh)
    assert set(first.artifacts) == {"stream", "files"}
    assert set(second.artifacts) == {"files"}
    assert second.said == ["hello"]
    assert (await client.get(first.id)).said == ["stream 2"]


async def test_an_answered_task_resumes_its_own_files(shared, connect, fresh):
    """A question's files are there when it is answered, and in the next task once it has completed."""
    client = connect(shared)
    asked = await client.send("ask why?", context=fresh)
    await client.send("ask and how?", task=asked.id)
    done = await client.send("read journal.md", task=asked.id)
    assert done.text == "1. ask why?\n2. ask and how?\n3. read journal.md\n"
    assert (await client.send("hello", context=fresh)).text == "journal.md holds 4 messages"
