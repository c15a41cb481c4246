"""Large content over HTTP: parts with URLs on every binding, and what the host serves there, to whom."""

import base64
import contextlib
import hashlib
import json
import uuid
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from a2a_gcs.objectstore.memory import MemoryStore
from tests.support.a2a_http import A2AClient
from tests.support.faulty_store import FaultyStore
from tests.support.host_thread import serve_in_thread
from tests.support.waiting import until
from tests.support.webhook import Webhook

FILES = "tests.support.agents:Files"
BIG = bytes(range(256)) * 2048
NAME = hashlib.sha256(BIG).hexdigest()
TOKENS = "alice:alices-secret-token-0001,bob:bobs-secret-token-000002"
ALICE, BOB = ({"Authorization": f"Bearer {pair.split(':')[1]}"} for pair in TOKENS.split(","))


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """An agent that echoes the files of its message as artifacts; it knows its callers."""
    with serve_in_thread(
        FaultyStore(MemoryStore()), agent=FILES, work_dir=tmp_path_factory.mktemp("w"), auth="tokens", tokens=TOKENS
    ) as host:
        yield host


@pytest.fixture
async def http(host):
    async with httpx.AsyncClient(base_url=host.url, headers=ALICE, timeout=30, trust_env=False) as client:
        yield client


def message_10(content, media_type="image/png", **ids):
    file = {"raw": base64.b64encode(content).decode(), "filename": "big.png", "mediaType": media_type}
    return {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": "echo"}, file], **ids}


async def sent(http, content=BIG, media_type="image/png", *, tenant="", **ids):
    params = {"message": message_10(content, media_type, **ids), **({"tenant": tenant} if tenant else {})}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    response = await http.post("/", json=body, headers={"A2A-Version": "1.0"})
    return response.json()["result"]["task"]


async def echoed(http, *args, **options):
    """The URL of a file that was echoed."""
    task = await sent(http, *args, **options)
    return task["artifacts"][0]["parts"][0]["url"]


async def test_the_url_gives_the_bytes(http, host):
    """Artifact and history refer to one object by an absolute URL of this host, with length and type."""
    task = await sent(http, contextId="one")
    part = task["artifacts"][0]["parts"][0]
    assert part["url"] == task["history"][0]["parts"][1]["url"] == f"{host.url}/files/{task['id']}/{NAME}"
    assert (part["filename"], part["mediaType"]) == ("big.png", "image/png")
    assert part["metadata"] == {"a2a-gcs/size": len(BIG)}
    response = await http.get(part["url"])
    assert (response.status_code, response.content) == (200, BIG)
    assert response.headers["content-type"] == "image/png"
    assert response.headers["content-length"] == str(len(BIG))
    assert response.headers["content-disposition"] == "attachment"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["etag"] == f'"{NAME}"'
    stored = await host.place.read_json(f"users/alice/contexts/one/{task['id']}/task.json")
    assert stored["artifacts"][0]["parts"][0]["url"] == f"files/{NAME}"
    assert await host.place.keys(f"users/alice/contexts/one/{task['id']}/files/") == [
        f"users/alice/contexts/one/{task['id']}/files/{NAME}"
    ]


@pytest.mark.parametrize("binding", ["rest-1.0", "jsonrpc-0.3", "rest-0.3", "grpc-1.0"])
async def test_other_bindings_read_the_same_url(tmp_path, binding, connect):
    """Get over REST, of a 0.3 client and over gRPC: the part of a file is its URL."""
    with serve_in_thread(MemoryStore(), agent=FILES, work_dir=tmp_path, grpc_port=0) as host:
        async with httpx.AsyncClient(base_url=host.url, trust_env=False, timeout=60) as http:
            task = await sent(http)
        url = task["artifacts"][0]["parts"][0]["url"]
        answer = await connect(host, binding).get(task["id"])
        assert url in json.dumps(answer.raw, default=str)


async def test_streams_lists_and_cancels_have_urls(host, http):
    """What comes out of the host never refers to anything relatively, whichever the call."""
    async with A2AClient(host.url) as client:
        client.http.headers.update(ALICE)
        body = client._request("stream", {"message": message_10(BIG, contextId="streamed")})
        answer = await client.http.send(body)
        assert f"{host.url}/files/" in answer.text
        assert '"files/' not in answer.text
        task_id = json.loads(answer.text.partition("data:")[2].splitlines()[0])["result"]["task"]["id"]
        listed = await client.list(contextId="streamed", includeArtifacts=True)
        url = f"{host.url}/files/{task_id}/{NAME}"
        assert [t["artifacts"][0]["parts"][0]["url"] for t in listed["tasks"]] == [url]
        parked = await sent(http, contextId="parked", metadata={"ask": True})
        subscribed = await anext(client.subscribe(parked["id"]))
        canceled = await client.cancel(parked["id"])
        for raw in (subscribed.raw["task"], canceled.raw):
            assert raw["artifacts"][0]["parts"][0]["url"] == f"{host.url}/files/{parked['id']}/{NAME}"


@pytest.mark.parametrize(
    ("wanted", "status", "content", "told"),
    [
        ("bytes=0-99", 206, BIG[:100], f"bytes 0-99/{len(BIG)}"),
        ("bytes=300000-300009", 206, BIG[300000:300010], f"bytes 300000-300009/{len(BIG)}"),
        ("bytes=-7", 206, BIG[-7:], f"bytes {len(BIG) - 7}-{len(BIG) - 1}/{len(BIG)}"),
        (f"bytes={len(BIG)}-", 416, b"", f"bytes */{len(BIG)}"),
        ("bytes=0-1,5-6", 200, BIG, None),
    ],
)
async def test_ranges(http, wanted, status, content, told):
    """A download that broke off goes on; what cannot be had is 416 and says how much there is."""
    response = await http.get(await echoed(http), headers={"Range": wanted})
    assert (response.status_code, response.content) == (status, content)
    assert response.headers.get("content-range") == told


class Counting(MemoryStore):
    """Counts the bytes that have been read of contents."""

    read = 0

    async def stream(self, key, *, version=None):
        async for chunk in super().stream(key, version=version):
            self.read += len(chunk)
            yield chunk


async def test_a_short_range_does_not_read_it_all(tmp_path):
    """The first bytes of a long content cost no more of the bucket than those in its middle."""
    store, content = Counting(), bytes(8 * 1024**2)
    with serve_in_thread(store, agent=FILES, work_dir=tmp_path) as host:
        async with httpx.AsyncClient(base_url=host.url, timeout=30, trust_env=False) as http:
            url = await echoed(http, content)
            for wanted in ("bytes=0-0", "bytes=9-9"):
                store.read = 0
                assert (await http.get(url, headers={"Range": wanted})).content == b"\0"
                assert store.read < len(content)


async def test_conditions(http):
    """If-None-Match is 304; a range of another content (If-Range) is the whole of this one; HEAD has no body."""
    url = await echoed(http)
    assert (await http.get(url, headers={"If-None-Match": f'"other", W/"{NAME}"'})).status_code == 304
    assert (await http.get(url, headers={"If-None-Match": "*"})).status_code == 304
    assert (await http.get(url, headers={"Range": "bytes=0-1", "If-Range": '"other"'})).status_code == 200
    assert (await http.get(url, headers={"Range": "bytes=0-1", "If-Range": f'"{NAME}"'})).status_code == 206
    head = await http.head(url)
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(BIG)), b"")


