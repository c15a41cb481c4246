"""Tokens: refreshed ahead of time, in a thread, once for all; never anonymous by accident."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import google.auth
import pytest
from google.auth.credentials import Credentials
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError

from a2a_gcs.errors import PermissionDenied, Unavailable
from a2a_gcs.objectstore import GCSStore
from a2a_gcs.objectstore.gcs_auth import TokenKeeper


class FakeCredentials(Credentials):
    """Credentials whose refresh waits to be let go and notes the thread that it ran in."""

    def __init__(self, seconds=None, error=None):
        super().__init__()
        self.threads = []
        self.loop = asyncio.get_running_loop()
        self.begun = asyncio.Event()
        self.go = threading.Event()
        self.error = error
        if seconds is not None:
            self.token = "old"
            self.expiry = datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=seconds)

    def refresh(self, request):
        self.threads.append(threading.current_thread())
        self.loop.call_soon_threadsafe(self.begun.set)
        assert self.go.wait(10)
        if self.error:
            raise self.error
        self.token = "new"
        self.expiry = datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=1)


async def test_a_refresh_does_not_hold_up_the_loop():
    """Without a token requests wait for one refresh in a thread, while the loop goes on."""
    credentials = FakeCredentials()
    keeper = TokenKeeper(credentials)
    waiting = [asyncio.create_task(keeper.headers("k")) for _ in range(5)]
    await credentials.begun.wait()  # the loop turns while the refresh hangs
    assert not any(task.done() for task in waiting)
    credentials.go.set()
    answers = await asyncio.gather(*waiting)
    assert {answer["authorization"] for answer in answers} == {"Bearer new"}
    assert len(credentials.threads) == 1
    assert credentials.threads[0] is not threading.main_thread()


async def test_the_next_token_is_fetched_before_the_old_one_ends():
    """Near its end a token still serves, and the next comes in the background."""
    credentials = FakeCredentials(seconds=280)
    keeper = TokenKeeper(credentials)
    assert (await keeper.headers("k"))["authorization"] == "Bearer old"
    assert (await keeper.headers("k"))["authorization"] == "Bearer old"
    credentials.go.set()
    await keeper.close()
    assert (await keeper.headers("k"))["authorization"] == "Bearer new"
    assert len(credentials.threads) == 1


async def test_a_fresh_token_is_left_alone():
    """No refresh while there is an hour left."""
    credentials = FakeCredentials(seconds=3600)
    assert (await TokenKeeper(credentials).headers("k"))["authorization"] == "Bearer old"
    assert credentials.threads == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RefreshError("revoked"), PermissionDenied),
        (RefreshError("busy", retryable=True), Unavailable),
        (TransportError("no route"), Unavailable),
    ],
)
async def test_a_failed_refresh_is_of_the_closed_set(error, expected):
    """Revoked credentials are PermissionDenied, an unreachable token server is Unavailable; nothing was sent."""
    credentials = FakeCredentials(error=error)
    credentials.go.set()
    async with GCSStore("bucket", credentials=credentials) as store:
        with pytest.raises(expected) as caught:
            await store.head("k")
    assert type(caught.value) is expected
    assert (caught.value.key, caught.value.cause, caught.value.ambiguous) == ("k", error, False)


async def test_no_credentials_are_an_error_and_not_anonymous(monkeypatch):
    """Where gcsfs would silently go on without a token, the store says PermissionDenied."""

    def none(**_):
        raise DefaultCredentialsError("none found")

    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setattr(google.auth, "default", none)
    async with GCSStore("bucket") as store:
        with pytest.raises(PermissionDenied):
            await store.head("k")
