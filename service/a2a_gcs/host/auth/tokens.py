"""Static bearer tokens: names and tokens from a file or a secret.

    # one a line; the name is the owner
    alice:V7l0pZ...                     the token itself
    bob:sha256:9f86d081884c7d65...      or the SHA-256 of it, in hexadecimal

A name may have several tokens, so that one can be replaced without a gap.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import structlog

from a2a_gcs.clock import boottime
from a2a_gcs.errors import ConfigError
from a2a_gcs.host.auth.errors import Unauthenticated
from a2a_gcs.host.auth.principal import Principal

log = structlog.get_logger(__name__)

MIN_TOKEN_CHARS = 16
MAX_FILE_BYTES = 1024 * 1024
RELOAD_EVERY_SECONDS = 5.0
"""A change of the file is seen by the first request after this long."""

_NAME = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9._@+-]{0,99}")
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_DIGEST = re.compile(r"sha256:([0-9A-Fa-f]{64})")


class Entry(NamedTuple):
    """A token as it is kept: its owner, and the digest that the token is compared by."""

    name: str
    digest: bytes


def parse_tokens(text: str) -> tuple[Entry, ...]:
    """The entries of a list of tokens; blank lines and lines that begin with # are skipped. Pure.

    Raises:
        ConfigError: A line is wrong, or one token has two owners; the message names lines, never tokens.
    """
    entries: dict[bytes, Entry] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        entry = _entry(line.strip(), number)
        known = entries.setdefault(entry.digest, entry)
        if known.name != entry.name:
            raise ConfigError(f"tokens, line {number}: {entry.name} has the same token as {known.name}")
    return tuple(entries.values())


def _entry(line: str, number: int) -> Entry:
    name, colon, secret = line.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise ConfigError(f"tokens, line {number}: write name:token; names hold letters, digits and . _ @ + -")
    if digest := _DIGEST.fullmatch(secret):
        return Entry(name, bytes.fromhex(digest[1]))
    if not _TOKEN.fullmatch(secret):
        raise ConfigError(f"tokens, line {number}: tokens hold letters, digits and - . _ ~ + / (RFC 6750)")
    if len(secret) < MIN_TOKEN_CHARS:
        raise ConfigError(
            f"tokens, line {number}: a token of fewer than {MIN_TOKEN_CHARS} characters can be guessed; "
            "make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return Entry(name, _digest(secret))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class StaticTokens:
    """Checks tokens against a list that is fixed."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = entries

    async def check(self, token: str) -> Principal:
        """The owner of a token; every entry is compared, in constant time. Raises Unauthenticated."""
        digest, found = _digest(token), ""
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest):
                found = entry.name
        if not found:
            raise Unauthenticated("the token is not valid", detail="no such token")
        return Principal(found)

    async def aclose(self) -> None:
        """Nothing is open."""


class TokensFile(StaticTokens):
    """Checks tokens against a file, which is read again while it is in use.

    The content counts, not the time of the change: a mounted secret keeps its times. An emptied file
    accepts nobody. One that cannot be read, or has a wrong line, leaves the last good list in force, and
    an error in the log.

    Args:
        path: The file.
        now: Seconds on a clock that only goes forward.

    Raises:
        ConfigError: The file cannot be read at the start, has a wrong line, or no token.
    """

    def __init__(self, path: Path, now: Callable[[], float] = boottime) -> None:
        self._path = path
        self._now = now
        self._lock = asyncio.Lock()
        self._text = _read(path)
        self._read_at = now()
        super().__init__(parse_tokens(self._text))
        if not self._entries:
            raise ConfigError(f"{path} holds no token; write one a line, as name:token")

    async def check(self, token: str) -> Principal:
        """As for a fixed list, after a look at the file if the last was long ago."""
        if self._now() - self._read_at >= RELOAD_EVERY_SECONDS:
            async with self._lock:
                if self._now() - self._read_at >= RELOAD_EVERY_SECONDS:
                    await self._reload()
        return await super().check(token)

    async def _reload(self) -> None:
        try:
            text = await asyncio.to_thread(_read, self._path)
            if text != self._text:
                self._entries = parse_tokens(text)
                log.info("tokens.reloaded", tokens=len(self._entries))
                self._text = text
        except ConfigError as e:
            log.error("tokens.reload_failed", error=str(e))  # noqa: TRY400 - the message says all
        finally:
            self._read_at = self._now()


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            body = file.read(MAX_FILE_BYTES + 1)
    except OSError as e:
        raise ConfigError(f"tokens file {path} cannot be read: {e.strerror}") from e
    if len(body) > MAX_FILE_BYTES:
        raise ConfigError(f"tokens file {path} is larger than {MAX_FILE_BYTES} bytes")
    try:
        return body.decode()
    except UnicodeDecodeError as e:
        raise ConfigError(f"tokens file {path} is not UTF-8 text") from e
