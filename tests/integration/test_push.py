"""Push notifications: every state that somebody waits for is told, at least once and in order, to whom it should be."""

import contextlib

import pytest

from a2a_gcs.objectstore.memory import MemoryStore
from tests.integration.conftest import LEASE, SCRIPTED
from tests.support import push_client as push
from tests.support.a2a_grpc import GRPC_BINDINGS, GrpcClient
from tests.support.a2a_http import BINDINGS, JSONRPC_10, A2AClient, Refused
from tests.support.host_thread import serve_in_thread
from tests.support.untouched import untouched
from tests.support.waiting import until
from tests.support.webhook import Webhook

LOCAL = {"push_allowed_hosts": "127.0.0.1", "push_timeout_seconds": 20}
ALL = [*BINDINGS, *GRPC_BINDINGS]


@pytest.fixture
def webhook():
    webhook = Webhook()
    yield webhook
    webhook.close()


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """The scripted agent, in this process."""
    with serve_in_thread(
        MemoryStore(), agent=SCRIPTED, work_dir=tmp_path_factory.mktemp("work"), grpc_port=0, **LOCAL
    ) as host:
        yield host


@pytest.fixture
async def client(host, request):
    binding = getattr(request, "param", JSONRPC_10)
    made = GrpcClient(host.grpc_target, binding) if binding in GRPC_BINDINGS else A2AClient(host.url, binding)
    async with made as client:
        yield client


def states_of(webhook, *states):
    return until(lambda: webhook.states() == list(states), what=f"{webhook.states()} to become {states}", seconds=40)


@pytest.mark.parametrize("client", ALL, indirect=True)
async def test_a_configuration_in_a_message(client, webhook):
    """Every binding: token and credentials as given, the end of each turn, in the form of the client's own version."""
    config = push.config_of(client, f"{webhook.url}/hook", config_id="c", token="its-token", credentials="secret")
    answer = await push.send(client, "ask why?", config)
    task_id = (answer.get("task") or answer)["id"]
    await states_of(webhook, "input-required")
    await client.send("because", task=task_id)
    await states_of(webhook, "input-required", "completed")
    first, second = webhook.received
    assert first.id != second.id
    for one in (first, second):
        assert (one.path, one.token, one.headers["authorization"]) == ("/hook", "its-token", "Bearer secret")
        assert one.task_id == task_id
        assert one.headers["content-type"] == "application/json"
    new = client.binding.endswith("1.0")
    assert ("statusUpdate" in first.body, first.body.get("kind")) == ((True, None) if new else (False, "task"))


@pytest.mark.parametrize("client", ALL, indirect=True)
async def test_configurations_are_kept_listed_and_removed(client, webhook):
    """Create, get, list, delete over every binding; then nothing is heard any more."""
    task = await client.send("ask why?")
    for name in ("one", "two"):
        config = push.config_of(client, f"{webhook.url}/{name}", config_id=name)
        assert push.url_of(client, await push.register(client, task.id, config)) == f"{webhook.url}/{name}"
    assert await push.urls(client, task.id) == [f"{webhook.url}/one", f"{webhook.url}/two"]
    assert push.url_of(client, await push.get(client, task.id, "two")) == f"{webhook.url}/two"
    await until(lambda: len(webhook.received) == 2)  # what the task waits for now is told to who comes now

    await push.delete(client, task.id, "one")
    await push.delete(client, task.id, "one")
    assert await push.urls(client, task.id) == [f"{webhook.url}/two"]
    with pytest.raises(Refused) as refused:
        await push.get(client, task.id, "one")
    assert refused.value.code == -32001
    await client.send("because", task=task.id)
    await until(lambda: len(webhook.received) == 3)
    assert webhook.received[-1].path == "/two"


async def test_a_receiver_that_fails_is_tried_again(client, webhook):
    """500, a redirect, which is not followed, then 200: the same delivery each time, and it ends there."""
    webhook.answers = [500, 302]
    await push.send(client, "hello", push.config_of(client, f"{webhook.url}/hook"))
    await until(lambda: len(webhook.received) == 3)
    assert len({one.id for one in webhook.received}) == 1
    assert {one.path for one in webhook.received} == {"/hook"}
    await client.send("hello")
    assert webhook.states() == ["completed"]


