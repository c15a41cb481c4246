"""Where notifications may go: the public internet, over https, and what the operator lets through."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.host.push.addresses import PushUrlRefused, is_public, parse_target, permitted

PUBLIC = ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "::ffff:93.184.215.14", "64:ff9b::5db8:d70e"]
NOT_PUBLIC = [
    *("127.0.0.1", "127.255.0.9", "10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.1.1", "0.0.0.0", "0.1.2.3"),
    *("169.254.169.254", "100.64.0.1", "192.0.0.8", "198.18.0.1", "203.0.113.5", "224.0.0.1", "240.0.0.1"),
    *("255.255.255.255", "::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0.0.0.0", "::7f00:1", "64:ff9b::a9fe:a9fe"),
    *("2002:7f00:1::", "2002:a9fe:a9fe::1", "64:ff9b:1::5db8:d70e", "2001:0:5db8:d70e::1"),
    *("168.63.129.16", "::ffff:168.63.129.16"),
]


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses(text):
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_addresses_that_are_not_public(text):
    """Loopback, private, shared, link-local (where metadata servers are), multicast, reserved; also in disguise."""
    assert not is_public(ipaddress.ip_address(text))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_the_same_in_every_disguise(address):
    """IPv4-mapped, 6to4 and NAT64 forms end at the IPv4 address, so they are judged by it."""
    number = int(address)
    for disguise in (0xFFFF << 32 | number, 0x2002 << 112 | number << 80, 0x64FF9B << 96 | number):
        assert is_public(ipaddress.IPv6Address(disguise)) == is_public(address)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://hooks.example/", "https"),
        ("ftp://hooks.example/", "https"),
        ("//hooks.example/", "https"),
        ("https:///path", "https"),
        ("hooks", "https"),
        ("https://hooks.example:99999/", "cannot be read"),
        ("https://hooks.example:0/", "port 0"),
        ("https://[::1/", "cannot be read"),
        ("https://hooks.example/a b", "https"),
        ("https://hooks.example/\n", "https"),
        (f"https://{'a' * 64}.example/", "cannot be read"),
        ("https://alice:secret@hooks.example/", "credentials"),
        ("https://localhost/", "own network"),
        ("https://LocalHost./", "own network"),
        ("https://a.localhost/", "own network"),
        ("https://metadata.google.internal/", "own network"),
        ("https://printer.local/", "own network"),
    ],
)
def test_urls_that_are_refused_unresolved(url, why):
    with pytest.raises(PushUrlRefused, match=why):
        parse_target(url, ())


@pytest.mark.parametrize("url", ["http://hooks.example/", "https://localhost/", "https://10.0.0.1/"])
def test_a_refusal_names_the_setting_that_would_let_it_through(url):
    """Whoever reads it on their own machine knows what to do; for what no setting lets through it is not named."""
    with pytest.raises(PushUrlRefused, match="A2A_GCS_PUSH_ALLOWED_HOSTS"):
        permitted(parse_target(url, ()), ["10.0.0.1"])
    with pytest.raises(PushUrlRefused) as refused:
        parse_target("https://alice:secret@hooks.example/", ())
    assert "A2A_GCS" not in str(refused.value)


@pytest.mark.parametrize(
    ("pattern", "url", "allowed"),
    [
        ("127.0.0.1", "http://127.0.0.1:9000/", True),
        ("127.0.0.1:9000", "http://127.0.0.1:9000/", True),
        ("127.0.0.1:9000", "https://127.0.0.1:9001/", False),
        ("hooks.corp:443", "https://HOOKS.corp/", True),
        ("*.corp.example", "http://a.corp.example/", True),
        ("*.corp.example", "https://corp.example/", False),
        ("*.corp.example", "https://a.corp.example.evil.example/", False),
        ("[::1]:80", "http://[::1]/", True),
        ("::1", "http://[::1]:8080/", True),
        ("[a-z]", "https://b/", False),
        ("localhost", "http://localhost/", True),
    ],
)
def test_hosts_that_the_operator_allows(pattern, url, allowed):
    """By name or pattern, with or without a port; neither https nor a public address is asked of them."""
    try:
        target = parse_target(url, (pattern,))
    except PushUrlRefused:
        assert not allowed
        return
    assert target.allowed == allowed
    if allowed:
        assert permitted(target, ["10.0.0.1"]) == ["10.0.0.1"]


def test_one_private_address_refuses_a_name():
    """A name that has both could be sent to either."""
    target = parse_target("https://hooks.example/", ())
    assert permitted(target, PUBLIC[:2]) == PUBLIC[:2]
    with pytest.raises(PushUrlRefused, match="not on the public internet") as refused:
        permitted(target, [PUBLIC[0], "10.0.0.1"])
    assert "10.0.0.1" not in str(refused.value)
    with pytest.raises(PushUrlRefused, match="no address"):
        permitted(target, [])
