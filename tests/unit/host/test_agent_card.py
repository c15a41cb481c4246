"""The card: its ETag and age, its signature, the extension it declares, and where it lists gRPC."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
import pytest
from a2a.client import A2ACardResolver
from a2a.types.a2a_pb2 import AgentCard
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from structlog.testing import capture_logs

from a2a_gcs.errors import ConfigError
from a2a_gcs.host.agent_card import LINEAR_EXECUTION, interfaces, list_grpc
from a2a_gcs.host.app import create_app
from a2a_gcs.host.card_signing import card_signer
from a2a_gcs.host.settings import Settings

PATH = "/.well-known/agent-card.json"


@pytest.fixture
async def http_of():
    """Clients of applications whose lifespan has begun."""
    opened = []

    async def http(**settings):
        app = create_app(Settings(**settings))
        lifespan = app.router.lifespan_context(app)
        await lifespan.__aenter__()
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host")
        opened.append((lifespan, client))
        return client

    yield http
    for lifespan, client in opened:
        await client.aclose()
        await lifespan.__aexit__(None, None, None)


def pem(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


async def test_several_agents_are_called_as_their_tables_say(http_of):
    """One that does not describe itself has the name of its table, and alone that of what it is."""
    agents = [{"name": "writer", "agent": "demo"}, {"name": "critic", "agent": "demo"}]
    http = await http_of(agents=agents)
    assert [(await http.get(f"/{name}{PATH}")).json()["name"] for name in ("writer", "critic")] == ["writer", "critic"]
    assert (await (await http_of()).get(PATH)).json()["name"] == "a2a-gcs demo"


async def test_a_card_that_has_not_changed_is_not_sent_again(http_of):
    """Its ETag answers 304; Cache-Control names the age that is set, Last-Modified since when the card is served."""
    http = await http_of(card_max_age_seconds=7)
    first = await http.get(PATH)
    again = await http.get(PATH, headers={"If-None-Match": first.headers["etag"]})
    other = await http.get(PATH, headers={"If-None-Match": '"something else"'})
    assert (first.status_code, again.status_code, other.status_code) == (200, 304, 200)
    assert again.content == b""
    assert first.headers["last-modified"] == again.headers["last-modified"]
    assert parsedate_to_datetime(first.headers["last-modified"]) <= datetime.now(UTC)
    assert first.headers["cache-control"] == again.headers["cache-control"] == "public, max-age=7"


@pytest.mark.parametrize(("host", "named"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("0:0:0:0:0:0:0:0", "[::1]")])
async def test_a_host_on_every_address_names_one_that_can_be_dialled(http_of, host, named):
    """Loopback, for every binding, and a warning; not the name it was asked for by: the card is signed, and cached."""
    with capture_logs() as logs:
        http = await http_of(host=host, allow_unauthenticated=True, advertise_grpc=True, grpc_port=0)
    card = (await http.get(PATH, headers={"Host": "evil.example"})).json()
    urls = {one["protocolBinding"]: one["url"] for one in card["supportedInterfaces"]}
    grpc = urls.pop("GRPC").rpartition(":")[0]
    assert (set(urls.values()), grpc) == ({f"http://{named}:8080/", f"http://{named}:8080"}, named)
    assert [line["url"] for line in logs if line["event"] == "card.names_this_machine"] == [f"http://{named}:8080"]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"host": "192.0.2.7"}, "http://192.0.2.7:8080"),
        ({"host": "agents.example.org"}, "http://agents.example.org:8080"),
        ({"host": "0.0.0.0", "public_url": "https://agents.example.org/"}, "https://agents.example.org"),
    ],
)
async def test_an_address_that_was_given_is_named(http_of, settings, named):
    """As it is, and then there is nothing to warn of."""
    with capture_logs() as logs:
        http = await http_of(allow_unauthenticated=True, **settings)
    card = (await http.get(PATH)).json()
    assert {one["url"].rstrip("/") for one in card["supportedInterfaces"]} == {named}
    assert [line for line in logs if line["event"].startswith("card.")] == []


async def test_the_card_declares_linear_execution(http_of):
    """As an extension that no client has to know."""
    card = (await (await http_of()).get(PATH)).json()
    (extension,) = card["capabilities"]["extensions"]
    assert extension["uri"] == LINEAR_EXECUTION
    assert "CONTEXT_BUSY" in extension["description"]
    assert not extension.get("required")


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (rsa.generate_private_key(65537, 2048), "RS256"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
    ids=["ec", "rsa", "ed25519"],
)
async def test_a_signed_card_verifies_as_served(http_of, tmp_path, key, algorithm):
    """With the SDK's resolver and verifier, over what came by HTTP; a changed card does not verify."""
    (tmp_path / "key.pem").write_bytes(pem(key))
    http = await http_of(card_signing_key=tmp_path / "key.pem", card_signing_key_id="k1")
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    asked = []

    def provide(kid, jku):
        asked.append((kid, jku))
        return public

    verify = create_signature_verifier(provide, [algorithm])
    card = await A2ACardResolver(http, "http://host").get_agent_card(signature_verifier=verify)
    assert asked == [("k1", None)]
    card.name = "somebody else"
    with pytest.raises(InvalidSignaturesError):
        verify(card)


def test_a_key_without_a_name_is_named_for_itself(tmp_path):
    """The same key has the same id; another key another."""
    ids = []
    for key in (ed25519.Ed25519PrivateKey.generate(), ed25519.Ed25519PrivateKey.generate()):
        (tmp_path / "key.pem").write_bytes(pem(key))
        signed = [card_signer(tmp_path / "key.pem", None)(AgentCard(name="x")) for _ in range(2)]
        first, second = (card.signatures[0].protected for card in signed)
        assert first == second
        ids.append(first)
    assert ids[0] != ids[1]


@pytest.mark.parametrize("content", [None, b"no key", pem(dsa.generate_private_key(1024))], ids=["none", "text", "dsa"])
def test_a_key_that_cannot_sign_stops_the_start(tmp_path, content):
    """The setting and the file are named, before anything listens."""
    file = tmp_path / "key.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"card_signing_key .*key\.pem"):
        create_app(Settings(card_signing_key=file))


@pytest.mark.parametrize(
    ("origin", "alone", "url"),
    [
        ("http://127.0.0.1:8080", False, "127.0.0.1:50051"),
        ("https://agent.example", False, "agent.example:50051"),
        ("https://agent.example", True, "agent.example:443"),
        ("http://[::1]:9000", True, "[::1]:9000"),
    ],
)
def test_grpc_is_listed_as_clients_dial_it(origin, alone, url):
    """host:port without a scheme; alone on the port it is at the origin's own, and nothing else is listed."""
    card = AgentCard(supported_interfaces=interfaces(origin))
    list_grpc(card, origin, 50051, alone=alone)
    listed = [(i.url, i.protocol_version) for i in card.supported_interfaces if i.protocol_binding == "GRPC"]
    assert listed == [(url, "1.0"), (url, "0.3")]
    assert len(card.supported_interfaces) == (2 if alone else 6)


@pytest.mark.parametrize("settings", [{"grpc_only": True, "grpc_port": 1}, {"advertise_grpc": True}])
def test_settings_of_grpc_that_contradict_each_other_are_refused(settings):
    """Both ways at once, and listing what is not served."""
    with pytest.raises(ValueError, match="grpc"):
        Settings(**settings)
