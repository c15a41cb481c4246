"""Roots: agents and tenants of one host cannot tell that the others exist (I8)."""

import contextlib

import grpc
import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.helpers import new_text_message
from a2a.types.a2a_pb2 import Role, SendMessageRequest

from a2a_gcs.errors import ConfigError
from a2a_gcs.host.app import create_app
from a2a_gcs.host.roots import refuse_other_roots
from a2a_gcs.host.settings import Settings
from a2a_gcs.objectstore.memory import MemoryStore
from a2a_gcs.objectstore.port import OVERWRITE
from tests.support import push_client as push
from tests.support.a2a_grpc import GRPC_03, GRPC_10, GRPC_BINDINGS, GrpcClient
from tests.support.a2a_http import BINDINGS, JSONRPC_10, REST_10, A2AClient, Refused
from tests.support.host_process import CommandProcess
from tests.support.host_thread import serve_in_thread
from tests.support.untouched import at_rest, changed, untouched
from tests.support.webhook import Webhook

CONFIG = """
[[agents]]
name = "writer"
agent = "demo"

[[agents]]
name = "critic"
agent = "demo"
path = "/review/critic"
"""


@pytest.fixture(scope="module")
def agents_host(tmp_path_factory):
    """Two demo agents in one host."""
    agents = ({"name": "writer", "agent": "demo"}, {"name": "critic", "agent": "demo", "path": "/review/critic"})
    work = tmp_path_factory.mktemp("work")
    options = {"grpc_port": 0, "advertise_grpc": True, "push_allowed_hosts": "127.0.0.1"}
    with serve_in_thread(MemoryStore(), work_dir=work, agents=agents, **options) as host:
        yield host


def connected(host, path, binding, tenant=""):
    """A client of the agent at a path: over gRPC, its tenant begins with the path, or metadata names it."""
    if binding not in GRPC_BINDINGS:
        return A2AClient(f"{host.url}{path}", binding, tenant=tenant)
    if binding == GRPC_03:
        return GrpcClient(host.grpc_target, binding, metadata=[("a2a-agent", path)])
    return GrpcClient(host.grpc_target, binding, tenant=f"{path}/{tenant}".strip("/"))


@pytest.fixture
async def clients(agents_host, request):
    """A client of each agent, over one binding."""
    async with contextlib.AsyncExitStack() as stack:
        binding = getattr(request, "param", JSONRPC_10)
        yield [
            await stack.enter_async_context(connected(agents_host, path, binding))
            for path in ("/writer", "/review/critic")
        ]


async def refused(call):
    with pytest.raises(Refused) as refusal:
        await call
    return refusal.value.code


async def first(events):
    async with contextlib.aclosing(events):
        return await anext(events)


@pytest.mark.parametrize("clients", [*BINDINGS, *GRPC_BINDINGS], indirect=True)
async def test_a_task_of_another_agent_is_not_there(clients):
    """-32001 for get, cancel, subscribe and send through the other agent, and all of them work through its own."""
    writer, critic = clients
    task = await writer.send("ask what?", context="shared")

    assert await refused(critic.get(task.id)) == -32001
    assert await refused(critic.cancel(task.id)) == -32001
    assert await refused(critic.send("an answer", task=task.id)) == -32001
    assert await refused(first(critic.subscribe(task.id))) == -32001

    assert (await writer.get(task.id)).state == "input-required"
    assert (await first(writer.subscribe(task.id))).task.id == task.id
    assert (await writer.send("an answer", task=task.id)).state == "completed"


@pytest.mark.parametrize("clients", [*BINDINGS, *GRPC_BINDINGS], indirect=True)
async def test_push_configurations_of_another_agent_are_not_there(clients):
    """-32001 for storing, reading, listing and removing them, and all of them work through the task's own agent."""
    writer, critic = clients
    with contextlib.closing(Webhook()) as webhook:
        task = await writer.send("ask what?")
        config = push.config_of(writer, webhook.url, config_id="c")
        await push.register(writer, task.id, config)
        assert await refused(push.register(critic, task.id, config)) == -32001
        assert await refused(push.get(critic, task.id, "c")) == -32001
        assert await refused(push.urls(critic, task.id)) == -32001
        assert await refused(push.delete(critic, task.id, "c")) == -32001

        assert push.url_of(writer, await push.get(writer, task.id, "c")) == webhook.url
        assert await push.urls(writer, task.id) == [webhook.url]
        await push.delete(writer, task.id, "c")
        assert await push.urls(writer, task.id) == []