async def test_a_receiver_that_hangs_holds_nobody_up(client, host, webhook):
    """Tasks end, answers are given, and another receiver of the same task hears of it, while one does not answer."""
    webhook.hold()
    with contextlib.closing(Webhook()) as other:
        task = await push.send(client, "ask why?", push.config_of(client, webhook.url, config_id="slow"))
        await until(lambda: webhook.received)
        task_id = task["task"]["id"]
        await push.register(client, task_id, push.config_of(client, other.url, config_id="quick"))
        assert (await client.send("ask and how?", task=task_id)).state == "input-required"
        assert (await client.send("so", task=task_id)).state == "completed"
        await states_of(other, "input-required", "input-required", "completed")
        assert [one.state for one in webhook.received] == ["input-required"]
        webhook.release()
        await states_of(webhook, "input-required", "input-required", "completed")
    assert await until(lambda: _leftovers(host, task_id), what="marks and kept notices to be removed")


async def _leftovers(host, task_id):
    keys = [key for key in await host.place.keys() if task_id in key]
    return not any(key.startswith("push/") or "/push/owed/" in key for key in keys)


async def test_a_configuration_that_is_removed_meanwhile(client, webhook):
    """Between two tries: the receiver is not asked again, and nothing else is held up."""
    webhook.answers = [500]
    webhook.hold()
    answer = await push.send(client, "hello", push.config_of(client, webhook.url, config_id="c"))
    await until(lambda: webhook.received)
    await push.delete(client, answer["task"]["id"], "c")
    webhook.release()
    with contextlib.closing(Webhook()) as other:
        await push.send(client, "hello", push.config_of(client, other.url))
        await until(lambda: other.received)
    assert len(webhook.received) == 1


async def test_a_task_that_is_canceled_says_so(client, webhook, tmp_path):
    """Registered while it runs, which the run has to notice; canceled by a client."""
    task = await client.send(f"hold {tmp_path / 'free'}", at_once=True)
    await push.register(client, task.id, push.config_of(client, webhook.url))
    await client.cancel(task.id)
    await states_of(webhook, "canceled")


async def test_a_config_of_a_running_task_hears_of_its_end(client, webhook, tmp_path):
    """The one writer of the task takes over what somebody else wrote into its record."""
    task = await client.send(f"hold {tmp_path / 'free'}", at_once=True)
    await push.register(client, task.id, push.config_of(client, webhook.url))
    (tmp_path / "free").touch()
    await states_of(webhook, "completed")
    assert (await client.get(task.id)).artifacts == {"early": "before"}


# ---------------------------------------------------------------------- where nothing is sent


@pytest.mark.parametrize(
    "url",
    [
        "http://93.184.215.14/",
        "https://127.0.0.2/",
        "https://2130706433/",
        "https://localhost/",
        "https://[::1]/",
        "https://[::ffff:169.254.169.254]/",
        "https://169.254.169.254/computeMetadata/v1/",
        "https://metadata.google.internal/",
        "https://10.1.2.3/",
        "https://[fd00::1]/",
        "https://0.0.0.0/",
        "https://no-such-host.invalid/",
        "https://user:secret@93.184.215.14/",
        "ftp://127.0.0.1/",
        "nowhere",
    ],
)
async def test_urls_that_are_refused(client, host, url):
    """-32602 that says why, in a message before anything is claimed, and when it is registered."""
    async with untouched(host.place):
        with pytest.raises(Refused) as refused:
            await push.send(client, "hello", push.config_of(client, url))
    assert (refused.value.code, "push URL" in refused.value.message) == (-32602, True)


@pytest.mark.parametrize("client", ALL, indirect=True)
async def test_a_private_url_is_refused_on_every_binding(client):
    """-32602, and no configuration is stored."""
    task = await client.send("ask why?")
    with pytest.raises(Refused) as refused:
        await push.register(client, task.id, push.config_of(client, "https://10.0.0.1/", config_id="c"))
    assert refused.value.code == -32602
    assert await push.urls(client, task.id) == []


@pytest.mark.parametrize("client", ALL, indirect=True)
async def test_parts_without_content_can_be_told(client, webhook):
    """0.3 has no form for them: its clients and receivers get an empty text, over every binding and in streams."""
    answer = await push.send(client, "empty", push.config_of(client, webhook.url))
    task = await client.get((answer.get("task") or answer)["id"])
    assert (task.state, task.artifacts, task.text) == ("input-required", {"half": "full"}, "more?")
    await states_of(webhook, "input-required")
    events = [event async for event in client.stream("empty")]
    assert [event.text for event in events if event.kind == "artifact"] == ["full"]
    assert events[-1].text == "more?"


