"""One notification as one request: to the address that was checked, under the name that was given, and nowhere else."""

import contextlib
import datetime as dt
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from a2a_gcs.host.push.addresses import PushUrlRefused
from a2a_gcs.host.push.sender import DeliveryFailed, Sender
from tests.support.webhook import Webhook

ID = {"X-A2A-Delivery-Id": "d", "Content-Type": "application/json"}
BODY = b'{"statusUpdate": {}}'
PUBLIC = "93.184.215.14"


class Resolver:
    """Answers with one list of addresses after the other; the last one stays."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, host, port):
        self.asked.append((host, port))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
async def make_sender():
    async with contextlib.AsyncExitStack() as stack:

        def make(*allowed, **options):
            sender = Sender(allowed, **options)
            stack.push_async_callback(sender.aclose)
            return sender

        yield make


@pytest.fixture
def webhook():
    with contextlib.closing(Webhook()) as webhook:
        yield webhook


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Contexts of a server that is hooks.example, and of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hooks.example")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("hooks.example")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("certificate") / "server.pem"
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(made.public_bytes(pem) + secret)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    names = []
    server.sni_callback = lambda _socket, name, _context: names.append(name)
    return server, ssl.create_default_context(cafile=path), names


async def test_a_name_that_changes_its_address_reaches_nothing(make_sender, webhook):
    """DNS rebinding: public when it is registered, loopback when it is delivered; nothing arrives."""
    resolver = Resolver([PUBLIC], ["127.0.0.1"])
    sender = make_sender(resolve=resolver)
    url = f"https://rebound.example:{webhook.port}/"
    await sender.check(url)
    with pytest.raises(PushUrlRefused, match="not on the public internet"):
        await sender.post(url, ID, BODY)
    assert webhook.received == []
    assert resolver.asked == [("rebound.example", webhook.port)] * 2


async def test_the_connection_goes_to_the_address_that_was_checked(make_sender, webhook):
    """The name is resolved once, and never by anybody else: this one exists nowhere."""
    resolver = Resolver(["127.0.0.1"], [])
    sender = make_sender("nowhere.invalid", resolve=resolver)
    await sender.post(f"http://nowhere.invalid:{webhook.port}/hook?x=1#part", ID, BODY)
    [one] = webhook.received
    assert (one.path, one.headers["host"]) == ("/hook?x=1", f"nowhere.invalid:{webhook.port}")
    assert len(resolver.asked) == 1


async def test_tls_is_with_the_name_and_not_with_the_address(make_sender, certificate):
    """The server is asked for, and has to prove, the name in the URL; another server's certificate is refused."""
    server, client, names = certificate
    with contextlib.closing(Webhook(ssl=server)) as webhook:
        resolver = Resolver(["127.0.0.1"])
        sender = make_sender("*.example", resolve=resolver, verify=client)
        await sender.post(f"https://hooks.example:{webhook.port}/", ID, BODY)
        assert (names[-1], webhook.received[0].headers["host"]) == ("hooks.example", f"hooks.example:{webhook.port}")
        with pytest.raises(DeliveryFailed, match=r"(?i)certificate"):
            await sender.post(f"https://other.example:{webhook.port}/", ID, BODY)
    assert len(webhook.received) == 1


async def test_the_next_address_is_tried_where_nobody_listens(make_sender, webhook):
    """A name with several addresses, of which the first refuses."""
    sender = make_sender("hooks.example", resolve=Resolver(["127.0.0.2", "127.0.0.1"]))
    await sender.post(f"http://hooks.example:{webhook.port}/", ID, BODY)
    assert len(webhook.received) == 1


@pytest.mark.parametrize("status", [301, 307, 400, 404, 410, 429, 500])
async def test_anything_but_success_is_a_failure(make_sender, webhook, status):
    """A redirect as well: it is not followed."""
    webhook.answers = [status]
    sender = make_sender("127.0.0.1")
    with pytest.raises(DeliveryFailed, match=str(status)):
        await sender.post(webhook.url, ID, BODY)
    assert [one.path for one in webhook.received] == ["/"]


async def test_a_receiver_that_does_not_answer(make_sender, webhook):
    """Is given up after the time that is set, and one that does not listen at once."""
    webhook.hold()
    with pytest.raises(DeliveryFailed, match=r"0\.2 s"):
        await make_sender("127.0.0.1", timeout=0.2).post(webhook.url, ID, BODY)
    webhook.close()
    with pytest.raises(DeliveryFailed):
        await make_sender("127.0.0.1").post(webhook.url, ID, BODY)


async def test_proxies_of_the_environment_are_not_used(make_sender, webhook, monkeypatch):
    """A proxy would resolve the name by itself."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    await make_sender("127.0.0.1").post(webhook.url, ID, BODY)
    assert len(webhook.received) == 1


@pytest.mark.parametrize(
    "url", ["https://[2606:2800:21f::1]x/", "https://\U0001f600.example/", "https://\u24d7ooks.example/"]
)
@pytest.mark.parametrize("allowed", [(), ("*",)])
async def test_what_could_never_be_sent_is_refused_at_once(make_sender, url, allowed):
    """What the resolver makes something of, and the HTTP client does not: its receiver would never hear anything."""
    sender = make_sender(*allowed, resolve=Resolver([PUBLIC]))
    with pytest.raises(PushUrlRefused, match="cannot be read"):
        await sender.check(url)
