"""`a2a-gcs doctor`: what it prints, its status, and its options; what it finds is tested in `tests/unit/doctor`."""

import asyncio
import json

import pytest

from a2a_gcs.layout import context_key, pointer_key, task_key
from a2a_gcs.objectstore import open_store
from a2a_gcs.objectstore.port import OVERWRITE
from tests.support.doctor import EVERY
from tests.support.hosts import Bucket


@pytest.fixture
def uri(tmp_path):
    """A directory in which a host that is gone has left a completed task."""
    uri = f"file:{tmp_path / 'store'}"

    async def fill():
        async with open_store(uri) as store:
            host = await Bucket(store).host("h")
            host.claimed = await host.start("ctx", task_id="t1")
            await host.end(host.claimed)
            await host.die()
            return host.claimed.ref

    ref = asyncio.run(fill())
    return uri, ref


def within(uri, act):
    async def inside():
        async with open_store(uri) as store:
            return await act(store)

    return asyncio.run(inside())


def spoil(uri, ref):
    """Takes the pointer away, and half of task.json."""

    async def act(store):
        await store.delete(pointer_key(ref.task_id))
        info = await store.head(task_key(ref))
        await store.put(task_key(ref), b'{"id": ', OVERWRITE, metadata=info.metadata)

    within(uri, act)


def rows(output):
    """Status by check, of the table."""
    table = [line.split() for line in output.splitlines()]
    return {line[0]: line[1] for line in table if line and line[0] in {check.id for check in EVERY}}


def test_a_good_bucket_is_a_table_of_good_news(run, fake_gcs_server):
    """A row for each check, `all good` at the end, status 0."""
    name = fake_gcs_server.create_bucket()
    environment = {"STORAGE_EMULATOR_HOST": fake_gcs_server.url, "GOOGLE_CLOUD_PROJECT": "123456789012"}
    assert run("bucket", "apply", "--store", f"gs://{name}", **environment).exit_code == 0
    result = run("doctor", "--store", f"gs://{name}", "--region", "us-central1", **environment)
    assert result.exit_code == 0, result.stdout
    assert set(rows(result.stdout)) == {check.id for check in EVERY}
    assert {check for check, status in rows(result.stdout).items() if status != "ok"} == {"billing"}
    assert result.stdout.splitlines()[-1] == "all good, 1 could not be made"


def test_what_is_wrong_comes_with_how_to_fix_it(run, uri):
    """Status 1; the other rows are good."""
    where, ref = uri
    spoil(where, ref)
    result = run("doctor", "--store", where)
    told = " ".join(result.stdout.split())
    assert result.exit_code == 1
    assert {check for check, status in rows(result.stdout).items() if status == "error"} == {
        "unreadable-record",
        "task-without-pointer",
    }
    assert "has no pointer: the task cannot be found by its id fix: --fix writes the pointer" in told
    assert result.stdout.splitlines()[-1].startswith(f"2 of {len(EVERY)} checks found something")


def test_fix_repairs_what_it_can_and_the_status_tells_what_is_left(run, uri):
    """The pointer is back; a task.json that cannot be read is for people."""
    where, ref = uri
    spoil(where, ref)
    fixed = run("doctor", "--store", where, "--fix")
    assert (fixed.exit_code, "done: wrote the pointer of task t1" in fixed.stdout) == (1, True)
    within(where, lambda store: store.delete(task_key(ref)))
    within(where, lambda store: store.delete(pointer_key(ref.task_id)))
    again = run("doctor", "--store", where)
    assert again.exit_code == 0, again.stdout

    async def unpoint(store):
        host = await Bucket(store).host("other")
        claim = await host.start("c2")
        await host.end(claim)
        await host.die()
        await store.delete(pointer_key(claim.ref.task_id))

    within(where, unpoint)
    assert run("doctor", "--store", where, "--fix").exit_code == 0


def test_what_is_left_alone_is_not_repaired(run, uri):
    """A record that nobody can rebuild, as the task that it would be made of cannot be read: status 1, as JSON too."""
    where, ref = uri
    spoil(where, ref)
    within(where, lambda store: store.delete(context_key(ref.context_id)))
    result = run("doctor", "--store", where, "--fix")
    left = f"not repaired: context {ref.context_id} was left alone, as {task_key(ref)} cannot be read"
    assert left in " ".join(result.stdout.split())
    assert f"done: context {ref.context_id}" not in result.stdout
    assert result.stdout.splitlines()[-1].startswith(f"2 of {len(EVERY)} checks found something")
    again = run("doctor", "--store", where, "--fix", "--json")
    lines = {line["check"]: line for line in map(json.loads, again.stdout.splitlines())}
    assert (again.exit_code, "repaired" in lines["context-without-record"]) == (1, False)
    assert len(lines["context-without-record"]["notRepaired"]) == 1


def test_json_is_a_line_for_each_check(run, uri):
    """With what was found, how to fix it, and whether --fix could."""
    where, ref = uri
    spoil(where, ref)
    result = run("doctor", "--store", where, "--json")
    lines = {line["check"]: line for line in map(json.loads, result.stdout.splitlines())}
    assert set(lines) == {check.id for check in EVERY}
    assert (lines["clock"], result.exit_code) == ({"check": "clock", "status": "ok", "findings": []}, 1)
    (pointer,) = lines["task-without-pointer"]["findings"]
    assert (pointer["fixable"], lines["unreadable-record"]["findings"][0]["fixable"]) == (True, False)
    assert lines["bucket"]["notChecked"] == f"{where} is no bucket"


def test_the_settings_of_the_hosts_count(run, uri, tmp_path):
    """From the configuration file and the environment, as `serve` takes them: what they could not see is found."""
    where, _ = uri
    config = tmp_path / "agents.toml"
    config.write_text('[[agents]]\nname = "writer"\nagent = "demo"\n')
    result = run("doctor", "--store", where, "--config", str(config))
    assert rows(result.stdout)["other-root"] == "error"
    assert "migrate --to-root agents/<agent>" in " ".join(result.stdout.split())
    result = run("doctor", "--store", where, A2A_GCS_AUTH="tokens", A2A_GCS_TOKENS="alice:a-secret-of-alices")
    assert rows(result.stdout)["other-root"] == "error"


@pytest.mark.parametrize("arguments", [[], ["--store", "memory"], ["--store", "nonsense"]])
def test_a_store_that_cannot_be_examined_is_bad_usage(run, arguments):
    """Status 2, in one line."""
    result = run("doctor", *arguments)
    assert (result.exit_code, result.stderr.startswith("error: ")) == (2, True)