@pytest.mark.parametrize(
    "bad", [{"token": "a\r\nX-Evil: 1"}, {"token": "é"}, {"credentials": "x" * 5000}, {"config_id": "x" * 300}]
)
async def test_what_cannot_be_kept_or_sent_is_refused(client, webhook, bad):
    """-32602 for headers that would be two, and for ids that are no key."""
    task = await client.send("ask why?")
    with pytest.raises(Refused) as refused:
        await push.register(client, task.id, push.config_of(client, webhook.url, **bad))
    assert refused.value.code == -32602
    assert await push.urls(client, task.id) == []


async def test_a_task_has_twenty_configurations_at_most(client, webhook):
    """-32602 for one more, and replacing one of them goes on."""
    task = await client.send("ask why?")
    for n in range(20):
        await push.register(client, task.id, push.config_of(client, webhook.url, config_id=f"c{n}"))
    with pytest.raises(Refused) as refused:
        await push.register(client, task.id, push.config_of(client, webhook.url, config_id="one-more"))
    assert refused.value.code == -32602
    await push.register(client, task.id, push.config_of(client, f"{webhook.url}/new", config_id="c7"))


# ---------------------------------------------------------------------- hosts that die


async def test_every_state_is_told_through_kills(hosts, make_place, connect, webhook, fresh):
    """kill -9 with a notice on its way, after each of three turns: all are told, in order, repeats by the same id."""
    host = hosts(make_place("file"), agent=SCRIPTED, lease_seconds=LEASE, **LOCAL)
    webhook.hold()
    client = connect(host)
    answer = await push.send(client, "ask one?", push.config_of(client, webhook.url), context=fresh)
    task_id = answer["task"]["id"]
    await until(lambda: webhook.received)
    for text, state in (("ask two?", "input-required"), ("done", "completed")):
        host.kill()
        client = connect(host.restart())
        assert (await client.send(text, task=task_id)).state == state
    host.kill()
    webhook.release()
    host.restart()  # nobody asks for the task any more
    await states_of(webhook, "input-required", "input-required", "completed")
    order = [one.id for one in webhook.received]
    assert sorted(order, key=order.index) == order  # a repeat never comes after what follows it
    texts = {
        one.id: one.told["status"].get("message", {}).get("parts", [{}])[0].get("text") for one in webhook.received
    }
    assert list(texts.values())[:2] == ["one?", "two?"]


async def test_what_a_dead_host_ran_is_told_by_another(hosts, make_place, connect, webhook, tmp_path):
    """Its task is settled as FAILED, and the survivor tells so though nobody asks."""
    first, second = hosts(make_place("file"), agent=SCRIPTED, count=2, lease_seconds=LEASE, **LOCAL)
    client = connect(first)
    await push.send(client, f"hold {tmp_path / 'never'}", push.config_of(client, webhook.url), at_once=True)
    first.kill()
    await states_of(webhook, "failed")
    assert second.running


@pytest.fixture
async def two(tmp_path):
    """Clients of two hosts over one store."""
    store = MemoryStore()
    with contextlib.ExitStack() as hosts:
        urls = [
            hosts.enter_context(serve_in_thread(store, agent=SCRIPTED, work_dir=tmp_path / name, **LOCAL)).url
            for name in ("a", "b")
        ]
        async with A2AClient(urls[0]) as one, A2AClient(urls[1]) as other:
            yield one, other


async def test_turns_that_move_between_hosts_are_told_in_order(two, webhook):
    """The first turn is told by one host, which has to try again, the second by whoever comes next."""
    one, other = two
    webhook.answers = [500]
    webhook.hold()
    answer = await push.send(one, "ask one?", push.config_of(one, webhook.url))
    await until(lambda: webhook.received)
    assert (await other.send("done", task=answer["task"]["id"])).state == "completed"
    webhook.release()
    await states_of(webhook, "input-required", "completed")
    assert [one.state for one in webhook.received] == ["input-required", "input-required", "completed"]


async def test_a_registration_on_another_host_is_noticed(two, webhook, tmp_path):
    """The task runs on one host, its configuration comes to the other."""
    one, other = two
    task = await one.send(f"hold {tmp_path / 'free'}", at_once=True)
    await push.register(other, task.id, push.config_of(other, webhook.url))
    (tmp_path / "free").touch()
    await states_of(webhook, "completed")


async def test_the_card_offers_push(client):
    """In both versions."""
    card = (await client.http.get("/.well-known/agent-card.json")).json()
    assert card["capabilities"]["pushNotifications"] is True