@pytest.mark.parametrize("clients", [JSONRPC_10, *GRPC_BINDINGS], indirect=True)
async def test_agents_share_a_context_id_and_never_meet(clients, fresh):
    """One agent's parked task does not block the other's context of the same id, and its files are not there."""
    writer, critic = clients
    waiting = await writer.send("ask what?", context=fresh)
    other = await critic.send("hello", context=fresh, message_id="m1")
    again = await writer.send("done", task=waiting.id, message_id="m1")
    assert other.text == "journal.md holds 1 message"
    assert other.id != again.id


@pytest.mark.parametrize("clients", [JSONRPC_10, GRPC_10], indirect=True)
async def test_a_list_holds_the_agents_own_tasks_only(clients, fresh):
    """Listing by context and across contexts shows nothing of the other agent."""
    writer, critic = clients
    mine = await writer.send("hello", context=fresh)
    theirs = await critic.send("hello", context=fresh)
    for client, own in ((writer, mine), (critic, theirs)):
        listed = {t["id"] for t in (await client.list())["tasks"]}
        assert own.id in listed
        assert len({mine.id, theirs.id} & listed) == 1
        assert [t["id"] for t in (await client.list(contextId=fresh))["tasks"]] == [own.id]


async def test_the_keys_of_each_agent_are_below_its_root(agents_host, clients):
    """agents/<agent>/ holds pointers, contexts and workspaces; heartbeats are at the bucket's prefix."""
    await clients[0].send("hello", context="keys")
    keys = await agents_host.place.keys()
    assert any(key.startswith("agents/writer/contexts/keys/") for key in keys)
    assert not any(key.startswith(("tasks/", "contexts/")) for key in keys)
    assert await agents_host.place.heartbeats()


async def test_each_agent_has_a_card_whose_addresses_work(agents_host):
    """The card is below the agent's path and names that path."""
    async with httpx.AsyncClient(base_url=agents_host.url, timeout=60) as http:
        for path in ("/writer", "/review/critic"):
            card = (await http.get(f"{path}/.well-known/agent-card.json")).json()
            over_http = [i for i in card["supportedInterfaces"] if i["protocolBinding"] != "GRPC"]
            assert len(over_http) == 4
            assert all(i["url"].startswith(f"{agents_host.url}{path}") for i in over_http)
        assert (await http.get("/health")).status_code == 200


@pytest.mark.parametrize("path", ["writer", "review/critic"])
async def test_the_sdks_own_client_reaches_an_agent_by_its_card_alone(agents_host, path):
    """Over gRPC, the tenant of the card's interface leads to the agent whose card it is."""
    config = ClientConfig(supported_protocol_bindings=["GRPC"], grpc_channel_factory=grpc.aio.insecure_channel)
    client = await ClientFactory(config).create_from_url(f"{agents_host.url}/{path}")
    message = new_text_message("hello", context_id=f"sdk-{path}", role=Role.ROLE_USER)
    async with contextlib.aclosing(client.send_message(SendMessageRequest(message=message))) as events:
        first_event, *_ = [event async for event in events]
    await client.close()
    name = path.rpartition("/")[2]
    assert f"agents/{name}/tasks/{first_event.task.id}/contextId.txt" in await agents_host.place.keys()


async def test_the_card_of_one_agent_lists_no_grpc_that_its_clients_could_not_use(agents_host):
    """0.3 sends no tenant, so that only 1.0 is listed; a host of gRPC alone lists both."""
    async with httpx.AsyncClient(base_url=agents_host.url, timeout=60) as http:
        card = (await http.get("/review/critic/.well-known/agent-card.json")).json()
    listed = [i for i in card["supportedInterfaces"] if i["protocolBinding"] == "GRPC"]
    assert [(i["protocolVersion"], i["tenant"], i["url"]) for i in listed] == [
        ("1.0", "review/critic", agents_host.grpc_target)
    ]


