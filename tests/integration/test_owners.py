"""Owners: with authentication on, nobody can tell that another caller's tasks exist (I8), on any binding."""

import contextlib
import uuid

import pytest

from a2a_gcs.objectstore.memory import MemoryStore
from tests.support import push_client as push
from tests.support.a2a_grpc import GRPC_BINDINGS, GrpcClient
from tests.support.a2a_http import BINDINGS, JSONRPC_10, A2AClient, Refused
from tests.support.host_thread import serve_in_thread
from tests.support.waiting import until
from tests.support.webhook import Webhook

TOKENS = "alice:alices-secret-token-0001,bob:bobs-secret-token-000002"
SECRET = {"alice": "alices-secret-token-0001", "bob": "bobs-secret-token-000002"}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    options = {"auth": "tokens", "tokens": TOKENS, "grpc_port": 0, "push_allowed_hosts": "127.0.0.1"}
    with serve_in_thread(MemoryStore(), work_dir=work, **options) as host:
        yield host


@pytest.fixture
async def caller(host):
    """Clients that say who they are, over any binding."""
    async with contextlib.AsyncExitStack() as stack:

        async def connect(name, binding=JSONRPC_10, tenant=""):
            authorization = f"Bearer {SECRET[name]}" if name else None
            if binding in GRPC_BINDINGS:
                metadata = [("authorization", authorization)] if authorization else []
                return await stack.enter_async_context(GrpcClient(host.grpc_target, binding, metadata=metadata))
            client = await stack.enter_async_context(A2AClient(host.url, binding, tenant=tenant))
            if authorization:
                client.http.headers["Authorization"] = authorization
            return client

        yield connect


async def refused(call):
    with pytest.raises(Refused) as refusal:
        await call
    return refusal.value.code


async def first(events):
    async with contextlib.aclosing(events):
        return await anext(events)


@pytest.mark.parametrize("binding", [*BINDINGS, *GRPC_BINDINGS])
async def test_another_owners_task_is_not_there(caller, binding):
    """-32001 for get, cancel, subscribe and send, and each of them works for the owner."""
    alice, bob = await caller("alice", binding), await caller("bob", binding)
    task = await alice.send("ask what?", context="shared")

    assert await refused(bob.get(task.id)) == -32001
    assert await refused(bob.cancel(task.id)) == -32001
    assert await refused(bob.send("an answer", task=task.id)) == -32001
    assert await refused(first(bob.subscribe(task.id))) == -32001

    assert (await alice.get(task.id)).state == "input-required"
    assert (await first(alice.subscribe(task.id))).task.id == task.id
    assert (await alice.send("an answer", task=task.id)).state == "completed"


@pytest.mark.parametrize("binding", [*BINDINGS, *GRPC_BINDINGS])
async def test_another_owners_push_configurations_are_not_there(caller, binding):
    """-32001 for storing, reading, listing and removing them; the owner's stays, and her webhook alone hears."""
    alice, bob = await caller("alice", binding), await caller("bob", binding)
    with contextlib.closing(Webhook()) as webhook:
        task = await alice.send("ask what?")
        await push.register(alice, task.id, push.config_of(alice, f"{webhook.url}/hers", config_id="c"))
        his = push.config_of(bob, f"{webhook.url}/his", config_id="c")
        assert await refused(push.register(bob, task.id, his)) == -32001
        assert await refused(push.get(bob, task.id, "c")) == -32001
        assert await refused(push.urls(bob, task.id)) == -32001
        assert await refused(push.delete(bob, task.id, "c")) == -32001

        assert await push.urls(alice, task.id) == [f"{webhook.url}/hers"]
        await alice.send("an answer", task=task.id)
        await until(lambda: webhook.states() == ["input-required", "completed"])
        assert {one.path for one in webhook.received} == {"/hers"}


async def test_a_guessed_context_is_a_context_of_ones_own(caller):
    """Bob's message to Alice's busy context is accepted, in an empty workspace, and a repeat of hers runs for him."""
    alice, bob = await caller("alice"), await caller("bob")
    hers = await alice.send("write secret.txt hers", context="guessed", message_id="m1")
    await alice.send("ask busy?", context="guessed")
    his = await bob.send("write secret.txt hers", context="guessed", message_id="m1")
    assert his.id != hers.id
    files = (await bob.send("read secret.txt", context="guessed")).artifacts["files"]
    assert files.count("\n") == 2  # his own journal and file, and nothing of hers
    assert (await refused(alice.send("hello", context="guessed"))) == -32004


async def test_a_list_holds_the_callers_own_tasks_only(caller):
    """Across contexts and in one whose id both use."""
    alice, bob = await caller("alice"), await caller("bob")
    context = str(uuid.uuid4())
    tasks = {client: await client.send("hello", context=context) for client in (alice, bob)}
    for client, own in tasks.items():
        assert [t["id"] for t in (await client.list(contextId=context))["tasks"]] == [own.id]
        everything = {t["id"] for t in (await client.list(pageSize=100))["tasks"]}
        assert everything & {t.id for t in tasks.values()} == {own.id}


async def test_a_reference_to_another_owners_task_tells_nothing(caller):
    """The answer is the same for a task of somebody else's and for one that never was."""
    alice, bob = await caller("alice"), await caller("bob")
    task = await alice.send("hello")
    answers = []
    for referenced in (task.id, str(uuid.uuid4())):
        message = bob._message("hello")
        message["message"]["referenceTaskIds"] = [referenced]
        answers.append((await bob._call("send", message))["task"]["status"]["state"])
    assert answers == ["TASK_STATE_COMPLETED"] * 2


async def test_an_owners_keys_are_below_the_owners_root(host, caller):
    """users/<owner>/, and tenants/<tenant>/users/<owner>/ where the call names a tenant."""
    await (await caller("alice")).send("hello", context="keys")
    await (await caller("alice", tenant="blue")).send("hello", context="keys")
    keys = await host.place.keys()
    assert any(key.startswith("users/alice/contexts/keys/") for key in keys)
    assert any(key.startswith("tenants/blue/users/alice/contexts/keys/") for key in keys)
    assert not any(key.startswith(("tasks/", "contexts/")) for key in keys)


@pytest.mark.parametrize("binding", GRPC_BINDINGS)
async def test_an_rpc_without_credentials_is_unauthenticated(caller, binding):
    """UNAUTHENTICATED for a call and for a stream, before anything else happens."""
    nobody = await caller("", binding)
    for call in (lambda: nobody.send("hello"), lambda: first(nobody.stream("hello"))):
        with pytest.raises(Refused) as refusal:
            await call()
        assert refusal.value.status == "UNAUTHENTICATED"
