"""Where a notification may go. Pure: names are resolved elsewhere.

The host sends requests on behalf of strangers, so it must not be talked into reaching what
only it can reach: its machine, its network, and the metadata server that hands out its credentials.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from a2a_gcs.errors import A2AGcsError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_V6 = tuple(map(ipaddress.IPv6Network, ("::/96", "64:ff9b:1::/48", "2001::/32")))
"""IPv4-compatible, local NAT64 and Teredo: what is behind them is not ours to tell."""
_SPECIAL_V4 = ipaddress.IPv4Network("192.0.0.0/24")
"""For protocols (RFC 6890), and a cloud's metadata server; some releases of Python hold parts of it for global."""
_PLATFORM_V4 = ipaddress.IPv4Address("168.63.129.16")
"""Public by its number, and on every virtual machine of Azure the host's own platform, with its credentials."""
_INSIDE = frozenset({"localhost", "metadata", "metadata.google.internal"})
_INSIDE_SUFFIXES = (".localhost", ".internal", ".local")
_PORTS = {"https": 443, "http": 80}
_LET_THROUGH = "; who runs this host can let named hosts through (A2A_GCS_PUSH_ALLOWED_HOSTS)"


class PushUrlRefused(A2AGcsError):
    """A URL that no notification is sent to; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL points.

    Attributes:
        url: As it was given.
        scheme: `https`, or `http`.
        host: Name or address, in lower case, without brackets or a dot at the end.
        port: The port, also where the URL names none.
        allowed: The operator lets it through: any address, and http.
    """

    url: str
    scheme: str
    host: str
    port: int
    allowed: bool


def parse_target(url: str, allowed_hosts: Sequence[str]) -> Target:
    """Reads a URL and applies every rule that needs no resolving.

    Args:
        url: As the client gave it.
        allowed_hosts: Names, addresses or patterns (`*.corp.example`), each alone or with `:port`.

    Raises:
        PushUrlRefused: No notification is sent there.
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme, 0)
        host.encode("idna")
    except ValueError as e:
        raise PushUrlRefused(f"the push URL cannot be read: {e}") from e
    if parts.scheme not in _PORTS or not host or any(not c.isprintable() or c == " " for c in url):
        raise PushUrlRefused("the push URL has to be an absolute https:// URL")
    if parts.port == 0:
        raise PushUrlRefused("the push URL names port 0, which nobody listens on")
    if parts.username is not None or parts.password is not None:
        raise PushUrlRefused("the push URL holds credentials; give them as authentication instead")
    allowed = _is_allowed(host, port, allowed_hosts)
    if parts.scheme != "https" and not allowed:
        raise PushUrlRefused(f"the push URL has to begin with https://{_LET_THROUGH}")
    if not allowed and (host in _INSIDE or host.endswith(_INSIDE_SUFFIXES)):
        raise PushUrlRefused(f"the push URL points to {host}, inside of the host's own network{_LET_THROUGH}")
    return Target(url, parts.scheme, host, port, allowed)


def permitted(target: Target, addresses: Sequence[str]) -> list[str]:
    """The addresses that a request to a target may be sent to: all that its name resolved to, or none.

    What is refused is not named: callers need not learn what names mean inside of the host's network.

    Raises:
        PushUrlRefused: There are none, or one of them is not on the public internet.
    """
    if not addresses:
        raise PushUrlRefused(f"the push URL's host {target.host} has no address")
    for text in addresses:
        if not target.allowed and not is_public(ipaddress.ip_address(text.partition("%")[0])):
            raise PushUrlRefused(
                f"the push URL's host {target.host} is not on the public internet: its address is private, "
                f"loopback, link-local or reserved{_LET_THROUGH}"
            )
    return list(addresses)


def is_public(address: Address) -> bool:
    """Whether an address is a public unicast one, also when an IPv4 address hides in it."""
    if isinstance(address, ipaddress.IPv6Address):
        hidden = _hidden(address)
        if hidden is not None:
            return is_public(hidden)
        if address.is_site_local or any(address in network for network in _LOCAL_V6):
            return False
    elif address in _SPECIAL_V4 or address == _PLATFORM_V4:
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _hidden(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that a packet to this one ends at: IPv4-mapped, 6to4, or NAT64 (RFC 6052)."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _is_allowed(host: str, port: int, patterns: Sequence[str]) -> bool:
    named = {host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}"}
    return any(fnmatchcase(name, pattern.lower()) for pattern in map(_literal, patterns) for name in named)


def _literal(pattern: str) -> str:
    """A pattern in which brackets are those of an IPv6 address, and no set of characters."""
    return pattern.replace("[", "[[]")