async def test_a_tenant_of_an_agent_over_grpc_is_the_one_over_http(agents_host):
    """What follows the agent's path, or all of it where metadata names the agent."""
    async with contextlib.AsyncExitStack() as stack:
        http = await stack.enter_async_context(connected(agents_host, "/review/critic", REST_10, "blue"))
        tenant = await stack.enter_async_context(connected(agents_host, "/review/critic", GRPC_10, "blue"))
        metadata = [("a2a-agent", "review/critic")]
        named = await stack.enter_async_context(GrpcClient(agents_host.grpc_target, tenant="blue", metadata=metadata))
        without = await stack.enter_async_context(connected(agents_host, "/review/critic", GRPC_10))
        tasks = [(await client.send("hello")).id for client in (http, tenant, named)]
        for client in (http, tenant, named):
            assert [(await client.get(task)).state for task in tasks] == ["completed"] * 3
        assert await refused(without.get(tasks[0])) == -32001


@pytest.mark.parametrize(
    ("tenant", "agent"),
    [("", []), ("nobody", []), ("review", []), ("writers", []), ("", ["nobody"]), ("", ["writer", "review/critic"])],
)
async def test_an_unknown_agent_over_grpc_is_not_found(agents_host, tenant, agent):
    """NOT_FOUND, for streams too, in the same words whatever was named; and nothing is stored."""
    metadata = [("a2a-agent", name) for name in agent]
    grpc = GrpcClient(agents_host.grpc_target, tenant=tenant, metadata=metadata)
    async with grpc as client, untouched(agents_host.place):
        for call in (client.send("hello"), first(client.stream("hello")), client.get("t"), client.list()):
            with pytest.raises(Refused) as refusal:
                await call
            assert (refusal.value.status, refusal.value.code) == ("NOT_FOUND", -32001)
            assert refusal.value.message.startswith("not found: ")


async def test_an_agent_of_grpc_alone_has_a_card_for_0_3(tmp_path):
    """GetAgentCard answers for the agent that the metadata names."""
    agents = ({"name": "writer", "agent": "demo"}, {"name": "critic", "agent": "demo", "description": "Criticizes."})
    app = create_app(Settings(grpc_only=True, port=0, agents=agents, work_dir=tmp_path), store=MemoryStore())
    async with app.router.lifespan_context(app):
        target = f"127.0.0.1:{app.state.grpc_port}"
        async with GrpcClient(target, GRPC_03, metadata=[("a2a-agent", "critic")]) as client:
            card = await client.call("GetAgentCard", a2a_v0_3_pb2.GetAgentCardRequest())
    assert card["description"] == "Criticizes."


@pytest.fixture
async def tenant(memory_host):
    """Clients of one host, each for a tenant."""
    async with contextlib.AsyncExitStack() as stack:

        async def connect(name, binding=JSONRPC_10):
            return await stack.enter_async_context(A2AClient(memory_host.url, binding, tenant=name))

        yield connect


@pytest.mark.parametrize("binding", [JSONRPC_10, REST_10])
async def test_a_tenant_cannot_see_another_tenants_task(tenant, binding):
    """-32001 with another tenant and with none; the task is there with its own."""
    blue, green, none = [await tenant(name, binding) for name in ("blue", "green", "")]
    task = await blue.send("ask what?", context="shared")
    for other in (green, none):
        assert await refused(other.get(task.id)) == -32001
        assert await refused(other.cancel(task.id)) == -32001
        assert await refused(other.send("x", task=task.id)) == -32001
        assert await refused(first(other.subscribe(task.id))) == -32001
        assert await refused(push.urls(other, task.id)) == -32001
        assert await refused(push.delete(other, task.id, "c")) == -32001
    assert (await blue.get(task.id)).state == "input-required"
    assert await push.urls(blue, task.id) == []
    assert (await green.send("hello", context="shared")).state == "completed"
    assert (await blue.cancel(task.id)).state == "canceled"


@pytest.mark.parametrize("name", ["a/b", "..", "tasks", "\U0001f600", "users"])
async def test_any_tenant_is_one_path_segment(memory_host, tenant, name):
    """Whatever a tenant is called, its tasks are below tenants/<one segment>/ and nowhere else."""
    before = await at_rest(memory_host.place)
    client = await tenant(name)
    task = await client.send("hello")
    assert (await client.get(task.id)).state == "completed"
    new = changed(before, await memory_host.place.objects())
    assert new
    assert all(key.startswith("tenants/") for key in new)
    assert len({key.split("/")[1] for key in new}) == 1


@pytest.mark.parametrize("name", ["a\nb", "x" * 241])
async def test_a_tenant_that_is_no_id_is_invalid_params(memory_host, tenant, name):
    """-32602, and nothing is stored."""
    async with untouched(memory_host.place):
        assert await refused((await tenant(name)).send("hello")) == -32602


