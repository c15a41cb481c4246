"""Objects that are damaged, gone, or were written by something else."""

import json
import uuid

import pytest

from tests.support.a2a_http import Refused
from tests.support.untouched import untouched


async def refusal(call):
    with pytest.raises(Refused) as refused:
        await call
    return refused.value


@pytest.fixture(params=["gcs", "file"])
def host(request):
    """A shared host whose log can be read."""
    return request.getfixturevalue(f"{request.param}_host")


@pytest.mark.parametrize("garbage", [b"{ not json", b"", b'{"id": 7}', b"\xff\xfe\x00"])
async def test_a_task_that_cannot_be_parsed_is_not_found_and_stays_as_it_is(host, connect, fresh, garbage):
    """-32001 for the caller, an error in the log that names the object, no write; listings go on without it."""
    client = connect(host)
    damaged = await client.send("hello", context=fresh)
    whole = await client.send("hello", context=fresh)
    key = f"contexts/{fresh}/{damaged.id}/task.json"
    planted = await host.place.write(key, garbage)
    assert (await refusal(client.get(damaged.id))).code == -32001
    assert (await refusal(client.cancel(damaged.id))).code == -32001
    assert (await refusal(client.send("more", task=damaged.id))).code == -32001
    assert (await refusal(anext(client.subscribe(damaged.id)))).code == -32001
    assert [task["id"] for task in (await client.list(contextId=fresh))["tasks"]] == [whole.id]
    assert (await client.list())["tasks"]
    assert any("task.unreadable" in line and key in line for line in host.errors().splitlines())
    assert (await client.send("hello", context=fresh)).text == "journal.md holds 3 messages"
    assert (await host.place.versions(key))[key] == planted.version
    assert await host.place.read(key) == garbage


@pytest.mark.parametrize("damage", [{"turns": "1+"}, {"turns": "\u00fc,99999999999999999999+1"}, {"turns": "x" * 1000}])
async def test_damage_that_nothing_is_decided_by_hides_no_task(host, connect, fresh, damage):
    """When turns ran is for people: a task that waits is read, listed and shown, goes on, and tells it anew."""
    client = connect(host)
    task = await client.send("ask what?", context=fresh)
    key = f"contexts/{fresh}/{task.id}/task.json"
    before = await host.place.meta(key)
    assert before["turns"]
    await host.place.write(key, await host.place.read(key), metadata=before | damage)
    assert (await client.get(task.id)).state == "input-required"
    assert [listed["id"] for listed in (await client.list(contextId=fresh))["tasks"]] == [task.id]
    page = await client.http.get(f"{host.url}/console/tasks/{task.id}")
    assert page.status_code == 200
    assert (await client.send("this", task=task.id)).state == "completed"
    after = (await host.place.meta(key))["turns"]
    assert after.partition("+")[0].isdecimal()


async def test_an_unreadable_newest_task_blocks_with_a_reason(two_hosts, connect, fresh):
    """Nobody knows whether it is done: a new message is refused and told which object to mend; mended, it goes on."""
    (host, other), place = two_hosts, two_hosts[0].place
    task = await connect(host).send("hello", context=fresh)
    client = connect(other)
    key = f"contexts/{fresh}/{task.id}/task.json"
    body, metadata = await place.read(key), await place.meta(key)
    await place.write(key, b"{ not json")
    async with untouched(place):
        refused = await refusal(client.send("hello", context=fresh))
        assert (refused.code, refused.data["reason"]) == (-32004, "TASK_UNREADABLE")
        assert key in refused.message
    assert await place.read(key) == b"{ not json"
    await place.write(key, body, metadata=metadata)
    assert (await client.send("hello", context=fresh)).state == "completed"


@pytest.mark.parametrize("how", ["deleted", "garbage", "cut", "another"])
async def test_a_lost_workspace_is_told_and_not_replaced(host, connect, fresh, how):
    """The next task fails and says so, as does every one after it; the archive is neither replaced nor made up."""
    client = connect(host)
    task = await client.send("write a.txt precious", context=fresh)
    key = f"contexts/{fresh}/{task.id}/workspace.tar.gz"
    archive = await host.place.read(key)
    if how == "deleted":
        await host.place.delete(key)
    else:
        other = await client.send("hello", context=f"{fresh}-other")
        another = await host.place.read(f"contexts/{fresh}-other/{other.id}/workspace.tar.gz")
        await host.place.write(key, {"garbage": b"garbage", "cut": archive[:-20], "another": another}[how])
    before = await host.place.versions(key)
    for _ in range(2):
        after = await client.send("read a.txt", context=fresh)
        assert after.state == "failed"
        assert f"The workspace of task {task.id} could not be restored" in after.text
        assert f"contexts/{fresh}/{after.id}/workspace.tar.gz" not in await host.place.keys(f"contexts/{fresh}/")
        assert (await client.get(after.id)).text == after.text
    assert await host.place.versions(key) == before
    assert (await client.get(task.id)).state == "completed"


async def test_tasks_with_one_timestamp_are_all_listed(shared, connect, fresh):
    """5 tasks of one instant, two a page: 5 different ids, and totalSize is 5 on every page; they need no metadata."""
    client, ids = connect(shared), [str(uuid.uuid4()) for _ in range(5)]
    for task_id in ids:
        status = {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-02T03:04:05.678Z"}
        body = json.dumps({"id": task_id, "contextId": fresh, "status": status})
        await shared.place.create(f"tasks/{task_id}/contextId.txt", fresh.encode())
        await shared.place.create(f"contexts/{fresh}/{task_id}/task.json", body.encode())
    found, token = [], None
    while token != "":
        page = await client.list(contextId=fresh, pageSize=2, **({"pageToken": token} if token else {}))
        found += [task["id"] for task in page["tasks"]]
        assert page["totalSize"] == 5
        assert len(page["tasks"]) <= 2
        token = page["nextPageToken"]
    assert sorted(found) == sorted(ids)
    assert (await client.get(ids[0])).timestamp == "2026-01-02T03:04:05.678Z"