@pytest.mark.parametrize(
    "kind", ["text/html", "image/svg+xml", "application/xhtml+xml", "text/javascript", "x\r\ny: z"]
)
async def test_nothing_that_a_browser_would_run(http, kind):
    """An agent's file is no page of this origin, whatever it says that it is."""
    response = await http.get(await echoed(http, BIG + kind.encode(), kind))
    assert response.headers["content-type"] == "application/octet-stream"
    assert "y" not in response.headers


async def test_files_are_their_owners(http):
    """Another owner gets 404, as for a task that is not there; nobody gets 401."""
    url = await echoed(http)
    assert (await http.get(url)).status_code == 200
    missing = url.replace(NAME, "0" * 64)
    answers = [await http.get(u, headers=BOB) for u in (url, missing)]
    assert [a.status_code for a in answers] == [404, 404]
    assert answers[0].content == answers[1].content
    assert (await http.get(url, headers={"Authorization": ""})).status_code == 401


async def test_a_tenants_files_are_reached_through_their_url(http):
    """The tenant is part of the address; without it, and with another one, there is nothing."""
    url = await echoed(http, tenant="t/1")
    assert parse_qs(urlsplit(url).query) == {"tenant": ["t/1"]}
    assert (await http.get(url)).content == BIG
    assert (await http.get(url.partition("?")[0])).status_code == 404
    assert (await http.get(url.replace("t%2F1", "t2"))).status_code == 404


@pytest.mark.parametrize("path", [f"x/{NAME}", "x/task.json", f"..%2F..%2Fx/{NAME}", f"%2e%2e/{NAME}", f"%0a/{NAME}"])
async def test_paths_that_name_nothing(http, path):
    """404, and no key outside of the task's files is ever looked at."""
    response = await http.get(f"/files/{path}")
    assert response.status_code == 404
    task = await sent(http)
    assert (await http.get(f"/files/{task['id']}/task.json")).status_code == 404
    assert (await http.get(f"/files/{task['id']}/..%2Ftask.json")).status_code == 404