@pytest.mark.parametrize("path", ["/health", "/ready", "/docs", "/openapi.json", "/.well-known/agent-card.json"])
async def test_the_tenant_segment_shadows_no_route(memory_host, path):
    """The tenant's segment is tried last."""
    async with httpx.AsyncClient(base_url=memory_host.url, timeout=60) as http:
        assert (await http.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("stored", "agents", "says"),
    [
        ("tasks/t/contextId.txt", True, "holds data below tasks/"),
        ("contexts/c/context.json", True, "holds data below contexts/"),
        ("users/u/tasks/t/contextId.txt", True, "holds data below users/"),
        ("users/u/tasks/t/contextId.txt", False, "holds data below users/"),
        ("agents/a/tasks/t/contextId.txt", False, "holds data below agents/"),
    ],
)
async def test_serve_refuses_a_bucket_whose_data_it_could_not_see(make_place, tmp_path, stored, agents, says):
    """The reason is one line that says what to do, and the data is as it was."""
    place = make_place("file")
    async with place.open() as store:
        await store.put(stored, b"x", OVERWRITE)
    config = tmp_path / "agents.toml"
    config.write_text(CONFIG if agents else "")
    host = CommandProcess(["serve", "--config", str(config), "--store", place.uri, "--port", "0"], log=tmp_path / "log")
    with pytest.raises(AssertionError, match="did not start"):
        host.start()
    assert says in host.errors()
    assert "Traceback" not in host.errors()
    assert await place.keys() == [stored]


@pytest.mark.parametrize(
    ("stored", "agents", "owners", "command"),
    [
        ("tasks/t/contextId.txt", False, True, "migrate --to-root users/<owner> --store"),
        ("contexts/c/context.json", True, False, "migrate --to-root agents/<agent> --store"),
        ("contexts/c/context.json", True, True, "migrate --to-root agents/<agent>/users/<owner> --store"),
        ("users/u/tasks/t/x", True, True, "migrate --from-root users/u --to-root agents/<agent>/users/u --store"),
        ("agents/a/tasks/t/x", True, True, "migrate --from-root agents/a --to-root agents/a/users/<owner> --store"),
        ("agents/a/users/u/tasks/t/x", True, False, "migrate --from-root agents/a/users/u --to-root agents/a --store"),
        ("tenants/t/contexts/c/x", False, True, "migrate --from-root tenants/t --to-root tenants/t/users/<owner> --"),
        ("tenants/t/users/u/tasks/t/x", False, False, "migrate --from-root tenants/t/users/u --to-root tenants/t --s"),
        ("tenants/t/tasks/t/x", True, False, "migrate --from-root tenants/t --to-root agents/<agent>/tenants/t --s"),
        ("users/u/tasks/t/x", False, False, "migrate --from-root users/u --to-root / --store"),
        ("agents/a/tasks/t/x", False, False, "migrate --from-root agents/a --to-root / --store"),
        ("agents/a/users/u/tasks/t/x", False, True, "migrate --from-root agents/a/users/u --to-root users/u --store"),
        ("agents/a/tenants/t/tasks/t/x", False, False, "--from-root agents/a/tenants/t --to-root tenants/t --store"),
    ],
)
async def test_the_refusal_names_the_command_that_moves_the_data(stored, agents, owners, command):
    """From where it is to where these settings would look for it; what only people know is in brackets."""
    store = MemoryStore()
    await store.put(stored, b"x", OVERWRITE)
    with pytest.raises(ConfigError) as refusal:
        await refuse_other_roots(store, several_agents=agents, authenticated=owners)
    assert command in str(refusal.value)


async def test_a_configuration_file_serves_its_agents(make_place, tmp_path):
    """`serve --config` reads agents and settings; the command line wins over the file."""
    place = make_place("file")
    config = tmp_path / "agents.toml"
    config.write_text(f'store = "{place.uri}"\nport = 1\n{CONFIG}')
    host = CommandProcess(["serve", "--config", str(config), "--port", "0"], log=tmp_path / "log").start()
    try:
        async with A2AClient(f"{host.url}/writer", JSONRPC_10) as client:
            assert (await client.send("hello")).state == "completed"
        assert all(key.startswith("agents/writer/") for key in await place.keys())
    finally:
        host.terminate()