async def test_a_bucket_that_does_not_answer_is_503(http, host):
    """The client may try again; nothing was promised yet."""
    url = await echoed(http)
    host.place.opened.fail("stream", "*/files/*")
    assert (await http.get(url)).status_code == 503
    assert (await http.get(url)).content == BIG
    host.place.opened.verify()


async def test_small_files_stay_in_the_task(http):
    """Up to the limit nothing changes."""
    task = await sent(http, b"x" * 1000)
    assert base64.b64decode(task["artifacts"][0]["parts"][0]["raw"]) == b"x" * 1000


async def test_agents_with_paths_of_their_own(tmp_path):
    """Several agents: each serves its files below its path, under the public URL that clients see."""
    agents = [{"name": "a", "agent": FILES}, {"name": "b", "agent": FILES}]
    with serve_in_thread(
        MemoryStore(), agents=agents, work_dir=tmp_path, public_url="https://agents.example.org/"
    ) as host:
        async with httpx.AsyncClient(base_url=host.url, trust_env=False, timeout=60) as http:
            body = {"message": message_10(BIG)}
            answer = await http.post("/a/message:send", json=body, headers={"A2A-Version": "1.0"})
            url = answer.json()["task"]["artifacts"][0]["parts"][0]["url"]
            assert url.startswith("https://agents.example.org/a/files/")
            path = urlsplit(url).path
            assert (await http.get(path)).content == BIG
            assert (await http.get(path.replace("/a/", "/b/"))).status_code == 404


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_notification_has_the_same_url(tmp_path, version):
    """What lies beside the task has an absolute URL there too, of its agent and with the caller's tenant."""
    agents = [{"name": "other", "agent": FILES}, {"name": "a", "agent": FILES}]
    settings = {"push_allowed_hosts": "127.0.0.1", "auth": "tokens", "tokens": TOKENS}
    with (
        contextlib.closing(Webhook()) as webhook,
        serve_in_thread(MemoryStore(), agents=agents, work_dir=tmp_path, **settings) as host,
    ):
        async with httpx.AsyncClient(base_url=host.url, headers=ALICE, trust_env=False, timeout=60) as http:
            if version == "1.0":
                config = {"taskPushNotificationConfig": {"url": webhook.url}}
                params = {"message": message_10(BIG, metadata={"ask": "with files"}), "tenant": "acme"}
                body = {"method": "SendMessage", "params": params | {"configuration": config}}
            else:
                raw = base64.b64encode(BIG).decode()
                parts = [{"kind": "text", "text": "?"}, {"kind": "file", "file": {"bytes": raw, "mimeType": "x/y"}}]
                message = {"kind": "message", "messageId": "m", "role": "user", "parts": parts}
                message["metadata"] = {"ask": "with files"}
                config = {"blocking": True, "pushNotificationConfig": {"url": webhook.url}}
                body = {"method": "message/send", "params": {"message": message, "configuration": config}}
            answer = await http.post("/a/", json={"jsonrpc": "2.0", "id": 1, **body}, headers={"A2A-Version": version})
            assert "result" in answer.json(), answer.text
            await until(lambda: webhook.received)
            part = webhook.received[0].told["status"]["message"]["parts"][-1]
            url = part["url"] if version == "1.0" else part["file"]["uri"]
            assert url.startswith(f"{host.url}/a/files/")
            assert (await http.get(url)).content == BIG


async def test_over_the_emulator(hosts, make_place, fresh):
    """The same over GCS: an object of its own, served whole and in part."""
    host = hosts(make_place("gcs"), agent=FILES)
    async with httpx.AsyncClient(base_url=host.url, timeout=30, trust_env=False) as http:
        url = await echoed(http, contextId=fresh)
        assert (await http.get(url)).content == BIG
        assert (await http.get(url, headers={"Range": "bytes=1000-1999"})).content == BIG[1000:2000]


async def test_a_command_agent_finds_large_files_in_its_inbox(tmp_path):
    """Programs find the files of the message of their turn, however large, and their own become URLs."""
    script = tmp_path / "copy.sh"
    script.write_text('#!/bin/sh\ncat >/dev/null\ncp "$A2A_INBOX"/* "$A2A_OUTBOX"/\n')
    script.chmod(0o755)
    with (
        contextlib.chdir(tmp_path),
        serve_in_thread(MemoryStore(), agent=f"command:{script}", work_dir=tmp_path / "w") as host,
    ):
        async with httpx.AsyncClient(base_url=host.url, timeout=30, trust_env=False) as http:
            task = await sent(http)
            (part,) = task["artifacts"][0]["parts"]
            assert part["filename"] == "big.png"
            assert (await http.get(part["url"])).content == BIG
